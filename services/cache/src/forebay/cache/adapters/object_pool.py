"""Object storage as the pool of access plan B: jobs read it directly, nothing lies between, and nothing is kept.

A check asks for size and etag of every planned object and reads a byte of each planned
range, so that what a job would be refused is found before it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from forebay.cache.adapters.object_store import ObjectOrigin
from forebay.cache.domain.plan import DEFAULT_BLOCK_BYTES, ByteRange, PlannedFile
from forebay.cache.domain.pool_facts import PoolFacts
from forebay.cache.errors import DataChangedError
from forebay.cache.ports import Kept, Missing, PoolTraits, Residency

CANNOT_PROVE = (
    "jobs read this version from object storage itself and nothing keeps it nearer: "
    "every object is there as it was planned and can be read, how fast is up to the store"
)
_AT_A_TIME = 16
_PROBES = 4
"""Ranges of one object that a byte is read of: its first and last, and some between."""


class ObjectPool:
    """Checks objects; fetches nothing."""

    def __init__(self, origin: ObjectOrigin) -> None:
        self._origin = origin
        self.traits = PoolTraits(
            adapter="object-storage", proof="readable", cannot_prove=CANNOT_PROVE, block_bytes=DEFAULT_BLOCK_BYTES
        )

    def check(self, root: Path, files: Sequence[PlannedFile]) -> list[Residency]:
        with ThreadPoolExecutor(_AT_A_TIME) as workers:
            return list(workers.map(lambda file: self._check_one(uri_of(root / file.path), file), files))

    def fetch(self, root: Path, file: PlannedFile) -> int:
        """There is nothing to bring the bytes into; whether they can be read is what `check` finds out."""
        self._compare(uri_of(root / file.path), file)
        return 0

    def room_bytes(self) -> int:
        return 1 << 62

    def drop(self, root: Path, files: Sequence[PlannedFile], *, keep: Sequence[Kept] = ()) -> int:  # noqa: ARG002
        """Nothing is held, so nothing is freed."""
        return 0

    def facts(self) -> PoolFacts:
        return PoolFacts(adapter="object-storage", limit_bytes=None, used_bytes=None, keep_free_ratio=None, disks=())

    def _check_one(self, uri: str, file: PlannedFile) -> Residency:
        self._compare(uri, file)
        spans = file.spans
        missing = [
            Missing(file=file.path, range=span, reason="the store answers nothing for this range")
            for span in _some(spans)
            if not self._origin.read(uri, span.start, span.start + 1)
        ]
        gone = {one.range for one in missing}
        return Residency(verified=tuple(span for span in spans if span not in gone), missing=tuple(missing))

    def _compare(self, uri: str, file: PlannedFile) -> None:
        size, _ = self._origin.identity(uri)
        if size != file.size:
            msg = f"{uri} has {size:,} bytes, it had {file.size:,} when it was planned"
            raise DataChangedError(msg)


def _some(spans: Sequence[ByteRange]) -> Sequence[ByteRange]:
    if len(spans) <= _PROBES:
        return spans
    step = (len(spans) - 1) / (_PROBES - 1)
    return [spans[round(at * step)] for at in range(_PROBES)]


def is_on_object_storage(place: Path) -> bool:
    """Whether a path stands for `s3://bucket/…`: its scheme is the first part."""
    return place.parts[:1] == ("s3:",)


def uri_of(place: Path) -> str:
    """The URI that a path stands for; a file of another place, below a root, is that file."""
    last = max(index for index, part in enumerate(place.parts) if part == "s3:")
    return f"s3://{'/'.join(place.parts[last + 1 :])}"
