"""The crash proof: the chain runs while random services are killed with SIGKILL at random moments.

In the middle the bus itself is away for ten seconds. `make chaos KILLS=n` runs it
in full, `tests/system/test_chaos.py` in short.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.contracts.parts import SERVICES
from forebay.local.home import ChildRecord
from forebay.runtime.client import Client

from tests.chaos.examine import Findings, examine, quiet
from tests.chaos.story import PROJECT, Story
from tests.eventually import eventually
from tests.servers.installation import Installation, installation

IN_FLIGHT = 6
"""Jobs that are under way at any moment."""
BUS = "nats-server"
_BUS_SHARE = 0.04
"""Now and then the bus itself is killed; the supervisor brings it back at once."""
MEAN_PAUSE_S = 1.2
"""Between two kills: short enough to hit starting services, long enough for the story to go on."""
OUTAGE_S = 10.0
_SETTLED_WITHIN_S = 240.0


@dataclass(slots=True)
class Report:
    """One run in figures."""

    kills: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    outage_seen_by: dict[str, str] = field(default_factory=dict)
    restarted_by_outage: list[str] = field(default_factory=list)
    jobs: int = 0
    uploads: int = 0
    repeats: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kills": sum(self.kills.values()),
            "killed": dict(self.kills),
            "problems": self.findings.problems,
            "events": self.findings.events,
            "repeated_messages": self.findings.repeated,
            "jobs": self.jobs,
            "uploads": self.uploads,
            "requests_asked_again": self.repeats,
            "outage_seen_by": self.outage_seen_by,
            "restarted_by_outage": self.restarted_by_outage,
            "digests": self.findings.digests,
            "seconds": round(self.seconds, 1),
        }


class Chaos:
    """One run on one installation."""

    def __init__(self, place: Installation, client: Client, folder: Path, *, kills: int, seed: int) -> None:
        self._place = place
        self._client = client
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311 a chosen order, no secret
        self._story = Story(place, client, folder, seed)
        self._datasets = 2 + kills // 100
        self._over = asyncio.Event()
        self._victim: ChildRecord | None = None
        self.report = Report()

    async def run(self) -> Report:
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._upload())
            tasks.create_task(self._submit())
            tasks.create_task(self._kill())
        await self._settle()
        self.report.findings = await examine(self._place, self._client, self._story)
        said = self._story.said
        self.report.jobs, self.report.uploads, self.report.repeats = len(said.jobs), len(said.uploads), said.repeats
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _upload(self) -> None:
        for number in range(self._datasets):
            await self._story.upload(number)

    async def _submit(self) -> None:
        """Keep a few jobs under way until the killing is over."""
        number = 0
        while not self._over.is_set():
            if len(await self._story.unfinished()) < IN_FLIGHT:
                await self._story.submit(number, self._datasets)
                number += 1
            else:
                await self._pause(0.5)

    async def _kill(self) -> None:
        for done in range(self._kills):
            if done == self._kills // 2:
                await self._outage()
            await self._kill_one()
            if (done + 1) % 10 == 0:
                sys.stderr.write(f"chaos: {done + 1} kills, {len(self._story.said.jobs)} jobs submitted\n")
        self._over.set()

    async def _kill_one(self) -> None:
        """Kill a service that lives, healthy or still starting, after a random moment."""
        await self._pause(self._random.expovariate(1 / MEAN_PAUSE_S))
        part = BUS if self._random.random() < _BUS_SHARE else str(self._random.choice(SERVICES))
        await eventually(lambda: self._end(part), what=f"{part} lives", within=60)
        victim = self._victim
        await eventually(lambda: victim is None or victim.identity.process() is None, what=f"{part} is dead")

    def _end(self, part: str) -> bool:
        child = self._place.child(part)
        if child.state not in {"healthy", "unhealthy", "starting"} or child.identity.process() is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        self._victim = child
        self.report.kills[part] += 1
        return True

    async def _outage(self) -> None:
        """The bus is away for ten seconds: the supervisor is frozen, so that it cannot bring it back at once."""
        await eventually(self._all_healthy, what="all services are healthy before the outage", within=90)
        before = self._place.record()
        pids = {child.name: child.pid for child in self._place.services()}
        server = before.child(BUS)
        assert server is not None
        os.kill(before.supervisor_pid, signal.SIGSTOP)
        try:
            os.kill(server.pid, signal.SIGKILL)
            await self._pause(OUTAGE_S)
            for child in self._place.services():
                self.report.outage_seen_by[child.name] = await asyncio.to_thread(_health, child)
        finally:
            os.kill(before.supervisor_pid, signal.SIGCONT)
        await eventually(self._all_healthy, what="all services are back after the outage", within=60)
        self.report.restarted_by_outage = [c.name for c in self._place.services() if c.pid != pids[c.name]]

    def _all_healthy(self) -> bool:
        record = self._place.record()
        return all(child.state == "healthy" and child.identity.process() for child in record.children)

    async def _settle(self) -> None:
        async def done() -> bool:
            return not await self._story.unfinished()

        await eventually(done, what="every job has ended", within=_SETTLED_WITHIN_S, every=0.5)
        await eventually(lambda: quiet(self._place, self._client), what="all is quiet", within=60, every=0.5)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()


def _health(child: ChildRecord) -> str:
    """`healthy`, or what the service says is wrong."""
    import http.client  # noqa: PLC0415
    import json  # noqa: PLC0415

    connection = http.client.HTTPConnection("127.0.0.1", child.health_port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        body = json.loads(answer.read())
    finally:
        connection.close()
    return (
        "healthy"
        if answer.status == http.HTTPStatus.OK
        else str(body.get("trouble") or f"connected={body.get('connected')}")
    )


async def run_chaos(kills: int, *, seed: int, folder: Path | None = None) -> Report:
    """Start an installation, let the story run while services die, examine what is left, take it down."""
    with contextlib.ExitStack() as stack:
        root = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-chaos-")))
        async with installation(root / "home", [PROJECT]) as place, place.operator() as client:
            sys.stderr.write(f"chaos: {kills} kills, seed {seed}, home {place.home.root}\n")
            return await Chaos(place, client, root, kills=kills, seed=seed).run()
