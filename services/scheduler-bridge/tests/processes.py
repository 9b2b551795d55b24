"""Real attempts for tests: plans, and a backend with the stand-in agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from forebay.scheduler_bridge.adapters.local_processes import LocalProcesses, Surroundings
from forebay.scheduler_bridge.ports import AttemptPlan

STAND_IN = Path(__file__).with_name("stand_in_agent.py")
VARIABLES = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def backend(home: Path, behaviour: str = "run") -> LocalProcesses:
    """A backend as a new process of the bridge has it: no memory of what was started before."""
    surroundings = Surroundings(home=home, nats_url="nats://127.0.0.1:1", variables=VARIABLES)
    return LocalProcesses(surroundings, agent=(sys.executable, str(STAND_IN), behaviour), host="bench")


def plan(*command: str, **fields: Any) -> AttemptPlan:
    values: dict[str, Any] = {
        "project": "arm-lab",
        "job": "pick-1",
        "attempt": 1,
        "command": command,
        "environment": {},
        "devices": (),
        "inputs": {"inputs": []},
        **fields,
    }
    return AttemptPlan(**values)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)
