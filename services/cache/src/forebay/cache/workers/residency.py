"""Work `check`: is what was ready still there? Also asked before an old plan is reused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.documents import READY, Plan
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.domain.wording import show_bytes
from forebay.cache.errors import PlanError, PoolError
from forebay.cache.ports import ChoosePool
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheLost
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem


def lost_event(choose: ChoosePool, plan: ReadPlan, known: Plan) -> Emit | None:
    """The event that says what of a ready plan is gone; None when all of it is there."""
    root = Path(plan.root)
    try:
        found = choose(root, plan.files).check(root, plan.files)
    except (PoolError, PlanError) as error:
        return _lost(known, error.reason, str(error))
    missing = [one for residency in found for one in residency.missing]
    if not missing:
        return None
    gone = sum(one.range.length for one in missing)
    first = missing[0]
    message = (
        f"{show_bytes(gone)} of {show_bytes(plan.total_bytes)} are not in the cache any more, "
        f"first {first.file} from byte {first.range.start}: {first.reason}"
    )
    return _lost(known, Reason.CACHE_LOST, message)


def _lost(known: Plan, reason: Reason, message: str) -> Emit:
    body = CacheLost(plan=known.id, name=known.name, number=known.number, reason=reason, message=message)
    return Emit(project=known.project, body=body, dedupe=(known.id, known.generation))


class CheckWorker:
    """Looks at one ready plan. Says nothing when all is well."""

    def __init__(self, choose: ChoosePool, plans: PlanFiles) -> None:
        self._choose = choose
        self._plans = plans

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        known = await context.get(Plan, item.key)
        if known is None or known.state != READY or not known.jobs:
            return []
        plan = await asyncio.to_thread(self._plans.read, known.id)
        if plan is None:
            return [_lost(known, Reason.CACHE_LOST, "the plan's file is gone, so its bytes cannot be checked")]
        lost = await asyncio.to_thread(lost_event, self._choose, plan, known)
        return [] if lost is None else [lost]
