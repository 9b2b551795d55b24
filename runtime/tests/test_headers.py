"""Header lines are read exactly as nats-py reads them."""

from __future__ import annotations

from forebay.runtime.headers import parse_header_lines, speed_up
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

LINES = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.tuples(st.sampled_from([b"ce-id", b" a ", b"a b", b"", b"\xff", b"x\x1cy"]), st.binary(max_size=12)).map(
            b":".join
        ),
    ),
    max_size=6,
)


@given(LINES)
def test_same_as_the_library(lines: list[bytes]) -> None:
    """Whatever the bytes are, the result is that of nats-py."""
    raw = b"\r\n".join(lines) + b"\r\n\r\n"
    assert parse_header_lines(raw) == Client._parse_header_lines(raw)


def test_a_client_uses_it() -> None:
    """The step that is replaced is still there in the version that is installed."""
    client = Client()
    speed_up(client)
    assert client._parse_header_lines(b"a: b\r\n\r\n") == {"a": "b"}
    assert client._parse_header_lines is parse_header_lines
