"""Read plans: which bytes of which files a job will read. Values only; adapters make them from files.

A plan is a pure function of the version's files and the request, and its digest is
its identity: two jobs whose plans have equal digests share one warm-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from forebay.contracts.identifiers import content_digest

DEFAULT_BLOCK_BYTES = 1 << 20
"""The block size that pools are made with; `adapters/juicefs_volume.py` says why."""
PLAN_FORMAT = 2


class ByteRange(NamedTuple):
    """Bytes `[start, end)` of one file."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


def merge_ranges(ranges: Iterable[ByteRange]) -> tuple[ByteRange, ...]:
    """The same bytes as sorted ranges that neither touch nor overlap; empty ranges are gone."""
    merged: list[ByteRange] = []
    for start, end in sorted(one for one in ranges if one.end > one.start):
        if merged and start <= merged[-1].end:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].end, end))
        else:
            merged.append(ByteRange(start, end))
    return tuple(merged)


def align_ranges(ranges: Iterable[ByteRange], *, block_bytes: int, size: int) -> tuple[ByteRange, ...]:
    """`ranges` grown to whole blocks of a file of `size` bytes; the last block may be short."""
    if block_bytes < 1:
        msg = f"a block has at least one byte, not {block_bytes}"
        raise ValueError(msg)
    grown = (
        ByteRange(start // block_bytes * block_bytes, min(size, -(-end // block_bytes) * block_bytes))
        for start, end in ranges
        if end > start
    )
    return merge_ranges(grown)


def range_bytes(ranges: Iterable[ByteRange]) -> int:
    """How many bytes merged ranges hold."""
    return sum(end - start for start, end in ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file of a plan. `path` is relative to the root, or absolute where a shallow clone points outside."""

    path: str
    size: int
    ranges: tuple[ByteRange, ...] | None
    """Merged ranges; None: the whole file."""
    etag: str | None = None
    """What object storage calls this content; None elsewhere."""

    @property
    def spans(self) -> tuple[ByteRange, ...]:
        """The planned ranges, also for a whole file."""
        if self.ranges is None:
            return (ByteRange(0, self.size),) if self.size else ()
        return self.ranges

    @property
    def planned_bytes(self) -> int:
        return range_bytes(self.spans)

    def aligned(self, block_bytes: int) -> tuple[ByteRange, ...]:
        return align_ranges(self.spans, block_bytes=block_bytes, size=self.size)


def planned_file(path: str, size: int, ranges: Iterable[ByteRange] | None = None) -> PlannedFile:
    """A file with its ranges in the one form that digests rely on; covering everything means whole."""
    if ranges is None:
        return PlannedFile(path=path, size=size, ranges=None)
    merged = merge_ranges(ranges)
    if merged and (merged[0].start < 0 or merged[-1].end > size):
        msg = f"{path}: ranges reach to {merged[-1].end}, but the file has {size} bytes"
        raise ValueError(msg)
    whole = merged == (ByteRange(0, size),)
    return PlannedFile(path=path, size=size, ranges=None if whole or size == 0 else merged)


def unite_files(files: Iterable[PlannedFile]) -> tuple[PlannedFile, ...]:
    """One entry per path, sorted by path, holding every range that any entry had."""
    united: dict[str, PlannedFile] = {}
    for file in files:
        known = united.get(file.path)
        if known is None:
            united[file.path] = file
        elif known.ranges is None or file.ranges is None:
            united[file.path] = PlannedFile(path=file.path, size=file.size, ranges=None)
        else:
            united[file.path] = planned_file(file.path, file.size, known.ranges + file.ranges)
    return tuple(united[path] for path in sorted(united))


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """Everything one job input will read, and nothing else."""

    root: str
    files: tuple[PlannedFile, ...]
    whole_bytes: int
    """Size of the whole version, to judge what the plan saves."""
    columns: tuple[str, ...] = ()
    episodes: tuple[int, int] | None = None
    source: str = ""
    """Digest of the version's manifest where one is known: same files by name and size, other content, other plan."""
    notes: tuple[str, ...] = ()
    """Why files are planned whole that one would expect in part. For people, no part of the identity."""

    @cached_property
    def digest(self) -> str:
        """Equal bytes of equal files, equal digest: wherever the root lies, and however the columns were spelled."""
        files = [
            [file.path, file.size, _listed(file.ranges), *([file.etag] if file.etag else [])] for file in self.files
        ]
        return content_digest({"source": self.source, "files": files})

    @cached_property
    def id(self) -> str:
        """The identity of a warm-up: the same bytes in another place have to be warmed there."""
        return content_digest({"root": self.root, "digest": self.digest})[:32]

    @cached_property
    def total_bytes(self) -> int:
        return sum(file.planned_bytes for file in self.files)

    def aligned_bytes(self, block_bytes: int = DEFAULT_BLOCK_BYTES) -> int:
        """What a cache of whole blocks fetches for this plan."""
        return sum(range_bytes(file.aligned(block_bytes)) for file in self.files)

    def to_json(self, block_bytes: int = DEFAULT_BLOCK_BYTES) -> dict[str, Any]:
        """One JSON object, as `forebay plan --json` prints it and `CachePlanned.ranges` refers to it."""
        return {
            "format": PLAN_FORMAT,
            "digest": self.digest,
            "plan": self.id,
            "root": self.root,
            "source": self.source,
            "columns": list(self.columns),
            "episodes": list(self.episodes) if self.episodes else None,
            "total_bytes": self.total_bytes,
            "aligned_bytes": self.aligned_bytes(block_bytes),
            "block_bytes": block_bytes,
            "whole_bytes": self.whole_bytes,
            "notes": list(self.notes),
            "files": [_described(file) for file in self.files],
        }


def plan_from_json(value: Mapping[str, Any]) -> ReadPlan:
    """Read a stored plan; raises `ValueError` when it is not what its digest says."""
    episodes = value["episodes"]
    plan = ReadPlan(
        root=value["root"],
        source=value["source"],
        columns=tuple(value["columns"]),
        episodes=(episodes[0], episodes[1]) if episodes else None,
        whole_bytes=value["whole_bytes"],
        notes=tuple(value.get("notes", ())),
        files=tuple(
            replace(
                planned_file(
                    file["path"],
                    file["size"],
                    None if file["ranges"] is None else (ByteRange(start, end) for start, end in file["ranges"]),
                ),
                etag=file.get("etag"),
            )
            for file in value["files"]
        ),
    )
    if plan.digest != value["digest"]:
        msg = f"the stored plan {value['digest'][:32]} does not match its digest; plan again"
        raise ValueError(msg)
    return plan


def _described(file: PlannedFile) -> dict[str, Any]:
    told: dict[str, Any] = {"path": file.path, "size": file.size, "ranges": _listed(file.ranges)}
    return told | ({"etag": file.etag} if file.etag else {})


def _listed(ranges: tuple[ByteRange, ...] | None) -> list[list[int]] | None:
    return None if ranges is None else [[start, end] for start, end in ranges]
