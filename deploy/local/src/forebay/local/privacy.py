"""Who may read what an installation keeps: this user, or also a group, and nobody else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from forebay.local.home import Home

_NOBODY_ELSE = 0o077


def make_private(home: Home, umask: int) -> None:
    """New files of this process follow the umask; folders and files that were made before are tightened to it.

    Nobody gets below the home folder without its own mode, so what lies deeper is not walked through.
    """
    os.umask(umask)
    for path in _known(home):
        wanted = _NOBODY_ELSE if path == home.keys else umask
        with contextlib.suppress(OSError):  # somebody else's, or gone: the home folder's mode still keeps others out
            mode = path.stat().st_mode & 0o7777
            if mode & wanted:
                path.chmod(mode & ~wanted)


def tighten_pool(home: Home, umask: int) -> None:
    """A JuiceFS volume is made with a root folder that everybody may write to."""
    with contextlib.suppress(PermissionError):  # mounted by a plain user, who does not own it; others cannot reach it
        home.pool.chmod(0o777 & ~umask)


def _known(home: Home) -> Iterator[Path]:
    root = home.root
    names = ("nats", "keys", "logs", "outbox", "jobs", "services", "pool-objects", "pool-cache", "registered")
    yield from (root, *(root / name for name in names))
    if not home.pool.is_mount():
        yield home.pool
    for pattern in (
        "local.json",
        "nats/nats.conf",
        "pool-meta.db*",
        "services/*",
        "services/*/state.sqlite*",
        "logs/*",
    ):
        yield from root.glob(pattern)
