"""JuiceFS's list of what to warm: one `path` or `path [start-end;start-end]` per line, the end excluded.

JuiceFS reports a malformed line, skips it and succeeds, so that a part stays cold. Here a
list is checked before anything is done with it, and written so that it reads back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from forebay.cache.domain.plan import ByteRange, PlannedFile, merge_ranges, range_bytes

_WITH_RANGES = re.compile(r"(.*\S) \[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,19})-(\d{1,19})")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmLine:
    """One good line."""

    path: str
    ranges: tuple[ByteRange, ...] | None
    """Merged; None: the whole file."""

    @property
    def bytes(self) -> int | None:
        return None if self.ranges is None else range_bytes(self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadLine:
    """One line that nobody can warm, and why."""

    number: int
    reason: str


def write_line(path: str, file: PlannedFile) -> str:
    """The line of one planned file; raises `ValueError` for a path that no line can name."""
    if "\n" in path or "\r" in path or path != path.strip():
        msg = f"{path!r} cannot stand in a list with one path per line; rename the file"
        raise ValueError(msg)
    spans = file.spans if file.ranges is None and path.endswith("]") and file.size else file.ranges
    if spans is None:
        return path
    return f"{path} [{';'.join(f'{start}-{end}' for start, end in spans)}]"


def read_list(lines: Iterable[str]) -> tuple[list[WarmLine], list[BadLine]]:
    """Good and bad lines of a list. With one bad line the list must not be used."""
    good: list[WarmLine] = []
    bad: list[BadLine] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        try:
            good.append(_read(text))
        except ValueError as error:
            bad.append(BadLine(number=number, reason=str(error)))
    return good, bad


def _read(text: str) -> WarmLine:
    match = _WITH_RANGES.fullmatch(text)
    if match is None:
        if text.startswith("[") or " [" in text:
            msg = f"{text!r} has brackets that are no list of ranges after a path"
            raise ValueError(msg)
        return WarmLine(path=text, ranges=None)
    return WarmLine(path=match[1], ranges=merge_ranges(_range(one) for one in match[2].split(";")))


def _range(text: str) -> ByteRange:
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        msg = f"{text!r} is no range: write START-END in bytes, the end excluded"
        raise ValueError(msg)
    start, end = int(match[1]), int(match[2])
    if end <= start:
        msg = f"{text!r} ends {'before' if end < start else 'where'} it starts"
        raise ValueError(msg)
    return ByteRange(start, end)
