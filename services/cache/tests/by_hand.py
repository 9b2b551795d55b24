"""The service's functions and workers run by hand, over pools that do as they are told."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.adapters.version_root import plan_folder
from forebay.cache.domain.documents import Plan
from forebay.cache.domain.plan import PlannedFile
from forebay.cache.domain.pool_facts import CacheDisk, PoolFacts
from forebay.cache.errors import PoolError
from forebay.cache.ports import ChoosePool, Kept, Missing, Planner, Pool, PoolTraits, Residency
from forebay.cache.workers.evict import EvictWorker
from forebay.cache.workers.plan import PlanWorker
from forebay.cache.workers.residency import CheckWorker
from forebay.cache.workers.warm import WarmWorker
from forebay.cache.workers.warming import WarmingSettings
from forebay.contracts.body import EventBody
from forebay.contracts.v1.cache import CacheReserved, CacheWarming
from forebay.contracts.v1.datasets import PinnedInput
from forebay.runtime.machine import Action, Emit, Work
from forebay.runtime.work import Worker, WorkItem

from tests.eventually import WITHIN_S

from .builders import Context, Log, granted


class Cache:
    """The service's functions and workers, run by hand."""

    def __init__(
        self,
        folder: Path,
        choose: ChoosePool,
        *,
        budget: int | None = None,
        planner: Planner = plan_folder,
        stall_s: float = 30.0,
    ) -> None:
        self.log = Log(budget=budget)
        self.context = Context(self.log)
        self.plans = PlanFiles(folder / "plans")
        warming = WarmingSettings(parallel=2, look_s=0.02, stall_s=stall_s)
        self.workers: dict[str, Worker] = {
            "plan": PlanWorker(planner, choose, self.plans),
            "warm": WarmWorker(choose, planner, self.plans, warming),
            "check": CheckWorker(choose, self.plans),
            "evict": EvictWorker(choose, self.plans),
        }

    async def work(self, work: Work, *, tries: int = 0) -> list[Emit]:
        item = WorkItem(kind=work.kind, key=work.key, project=work.project, payload=work.payload, tries=tries)
        return list(await self.workers[work.kind](item, self.context))

    async def run(self, actions: Sequence[Action]) -> list[EventBody]:
        """Do all work that follows from these actions; returns every event said meanwhile, in order."""
        before = len(self.log.said)
        waiting = [one for one in actions if isinstance(one, Work)]
        while waiting:
            emits = await self.work(waiting.pop(0))
            waiting += [one for one in self.log.publish(emits) if isinstance(one, Work)]
        return [body for body in self.log.said[before:] if not isinstance(body, CacheReserved | CacheWarming)]

    async def planned(self, job: str, *inputs: PinnedInput) -> Work:
        """Plan one input and stop before its warm-up, which is returned."""
        (plan_work,) = [one for one in self.log.say(granted(job, *inputs)) if isinstance(one, Work)]
        (warm_work,) = [one for one in self.log.publish(await self.work(plan_work)) if isinstance(one, Work)]
        return warm_work

    async def submit(self, job: str, *inputs: PinnedInput) -> list[EventBody]:
        return await self.run(self.log.say(granted(job, *inputs)))

    def plan(self) -> Plan:
        (found,) = self.log.state.all(Plan)
        return found


class Unreliable:
    """A pool that keeps only what it is allowed to; its blocks are kilobytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: set[str] = set()
        self.drops: set[str] = set()
        self.down = False
        self.fetched = 0
        self.room = 1 << 30
        self.trouble: dict[str, PoolError] = {}
        """What fetching files below a folder fails with."""
        self.gate: threading.Event | None = None
        """Fetches wait for it."""
        self.waiting = threading.Event()
        """A fetch has begun to wait."""
        self.disks: tuple[CacheDisk, ...] = ()
        self.traits = PoolTraits(adapter="unreliable", proof="blocks", cannot_prove=None, block_bytes=1024)

    def choose(self, root: Path, files: Sequence[PlannedFile]) -> Pool:  # noqa: ARG002 the port's signature
        return self

    def check(self, root: Path, files: Sequence[PlannedFile]) -> list[Residency]:  # noqa: ARG002
        if self.down:
            msg = "the mount is gone"
            raise PoolError(msg)
        return [
            Residency(verified=file.spans, missing=())
            if file.path in self.kept
            else Residency(
                verified=(), missing=tuple(Missing(file=file.path, range=one, reason="dropped") for one in file.spans)
            )
            for file in files
        ]

    def fetch(self, root: Path, file: PlannedFile) -> int:  # noqa: ARG002
        if self.gate is not None:
            self.waiting.set()
            assert self.gate.wait(WITHIN_S)
        if (trouble := self.trouble.get(file.path.split("/")[0])) is not None:
            raise trouble
        self.fetched += file.planned_bytes
        if file.path.split("/")[0] not in self.drops:
            self.kept.add(file.path)
        return file.planned_bytes

    def room_bytes(self) -> int:
        return self.room

    def drop(self, root: Path, files: Sequence[PlannedFile], *, keep: Sequence[Kept] = ()) -> int:
        stays = {place / file.path for place, held in keep for file in held}
        dropped = [file for file in files if file.path in self.kept and root / file.path not in stays]
        self.kept -= {file.path for file in dropped}
        return sum(file.planned_bytes for file in dropped)

    def facts(self) -> PoolFacts:
        if self.down:
            msg = "the mount is gone"
            raise PoolError(msg)
        return PoolFacts(
            adapter="unreliable", limit_bytes=1 << 30, used_bytes=0, keep_free_ratio=None, disks=self.disks
        )
