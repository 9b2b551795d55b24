"""What two plans have in common: bytes that need not be fetched again, and room that need not be found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from forebay.cache.domain.plan import ByteRange, PlannedFile, ReadPlan, range_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Bytes of the newer plan that the older one has too."""

    planned_bytes: int
    aligned_bytes: int


def shared(newer: ReadPlan, older: ReadPlan, block_bytes: int, same: Callable[[str], str]) -> Shared:
    """Compare file by file: files of versions are never changed, only added.

    `same` gives a path's identity: a version may hold files of the one before as hard links.
    """
    known = {same(place_of(older, file)): file for file in older.files}
    planned = aligned = 0
    for file in newer.files:
        other = known.get(same(place_of(newer, file)))
        if other is not None and other.size == file.size:
            planned += range_bytes(overlap(file.spans, other.spans))
            aligned += range_bytes(overlap(file.aligned(block_bytes), other.aligned(block_bytes)))
    return Shared(planned_bytes=planned, aligned_bytes=aligned)


def place_of(plan: ReadPlan, file: PlannedFile) -> str:
    """Where a planned file lies."""
    return str(PurePosixPath(plan.root) / file.path)


def overlap(some: tuple[ByteRange, ...], others: tuple[ByteRange, ...]) -> tuple[ByteRange, ...]:
    """What lies in both of two lists of merged ranges."""
    found: list[ByteRange] = []
    left, right = 0, 0
    while left < len(some) and right < len(others):
        start = max(some[left].start, others[right].start)
        end = min(some[left].end, others[right].end)
        if start < end:
            found.append(ByteRange(start, end))
        if some[left].end <= others[right].end:
            left += 1
        else:
            right += 1
    return tuple(found)
