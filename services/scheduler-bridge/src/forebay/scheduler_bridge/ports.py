"""What the bridge needs from whatever carries its attempts, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """Everything a backend needs to carry one attempt. Two equal plans are the same attempt."""

    project: str
    job: str
    attempt: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """What the job itself asked for; the backend adds its own and nothing else."""
    devices: tuple[str, ...]
    inputs: Mapping[str, Any]
    """Content of inputs.json."""
    working_directory: str | None = None

    @property
    def name(self) -> str:
        return f"{self.project}/{self.job}/{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReport:
    """How the agent says that its command ended."""

    exit_code: int | None
    signal: int | None
    reason: str
    message: str
    ran: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What can be seen of an attempt now."""

    stage: str
    """absent, starting, preflight, running or ended"""
    alive: bool
    """A process of this attempt exists: agent, command or anything they started."""
    agent_alive: bool
    agent: str | None = None
    """`pid@start` of the agent."""
    command: str | None = None
    """`pid@start` of the command, once it was started."""
    exit: ExitReport | None = None
    stopped: str = ""
    """Why an agent that is gone was ended from outside: somebody stopped it, or the machine was restarted."""
    processes: tuple[int, ...] = field(default=())


class AttemptBackend(Protocol):
    """Carries attempts. Calls may block; each may be repeated after a crash at any line."""

    host: str

    def launch(self, plan: AttemptPlan) -> bool:
        """Start the attempt unless it was started before; False: it was, and nothing was done.

        Raises `StartError` when it cannot be started as things are.
        """
        ...

    def observe(self, plan: AttemptPlan) -> Observation:
        """Look, and change nothing."""
        ...

    def stop(self, plan: AttemptPlan, *, force: bool) -> tuple[int, ...]:
        """Ask every process of the attempt to end, or end it; the processes that were told."""
        ...

    def log_tail(self, plan: AttemptPlan) -> str:
        """The last lines of the attempt's log as they were printed."""
        ...
