"""Health: what a service says about itself, over the bus and over HTTP (`health_server.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Health:
    """The current state of one service: facts that change by themselves, and problems that a person should see."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.phase = "starting"
        self.caught_up = False
        self.started = time.time()
        self._probes: dict[str, Callable[[], Any]] = {}
        self._problems: dict[str, Callable[[], str]] = {}

    def probe(self, name: str, read: Callable[[], Any]) -> None:
        """A fact to show; `connected` and `trouble` also decide whether the service is ready."""
        self._probes[name] = read

    def problem(self, name: str, read: Callable[[], str]) -> None:
        """A sentence that is empty while all is well: anything else turns health red, and hinders no work."""
        self._problems[name] = read

    def report(self) -> dict[str, Any]:
        """`ready`: it does its work. `healthy`: and nothing needs a person's attention."""
        facts = {name: read() for name, read in self._probes.items()}
        trouble = str(facts.get("trouble") or "")
        ready = self.caught_up and bool(facts.get("connected", True)) and not trouble
        problems = [trouble, *(read() for read in self._problems.values())]
        problems = [problem for problem in problems if problem]
        return {
            "service": self.service,
            "healthy": ready and not problems,
            "ready": ready,
            "problems": problems,
            "phase": self.phase,
            "caught_up": self.caught_up,
            "up_s": round(time.time() - self.started, 1),
            **facts,
        }
