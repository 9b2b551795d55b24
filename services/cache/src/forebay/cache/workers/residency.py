"""Work `check`: is what was ready still there? Also asked before an old plan is reused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.documents import LOCAL_NODE, READY, Plan
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.domain.wording import show_bytes
from forebay.cache.errors import PlanError, PoolError
from forebay.cache.ports import ChoosePool
from forebay.cache.workers import outcomes
from forebay.contracts.reasons import Reason
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem


def lost_event(choose: ChoosePool, plan: ReadPlan, known: Plan, node: str) -> Emit | None:
    """The event that says what of a ready plan is gone; None when all of it is there."""
    root = Path(plan.root)
    try:
        found = choose(root, plan.files).check(root, plan.files)
    except (PoolError, PlanError) as error:
        return outcomes.lost(known, node, error.reason, str(error))
    missing = [one for residency in found for one in residency.missing]
    if not missing:
        return None
    gone = sum(one.range.length for one in missing)
    first = missing[0]
    message = (
        f"{show_bytes(gone)} of {show_bytes(plan.total_bytes)} are not in the cache any more, "
        f"first {first.file} from byte {first.range.start}: {first.reason}"
    )
    return outcomes.lost(known, node, Reason.CACHE_LOST, message)


class CheckWorker:
    """Looks at one ready plan. Says nothing when all is well."""

    def __init__(self, choose: ChoosePool, plans: PlanFiles, *, node: str = LOCAL_NODE) -> None:
        self._choose = choose
        self._plans = plans
        self._node = node

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        known = await context.get(Plan, item.key)
        if known is None or known.on(self._node).state != READY:
            return []
        plan = await context.in_thread(self._plans.read, known.id)
        if plan is None:
            text = "the plan's file is gone, so its bytes cannot be checked"
            return [outcomes.lost(known, self._node, Reason.CACHE_LOST, text)]
        lost = await context.in_thread(lost_event, self._choose, plan, known, self._node)
        return [] if lost is None else [lost]
