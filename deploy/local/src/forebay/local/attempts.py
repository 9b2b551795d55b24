"""Training attempts that are still alive: found by what the agent wrote into their folders.

They run in sessions of their own and outlive the services on purpose, so that a
crash of ours costs no training. Only `forebay down` ends them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from forebay.local.home import Home

_GRACE_S = 5.0
STOP_MARK = "stop.json"
"""Read by the scheduler-bridge when an agent is gone without a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttempt:
    """One attempt with the processes that still run."""

    project: str
    job: str
    attempt: str
    folder: Path
    processes: tuple[psutil.Process, ...]

    def __str__(self) -> str:
        return f"{self.project}/{self.job} {self.attempt}"


def live_attempts(home: Home) -> list[LiveAttempt]:
    """Attempts whose agent or command is still the process that the folder names."""
    found = []
    for file in sorted(home.jobs.glob("*/*/attempt-*/process.json")):
        processes = tuple(_with_children(_named_in(file)))
        if processes:
            project, job, attempt = file.parts[-4:-1]
            found.append(
                LiveAttempt(project=project, job=job, attempt=attempt, folder=file.parent, processes=processes)
            )
    return found


def stop(attempts: list[LiveAttempt]) -> None:
    """Ask every process to end, then insist. A mark in the attempt's folder says that this was no failure."""
    for attempt in attempts:
        with contextlib.suppress(OSError):  # without the mark the agent's own report still says it
            (attempt.folder / STOP_MARK).write_text(json.dumps({"by": "forebay down"}), encoding="utf-8")
    processes = [process for attempt in attempts for process in attempt.processes]
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=_GRACE_S)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=_GRACE_S)


def _named_in(file: Path) -> Iterator[psutil.Process]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        pairs = [(said.get("agent_pid"), said.get("agent_start")), (said.get("command_pid"), said.get("command_start"))]
    except (OSError, ValueError, AttributeError):
        return  # the agent is writing it, or it is not an attempt's file
    for pid, start in pairs:
        if isinstance(pid, int) and start is not None and _start_ticks(pid) == start:
            with contextlib.suppress(psutil.Error):
                yield psutil.Process(pid)


def _start_ticks(pid: int) -> int | None:
    """Field 22 of `/proc/<pid>/stat`; the name in parentheses before it may hold anything."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return None
    state, *rest = after_name.split()
    return None if state == "Z" else int(rest[18])


def _with_children(processes: Iterator[psutil.Process]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found |= {child.pid: child for child in process.children(recursive=True)}
        found[process.pid] = process
    return list(found.values())
