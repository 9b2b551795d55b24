"""Health: what a service says about itself, over the bus and over HTTP (`health_server.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class Health:
    """The current state of one service; `probes` add facts that change by themselves."""

    def __init__(self, service: str) -> None:
        self.service = service
        self.phase = "starting"
        self.caught_up = False
        self.started = time.time()
        self._probes: dict[str, Callable[[], Any]] = {}

    def probe(self, name: str, read: Callable[[], Any]) -> None:
        self._probes[name] = read

    def report(self) -> dict[str, Any]:
        facts = {name: read() for name, read in self._probes.items()}
        trouble = [facts[name] for name in ("trouble",) if facts.get(name)]
        healthy = self.caught_up and bool(facts.get("connected", True)) and not trouble
        return {
            "service": self.service,
            "healthy": healthy,
            "phase": self.phase,
            "caught_up": self.caught_up,
            "up_s": round(time.time() - self.started, 1),
            **facts,
        }
