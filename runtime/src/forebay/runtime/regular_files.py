"""Opens files whose names come from outside: only regular files, without waiting.

A FIFO blocks whoever opens it until somebody writes; a device may do anything. What
counts is the descriptor, not a look beforehand: a file can be exchanged in between.
Every error is an `OSError` whose `strerror` says what the file is and what to do.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
)


class NotRegularError(OSError):
    """The name leads to a FIFO, a socket, a device or a directory."""

    def __init__(self, path: str | Path, mode: int) -> None:
        kind = kind_of(mode)
        super().__init__(errno.EINVAL, f"it is {kind}, not a regular file; put the file itself in its place")
        self.filename = os.fspath(path)


class LinkError(OSError):
    """A part of the path is a link, although none was when the path was checked."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(
            errno.ELOOP, "a link on its path was exchanged while it was read; replace the link with the file"
        )
        self.filename = os.fspath(path)


class TooLargeError(OSError):
    """There is more to read than a file of this kind may have."""

    def __init__(self, path: str | Path, limit: int) -> None:
        super().__init__(errno.EFBIG, f"it has more than {limit} bytes, and no more than that are read")
        self.filename = os.fspath(path)


def kind_of(mode: int) -> str:
    """What a file is, in words."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "no regular file")


def open_regular(path: str | Path, *, links: bool = True) -> io.BufferedReader:
    """Open for reading. Raises `NotRegularError`, `LinkError`, or what opening raises.

    Without `links`, no part of the path may be a link when the file is opened. For a path
    that was resolved and found to lie where it may, and could be exchanged since.
    """
    _require_regular(path, os.stat(path).st_mode)  # noqa: PTH116 a device may act on being opened
    file = open(path, "rb", opener=lambda name, _: os.open(name, _FLAGS))  # noqa: SIM115 it is returned
    try:
        _require_regular(path, os.fstat(file.fileno()).st_mode)
        if not links:
            _require_no_link(path, file.fileno())
    except BaseException:
        file.close()
        raise
    return file


def read_regular(path: str | Path, *, limit: int | None = None, links: bool = True) -> bytes:
    """A whole file: as long as it was when it was opened, and at most `limit` bytes."""
    with open_regular(path, links=links) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise TooLargeError(path, limit)
        return file.read(size)


def path_of(file: BinaryIO) -> str:
    """A path to the opened file, for libraries that take only paths; good while it is open, and immune to a swap."""
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    return f"{folder}/{file.fileno()}"


def _require_regular(path: str | Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularError(path, mode)


def _require_no_link(path: str | Path, descriptor: int) -> None:
    if not _lies_at(descriptor, path):
        raise LinkError(path)


def _lies_at(descriptor: int, path: str | Path) -> bool:
    """Whether the path leads to the opened file without a link on the way."""
    where = os.path.abspath(path)  # noqa: PTH100 of no use if it resolved links
    try:
        there = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 a name may be any bytes
    except OSError:  # no /proc: resolve the path, and look that it is still the same file
        found = os.stat(where)  # noqa: PTH116
        return os.path.realpath(where) == where and os.path.samestat(found, os.fstat(descriptor))
    return there in {where, f"{where} (deleted)"}
