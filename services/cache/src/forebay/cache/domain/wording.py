"""Numbers as people read them, for the messages of events."""

from __future__ import annotations

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def show_bytes(count: float) -> str:
    """`41.2 MB`; decimal units, as disks are sold."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {_UNITS[unit]}"


def show_share(part: int, whole: int) -> str:
    """`41 %`; never 100 % before it is all, never 0 % once it is something."""
    if whole <= 0 or part >= whole:
        return "100 %"
    percent = int(100 * part / whole)
    return "under 1 %" if percent == 0 and part > 0 else f"{percent} %"
