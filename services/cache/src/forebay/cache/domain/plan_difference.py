"""What a newer plan needs beside an older one: after an append or a compaction only new ranges have to be fetched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from forebay.cache.domain.plan import ByteRange, PlannedFile, ReadPlan, planned_file
from forebay.cache.domain.shared import overlap

_NEVER_REUSED_NAMES = frozenset({"data", "_deletions", "_indices"})
"""Folders of a Lance table whose files are named once and for all, in whichever root they are linked."""
_UNIQUE_ENDINGS = (".lance", ".blob", ".arrow", ".bin")


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A newer plan against an older one."""

    older_digest: str
    reused_bytes: int
    new_files: tuple[PlannedFile, ...]
    """What is new, as a plan lists it."""

    @cached_property
    def new_bytes(self) -> int:
        return sum(file.planned_bytes for file in self.new_files)


def difference(newer: ReadPlan, older: ReadPlan) -> Difference:
    """Files are the same when they lie in the same place, or have a name that Lance gives only once; and have one size.

    Mutable names in another root (`meta/info.json`) count as new: size says nothing about content.
    """
    known = {_identity(older, file): file for file in older.files}
    new: list[PlannedFile] = []
    reused = 0
    for file in newer.files:
        other = known.get(_identity(newer, file))
        common = overlap(file.spans, other.spans) if other is not None else ()
        reused += sum(end - start for start, end in common)
        rest = _without(file.spans, common)
        if rest or (other is None and not file.size):
            new.append(planned_file(file.path, file.size, rest))
    return Difference(older_digest=older.digest, reused_bytes=reused, new_files=tuple(new))


def _identity(plan: ReadPlan, file: PlannedFile) -> tuple[str, int]:
    parts = PurePosixPath(file.path).parts
    if len(parts) > 1 and _NEVER_REUSED_NAMES & set(parts[:-1]) and parts[-1].endswith(_UNIQUE_ENDINGS):
        return "/".join(parts[-2:]), file.size
    return str(PurePosixPath(plan.root) / file.path), file.size


def _without(spans: tuple[ByteRange, ...], common: tuple[ByteRange, ...]) -> list[ByteRange]:
    """What is left of merged ranges when others, which lie in them, are taken away."""
    left: list[ByteRange] = []
    one = 0
    for span in spans:
        at = span.start
        while one < len(common) and common[one].end <= span.end:
            left.append(ByteRange(at, common[one].start))
            at = common[one].end
            one += 1
        left.append(ByteRange(at, span.end))
    return [span for span in left if span.length]
