"""Work `warm`: bring a plan's bytes into the pool and prove that they are there.

Idempotent after a kill: what is there already is seen by the first check and not
fetched again, and the result is the same event of the same plan generation.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.documents import READY, Job, Plan, place
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.domain.wording import show_bytes, show_share
from forebay.cache.errors import DataChangedError, OverBudgetError, PlanError, PoolError
from forebay.cache.ports import ChoosePool, Planner, PoolTraits
from forebay.cache.workers.plan import plan_input
from forebay.cache.workers.warming import Stopped, Warmed, Warming, WarmingSettings
from forebay.contracts.identifiers import content_digest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheFailed, CachePartial, CacheReady, MissingRange
from forebay.contracts.v1.datasets import PinnedInput
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

SHOWN_MISSING = 20
"""Missing ranges that an event lists; the rest are counted in its message."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0


class WarmWorker:
    """Warms one plan for every job that leases it."""

    def __init__(
        self,
        choose: ChoosePool,
        planner: Planner,
        plans: PlanFiles,
        settings: WarmingSettings,
    ) -> None:
        self._choose = choose
        self._planner = planner
        self._plans = plans
        self._settings = settings

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        known = await context.get(Plan, item.key)
        if known is None or known.state == READY or not known.jobs:
            return []
        try:
            plan = await self._read(known, context)
            warmed, traits = await self._warm(plan, known, item, context)
        except (PlanError, OverBudgetError) as error:
            return [_failed(known, error)]
        except PoolError as error:
            await context.emit(_unreachable(known, error))
            raise RetryLater(_pause(item), str(error)) from error
        if warmed.missing:
            partial = _partial(known, plan, warmed)
            await context.emit(partial)
            raise RetryLater(_pause(item), f"{len(warmed.missing)} planned ranges are not in the cache")
        return [_ready(known, plan, warmed, traits)]

    async def _read(self, known: Plan, context: WorkContext) -> ReadPlan:
        """The plan as it was made; when its file is gone, made again from a lease that asked for it."""
        plan = await asyncio.to_thread(self._plans.read, known.id)
        if plan is not None:
            return plan
        for job_id in known.jobs:
            job = await context.get(Job, place(known.project, job_id))
            for pinned in (PinnedInput.model_validate(one) for one in (job.inputs if job else ())):
                if (pinned.name, pinned.number) == (known.name, known.number):
                    again = await asyncio.to_thread(plan_input, self._planner, pinned)
                    if again.id == known.id:
                        return again
        msg = f"the plan's file is gone and {known.root} does not give the same plan any more: submit the job again"
        raise DataChangedError(msg)

    async def _warm(
        self, plan: ReadPlan, known: Plan, item: WorkItem, context: WorkContext
    ) -> tuple[Warmed, PoolTraits]:
        """Warm in a thread, passing on progress, and make it stop when the service does."""
        loop = asyncio.get_running_loop()
        stop = threading.Event()
        told = {"plan": known.id, "name": known.name, "number": known.number}

        def tell(progress: Mapping[str, Any]) -> None:
            loop.call_soon_threadsafe(context.progress, {**told, **progress})

        reserved = int(item.payload.get("reserved_bytes", 0))
        work = asyncio.to_thread(self._warm_now, plan, known.verified_bytes, reserved, tell, stop)
        try:
            return await work
        except asyncio.CancelledError:
            stop.set()
            raise

    def _warm_now(
        self,
        plan: ReadPlan,
        shown: int,
        reserved: int,
        tell: Callable[[Mapping[str, Any]], None],
        stop: threading.Event,
    ) -> tuple[Warmed, PoolTraits]:
        pool = self._choose(Path(plan.root), plan.files)
        traits = pool.traits
        warming = Warming(pool=pool, plan=plan, settings=self._settings, tell=tell, stopped=stop.is_set, shown=shown)
        try:
            return warming.run(reserved_bytes=reserved, clock=time.monotonic), traits
        except Stopped as error:
            raise PoolError(str(error)) from error


def _pause(item: WorkItem) -> float:
    return min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2.0 ** min(item.tries, 10))


def _ready(known: Plan, plan: ReadPlan, warmed: Warmed, traits: PoolTraits) -> Emit:
    body = CacheReady(
        plan=known.id,
        name=known.name,
        number=known.number,
        verified_bytes=warmed.verified_bytes,
        origin_bytes=warmed.origin_bytes,
        place=plan.root,
        adapter=traits.adapter,
        proof=traits.proof,
        cannot_prove=traits.cannot_prove,
        seconds=warmed.seconds,
    )
    return Emit(project=known.project, body=body, dedupe=(known.id, known.generation))


def _partial(known: Plan, plan: ReadPlan, warmed: Warmed) -> Emit:
    shown = [
        MissingRange(file=one.file, start=one.range.start, stop=one.range.end, reason=one.reason)
        for one in warmed.missing[:SHOWN_MISSING]
    ]
    first = warmed.missing[0]
    body = CachePartial(
        plan=known.id,
        name=known.name,
        number=known.number,
        verified_bytes=warmed.verified_bytes,
        planned_bytes=plan.total_bytes,
        missing=tuple(shown),
        reason=Reason.CACHE_PARTIAL,
        message=(
            f"{show_share(warmed.verified_bytes, plan.total_bytes)} of {show_bytes(plan.total_bytes)} verified, "
            f"{len(warmed.missing)} ranges are missing, first {first.file} from byte {first.range.start}: "
            f"{first.reason}; it is tried again"
        ),
    )
    same = content_digest([[one.file, *one.range] for one in warmed.missing])
    return Emit(project=known.project, body=body, dedupe=(known.id, known.generation, same))


def _unreachable(known: Plan, error: PoolError) -> Emit:
    body = CachePartial(
        plan=known.id,
        name=known.name,
        number=known.number,
        verified_bytes=0,
        planned_bytes=known.total_bytes,
        reason=error.reason,
        message=f"{error}; it is tried again",
    )
    return Emit(project=known.project, body=body, dedupe=(known.id, known.generation, str(error)))


def _failed(known: Plan, error: PlanError | OverBudgetError) -> Emit:
    body = CacheFailed(plan=known.id, name=known.name, number=known.number, reason=error.reason, message=str(error))
    return Emit(project=known.project, body=body, dedupe=(known.id, known.generation))
