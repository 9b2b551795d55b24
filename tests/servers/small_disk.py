"""A small real disk (tmpfs) that a test may fill. Mounting needs root, as on every CI machine of ours."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """One mounted file system."""

    folder: Path

    @property
    def _filler(self) -> Path:
        return self.folder / ".filler"

    def free(self) -> int:
        told = os.statvfs(self.folder)
        return told.f_bavail * told.f_frsize

    def fill(self, leave: int = 0) -> None:
        """Take everything but `leave` bytes."""
        with self._filler.open("ab", buffering=0) as file:
            file.write(b"\0" * max(0, (self.free() - leave) // 4096 * 4096))
            if not leave:
                with contextlib.suppress(OSError):
                    while file.write(b"\0" * 4096):
                        pass

    def clear(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: int = 64 * MIB) -> Iterator[SmallDisk]:
    """Mount at `folder`; always unmounted again."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
