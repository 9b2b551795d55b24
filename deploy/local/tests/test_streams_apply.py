"""What differs between a wanted and a found configuration, field by field."""

from __future__ import annotations

import pytest
from forebay.local.streams_apply import compare


@pytest.mark.parametrize(
    ("wanted", "found", "lines"),
    [
        pytest.param({"max_age": 0}, {}, (), id="what the server leaves out is zero"),
        pytest.param({"deny_purge": False}, {}, (), id="or false"),
        pytest.param({"deny_purge": True}, {}, ("deny_purge: is None, should be True",), id="a missing true differs"),
        pytest.param({"a": 1, "b": 2}, {"b": 3, "a": 0}, ("a: is 0, should be 1", "b: is 3, should be 2"), id="sorted"),
        pytest.param({"subjects": ["fb.>"]}, {"subjects": ["fb.>"], "extra": 1}, (), id="more is not different"),
    ],
)
def test_compare(wanted: dict[str, object], found: dict[str, object], lines: tuple[str, ...]) -> None:
    """One line per field, and none for what is only the server's way to say zero."""
    assert compare(wanted, found) == lines
