"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 message`, `3 messages`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
