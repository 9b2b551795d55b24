"""Work `warm`: bring a plan's bytes into the pool and prove that they are there.

Level-triggered: each run looks at the disk first and fetches what is missing there, so
a run after a kill, a loss or a restart is like any other. Whatever a run waits for has
a deadline, and it ends when nobody wants the plan any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.decide import fact, said_node
from forebay.cache.domain.documents import LOCAL_NODE, LOST, UNDER_WAY, Job, Plan, Wish, place
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.errors import DataChangedError, OverBudgetError, PlanError, PoolError
from forebay.cache.ports import ChoosePool, Planner
from forebay.cache.workers import outcomes
from forebay.cache.workers.plan import plan_input
from forebay.cache.workers.warming import Stopped, Warmed, Warming, WarmingSettings
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheWarming
from forebay.contracts.v1.datasets import PinnedInput
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

T = TypeVar("T")
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0


class WarmWorker:
    """Warms one plan for everybody who wants it."""

    def __init__(
        self,
        choose: ChoosePool,
        planner: Planner,
        plans: PlanFiles,
        settings: WarmingSettings,
        *,
        node: str = LOCAL_NODE,
    ) -> None:
        self._choose = choose
        self._planner = planner
        self._plans = plans
        self._settings = settings
        self._node = node
        self._hanging: dict[str, asyncio.Future[Any]] = {}
        """Steps that no longer answer, by plan: threads cannot be ended."""

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        known = await context.get(Plan, item.key)
        if known is None or not known.wanted or not _has_room(known, self._node):
            return []
        try:
            self._not_hanging(known.key)
            plan = await self._read(known, context)
            warmed, run = await self._warm(plan, known, context)
        except Stopped:
            return []
        except (PlanError, OverBudgetError) as error:
            return [outcomes.failed(known, self._node, error)]
        except PoolError as error:
            await context.emit(outcomes.unreachable(known, self._node, error))
            raise RetryLater(_pause(item), str(error)) from error
        if warmed.missing:
            await context.emit(outcomes.partial(known, self._node, plan, warmed))
            raise RetryLater(_pause(item), f"{len(warmed.missing)} planned ranges are not in the cache")
        return [outcomes.ready(known, self._node, plan, warmed, run.pool.traits)]

    async def _read(self, known: Plan, context: WorkContext) -> ReadPlan:
        """The plan as it was made; when its file is gone, made again from an input that asked for it."""
        plan = await context.in_thread(self._plans.read, known.id)
        if plan is not None:
            return plan
        for pinned in await _inputs(known, context):
            if (pinned.name, pinned.number) == (known.name, known.number):
                again = await context.in_thread(plan_input, self._planner, pinned)
                if again.id == known.id:
                    return again
        msg = f"the plan's file is gone and {known.root} does not give the same plan any more: submit the job again"
        raise DataChangedError(msg)

    async def _warm(self, plan: ReadPlan, known: Plan, context: WorkContext) -> tuple[Warmed, Warming]:
        """Look, fetch, verify, each in a thread; between them the log hears of the stage."""
        loop = asyncio.get_running_loop()
        told = {"plan": known.id, "name": known.name, "number": known.number, "node": self._node}

        def tell(progress: Mapping[str, Any]) -> None:
            loop.call_soon_threadsafe(context.progress, {**told, **progress})

        pool = await context.in_thread(self._choose, Path(plan.root), plan.files)
        shown = known.on(self._node).verified_bytes
        run = Warming(pool=pool, plan=plan, settings=self._settings, tell=tell, shown=shown)
        cold = await self._step(run.look, run, known, context)
        if not cold:
            return run.ended(run.verified), run
        await context.emit(self._stage(known, plan, run, "warming"))
        await self._step(lambda: run.fetch(cold), run, known, context)
        await context.emit(self._stage(known, plan, run, "verifying"))
        return await self._step(run.verify, run, known, context), run

    async def _step(self, step: Callable[[], T], run: Warming, known: Plan, context: WorkContext) -> T:
        """One step in a thread, stopped with the service and when nobody wants it, given up when nothing moves."""
        running = asyncio.ensure_future(context.in_thread(step))
        try:
            while not (await asyncio.wait({running}, timeout=self._settings.look_s))[0]:
                now = await context.get(Plan, known.key)
                if now is None or not now.wanted:
                    run.stopped = True
                if run.clock() - run.moved > self._settings.stall_s:
                    run.stopped = True
                    self._hanging[known.key] = running
                    raise PoolError(_hangs(self._settings.stall_s))
            result = running.result()
            if run.stopped:
                raise Stopped(known.id)
            return result  # noqa: TRY300 what the step itself raises comes out of result()
        except asyncio.CancelledError:
            run.stopped = True
            raise

    def _not_hanging(self, key: str) -> None:
        """Another thread on a mount that does not answer would only be one more that hangs."""
        before = self._hanging.get(key)
        if before is None:
            return
        if not before.done():
            raise PoolError(_hangs(self._settings.stall_s))
        before.exception()  # looked at, so that nothing complains that nobody did
        del self._hanging[key]

    def _stage(self, known: Plan, plan: ReadPlan, run: Warming, stage: str) -> Emit:
        body = CacheWarming.model_validate(
            {
                "plan": known.id,
                "name": known.name,
                "number": known.number,
                "node": said_node(self._node),
                "stage": stage,
                "found_bytes": min(run.found, plan.total_bytes),
                "planned_bytes": plan.total_bytes,
            }
        )
        return Emit(project=known.project, body=body, dedupe=(*fact(known, self._node), stage))


def _has_room(known: Plan, node: str) -> bool:
    """Whether room is reserved and bytes may be missing; without, an old item of work must fetch nothing."""
    warmth = known.on(node)
    return warmth.state in {*UNDER_WAY, LOST} and warmth.reason != Reason.CANCELLED.value


async def _inputs(known: Plan, context: WorkContext) -> list[PinnedInput]:
    """Every input of those who want the plan."""
    found: list[PinnedInput] = []
    for job_id in known.jobs:
        job = await context.get(Job, place(known.project, job_id))
        found += [PinnedInput.model_validate(one) for one in (job.inputs if job else ())]
    for wish_id in known.wishes:
        wish = await context.get(Wish, place(known.project, wish_id))
        found += [PinnedInput.model_validate(wish.input)] if wish else []
    return found


def _hangs(seconds: float) -> str:
    return f"the pool has not answered for {seconds:.0f} s: is the mount or its origin hanging? ('forebay status' shows the mount)"


def _pause(item: WorkItem) -> float:
    return min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2.0 ** min(item.tries, 10))
