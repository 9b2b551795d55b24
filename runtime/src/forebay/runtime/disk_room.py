"""How much room a disk has, when that is too little, and which errors mean that it is full.

Services, the local installation and the command line judge by the same two limits: below
a tenth of the disk people are warned, below the floor new work is refused, so that what
runs already can finish.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from forebay.runtime.errors import Unreachable

GIB = 1 << 30
DISK_FLOOR_BYTES = GIB
ATTEMPT_BYTES = 64 << 20
"""What an attempt's output folder must have free before its command is started."""
RETRY_S = 5.0
"""How soon work that met a full disk is tried again."""
_WARN_SHARE = 10
"""Below one tenth people are warned; a floor is never larger than that."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WORDS = ("no space left on device", "disk quota exceeded", "database or disk is full", "[errno 28]")
"""Libraries written in other languages keep only the operating system's words."""


class DiskFullError(Unreachable):
    """There is not enough room on a disk; what to do stands in `next_action`."""

    code = "disk-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRoom:
    """The figures of one disk, and what it is used for."""

    what: str
    """`pool`, `home`, `bus`"""
    folder: str
    free: int
    total: int
    floor: int
    device: int = 0
    """The file system's number: two places with the same one share their room."""

    @property
    def effective_floor(self) -> int:
        """A small disk cannot keep a large floor free."""
        return min(self.floor, self.total // _WARN_SHARE)

    @property
    def warning(self) -> str:
        """Less than a tenth is free: a sentence, or nothing."""
        if self.free * _WARN_SHARE >= self.total:
            return ""
        return f"{self.figures}, less than a tenth; free space on that disk"

    @property
    def problem(self) -> str:
        """New work is refused: a sentence, or nothing."""
        return self.shortage(0)

    def shortage(self, needed: int) -> str:
        """What is missing when `needed` more bytes shall be written and the floor stay free; "" when they fit."""
        if self.free - needed >= self.effective_floor:
            return ""
        wanted = f"{bytes_in_words(needed)} are needed and " if needed else ""
        return f"{self.figures}; {wanted}{bytes_in_words(self.effective_floor)} must stay free for what is running"

    @property
    def figures(self) -> str:
        """How much is free, as the start of a sentence."""
        return f"the disk of the {self.what} ({self.folder}) has {bytes_in_words(self.free)} of {bytes_in_words(self.total)} free"


def look(what: str, folder: Path, floor: int = DISK_FLOOR_BYTES) -> DiskRoom | None:
    """The room for whoever writes into `folder`; None when it cannot be asked. For a folder to be made: its parent."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        told, device = os.statvfs(place), place.stat().st_dev
    except OSError:
        return None
    return DiskRoom(
        what=what,
        folder=str(folder),
        free=told.f_bavail * told.f_frsize,
        total=told.f_blocks * told.f_frsize,
        floor=floor,
        device=device,
    )


def disk_problem(what: str, folder: Path, floor: int, needed: int = 0) -> str:
    """Why the disk of this folder takes no new work, or not `needed` bytes, now; "" when it does."""
    room = look(what, folder, floor)
    return room.shortage(needed) if room is not None else ""


def is_disk_full(error: BaseException) -> bool:
    """Whether this error, or one that it came from, says that a disk or quota is full."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        if isinstance(now, OSError) and now.errno in _FULL:
            return True
        # No other kind: the words of a ValueError may be somebody's data.
        if isinstance(now, OSError | RuntimeError | sqlite3.Error) and says_disk_full(str(now)):
            return True
        now = now.__cause__ or (None if now.__suppress_context__ else now.__context__)
    return False


def says_disk_full(text: str) -> bool:
    """Whether a message or the end of a log names a full disk."""
    text = text.lower()
    return any(words in text for words in _WORDS)


def bytes_in_words(count: int) -> str:
    """Decimal units, as disks are sold."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
