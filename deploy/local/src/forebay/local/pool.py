"""The data pool: a JuiceFS mount where this machine can make one, else a plain folder that says what it lacks.

The JuiceFS tools belong to the cache service and come through the entry point
group `forebay.pool`; this package imports no service.
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal, Protocol, cast

from forebay.local.errors import LocalError
from forebay.local.home import Home, Record

PoolKind = Literal["juicefs", "folder"]
VOLUME = "forebay"
_MIB = 1 << 20
_FOLDER_NOTE = "it cannot be proven which bytes are in a local cache, only that they can be read"


class VolumeTools(Protocol):
    """What the entry point `forebay.pool` hands out."""

    def fuse_available(self) -> str | None: ...
    def format_volume(self, meta_url: str, storage_dir: Path, name: str) -> None: ...
    def mount_command(self, meta_url: str, mountpoint: Path, cache_dir: Path, *, cache_size_mib: int) -> list[str]: ...
    def is_mounted(self, mountpoint: Path) -> bool: ...
    def unmount(self, mountpoint: Path) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """Which pool this installation uses, decided before anything is started."""

    kind: PoolKind
    note: str = ""
    meta: str = ""
    tools: VolumeTools | None = None


def volume_tools() -> VolumeTools | None:
    """The JuiceFS tools, or None where the cache service is not installed."""
    found = entry_points(group="forebay.pool")
    return cast("VolumeTools", next(iter(found)).load()()) if found else None


def decide(home: Home, record: Record | None, *, juicefs: bool) -> PoolPlan:
    """Choose the pool. A pool that holds data keeps its kind: mounting over a folder would hide it.

    Raises `LocalError` when the data lies in JuiceFS and this machine cannot mount it now.
    """
    tools = volume_tools()
    obstacle = "the cache service is not installed" if tools is None else tools.fuse_available()
    before = record.pool_kind if record else None
    if before == "juicefs" and home.pool_objects.exists():
        if not juicefs or obstacle:
            why = obstacle or "--no-juicefs was given"
            msg = f"the data pool of {home.root} lies in JuiceFS, which cannot be used: {why}"
            raise LocalError(msg, "mount it where FUSE works, or start a new home with FOREBAY_HOME=…")
        return PoolPlan(kind="juicefs", meta=home.pool_meta, tools=tools)
    if _holds_data(home.pool):
        return PoolPlan(kind="folder", note=f"the pool already is a plain folder: {_FOLDER_NOTE}")
    if not juicefs:
        return PoolPlan(kind="folder", note=f"--no-juicefs was given: {_FOLDER_NOTE}")
    if obstacle:
        return PoolPlan(kind="folder", note=f"{obstacle}: {_FOLDER_NOTE}")
    return PoolPlan(kind="juicefs", meta=home.pool_meta, tools=tools)


def prepare(home: Home, plan: PoolPlan) -> None:
    """Make the folder or the volume; also takes away what a crash left mounted."""
    if plan.tools is None:
        home.pool.mkdir(parents=True, exist_ok=True)
        return
    plan.tools.unmount(home.pool)
    home.pool.mkdir(parents=True, exist_ok=True)
    plan.tools.format_volume(plan.meta, home.pool_objects, VOLUME)


def mount_command(home: Home, plan: PoolPlan, *, cache_bytes: int) -> list[str]:
    """The foreground mount process. The cache takes at most half of what is free."""
    assert plan.tools is not None  # noqa: S101 only called for a JuiceFS plan
    room = min(cache_bytes, shutil.disk_usage(home.root).free // 2)
    return plan.tools.mount_command(plan.meta, home.pool, home.pool_cache, cache_size_mib=max(room // _MIB, 100))


def unmount(home: Home, record: Record) -> bool:
    """Take a mount away; returns whether there was one."""
    tools = volume_tools()
    if record.pool_kind != "juicefs" or tools is None:
        return False
    was = _is_mount(home.pool)
    tools.unmount(home.pool)
    return was


def _is_mount(folder: Path) -> bool:
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return False
    wanted = str(folder.absolute()).replace(" ", "\\040")
    return any(line.split()[1] == wanted for line in mounts.read_text(encoding="utf-8").splitlines())


def _holds_data(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return not _is_mount(folder) and any(folder.iterdir())
    return False
