"""Attempts as detached processes of this machine, tied to an attempt folder.

The folder is the truth across restarts: `lock` (made by the agent with O_EXCL),
`process.json`, `exit.json` and `log.txt` are the agent's, `inputs.json` is ours.
README.md holds the agreement with the agent. A process is known by its number and
its start in clock ticks since boot, and by the attempt folder in its environment, so
that a reused number is never taken for it and a child that left its group is found.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from forebay.runtime.regular_files import open_regular, read_regular
from forebay.scheduler_bridge.errors import StartError
from forebay.scheduler_bridge.ports import AttemptPlan, ExitReport, Observation

ALREADY_RUNNING = 75
"""Exit code of an agent that found the folder's lock taken (EX_TEMPFAIL)."""
_TAIL_BYTES = 4096
AGENT = (sys.executable, "-P", "-m", "forebay.cli", "run", "--")
"""`-P`: a file beside the training script must not stand in for a module of the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an attempt's environment is made of, besides what its job asks for."""

    home: Path
    nats_url: str
    variables: Mapping[str, str]
    """PATH, HOME and LANG: nothing of the service's own environment goes further."""

    def nkey_file(self, project: str) -> Path:
        return self.home / "keys" / f"agent.{project}.nk"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """process.json as far as it can be trusted."""

    agent: tuple[int, int] | None
    command: tuple[int, int] | None
    stage: str


@dataclass(slots=True)
class LocalProcesses:
    """`AttemptBackend` for this machine."""

    surroundings: Surroundings
    agent: tuple[str, ...] = AGENT
    host: str = field(default_factory=socket.gethostname)
    _children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Agents that this very process started: they must be waited for, or they stay as zombies."""

    # ------------------------------------------------------------- the folder

    def folder(self, plan: AttemptPlan) -> Path:
        return self.surroundings.home / "jobs" / plan.project / plan.job / f"attempt-{plan.attempt}"

    def output(self, plan: AttemptPlan) -> Path:
        return self.surroundings.home / "jobs" / plan.project / plan.job / "output"

    def launch(self, plan: AttemptPlan) -> bool:
        folder = self.folder(plan)
        if self._was_started(plan, folder):
            return False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.output(plan).mkdir(parents=True, exist_ok=True)
            _write_whole(folder / "inputs.json", json.dumps(plan.inputs, indent=1, sort_keys=True))
            with (folder / "log.txt").open("ab") as log:
                self._children[plan.name] = subprocess.Popen(  # noqa: S603 running the owner's command is the purpose
                    [*self.agent, *plan.command],
                    cwd=self._directory(plan),
                    env=self._environment(plan, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise StartError(plan.name, f"{error.strerror or error}: {error.filename or folder}") from error
        return True

    def _was_started(self, plan: AttemptPlan, folder: Path) -> bool:
        marks = ("lock", "process.json", "exit.json")
        if any((folder / mark).exists() for mark in marks) or plan.name in self._children:
            return True
        # An agent that was started just before a crash may not have made its lock yet.
        return any(True for _ in self._living(folder, None))

    def _directory(self, plan: AttemptPlan) -> Path:
        return Path(plan.working_directory) if plan.working_directory else self.output(plan)

    def _environment(self, plan: AttemptPlan, folder: Path) -> dict[str, str]:
        around = self.surroundings
        ours = {
            "FOREBAY_HOME": around.home,
            "FOREBAY_PROJECT": plan.project,
            "FOREBAY_JOB": plan.job,
            "FOREBAY_ATTEMPT": plan.attempt,
            "FOREBAY_ATTEMPT_DIR": folder,
            "FOREBAY_OUTPUT": self.output(plan),
            "FOREBAY_INPUTS": folder / "inputs.json",
            "FOREBAY_NATS_URL": around.nats_url,
            "FOREBAY_NKEY_FILE": around.nkey_file(plan.project),
            "CUDA_VISIBLE_DEVICES": ",".join(plan.devices),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        return {**around.variables, **plan.environment, **{name: str(value) for name, value in ours.items()}}

    # ---------------------------------------------------------------- looking

    def observe(self, plan: AttemptPlan) -> Observation:
        folder = self.folder(plan)
        child = self._children.get(plan.name)
        code = child.poll() if child is not None else None
        record = _read_record(folder)
        agent_alive = (child is not None and code is None) or _is_alive(record.agent if record else None)
        # The report is read after the agent was looked at: a dead agent writes no more.
        report = _read_exit(folder)
        living = () if agent_alive else tuple(self._living(folder, record))
        return Observation(
            stage=self._stage(folder, record, child, report),
            alive=agent_alive or bool(living),
            agent_alive=agent_alive or (record is None and any(_is_agent(process, folder) for process in living)),
            agent=_shown(record.agent if record else None),
            command=_shown(record.command if record else None),
            exit=report or self._never_began(folder, child, code, living),
            stopped=_stopped_by(folder, vanished=not agent_alive and report is None),
            processes=tuple(process.pid for process in living),
        )

    def _stage(
        self,
        folder: Path,
        record: _Record | None,
        child: subprocess.Popen[bytes] | None,
        report: ExitReport | None,
    ) -> str:
        if report is not None:
            return "ended"
        if record is not None:
            return record.stage
        return "starting" if child is not None or (folder / "lock").exists() else "absent"

    def _never_began(
        self,
        folder: Path,
        child: subprocess.Popen[bytes] | None,
        code: int | None,
        living: tuple[psutil.Process, ...],
    ) -> ExitReport | None:
        """Our agent ended before it took the folder's lock: it could not even begin."""
        if child is None or code in {None, ALREADY_RUNNING} or living or (folder / "lock").exists():
            return None
        message = f"the agent ended with exit code {code} before it began"
        return ExitReport(exit_code=code, signal=None, reason="StartFailed", message=message, ran=False)

    def log_tail(self, plan: AttemptPlan) -> str:
        try:
            with open_regular(self.folder(plan) / "log.txt") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _TAIL_BYTES))
                return log.read().decode("utf-8", "replace")
        except OSError:
            return ""

    # --------------------------------------------------------------- stopping

    def stop(self, plan: AttemptPlan, *, force: bool) -> tuple[int, ...]:
        folder = self.folder(plan)
        told = []
        for process in self._living(folder, _read_record(folder)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL if force else signal.SIGTERM)
                told.append(process.pid)
        return tuple(told)

    def _living(self, folder: Path, record: _Record | None) -> Iterator[psutil.Process]:
        """Every process of the attempt: its agent, its command, their sessions, and whoever inherited the folder."""
        known = {identity for identity in (record.agent, record.command) if identity is not None} if record else set()
        # A session keeps its number from being reused, unless somebody else has that number now.
        sessions = {pid for pid, start in known if _start_of(pid) in {None, start}}
        for pid in psutil.pids():
            start = _start_of(pid)
            if start is None or pid == os.getpid():
                continue
            with suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                mine = (pid, start) in known or os.getsid(pid) in sessions or _folder_of(process) == str(folder)
                if mine:
                    yield process


