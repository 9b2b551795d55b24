"""Sets of sequences as people read and write them: `4, 7-9, 12`."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 5
_MOST = 10_000_000


def ranges(seqs: Iterable[int], *, shown: int | None = _SHOWN) -> str:
    """`4, 7-9, 12` of sorted sequences; the first few ranges unless `shown` is None."""
    found: list[list[int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    said = [str(first) if first == last else f"{first}-{last}" for first, last in found]
    return ", ".join(said[:shown]) + (f" and {len(said) - shown} more" if shown and len(said) > shown else "")


def parse_ranges(text: str) -> frozenset[int]:
    """`4, 7-9` as sequences. Raises `ValueError`."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first)
        if not 0 < begin <= end < begin + _MOST:
            raise ValueError(part)
        found.update(range(begin, end + 1))
    return frozenset(found)
