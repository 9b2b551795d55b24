"""What all commands print alike: JSON or text, sizes, times, states.

Everything is written by `forebay.runtime.terminal`, where text from outside is made safe.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.markup import escape

from forebay.runtime.terminal import Terminal, console, plain_table, print_document, print_json, print_line

__all__ = [
    "AsJson", "Project", "Terminal", "ago", "coloured", "console", "day", "errors", "moment", "plain_table", "print_document",
    "print_json", "print_line", "seconds", "size",
]  # fmt: skip

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Project = Annotated[str | None, typer.Option("--project", "-p", help="The project; default: the first one here.")]

_COLOURS = {
    "SUCCEEDED": "green", "RUNNING": "cyan", "QUEUED": "yellow", "CREATED": "yellow", "FAILED": "red", "STOPPED": "yellow",
    "CANCELLED": "magenta", "True": "green", "False": "red", "Unknown": "yellow", "ACCEPTED": "green",
    "REJECTED": "red", "HELD": "magenta", "COMMITTED": "green", "REFUSED": "red", "complete": "green", "corrupt": "red",
}  # fmt: skip


def errors() -> Terminal:
    """Progress and side remarks, on standard error."""
    return console(stderr=True)


def coloured(state: str | None) -> str:
    """A state word in its colour."""
    text = escape(str(state or "-"))
    colour = _COLOURS.get(str(state))
    return f"[{colour}]{text}[/]" if colour else text


def size(count: float | None) -> str:
    """`6.9 MB`."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return "-"


def seconds(count: float) -> str:
    """`41 s`, `3 min 5 s`."""
    if count < 10:
        return f"{count:.1f} s"
    minutes, rest = divmod(round(count), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def moment(value: str | None) -> str:
    """A time stamp as local wall clock."""
    if not value:
        return "-"
    return datetime.fromisoformat(value).astimezone().strftime("%H:%M:%S")


def day(value: str | None) -> str:
    """A time stamp with its date, as local wall clock."""
    if not value:
        return "-"
    return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M")


def ago(value: str) -> str:
    """How long ago a time stamp was."""
    return seconds(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(value)).total_seconds()))
