"""What a training command printed before it ended: the line that names the cause, and the last lines. Pure.

The agent logs into the same file as the command; its lines are left out, so that they
never stand for the command's own words.
"""

from __future__ import annotations

import re

OWN_PREFIX = "forebay: "
"""How the agent's log lines begin."""
KEPT_LINES = 12
_KEPT_CHARACTERS = 300
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*)?\Z")
_LAUNCHERS = ("ChildFailedError", "CalledProcessError", "SystemExit", "SignalException")
"""Raised by torchrun, accelerate and others because the command that they started has failed."""


def command_lines(output: str) -> list[str]:
    """The lines of the command, without empty ones and without the agent's."""
    return [line.rstrip() for line in output.splitlines() if line.strip() and not line.startswith(OWN_PREFIX)]


def last_lines(output: str) -> tuple[str, ...]:
    """The last lines of the command, each cut where it is long."""
    return tuple(line[:_KEPT_CHARACTERS] for line in command_lines(output)[-KEPT_LINES:])


def cause_line(output: str) -> str:
    """The exception of the last Python traceback that is not a launcher's; "" without one."""
    lines = command_lines(output)
    causes = [found for index, line in enumerate(lines) if _TRACEBACK in line and (found := _raised(lines[index:]))]
    own = [cause for cause in causes if not cause.partition(":")[0].endswith(_LAUNCHERS)]
    return (own or causes or [""])[-1][:_KEPT_CHARACTERS]


def _raised(lines: list[str]) -> str:
    """The first line after a traceback's header that is not one of its frames."""
    margin = lines[0][: lines[0].index(_TRACEBACK)]  # `[rank0]: ` in front of every line
    for line in lines[1:]:
        text = line.removeprefix(margin)
        if not text[:1].isspace() and _EXCEPTION.match(text.strip()):
            return text.strip()
    return ""


def with_cause(message: str, output: str) -> str:
    """How a command ended, with the line that says why."""
    cause = cause_line(output)
    if cause:
        return message if cause in message else f"{message}: {cause}"
    last = (last_lines(output) or ("",))[-1].strip()
    return message if not last or last in message else f"{message}; last line of its output: {last}"
