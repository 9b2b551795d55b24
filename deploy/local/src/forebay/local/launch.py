"""Starting and ending the supervisor, and clearing up after one that was killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil

from forebay.local import attempts, pool
from forebay.local.children import kill_group
from forebay.local.errors import LocalError, StartError
from forebay.local.home import Home, Record, read_record, write_record
from forebay.local.supervisor import lock

_POLL_S = 0.1
_ENDS_WITHIN_S = 10.0
_DOWN_WITHIN_S = 60.0

Seen = Callable[[Record], None]


@dataclass(slots=True)
class Cleared:
    """What had to be ended."""

    processes: list[str] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    unmounted: bool = False

    def __bool__(self) -> bool:
        return bool(self.processes or self.attempts or self.unmounted)

    def __str__(self) -> str:
        parts = [*self.processes, *(f"training attempt {name}" for name in self.attempts)]
        return ", ".join([*parts, *(["the pool's mount"] if self.unmounted else [])]) or "nothing"


def running(home: Home) -> Record | None:
    """The record of a supervisor that is alive."""
    record = read_record(home)
    return record if record is not None and record.supervisor.process() is not None else None


def start(home: Home, projects: Sequence[str], *, juicefs: bool) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own. Raises `LocalError` when one is running."""
    if (record := running(home)) is not None:
        msg = f"Forebay already runs in {home.root} (supervisor {record.supervisor_pid}, phase {record.phase})"
        raise LocalError(
            msg, "look at it with: forebay status; add a project with: forebay bus init --project NAME", code="running"
        )
    pool.decide(home, read_record(home), juicefs=juicefs)
    command = [sys.executable, "-m", "forebay.local.supervisor", "--home", str(home.root)]
    for project in projects:
        command += ["--project", project]
    if not juicefs:
        command.append("--no-juicefs")
    with (home.logs / "supervisor.log").open("ab") as log:
        return subprocess.Popen(  # noqa: S603 our own interpreter and module, no shell
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def wait_until_ready(home: Home, supervisor: subprocess.Popen[bytes], *, within: float, seen: Seen) -> Record:
    """Follow the record until everything is healthy.

    Raises `StartError` that names what is missing when it fails or takes too long.
    """
    deadline = time.monotonic() + within
    log = home.logs / "supervisor.log"
    while True:
        record = read_record(home)
        if record is not None and record.supervisor_pid == supervisor.pid:
            seen(record)
            if record.phase == "ready":
                return record
            if record.phase == "failed":
                with contextlib.suppress(subprocess.TimeoutExpired):  # it has ended its children and ends itself
                    supervisor.wait(_ENDS_WITHIN_S)
                raise StartError(record.message, f"see {log}")
        if supervisor.poll() is not None:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            msg = f"the supervisor ended at once: {''.join(last) or 'no message'}"
            raise StartError(msg, f"see {log}")
        if time.monotonic() > deadline:
            missing = (
                [f"{child.name} ({child.note or child.state})" for child in record.children if child.state != "healthy"]
                if record
                else []
            )
            msg = f"not everything is healthy after {within:.0f} s: {', '.join(missing) or 'no record yet'}"
            raise StartError(msg, f"see the files in {home.logs}; forebay status shows it now; forebay down stops it")
        time.sleep(_POLL_S)


def stop(home: Home, *, seen: Seen) -> Cleared:
    """End everything of this home; fine when nothing runs.

    The supervisor does it in order; whatever outlives it, or was left by a killed
    one, is ended here.
    """
    cleared = Cleared()
    record = read_record(home)
    if record is None:
        return cleared
    supervisor = record.supervisor.process()
    if supervisor is not None:
        cleared.processes = ["supervisor", *(child.name for child in record.children if child.identity.process())]
        cleared.attempts = [str(item) for item in attempts.live_attempts(home)]
        cleared.unmounted = record.pool_kind == "juicefs"
        with contextlib.suppress(psutil.Error):
            supervisor.send_signal(signal.SIGTERM)
        _wait_for_end(home, supervisor, seen)
    left = clear_remains(home, ending_attempts=True)
    return left if supervisor is None else cleared


def _wait_for_end(home: Home, supervisor: psutil.Process, seen: Seen) -> None:
    deadline = time.monotonic() + _DOWN_WITHIN_S
    while supervisor.is_running() and supervisor.status() != psutil.STATUS_ZOMBIE:
        if (record := read_record(home)) is not None:
            seen(record)
        if time.monotonic() > deadline:
            supervisor.kill()
        with contextlib.suppress(psutil.TimeoutExpired):
            supervisor.wait(_POLL_S)


def clear_remains(home: Home, *, ending_attempts: bool) -> Cleared:
    """End what a supervisor that was killed left behind.

    Training attempts go on unless told otherwise: the next scheduler-bridge adopts them.
    """
    cleared = Cleared()
    record = read_record(home)
    held = lock(home) if home.root.is_dir() else None
    if record is None or held is None:
        return cleared
    with held:
        for child in record.children:
            if child.identity.process() is not None:
                cleared.processes.append(child.name)
                kill_group(child.pid)
        if ending_attempts and (alive := attempts.live_attempts(home)):
            cleared.attempts = [str(item) for item in alive]
            attempts.stop(alive)
        cleared.unmounted = pool.unmount(home, record)
        for child in record.children:
            child.state, child.note = "stopped", ""
        if record.phase != "failed":
            record.phase, record.message = "stopped", ""
        record.supervisor_pid, record.supervisor_start = 0, 0.0
        write_record(home, record)
    return cleared
