"""One message has one time, whichever way it reaches the reader."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from forebay.runtime.log import delivered_time, stored_time
from hypothesis import given
from hypothesis import strategies as st

MOMENT = datetime(2026, 11, 29, 18, 39, 32, tzinfo=UTC)


@given(st.integers(0, 999_999_999))
def test_delivered_and_read_are_the_same_moment(nanoseconds: int) -> None:
    """The acknowledgement subject and the direct answer carry the same nanoseconds in two forms."""
    count = int(MOMENT.timestamp()) * 1_000_000_000 + nanoseconds
    text = f"2026-11-29T18:39:32.{nanoseconds:09d}Z".rstrip("Z").rstrip("0").rstrip(".") + "Z"
    short = f"$JS.ACK.FOREBAY.bridge.1.7.7.{count}.0"
    long = f"$JS.ACK._.hash.FOREBAY.bridge.1.7.7.{count}.0.token"
    assert delivered_time(short) == delivered_time(long) == stored_time(text)


@pytest.mark.parametrize("text", ["2026-11-29T18:39:32Z", "2026-11-29T18:39:32.000000000Z"])
def test_a_whole_second_has_no_fraction(text: str) -> None:
    """The server leaves trailing zeros away."""
    assert stored_time(text) == MOMENT
