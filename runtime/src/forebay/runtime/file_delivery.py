"""Brings files to where they are wanted, whole or not at all: stage, verify, switch.

Two forms. `put` adds a file to a folder of objects that are named by their sha256.
`deliver` fills a folder: files are staged beside it, compared byte by byte with what is
wanted, and then take its place in one step. A kill at any line leaves what was there
before, and the next run goes on with what is staged. Nothing is linked: a file that
somebody can still write to never becomes part of what was delivered.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from forebay.runtime.errors import RuntimeFailure
from forebay.runtime.regular_files import open_regular, read_regular

RECORD = ".forebay-delivery.json"
"""Says in a delivered folder what it is; a folder without it is never replaced."""
_CHUNK = 1 << 20
_MAX_RECORD = 1 << 20
_FICLONE = 0x40049409
_EXCHANGE = 2
_AT_FDCWD = -100
Report = Callable[[int], None]
"""Called with the bytes that were just read or written; a sign of progress."""
Source = Callable[["WantedFile"], BinaryIO]
"""Opens the content of a file."""


@dataclass(frozen=True, slots=True)
class WantedFile:
    """One file: where it goes, and what it must be."""

    path: str
    sha256: str
    bytes: int


class DeliveryError(RuntimeFailure):
    """Nothing was changed; `next_action` says what to do."""

    def __init__(self, message: str, next_action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_action = next_action


class ContentError(DeliveryError):
    """A source does not hold what it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a delivery did."""

    already: bool
    """The folder held exactly this before."""
    copied_bytes: int = 0
    resumed_bytes: int = 0
    """What an earlier run had staged."""


def object_path(objects: Path, sha256: str) -> Path:
    """Where a content lies in a folder of objects."""
    if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
        raise DeliveryError(f"{sha256[:80]!r} is not a sha256")
    return objects / sha256[:2] / sha256


def put(source: BinaryIO, wanted: WantedFile, objects: Path, owner: str, report: Report = lambda _: None) -> int:
    """Have one content in a folder of objects; the bytes that were added, 0 when it was there.

    `owner` names the unfinished file, so that two writers of one content do not meet.
    Raises `ContentError` when the source is something else.
    """
    place = object_path(objects, wanted.sha256)
    if problem_of(place, wanted, report) is None:
        return 0
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.parent / f".{wanted.sha256}.{owner}.part"
    try:
        with part.open("w+b") as target:
            _copy(source, target, wanted, report)
        part.chmod(0o444)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(place.parent)
    return wanted.bytes


def problem_of(path: Path, wanted: WantedFile, report: Report = lambda _: None) -> str | None:
    """Why a file is not what is wanted, every byte compared; None when it is."""
    try:
        with open_regular(path, links=False) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != wanted.bytes:
                return f"{wanted.path} has {size} bytes, {wanted.bytes} are recorded"
            found = _digest(stream, wanted.bytes, report)
    except (FileNotFoundError, NotADirectoryError):
        return f"{wanted.path} is not there"
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ELOOP, errno.EISDIR}:
            return f"{wanted.path} cannot be used: {error.strerror}"
        raise
    if found != wanted.sha256:
        return f"the content of {wanted.path} is not what is recorded (sha256 {found[:12]} instead of {wanted.sha256[:12]})"
    return None


def deliver(
    files: Sequence[WantedFile],
    source: Source,
    target: Path,
    *,
    record: Mapping[str, object],
    report: Report = lambda _: None,
) -> Delivered:
    """Make `target` a folder of exactly these files, or leave it as it is. Raises `DeliveryError`.

    `record` says what they are, for people and for the next delivery.
    """
    target = target.parent.resolve() / target.name
    _require_safe(files)
    _require_replaceable(target)
    identity = hashlib.sha256(repr(sorted((one.path, one.sha256, one.bytes) for one in files)).encode()).hexdigest()
    if _identity_in(target) == identity and all(problem_of(target / one.path, one, report) is None for one in files):
        _clear(target)
        return Delivered(already=True)
    stage = target.parent / f".{target.name}.incoming-{identity[:16]}"
    stage.mkdir(parents=True, exist_ok=True)
    with _alone(stage, target):
        resumed, copied = _fill(stage, files, source, report)
        content = json.dumps({**record, "delivery": identity}, indent=2, sort_keys=True)
        with (stage / RECORD).open("w", encoding="utf-8") as written:
            written.write(content + "\n")
            written.flush()
            os.fsync(written.fileno())
        _switch(stage, target)
    _clear(target)
    return Delivered(already=False, copied_bytes=copied, resumed_bytes=resumed)


def unsafe_path(path: str) -> str | None:
    """Why a path must not be written below a folder; None when it may."""
    pure = PurePosixPath(path)
    if (
        path in {"", "."}
        or "\0" in path
        or "\\" in path
        or pure.is_absolute()
        or ".." in pure.parts
        or str(pure) != path
    ):
        return "is not a plain relative path"
    return "is the name of our own record" if pure.parts[0] == RECORD else None


def _require_safe(files: Sequence[WantedFile]) -> None:
    seen: set[str] = set()
    for one in files:
        why = unsafe_path(one.path) or ("is there twice" if one.path in seen else None)
        if why is not None:
            raise DeliveryError(f"{one.path[:200]!r} {why}", "nothing was written")
        seen.add(one.path)


def _require_replaceable(target: Path) -> None:
    if target.is_symlink():
        raise DeliveryError(f"{target} is a link", "name the folder itself")
    if not target.exists():
        return
    if not target.is_dir():
        raise DeliveryError(f"{target} is a file", "name a folder")
    if _identity_in(target) is None and any(target.iterdir()):
        raise DeliveryError(f"{target} holds other files", "name an empty folder, or one that was fetched before")


def _identity_in(target: Path) -> str | None:
    try:
        found = json.loads(read_regular(target / RECORD, limit=_MAX_RECORD))
    except (OSError, ValueError, RecursionError):
        return None
    return str(found["delivery"]) if isinstance(found, dict) and "delivery" in found else None


@contextmanager
def _alone(stage: Path, target: Path) -> Iterator[None]:
    """One delivery at a time works in a stage; the lock goes with the folder and with its process."""
    folder = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DeliveryError(f"another delivery into {target} is running", "wait for it") from error
        if not _same_folder(folder, stage):  # somebody cleared it between its making and the lock
            raise DeliveryError(f"another delivery into {target} has just ended", "run the same command again")
        yield
    finally:
        os.close(folder)


def _same_folder(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _fill(stage: Path, files: Sequence[WantedFile], source: Source, report: Report) -> tuple[int, int]:
    """(bytes that were staged before, bytes that were copied now)."""
    _drop_strangers(stage, {one.path for one in files})
    resumed = copied = 0
    for one in files:
        place = stage / one.path
        place.parent.mkdir(parents=True, exist_ok=True)
        staged = _staged_bytes(place, one)
        if staged == one.bytes and problem_of(place, one, report) is None:
            resumed += one.bytes
            continue
        with source(one) as stream, _opened(place) as target:
            before = _copy(stream, target, one, report, staged=staged)
        resumed += before
        copied += one.bytes - before
    return resumed, copied


def _staged_bytes(place: Path, wanted: WantedFile) -> int:
    try:
        return min(place.lstat().st_size, wanted.bytes)
    except OSError:
        return 0


def _opened(place: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(place, flags, 0o644), "r+b")


def _copy(source: BinaryIO, target: BinaryIO, wanted: WantedFile, report: Report, *, staged: int = 0) -> int:
    """Bring the content over and compare it; the bytes of an earlier run that were kept. Raises `ContentError`."""
    size = os.fstat(source.fileno()).st_size
    if size != wanted.bytes:
        raise ContentError(f"{wanted.path} has {size} bytes at its source, {wanted.bytes} are recorded")
    for kept in (staged, 0) if staged else (0,):
        source.seek(0)
        target.seek(0)
        if not kept and _cloned(source, target):
            found = _digest(target, wanted.bytes, report)
        else:
            found = _append(source, target, wanted, kept, report)
        if found == wanted.sha256:
            target.flush()
            os.fsync(target.fileno())
            return kept
    target.truncate(0)
    raise ContentError(
        f"the content of {wanted.path} is not what is recorded (sha256 {found[:12]} instead of {wanted.sha256[:12]})"
    )


def _append(source: BinaryIO, target: BinaryIO, wanted: WantedFile, kept: int, report: Report) -> str:
    digest = hashlib.sha256()
    left = kept
    while left > 0 and (chunk := target.read(min(_CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
        report(len(chunk))
    target.truncate(kept)
    target.seek(kept)
    source.seek(kept)
    left = wanted.bytes - kept
    while left > 0 and (chunk := source.read(min(_CHUNK, left))):
        digest.update(chunk)
        target.write(chunk)
        left -= len(chunk)
        report(len(chunk))
    return digest.hexdigest()


def _cloned(source: BinaryIO, target: BinaryIO) -> bool:
    """Share the blocks copy-on-write, where the file system can: no byte is copied, and no write is shared."""
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def _digest(stream: BinaryIO, size: int, report: Report) -> str:
    digest = hashlib.sha256()
    left = size
    while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
        report(len(chunk))
    return digest.hexdigest()


def _drop_strangers(stage: Path, wanted: set[str]) -> None:
    """A stage holds only what is wanted, and no links."""
    for path in sorted(stage.rglob("*"), reverse=True):
        name = path.relative_to(stage).as_posix()
        if path.is_dir() and not path.is_symlink():
            if name in wanted:
                shutil.rmtree(path)
        elif name not in wanted or path.is_symlink() or not path.is_file():
            path.unlink()


def _switch(stage: Path, target: Path) -> None:
    """The staged folder takes the target's place in one step; what was there is removed afterwards."""
    _sync_folder(stage)
    try:
        stage.rename(target)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        if _exchanged(stage, target):
            shutil.rmtree(stage, ignore_errors=True)
        else:
            old = stage.with_name(f".{target.name}.incoming-old")
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
            stage.rename(target)
            shutil.rmtree(old, ignore_errors=True)
    _sync_folder(target.parent)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two names at once, where the system can."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return False
    return bool(function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0)


def _clear(target: Path) -> None:
    """Remove what earlier deliveries left beside the target, unless one is running."""
    for left in target.parent.glob(f".{_escaped(target.name)}.incoming-*"):
        with contextlib.suppress(DeliveryError, OSError), _alone(left, target):
            shutil.rmtree(left, ignore_errors=True)


def _escaped(name: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in name)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
