"""Tells whether anybody opened a folder's files: any process, any library, seen by the kernel."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, Self

_IN_OPEN = 0x20
_OPENED: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        _OPENED.append(arguments[0])


sys.addaudithook(_note)


class Canary:
    """Files that must not be opened while it is watched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = -1

    def __enter__(self) -> Self:
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK)
        assert self._handle >= 0, os.strerror(ctypes.get_errno())
        for place in self.folder.rglob("*"):  # not the folder: whoever looks through /tmp lists it
            watch = self._libc.inotify_add_watch(self._handle, os.fsencode(place), _IN_OPEN)
            assert watch >= 0, os.strerror(ctypes.get_errno())
        _OPENED.clear()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def touched(self) -> bool:
        """Whether any file was opened since the last question."""
        try:
            return bool(os.read(self._handle, 1 << 16))
        except BlockingIOError:
            return False

    def opened_by_python(self) -> list[str]:
        """What this process itself opened, as far as it lies beside the dataset."""
        found = [name for name in _OPENED if name.startswith(f"{self.folder}/")]
        _OPENED.clear()
        return found
