"""A plain folder as the pool: every planned byte is read back, and nothing more can be promised.

Used where FUSE does not work, and for files outside the JuiceFS mount.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from forebay.cache.domain.plan import DEFAULT_BLOCK_BYTES, ByteRange, PlannedFile, merge_ranges
from forebay.cache.domain.pool_facts import CacheDisk, PoolFacts
from forebay.cache.errors import DataChangedError, DataUnreadableError
from forebay.cache.ports import Kept, Missing, PoolTraits, Residency
from forebay.runtime.regular_files import open_regular

CANNOT_PROVE = (
    "a plain folder keeps no record of what is in memory or on a local disk: "
    "the bytes were read back, but they may have to be fetched again"
)
KEEP_FREE_RATIO = 0.1
_READ_BYTES = 1 << 20


class FolderPool:
    """Reads ranges back from the files themselves."""

    def __init__(self, folder: Path, *, cannot_prove: str = CANNOT_PROVE) -> None:
        self._folder = folder
        self.traits = PoolTraits(
            adapter="folder", proof="readable", cannot_prove=cannot_prove, block_bytes=DEFAULT_BLOCK_BYTES
        )

    def check(self, root: Path, files: Sequence[PlannedFile]) -> list[Residency]:
        """Read every planned byte; what cannot be read is missing."""
        return [self._check_one(root / file.path, file) for file in files]

    def fetch(self, root: Path, file: PlannedFile) -> int:
        """Nothing lies between a folder and its files, so there is nothing to bring in."""
        check_size(root / file.path, file)
        return 0

    def room_bytes(self) -> int:
        return room_on_disk(self._folder)

    def drop(self, root: Path, files: Sequence[PlannedFile], *, keep: Sequence[Kept] = ()) -> int:  # noqa: ARG002 the port's words
        """The files are the data itself, no copy of it: nothing is freed."""
        return 0

    def facts(self) -> PoolFacts:
        return PoolFacts(
            adapter="folder", limit_bytes=None, used_bytes=None, keep_free_ratio=None, disks=(disk_of(self._folder),)
        )

    def _check_one(self, path: Path, file: PlannedFile) -> Residency:
        check_size(path, file)
        verified: list[ByteRange] = []
        missing: list[Missing] = []
        try:
            with open_regular(path) as opened:
                for span in file.spans:
                    read = _read_span(opened.fileno(), span)
                    verified.append(ByteRange(span.start, span.start + read))
                    if read < span.length:
                        rest = ByteRange(span.start + read, span.end)
                        missing.append(Missing(file=file.path, range=rest, reason="the file ends before the range"))
        except OSError as error:
            missing = [Missing(file=file.path, range=span, reason=f"cannot be read: {error}") for span in file.spans]
            verified = []
        return Residency(verified=merge_ranges(verified), missing=tuple(missing))


def check_size(path: Path, file: PlannedFile) -> None:
    """A planned file must still be there and have its planned size."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        msg = f"{path} was planned but is gone"
        raise DataUnreadableError(msg) from None
    except OSError as error:
        msg = f"{path} was planned but cannot be read: {error}"
        raise DataUnreadableError(msg) from error
    if size != file.size:
        msg = f"{path} has {size:,} bytes, it had {file.size:,} when it was planned"
        raise DataChangedError(msg)


def disk_of(folder: Path) -> CacheDisk:
    """The file system of a folder, and whether it takes a file now."""
    told = os.statvfs(folder)
    probe = folder / f".forebay-probe-{uuid.uuid4().hex}"
    problem: str | None = None
    try:
        with probe.open("wb") as file:
            file.write(b"forebay" * 512)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        problem = error.strerror or str(error)
    with contextlib.suppress(OSError):
        probe.unlink()
    return CacheDisk(
        folder=str(folder),
        total_bytes=told.f_blocks * told.f_frsize,
        free_bytes=told.f_bavail * told.f_frsize,
        total_inodes=told.f_files or None,
        free_inodes=told.f_favail if told.f_files else None,
        problem=problem,
    )


def room_on_disk(folder: Path) -> int:
    """Free bytes, less the tenth of the disk that is never filled."""
    usage = shutil.disk_usage(folder)
    return max(0, usage.free - int(usage.total * KEEP_FREE_RATIO))


def _read_span(descriptor: int, span: ByteRange) -> int:
    at = span.start
    while at < span.end:
        found = os.pread(descriptor, min(_READ_BYTES, span.end - at), at)
        if not found:
            break
        at += len(found)
    return at - span.start
