"""Amounts as people and Kubernetes write them."""

from __future__ import annotations

import contextlib
import re

import pytest
from forebay.contracts.quantities import (
    QuantityError,
    parse_bytes,
    parse_cpu,
    show_bytes_quantity,
    show_cpu_quantity,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "count"),
    [("4Gi", 4 << 30), ("4G", 4 * 10**9), ("500M", 500_000_000), ("1.5Ki", 1536), ("1024", 1024), (" 1k ", 1000)],
)
def test_bytes_are_those_of_kubernetes(text: str, count: int) -> None:
    """G is a thousand millions, Gi is 2^30; a plain number is bytes."""
    assert parse_bytes(text) == count


@pytest.mark.parametrize(("text", "cpus"), [("500m", 0.5), ("2", 2), ("1.5", 1.5), ("0.0001", 0.001)])
def test_processors(text: str, cpus: float) -> None:
    """A thousandth is the smallest part; less counts as one."""
    assert parse_cpu(text) == cpus


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4GB", "'4GB': the unit 'GB' is unknown; write 'GB' as 'G'"),
        ("500m", "'m' is a thousandth here"),
        ("lots", "is no amount"),
        ("-1Gi", "is no amount"),
        ("1e3", "is no amount"),
        ("", "is no amount"),
        ("٤Gi", "is no amount"),
        ("99999999999Pi", "more than any machine has"),
    ],
)
def test_what_is_no_amount_says_what_to_write(text: str, hint: str) -> None:
    """The text is named, and the unit that was probably meant."""
    with pytest.raises(QuantityError, match=re.escape(hint)):
        parse_bytes(text)


@given(st.integers(min_value=1, max_value=2**62))
def test_bytes_survive_being_shown(count: int) -> None:
    """The shortest text means exactly the same number."""
    assert parse_bytes(show_bytes_quantity(count)) == count


@given(st.integers(min_value=1, max_value=10**7))
def test_processors_survive_being_shown(thousandths: int) -> None:
    """Also where a float is not exact."""
    cpus = thousandths / 1000
    assert parse_cpu(show_cpu_quantity(cpus)) == cpus


@given(st.text(max_size=40))
def test_any_text_is_an_amount_or_refused(text: str) -> None:
    """Nothing else is ever raised."""
    for parse in (parse_bytes, parse_cpu):
        with contextlib.suppress(QuantityError):
            assert parse(text) >= 0
