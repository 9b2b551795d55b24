"""What all commands print alike: JSON or text, sizes, times, states.

Rich colours a terminal and prints plain text into a pipe.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Project = Annotated[str | None, typer.Option("--project", "-p", help="The project; default: the first one here.")]

_PIPE_WIDTH = 150
_COLOURS = {
    "SUCCEEDED": "green", "RUNNING": "cyan", "QUEUED": "yellow", "CREATED": "yellow", "FAILED": "red",
    "CANCELLED": "magenta", "True": "green", "False": "red", "Unknown": "yellow", "ACCEPTED": "green",
    "REJECTED": "red", "HELD": "magenta", "COMMITTED": "green", "REFUSED": "red", "complete": "green", "corrupt": "red",
}  # fmt: skip


def console() -> Console:
    """Text for people, on standard output; a pipe has no width of its own and gets a wide one."""
    made = Console(soft_wrap=True)
    if not made.is_terminal:
        made.width = max(made.width, _PIPE_WIDTH)
    return made


def errors() -> Console:
    """Progress and side remarks, on standard error."""
    return Console(stderr=True, soft_wrap=True)


def print_json(value: Any) -> None:
    print(json.dumps(value, default=str, ensure_ascii=False))


def coloured(state: str | None) -> str:
    """A state word in its colour."""
    text = escape(str(state or "-"))
    colour = _COLOURS.get(str(state))
    return f"[{colour}]{text}[/]" if colour else text


def plain_table(*headers: str) -> Table:
    return Table(*headers, box=None, pad_edge=False, show_edge=False, header_style="bold")


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


def ago(value: str) -> str:
    """How long ago a time stamp was."""
    return seconds(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(value)).total_seconds()))
