"""The disks that an installation writes to: its home, its pool, and the bus's store, which may lie apart."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from forebay.local.home import Home, Record
from forebay.runtime.disk_room import DiskRoom, look


def disks(home: Home, record: Record) -> list[DiskRoom]:
    """One entry per place."""
    places = (("home", home.root), ("pool", pool_disk(home, record.pool_kind)), ("bus", home.nats))
    return [room for what, folder in places if (room := look(what, folder, record.disk_floor_bytes)) is not None]


def pool_disk(home: Home, pool_kind: str) -> Path:
    """A folder on the disk of the pool. A JuiceFS mount says nothing about its disk, the folder of its objects does."""
    return home.pool_objects if pool_kind == "juicefs" else home.pool


def problems(rooms: list[DiskRoom]) -> list[str]:
    """Why new work is refused, each disk once."""
    return list({room.device: room.problem for room in reversed(rooms) if room.problem}.values())[::-1]


def warnings(rooms: list[DiskRoom]) -> list[str]:
    """What will be a problem soon."""
    low = [room for room in reversed(rooms) if room.warning and not room.problem]
    return list({room.device: room.warning for room in low}.values())[::-1]


def shown(room: DiskRoom) -> dict[str, Any]:
    """For `--json`."""
    return {**asdict(room), "floor": room.effective_floor, "problem": room.problem, "warning": room.warning}
