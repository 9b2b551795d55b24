"""Where planning reads from: a few bytes of many files, and nothing else.

Planners take an `Origin` and absolute paths, so that a version on a disk and one on object
storage are planned by the same code; `read_bytes` says what it cost.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from forebay.cache.errors import DataUnreadableError
from forebay.runtime.regular_files import open_regular


class Origin(Protocol):
    """Files under absolute paths (`/pool/v1/…`, `s3://bucket/…`). Called from several threads at once."""

    read_bytes: int
    """Bytes that planning has read through this origin so far."""

    def tail(self, path: str, length: int) -> tuple[int, bytes]:
        """Size of a file and its last `length` bytes, in one go; `DataUnreadableError` when there is no such file."""
        ...

    def read(self, path: str, start: int, end: int) -> bytes:
        """Bytes `[start, end)`, fewer where the file ends before."""
        ...

    def size(self, path: str) -> int: ...

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders right below, folders with a `/` behind; none when there is no such folder."""
        ...

    def tree(self, folder: str) -> list[tuple[str, int]]:
        """Path and size of every file below, sorted; none when there is no such folder."""
        ...

    def identity(self, path: str) -> tuple[int, str]:
        """Size, and a word that is another one when the content is."""
        ...

    def lance(self, path: str) -> tuple[str, dict[str, Any] | None]:
        """URI and storage options that Lance opens a table here with."""
        ...


class FolderOrigin:
    """Files on a disk or a mount."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self._lock = Lock()

    def tail(self, path: str, length: int) -> tuple[int, bytes]:
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - length))
                content = file.read(length)
        except OSError as error:
            raise _unreadable(path, error) from error
        self._count(len(content))
        return size, content

    def read(self, path: str, start: int, end: int) -> bytes:
        try:
            with open_regular(path) as file:
                file.seek(start)
                content = file.read(max(0, end - start))
        except OSError as error:
            raise _unreadable(path, error) from error
        self._count(len(content))
        return content

    def size(self, path: str) -> int:
        try:
            return Path(path).stat().st_size
        except OSError as error:
            raise _unreadable(path, error) from error

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(folder, error) from error

    def tree(self, folder: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for place, _, names in os.walk(folder, followlinks=True):
            for name in names:
                path = Path(place) / name
                try:
                    found.append((str(path), path.stat().st_size))
                except OSError as error:
                    raise _unreadable(str(path), error) from error
        return sorted(found)

    def identity(self, path: str) -> tuple[int, str]:
        try:
            status = Path(path).stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        return status.st_size, f"{status.st_ino}-{status.st_mtime_ns}"

    def lance(self, path: str) -> tuple[str, dict[str, Any] | None]:
        return path, None

    def _count(self, length: int) -> None:
        with self._lock:
            self.read_bytes += length


def _unreadable(path: str, error: OSError) -> DataUnreadableError:
    return DataUnreadableError(f"{path} cannot be read: {error.strerror or error}")
