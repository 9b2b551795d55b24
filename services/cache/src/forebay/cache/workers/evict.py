"""Work `evict`: free the blocks of plans that nobody wants, save those that other plans need, and look that they are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from forebay.cache.adapters.file_identity import identity
from forebay.cache.adapters.plan_files import PlanFiles
from forebay.cache.domain.decide import fact, said_node
from forebay.cache.domain.documents import LOCAL_NODE, LOST, RESIDENT, Plan
from forebay.cache.domain.plan import ByteRange, ReadPlan, merge_ranges, range_bytes
from forebay.cache.domain.shared import overlap, place_of
from forebay.cache.domain.wording import show_bytes
from forebay.cache.errors import PlanError, PoolError
from forebay.cache.ports import ChoosePool, Kept
from forebay.contracts.v1.cache import CacheEvicted
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

PAUSE_S = 5.0
MOST_TRIES = 5
"""After so many the plan counts as evicted all the same: what cannot be freed must not keep others waiting."""


class EvictWorker:
    """Lets plans go. A plan that somebody wants by now stays."""

    def __init__(self, choose: ChoosePool, plans: PlanFiles, *, node: str = LOCAL_NODE) -> None:
        self._choose = choose
        self._plans = plans
        self._node = node

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        kept = [plan for key in item.payload["keep"] if (plan := await self._kept(str(key), context)) is not None]
        why = str(item.payload["why"])
        trouble: str | None = None
        for key in item.payload["victims"]:
            known = await context.get(Plan, str(key))
            if known is None or known.wanted or known.on(self._node).state not in {*RESIDENT, LOST}:
                continue
            plan = await context.in_thread(self._plans.read, known.id)
            if plan is None:
                await context.emit(self._evicted(known, 0, f"{why}; its list of files is gone, so nothing was freed"))
                continue
            try:
                freed, note = await context.in_thread(self._drop, plan, kept)
            except PoolError as error:
                trouble = str(error)
                if item.tries < MOST_TRIES:
                    continue
                freed, note = 0, f"nothing could be freed: {error}"
            await context.emit(self._evicted(known, freed, f"{why}; {note}" if note else why))
        if trouble is not None and item.tries < MOST_TRIES:
            raise RetryLater(PAUSE_S, trouble)
        return []

    async def _kept(self, key: str, context: WorkContext) -> ReadPlan | None:
        known = await context.get(Plan, key)
        if known is None or known.live is None:
            return None
        return await context.in_thread(self._plans.read, known.id)

    def _drop(self, plan: ReadPlan, kept: Sequence[ReadPlan]) -> tuple[int, str]:
        """Bytes freed, and what there is to say about the rest."""
        root = Path(plan.root)
        pool = self._choose(root, plan.files)
        keep: list[Kept] = [(Path(other.root), other.files) for other in kept]
        freed = pool.drop(root, plan.files, keep=keep)
        if pool.traits.proof != "blocks":
            return freed, f"{pool.traits.adapter}: the files are the data itself, so evicting them frees nothing"
        try:
            left, shared = self._left(plan, kept)
        except PlanError:  # files that are gone take no room and cannot be looked at
            return freed, ""
        notes = [f"{show_bytes(left)} of it could not be freed"] if left else []
        notes += [f"{show_bytes(shared)} stay, because other plans need them"] if shared else []
        return freed, ", ".join(notes)

    def _left(self, plan: ReadPlan, kept: Sequence[ReadPlan]) -> tuple[int, int]:
        """Planned bytes that are still cached: those whose blocks no kept plan touches, and the others."""
        root = Path(plan.root)
        pool = self._choose(root, plan.files)
        block = pool.traits.block_bytes
        needed: dict[str, list[ByteRange]] = {}
        for other in kept:
            for file in other.files:
                needed.setdefault(identity(place_of(other, file)), []).extend(file.aligned(block))
        left = shared = 0
        for file, residency in zip(plan.files, pool.check(root, plan.files), strict=True):
            stays = merge_ranges(needed.get(identity(place_of(plan, file)), ()))
            common = range_bytes(overlap(residency.verified, stays))
            left += range_bytes(residency.verified) - common
            shared += common
        return left, shared

    def _evicted(self, known: Plan, freed: int, reason: str) -> Emit:
        body = CacheEvicted(
            plan=known.id,
            name=known.name,
            number=known.number,
            freed_bytes=freed,
            reason=reason,
            node=said_node(self._node),
        )
        return Emit(project=known.project, body=body, dedupe=fact(known, self._node))
