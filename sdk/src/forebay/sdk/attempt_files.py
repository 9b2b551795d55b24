"""The agent's files in the attempt folder: the only thing it shares with the scheduler on this machine.

`lock` says that an agent has this attempt (made once, never removed), `process.json`
which processes run, `exit.json` how it ended, `announced.jsonl` which checkpoints
were already handed to the outbox. Each is replaced as a whole, so a reader never
sees half of one.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Stage = Literal["preflight", "running", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How an attempt ended."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str
    message: str
    ran: bool


class AttemptFolder:
    """Files of one attempt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._command: tuple[int, int | None] | None = None
        self.behind = False
        """process.json could not be written and says less than is so."""

    def take(self) -> bool:
        """Claim the attempt; False when another agent has it, now or before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(self.folder / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        with contextlib.suppress(OSError), os.fdopen(handle, "w") as file:  # that it exists is what counts
            file.write(f"{os.getpid()}\n")
        return True

    def write_process(self, stage: Stage, command_pid: int | None = None) -> None:
        """Say which processes run; a command that was named once stays named after its end."""
        agent = os.getpid()
        self.behind = True
        if command_pid is not None:
            self._command = (command_pid, start_ticks(command_pid))
        pid, start = self._command or (None, None)
        self._write(
            "process.json",
            {
                "agent_pid": agent,
                "agent_start": start_ticks(agent),
                "command_pid": pid,
                "command_start": start,
                "stage": stage,
            },
        )
        self.behind = False

    def write_exit(self, ended: Exit) -> None:
        self._write("exit.json", asdict(ended))

    def announce(self, folder_name: str, digest: str) -> None:
        """Note that a checkpoint's event is in the outbox."""
        with (self.folder / "announced.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps([folder_name, digest]) + "\n")

    def announced(self) -> set[tuple[str, str]]:
        """Checkpoints that this attempt or an earlier one of the job announced."""
        found: set[tuple[str, str]] = set()
        for path in self.folder.parent.glob("attempt-*/announced.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    name, digest = json.loads(line)
                except ValueError:
                    continue  # the last line of a killed agent; its checkpoint is announced again, the same event
                found.add((name, digest))
        return found

    def _write(self, name: str, content: dict[str, Any]) -> None:
        part = self.folder / f".{name}.part"
        with part.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.folder / name)


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the pid, its identity on this machine."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])
