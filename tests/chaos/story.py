"""What goes on while services are killed: uploads through the CLI, jobs through questions, both until they are answered.

Everything that was answered "yes" is remembered, and has to be found at the end.
"""

from __future__ import annotations

import asyncio
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable

from tests.servers.installation import Installation

PROJECT = "chaos"
EPISODES = 3
RECORDER = Path(__file__).parents[2] / "examples" / "record_arm.py"
JOB = Path(__file__).parent / "job.py"
_AGAIN_S = 0.3
_PASSING = {"catching-up", "not-stored-yet", "internal"}
"""Answers after which the same request, under the same id, is asked again."""


@dataclass(slots=True)
class Said:
    """What was promised to people."""

    uploads: dict[str, str] = field(default_factory=dict)
    """Upload id -> dataset."""
    jobs: dict[str, bool] = field(default_factory=dict)
    """Job id -> whether its first attempt fails on purpose."""
    repeats: int = 0
    """Requests that had to be asked again."""


class Story:
    """Feeds one installation. Everything it asks carries an id of its own, so asking again is safe."""

    def __init__(self, place: Installation, client: Client, folder: Path, seed: int) -> None:
        self._place = place
        self._client = client
        self._folder = folder
        self._random = random.Random(seed)  # noqa: S311 a chosen order, no secret
        self.said = Said()

    async def record(self, number: int) -> Path:
        """A dataset that no other upload has."""
        folder = self._folder / f"arm-{number}"
        command = [str(RECORDER), str(folder), "--episodes", str(EPISODES), "--seconds", "1", "--seed", str(number)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return folder

    async def upload(self, number: int) -> None:
        """Upload until the command says that everything was delivered."""
        dataset = f"reach-{number}"
        folder = await self.record(number)
        while True:
            ran = await self._place.cli("upload", str(folder), "--dataset", dataset, "--project", PROJECT, "--json")
            if ran.code == 0:
                self.said.uploads[str(ran.json()["upload"])] = dataset
                return
            assert ran.code == 3, f"upload of {dataset} ended with {ran.code}: {ran.err}"
            self.said.repeats += 1
            await asyncio.sleep(_AGAIN_S)

    async def submit(self, number: int, datasets: int) -> None:
        """Submit a job on one of the datasets, ready or not."""
        fails_first = number % 4 == 0
        seconds = self._random.uniform(0.1, 1.5)
        spec = {
            "name": f"job-{number}",
            "project": PROJECT,
            "command": [sys.executable, str(JOB), f"{seconds:.2f}", "fails-first" if fails_first else "works"],
            "datasets": [
                {"name": f"dataset:reach-{self._random.randrange(datasets)}@train-ready", "columns": ["action"]}
            ],
            "resources": {"cpu": 0.25, "memory_bytes": 64 << 20},
            "restart": {"max_attempts": 3, "allow_cold_start": True},
        }
        answer = await self.ask(
            "scheduler-bridge", "submit", {"spec": spec, "wait_for_dataset": True}, f"submit-{number}"
        )
        self.said.jobs[str(answer["job"])] = fails_first

    async def ask(self, service: str, question: str, args: dict[str, Any], request: str) -> dict[str, Any]:
        """Ask until there is an answer."""
        while True:
            try:
                return (await self._client.ask(service, PROJECT, question, args, id=request, timeout=20)).result
            except Unreachable:
                pass
            except Refused as refused:
                if refused.code not in _PASSING:
                    raise
            self.said.repeats += 1
            await asyncio.sleep(_AGAIN_S)

    async def states(self) -> dict[str, str]:
        """Job -> state, all pages."""
        found: dict[str, str] = {}
        after = ""
        while True:
            page = await self.ask("scheduler-bridge", "jobs", {"after": after, "limit": 500}, "")
            found |= {str(job["job"]): str(job["state"]) for job in page["jobs"]}
            if not page["next"]:
                return found
            after = str(page["next"])

    async def unfinished(self) -> list[str]:
        states = await self.states()
        return [job for job in self.said.jobs if states.get(job) not in {"SUCCEEDED", "FAILED", "CANCELLED"}]
