"""Where everything of one installation lies, and the record of what runs (`local.json`).

The supervisor writes the record, the CLI reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import psutil

from forebay.runtime.disk_room import DISK_FLOOR_BYTES

RECORD_VERSION = 1
_PORTS = range(15_000, 30_000)
"""Below the ports of outgoing connections: from 32,768 on Linux, from 49,152 on macOS."""


@dataclass(frozen=True, slots=True)
class Home:
    """The paths below one home folder."""

    root: Path

    @property
    def record(self) -> Path:
        return self.root / "local.json"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def nats_config(self) -> Path:
        return self.nats / "nats.conf"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pool(self) -> Path:
        return self.root / "pool"

    @property
    def pool_cache(self) -> Path:
        return self.root / "pool-cache"

    @property
    def pool_objects(self) -> Path:
        return self.root / "pool-objects"

    @property
    def pool_meta(self) -> str:
        return f"sqlite3://{self.root / 'pool-meta.db'}"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def key(self, identity: str) -> Path:
        return self.keys / f"{identity}.nk"

    def store(self, service: str) -> Path:
        return self.root / "services" / service / "state.sqlite"

    def make(self) -> None:
        """Make the folders; keys are for this user only."""
        for folder in (self.root, self.nats, self.logs, self.root / "outbox", self.jobs):
            folder.mkdir(parents=True, exist_ok=True)
        self.keys.mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for certain: a number alone is reused by the kernel."""

    pid: int
    start: float

    def process(self) -> psutil.Process | None:
        """The running process, or None when it is gone."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.start) < 1.0
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def process_id(pid: int) -> ProcessId:
    """Raises `psutil.NoSuchProcess` when it has already ended."""
    return ProcessId(pid, psutil.Process(pid).create_time())


@dataclass(slots=True)
class ChildRecord:
    """One supervised process as the record shows it."""

    name: str
    pid: int = 0
    start: float = 0.0
    state: str = "waiting"
    """waiting, starting, healthy, unhealthy, backoff, stopped"""
    restarts: int = 0
    health_port: int = 0
    note: str = ""
    problems: list[str] = field(default_factory=list)
    """What a person should look at, though the process does its work."""

    @property
    def identity(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


@dataclass(slots=True)
class Record:
    """`local.json`."""

    nats_port: int
    nats_url: str
    projects: list[str]
    pool_dir: str
    pool_kind: str
    pool_note: str = ""
    """What this pool cannot prove, and why; empty when nothing is missing."""
    pool_meta: str = ""
    disk_floor_bytes: int = DISK_FLOOR_BYTES
    """New uploads and jobs are refused when less than this is free on a disk."""
    phase: str = "stopped"
    """stopped, bus, streams, pool, services, ready, stopping, failed"""
    message: str = ""
    supervisor_pid: int = 0
    supervisor_start: float = 0.0
    children: list[ChildRecord] = field(default_factory=list)
    version: int = RECORD_VERSION

    @property
    def supervisor(self) -> ProcessId:
        return ProcessId(self.supervisor_pid, self.supervisor_start)

    def child(self, name: str) -> ChildRecord | None:
        return next((child for child in self.children if child.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_record(home: Home) -> Record | None:
    """The record, or None where nothing was ever started (or it cannot be read)."""
    try:
        data = json.loads(home.record.read_text(encoding="utf-8"))
        known = {item.name for item in fields(Record)}
        child_fields = {item.name for item in fields(ChildRecord)}
        children = [
            ChildRecord(**{name: value for name, value in child.items() if name in child_fields})
            for child in data.pop("children", [])
        ]
        return Record(**{name: value for name, value in data.items() if name in known}, children=children)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_record(home: Home, record: Record) -> None:
    """Replace the record in one step, so that a reader never sees half of it. Raises `OSError` when it cannot be written."""
    draft = home.record.with_suffix(f".{os.getpid()}.tmp")
    try:
        draft.write_text(json.dumps(record.to_json(), indent=1) + "\n", encoding="utf-8")
        draft.replace(home.record)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def free_port(preferred: int = 0) -> int:
    """A free port on 127.0.0.1, the preferred one if nobody holds it.

    Never one that the kernel would give to an outgoing connection: such a port can be gone before
    its server takes it, or while the server is down for a moment. A client that tries to connect
    again and again may even be given it, and then talks to itself.
    """
    candidates = random.sample(_PORTS, len(_PORTS))
    for port in [preferred, *candidates] if preferred else candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    msg = "no free port on 127.0.0.1"
    raise OSError(msg)