def _folder_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("FOREBAY_ATTEMPT_DIR")
    except psutil.AccessDenied:
        return None


def _is_agent(process: psutil.Process, folder: Path) -> bool:
    """An agent between its start and its process.json leads the session that we made for it."""
    with suppress(psutil.Error, OSError):
        return _folder_of(process) == str(folder) and os.getsid(process.pid) == process.pid
    return False


def _start_of(pid: int) -> int | None:
    """When a living process started, in clock ticks since boot; None for a dead one and for a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _is_alive(identity: tuple[int, int] | None) -> bool:
    return identity is not None and _start_of(identity[0]) == identity[1]


STOP_MARK = "stop.json"
"""Written beside process.json by whoever ends attempts on purpose: `{"by": "forebay down"}`."""


def _stopped_by(folder: Path, *, vanished: bool) -> str:
    """Why an attempt did not fail: it was stopped on purpose, or its agent vanished because the machine was restarted."""
    mark = _read_json(folder / STOP_MARK)
    if mark is not None:
        return f"the attempt was stopped by {str(mark.get('by') or 'somebody')[:80]}"
    if not vanished:
        return ""
    try:
        written = (folder / "process.json").stat().st_mtime
    except OSError:
        return ""
    return "the machine was restarted while the attempt ran" if written < psutil.boot_time() else ""


def _shown(identity: tuple[int, int] | None) -> str | None:
    return f"{identity[0]}@{identity[1]}" if identity else None


def _read_json(path: Path) -> dict[str, Any] | None:
    """A small JSON object; None while it is missing, half written or not one."""
    try:
        found = json.loads(read_regular(path))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _identity(data: Mapping[str, Any], who: str) -> tuple[int, int] | None:
    pid, start = data.get(f"{who}_pid"), data.get(f"{who}_start")
    return (pid, start) if isinstance(pid, int) and pid > 1 and isinstance(start, int) else None


def _read_record(folder: Path) -> _Record | None:
    data = _read_json(folder / "process.json")
    if data is None:
        return None
    return _Record(
        agent=_identity(data, "agent"), command=_identity(data, "command"), stage=str(data.get("stage", "preflight"))
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _read_exit(folder: Path) -> ExitReport | None:
    data = _read_json(folder / "exit.json")
    if data is None:
        return None
    return ExitReport(
        exit_code=_number(data.get("exit_code")),
        signal=_number(data.get("signal")),
        reason=str(data.get("reason", "Unknown")),
        message=str(data.get("message", "")),
        ran=bool(data.get("ran", True)),
    )


def _write_whole(path: Path, text: str) -> None:
    """Nobody ever reads half of it."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
