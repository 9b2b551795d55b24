"""The cache is killed at random moments while it plans, warms and evicts; each request ends as it would undisturbed.

`python -m tests.chaos.cache_kills --kills 200` by hand, `tests/system/test_cache_kills.py` in short.
After each round the blocks are looked at on disk, by this process and not by the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.plan import ReadPlan, range_bytes
from forebay.contracts.parts import Part
from forebay.contracts.subjects import DEAD_STREAM
from forebay.contracts.v1.cache import CacheEvicted, CacheFailed, CacheLost, CacheReady, WarmRequested
from forebay.runtime.client import Client
from forebay.runtime.errors import Unreachable
from forebay.runtime.log import LogReader

from services.ingest.tests.valid_datasets import Shape, build
from tests.chaos.examine import quiet
from tests.chaos.long_run import long_run
from tests.chaos.story import PROJECT
from tests.eventually import WITHIN_S, eventually
from tests.servers.installation import Installation, installation

DATASET = "pick"
EPISODES, LENGTH, WIDTH = 10, 60, 2400
_WITHIN_S = WITHIN_S
BLOCK_BYTES = 1 << 20


@dataclass(slots=True)
class Outcome:
    """One run in figures."""

    kills: int = 0
    rounds: int = 0
    during: Counter[str] = field(default_factory=Counter)
    """State of the plan when the cache was killed."""
    extra_blocks: float = 0.0
    """What all rounds together read from the origin beyond the blocks that they needed."""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "rounds": self.rounds,
            "killed_while": dict(self.during),
            "extra_blocks": round(self.extra_blocks, 2),
            "problems": self.problems,
            "seconds": round(self.seconds, 1),
        }


class CacheKills:
    """One run on one installation with a JuiceFS mount."""

    def __init__(self, place: Installation, client: Client, folder: Path, *, kills: int, seed: int) -> None:
        self._place = place
        self._client = client
        self._folder = folder
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311 a chosen order, no secret
        self._pool = JuicefsPool(place.home.pool)
        self._plans = PlanFiles(place.home.root / "services" / "cache" / "plans")
        self._calm_s = 1.0
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        began = time.monotonic()
        await asyncio.to_thread(build, self._folder, _shape())
        ran = await self._place.cli(
            "upload", str(self._folder), "--dataset", DATASET, "--project", PROJECT, "--wait", "--json"
        )
        assert ran.code == 0, ran.err
        await eventually(lambda: quiet(self._place, self._client), what="the version is known", within=_WITHIN_S)
        calm = time.monotonic()
        await self._round(kills=False)
        self._calm_s = time.monotonic() - calm
        while self.outcome.kills < self._kills:
            await self._round(kills=True)
        await eventually(lambda: quiet(self._place, self._client), what="everything is done", within=120, every=0.2)
        await self._as_a_person()
        await self._examine()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    async def _round(self, *, kills: bool) -> None:
        """One request until it is warm, looked at, then evicted and looked at again."""
        self.outcome.rounds += 1
        columns = ["action"] if self._random.random() < 0.5 else ["action", "observation.state"]
        order, before = uuid.uuid4().hex, self._origin()
        asked = await self._order("warm", {"name": f"{DATASET}@train-ready", "columns": columns}, order)
        wish = str(asked["request"])
        await self._until(lambda: self._wish(wish), "warm", kills=kills)
        answer = await self._ask("wish", {"request": wish})
        plan = self._plans.read(str(answer["plan"]["id"]))
        assert plan is not None, "the plan's file is gone"
        await asyncio.to_thread(self._warm_on_disk, plan, self._origin() - before)
        evict = uuid.uuid4().hex
        await self._order("evict", {"plan": plan.id}, evict)
        await self._until(lambda: self._state(plan.id), "evicted", kills=kills)
        (there,) = await asyncio.to_thread(lambda: [sum(self._verified(plan))])
        if there:
            self.outcome.problems.append(f"round {self.outcome.rounds}: {there:,} bytes are still there after eviction")

    async def _as_a_person(self) -> None:
        """The commands after all that: warm and wait, list, why, evict. One more round."""
        self.outcome.rounds += 1
        name = f"{DATASET}@train-ready"
        warmed = await self._cli("warm", name, "--columns", "action", "--wait")
        plan = str(warmed["plan"]["id"])
        listed = await self._cli("cache", "list")
        if [one["id"] for one in listed["plans"]] != [plan] or listed["room"]["held_bytes"] <= 0:
            self.outcome.problems.append(f"forebay cache list shows {listed}")
        if not (await self._cli("cache", "why", plan[:10]))["sentences"]:
            self.outcome.problems.append("forebay cache why says nothing")
        (gone,) = (await self._cli("cache", "evict", "--dataset", DATASET))["evicted"]
        if gone["state"] != "evicted" or not gone["freed_bytes"]:
            self.outcome.problems.append(f"forebay cache evict answers {gone}")

    async def _cli(self, *arguments: str) -> Any:
        ran = await self._place.cli(*arguments, "--project", PROJECT, "--json")
        assert ran.code == 0, f"forebay {' '.join(arguments)}: {ran.out} {ran.err}"
        return ran.json()

    async def _until(self, probe: Any, wanted: str, *, kills: bool) -> None:
        """Wait for a state, killing the cache on the way; it may be gone before a kill comes."""
        while kills and self.outcome.kills < self._kills and await probe() != wanted:
            await self._kill(probe)
            if self._random.random() < 0.5:
                break
        await eventually(lambda: self._is(probe, wanted), what=f"it is {wanted}", within=_WITHIN_S)

    async def _is(self, probe: Any, wanted: str) -> bool:
        state = await probe()
        if state in {"failed", "cancelled"} and state != wanted:
            self.outcome.problems.append(f"round {self.outcome.rounds} ended {state}")
            return True
        return bool(state == wanted)

    async def _kill(self, probe: Any) -> None:
        """SIGKILL some time after it was seen alive."""
        state = await probe()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._random.uniform(0, self._calm_s / 2)):
                await asyncio.Event().wait()
        victim = self._place.child(Part.CACHE)
        self.outcome.during[str(state)] += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.outcome.kills += 1
        await eventually(lambda: self._place.child(Part.CACHE).pid != victim.pid, what="the cache is back", within=60)

    # asking, patiently: the cache may be dead at any moment

    async def _order(self, command: str, args: dict[str, Any], order: str) -> dict[str, Any]:
        async def once() -> dict[str, Any]:
            try:
                return (
                    await self._client.ask("cache", PROJECT, command, args, timeout=5.0, id=order, by="chaos")
                ).result
            except Unreachable:
                return {}

        found: dict[str, Any] = await eventually(once, what=f"{command} is answered", within=_WITHIN_S)
        return found

    async def _ask(self, question: str, args: dict[str, Any]) -> dict[str, Any]:
        return await self._order(question, args, uuid.uuid4().hex)

    async def _wish(self, wish: str) -> str:
        answer = await self._ask("wish", {"request": wish})
        plan = answer["plan"]
        return str(plan["state"]) if answer["state"] == "open" and plan else str(answer["state"])

    async def _state(self, plan: str) -> str:
        return str((await self._ask("plan", {"plan": plan}))["state"])

    # looking

    def _origin(self) -> int:
        """Bytes that the mount has read from its object storage; it is not killed, so it counts on."""
        for line in (self._place.home.pool / ".stats").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "juicefs_object_request_data_bytes_GET":
                return int(float(value))
        return 0

    def _verified(self, plan: ReadPlan) -> list[int]:
        root = Path(plan.root)
        return [range_bytes(one.verified) for one in self._pool.check(root, plan.files)]

    def _warm_on_disk(self, plan: ReadPlan, origin: int) -> None:
        there = sum(self._verified(plan))
        if there != plan.total_bytes:
            self.outcome.problems.append(
                f"round {self.outcome.rounds}: {there:,} of {plan.total_bytes:,} bytes are warm"
            )
        self.outcome.extra_blocks += max(0.0, (origin - plan.aligned_bytes()) / BLOCK_BYTES)

    async def _said(self) -> Counter[type]:
        """How many different events of each kind the log holds."""
        said: Counter[type] = Counter()
        seen: set[str] = set()
        async for batch in self._client.batches():
            for event in (message.decode() for message in batch):
                said[type(event.body)] += event.identity not in seen
                seen.add(event.identity)
        return said

    async def _examine(self) -> None:
        problems = self.outcome.problems
        # A request costs a look at the files; a kill costs the block that was just coming. The rest is never read again.
        allowed = self.outcome.rounds + self.outcome.kills
        if self.outcome.extra_blocks > allowed:
            problems.append(f"{self.outcome.extra_blocks:.1f} blocks were read again, {allowed} are allowed")
        said = await self._said()
        rounds, losses = self.outcome.rounds, said[CacheLost]
        if said[WarmRequested] != rounds:
            problems.append(f"{said[WarmRequested]} WarmRequested in {rounds} rounds")
        # An eviction that was cut off may be noticed as a loss first, by the look at start; then nothing is left to evict.
        if not rounds - losses <= said[CacheEvicted] <= rounds:
            problems.append(f"{said[CacheEvicted]} CacheEvicted in {rounds} rounds, {losses} lost")
        if not rounds <= said[CacheReady] <= rounds + losses:
            problems.append(f"{said[CacheReady]} CacheReady in {rounds} rounds, {losses} lost")
        if said[CacheFailed]:
            problems.append(f"{said[CacheFailed]} CacheFailed")
        ran = await self._place.cli("rebuild", str(Part.CACHE), "--project", PROJECT, "--json")
        if ran.code != 0 or not ran.json()["equal"]:
            problems.append(f"the cache's store is not what the log says: {ran.out or ran.err}")
        _, dead = await LogReader(self._client.nc, DEAD_STREAM).ends()
        if dead:
            problems.append(f"{dead} dead letters")


def _shape() -> Shape:
    """Wide signals: tens of blocks for each column."""
    return Shape(
        lengths=(LENGTH,) * EPISODES,
        rate="30",
        data=(0,) * EPISODES,
        videos={"observation.images.front": (0,) * EPISODES},
        tasks=(0,) * EPISODES,
        width=WIDTH,
        seed=13,
    )


async def run_kills(kills: int, *, seed: int, folder: Path) -> Outcome:
    """Everything from an empty folder to the answer."""
    async with installation(folder / "home", [PROJECT], juicefs=True) as place, place.operator() as client:
        return await CacheKills(place, client, folder / "recordings", kills=kills, seed=seed).run()


if __name__ == "__main__":
    sys.exit(long_run(__doc__, lambda kills, seed, folder: run_kills(kills, seed=seed, folder=folder)))
