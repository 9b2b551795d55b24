"""Work `plan`: one pinned input of a job becomes a read plan, or a refusal that says why not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from forebay.cache.adapters.file_identity import identity
from forebay.cache.adapters.locations import local_folder
from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.documents import LOCAL_NODE, READY, Plan, place
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.domain.shared import shared
from forebay.cache.errors import DataUnreadableError, PlanError, PoolError
from forebay.cache.ports import ChoosePool, Planner
from forebay.cache.workers.residency import lost_event
from forebay.contracts.identifiers import stable_id
from forebay.contracts.v1.cache import CacheFailed, CachePlanned
from forebay.contracts.v1.datasets import PinnedInput
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

POOL_PAUSE_S = 5.0


def plan_input(planner: Planner, pinned: PinnedInput) -> ReadPlan:
    """Plan one input. Columns and episodes belong to datasets; a model is read whole."""
    dataset = pinned.kind == "dataset"
    return planner(
        local_folder(pinned.root),
        columns=pinned.columns if dataset else (),
        episodes=pinned.episodes if dataset else None,
        source=pinned.manifest_sha256,
    )


class PlanWorker:
    """Plans inputs. Running an item again makes the same plan and the same event."""

    def __init__(self, planner: Planner, choose: ChoosePool, plans: PlanFiles, *, node: str = LOCAL_NODE) -> None:
        self._planner = planner
        self._choose = choose
        self._plans = plans
        self._node = node

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        pinned = PinnedInput.model_validate(item.payload["input"])
        job, index = str(item.payload["job"]), int(item.payload["index"])
        try:
            plan, block_bytes = await context.in_thread(self._plan, pinned)
        except PoolError as error:
            raise RetryLater(POOL_PAUSE_S, str(error)) from error
        except PlanError as error:
            return [_refusal(item.project, job, index, pinned, error)]
        ranges = await context.in_thread(partial(self._plans.write, plan, block_bytes=block_bytes))
        planned = CachePlanned(
            plan=plan.id,
            job=job,
            digest=plan.digest,
            name=pinned.name,
            number=pinned.number,
            root=plan.root,
            columns=pinned.columns,
            files=len(plan.files),
            total_bytes=plan.total_bytes,
            aligned_bytes=plan.aligned_bytes(block_bytes),
            whole_bytes=plan.whole_bytes,
            ranges=ranges,
            kind=pinned.kind,
            episodes=pinned.episodes if pinned.kind == "dataset" else None,
            wish=True if item.payload.get("wish") else None,
            **await context.in_thread(self._beside, plan, block_bytes, item.payload.get("previous", ())),
        )
        emit = Emit(project=item.project, body=planned, dedupe=(job, index))
        known = await context.get(Plan, place(item.project, plan.id))
        if known is None or known.on(self._node).state != READY:
            return [emit]
        # Nobody may have looked since the last job ended: an old "ready" must not open this job's gate.
        lost = await context.in_thread(lost_event, self._choose, plan, known, self._node)
        return [emit] if lost is None else [lost, emit]

    def _beside(self, plan: ReadPlan, block_bytes: int, previous: Iterable[str]) -> dict[str, Any]:
        """The older plan that it shares most with, and what it takes beside that one."""
        best: dict[str, Any] = {}
        for plan_id in previous:
            older = self._plans.read(plan_id)
            if older is None or older.id == plan.id:
                continue
            common = shared(plan, older, block_bytes, identity)
            if common.planned_bytes > best.get("reused_bytes", 0):
                new = plan.aligned_bytes(block_bytes) - common.aligned_bytes
                best = {"previous": plan_id, "reused_bytes": common.planned_bytes, "new_aligned_bytes": new}
        return best

    def _plan(self, pinned: PinnedInput) -> tuple[ReadPlan, int]:
        try:
            plan = plan_input(self._planner, pinned)
        except DataUnreadableError:
            # With the mount gone every folder is: that passes, a missing folder in a working mount does not.
            self._pool_answers(local_folder(pinned.root))
            raise
        return plan, self._choose(Path(plan.root), plan.files).traits.block_bytes

    def _pool_answers(self, root: Path) -> None:
        """Raises `PoolError` when the pool that should hold `root` does not answer."""
        self._choose(root, ()).check(root, ())


def _refusal(project: str, job: str, index: int, pinned: PinnedInput, error: PlanError) -> Emit:
    body = CacheFailed(
        plan=stable_id("unplanned", project, job, index),
        name=pinned.name,
        number=pinned.number,
        reason=error.reason,
        message=str(error),
        job=job,
    )
    return Emit(project=project, body=body, dedupe=("unplanned", job, index))
