"""A small stand-in for `forebay run`: follows the file protocol of README.md and nothing else.

First argument: what to do. `run CMD…` runs a command like the real agent; the
others misbehave in one way each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

folder = Path(os.environ["FOREBAY_ATTEMPT_DIR"])  # noqa: TID251 the stand-in's only input


def ticks(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return int(text.rpartition(")")[2].split()[19])


def write(name: str, content: dict[str, Any]) -> None:
    part = folder / f".{name}.part"
    part.write_text(json.dumps(content))
    part.rename(folder / name)


def tell(stage: str, command: int | None = None) -> None:
    content: dict[str, Any] = {"agent_pid": os.getpid(), "agent_start": ticks(os.getpid()), "stage": stage}
    if command is not None:
        content |= {"command_pid": command, "command_start": ticks(command)}
    write("process.json", content)


def leave(*, ran: bool, reason: str, message: str = "", code: int | None = None, killed: int | None = None) -> None:
    write("exit.json", {"exit_code": code, "signal": killed, "reason": reason, "message": message, "ran": ran})
    tell("ended")


def run(command: list[str]) -> None:
    with (folder / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    tell("preflight")
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    tell("running", process.pid)
    code = process.wait()
    if code == 0:
        leave(ran=True, reason="Completed", message="the command ended with exit code 0", code=0)
    elif code > 0:
        leave(ran=True, reason="ProcessFailed", message=f"the command ended with exit code {code}", code=code)
    else:
        leave(ran=True, reason="ProcessKilled", message=f"the command was ended by signal {-code}", killed=-code)


def main() -> None:
    what, *command = sys.argv[1:]
    if what == "die-before-lock":
        sys.stderr.write("ModuleNotFoundError: No module named 'forebay.cli'\n")
        sys.exit(1)
    try:
        os.close(os.open(folder / "lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        sys.exit(75)
    if what == "die-after-lock":
        sys.exit(1)
    if what == "refuse":
        tell("preflight")
        leave(ran=False, reason="PreflightFailed", message="output: no room")
        sys.exit(78)
    run(command)


main()
