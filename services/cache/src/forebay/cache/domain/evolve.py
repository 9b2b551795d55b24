"""The fold: what each event says about plans and those who want them. How data was used is in `usage.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from forebay.cache.domain import usage
from forebay.cache.domain.documents import (
    EVICTED,
    EXPIRED,
    FAILED,
    LOCAL_NODE,
    LOST,
    PARTIAL,
    READY,
    RESERVED,
    UNDER_WAY,
    VERIFYING,
    WARMING,
    Job,
    Plan,
    Policy,
    PoolState,
    Refusal,
    Rule,
    Warmth,
    Wish,
    place,
    version_place,
)
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import cache as said
from forebay.contracts.v1 import datasets
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.state import Fold

FOLD_VERSION = 3
_Judged = (
    said.CacheReserved
    | said.CacheWarming
    | said.CacheReady
    | said.CachePartial
    | said.CacheFailed
    | said.CacheLost
    | said.CacheExpired
    | said.CacheEvicted
)


def evolve(fold: Fold, recorded: Recorded[EventBody]) -> None:
    """Fold one event."""
    for step in _STEPS.get(type(recorded.body), ()):
        step(fold, recorded)


def _granted(fold: Fold, recorded: Recorded[datasets.LeaseGranted]) -> None:
    body = recorded.body
    inputs = tuple(item.model_dump(mode="json", exclude_none=True) for item in body.inputs)
    known = fold.get(Job, place(recorded.project, body.job))
    job = known or Job(project=recorded.project, id=body.job, inputs=inputs)
    fold.put(replace(job, inputs=inputs, released=False))


def _planned(fold: Fold, recorded: Recorded[said.CachePlanned]) -> None:
    body = recorded.body
    plan = fold.get(Plan, place(recorded.project, body.plan)) or Plan(
        project=recorded.project,
        id=body.plan,
        digest=body.digest,
        what=body.kind or "dataset",
        name=body.name,
        number=body.number,
        root=body.root,
        columns=body.columns,
        episodes=body.episodes,
        files=body.files,
        total_bytes=body.total_bytes,
        aligned_bytes=body.aligned_bytes,
        whole_bytes=body.whole_bytes,
        ranges_uri=body.ranges.uri,
        ranges_sha256=body.ranges.sha256,
        previous=None if body.previous is None else place(recorded.project, body.previous),
        new_aligned_bytes=body.new_aligned_bytes,
        shared_bytes=body.reused_bytes or 0,
        used_at=recorded.stored_at,
        since=recorded.stored_at,
    )
    if body.wish:
        plan = _wanted_by_wish(fold, plan, body.job)
    job = fold.get(Job, place(recorded.project, body.job))
    if job is not None:
        fold.put(replace(job, plans=_with(job.plans, plan.id)))
        if not job.released:
            plan = replace(plan, jobs=_with(plan.jobs, job.id))
    fold.put(replace(plan, used_at=recorded.stored_at))


def _wanted_by_wish(fold: Fold, plan: Plan, wish_id: str) -> Plan:
    wish = fold.get(Wish, place(plan.project, wish_id))
    if wish is None or wish.state != "open":
        return plan
    if plan.state == READY:
        fold.put(replace(wish, plan=plan.id, state="warm"))
        return plan
    fold.put(replace(wish, plan=plan.id))
    return replace(plan, wishes=_with(plan.wishes, wish_id))


def _failed(fold: Fold, recorded: Recorded[said.CacheFailed]) -> None:
    if recorded.body.job is None:
        _judge(fold, recorded)
    else:
        _refused(fold, recorded.project, recorded.body)


def _refused(fold: Fold, project: str, body: said.CacheFailed) -> None:
    wish = fold.get(Wish, place(project, body.job or ""))
    if wish is not None:
        fold.put(replace(wish, state="failed", message=body.message))
    job = fold.get(Job, place(project, body.job or ""))
    if job is None:
        return
    refusal = Refusal(
        plan=body.plan, name=body.name, number=body.number, reason=body.reason.value, message=body.message
    )
    others = tuple(one for one in job.refusals if one.plan != body.plan)
    fold.put(replace(job, refusals=(*others, refusal)))


def _released(fold: Fold, recorded: Recorded[datasets.LeaseReleased]) -> None:
    job_id = recorded.body.job
    job = fold.get(Job, place(recorded.project, job_id))
    if job is None:
        return
    fold.put(replace(job, released=True))
    for plan_id in job.plans:
        plan = fold.get(Plan, place(recorded.project, plan_id))
        if plan is not None:
            fold.put(_settled(replace(plan, jobs=_without(plan.jobs, job_id), used_at=recorded.stored_at)))


def _wished(fold: Fold, recorded: Recorded[said.WarmRequested]) -> None:
    body = recorded.body
    wish = Wish(
        project=recorded.project,
        id=body.request,
        input=body.input.model_dump(mode="json", exclude_none=True),
        by=body.by,
        why=body.reason,
        at=recorded.stored_at,
    )
    fold.put(wish)


def _wish_cancelled(fold: Fold, recorded: Recorded[said.WarmCancelled]) -> None:
    body = recorded.body
    found = fold.get(Wish, place(recorded.project, body.request))
    if found is None or found.state != "open":
        return
    fold.put(replace(found, state="cancelled", message=body.reason))
    plan = fold.get(Plan, place(recorded.project, found.plan)) if found.plan else None
    if plan is not None:
        fold.put(_settled(replace(plan, wishes=_without(plan.wishes, found.id))))


def _version_removed(fold: Fold, recorded: Recorded[datasets.DatasetVersionRemoved]) -> None:
    """Nothing can be warmed of a version that is gone; jobs hold leases, so only wishes end."""
    project, body = recorded.project, recorded.body
    for plan in fold.find(Plan, "version", version_place(project, "dataset", body.dataset, body.number)):
        if plan.wishes:
            _end_wishes(fold, plan, "failed", f"{body.dataset}@v{body.number} was cleaned up: {body.reason}")
            fold.put(_settled(replace(plan, wishes=())))


def _end_wishes(fold: Fold, plan: Plan, state: str, message: str | None) -> None:
    for wish_id in plan.wishes:
        wish = fold.get(Wish, place(plan.project, wish_id))
        if wish is not None:
            fold.put(replace(wish, state=state, message=message))


def _judge(fold: Fold, recorded: Recorded[Any]) -> None:
    body: _Judged = recorded.body
    plan = fold.get(Plan, place(recorded.project, body.plan))
    if plan is None:
        return
    node = body.node or LOCAL_NODE
    warmth = replace(_judged(plan.on(node), body), since=recorded.stored_at)
    if isinstance(body, said.CacheReady):
        _end_wishes(fold, plan, "warm", None)
        plan = replace(plan, wishes=())
    elif isinstance(body, said.CacheFailed):
        _end_wishes(fold, plan, "failed", body.message)
        plan = replace(plan, wishes=())
    fold.put(_settled(replace(plan, nodes={**plan.nodes, node: warmth})))


def _settled(plan: Plan) -> Plan:
    """What was lost while nobody wants it is simply not there: it has no claim on room that others may take."""
    if plan.wanted or all(warmth.state != LOST for warmth in plan.nodes.values()):
        return plan
    nodes = {
        node: replace(warmth, state=EVICTED) if warmth.state == LOST else warmth for node, warmth in plan.nodes.items()
    }
    return replace(plan, nodes=nodes)


def _judged(warmth: Warmth, body: _Judged) -> Warmth:  # noqa: PLR0911 one return per event
    match body:
        case said.CacheReserved():
            return replace(warmth, state=RESERVED, reason=Reason.WARMING.value, message=None)
        case said.CacheWarming():
            return _under_way(warmth, body)
        case said.CacheReady():
            return replace(
                warmth,
                state=READY,
                verified_bytes=body.verified_bytes,
                origin_bytes=warmth.origin_bytes + body.origin_bytes,
                reused_bytes=body.reused_bytes or 0,
                place=body.place,
                adapter=body.adapter,
                proof=body.proof,
                cannot_prove=body.cannot_prove,
                reason=Reason.WARM.value,
                message=None,
            )
        case said.CachePartial(reason=Reason.CANCELLED):
            again = warmth.generation + 1
            return replace(warmth, state=PARTIAL, generation=again, reason=Reason.CANCELLED.value, message=body.message)
        case said.CachePartial():
            return replace(
                warmth,
                state=PARTIAL,
                verified_bytes=body.verified_bytes,
                reason=body.reason.value,
                message=body.message,
            )
        case said.CacheExpired():
            again = warmth.generation + 1
            unused = f"nobody used it for {body.ttl_days} days; it goes first when room is needed"
            return replace(warmth, state=EXPIRED, generation=again, reason=Reason.CACHE_EXPIRED.value, message=unused)
        case said.CacheEvicted():
            gone = replace(warmth, freed_bytes=body.freed_bytes)
            return _cold(gone, EVICTED, Reason.CACHE_LOST.value, body.reason)
        case said.CacheLost():
            return _cold(warmth, LOST, body.reason.value, body.message)
        case said.CacheFailed():
            return _cold(warmth, FAILED, body.reason.value, body.message)


def _under_way(warmth: Warmth, body: said.CacheWarming) -> Warmth:
    if warmth.reason == Reason.CANCELLED.value or warmth.state not in {*UNDER_WAY, LOST}:
        return warmth  # the last word of a warm-up that was stopped
    state = WARMING if body.stage == "warming" else VERIFYING
    return replace(warmth, state=state, verified_bytes=max(warmth.verified_bytes, body.found_bytes))


def _cold(warmth: Warmth, state: str, reason: str, message: str) -> Warmth:
    again = warmth.generation + 1
    return replace(warmth, state=state, verified_bytes=0, generation=again, reason=reason, message=message)


def _policy(fold: Fold, recorded: Recorded[said.CachePolicySet]) -> None:
    project, body = recorded.project, recorded.body
    rules = tuple(Rule(on=one.on, tag=one.tag, datasets=one.datasets, columns=one.columns) for one in body.warm)
    fold.put(Policy(project=project, budget_bytes=body.budget_bytes, ttl_days=body.ttl_days, warm=rules, by=body.by))


def _pool(fold: Fold, recorded: Recorded[said.CachePoolSeen]) -> None:
    body = recorded.body
    fold.put(
        PoolState(
            node=body.node,
            adapter=body.adapter,
            limit_bytes=body.limit_bytes,
            used_bytes=body.used_bytes,
            free_bytes=body.free_bytes,
            concerns=tuple((one.kind, one.message) for one in body.concerns),
            at=recorded.stored_at,
        )
    )


_STEPS: dict[type[EventBody], tuple[Callable[[Fold, Recorded[Any]], None], ...]] = {
    datasets.DatasetVersionCommitted: (usage.committed,),
    datasets.DatasetVersionRemoved: (usage.removed, _version_removed),
    datasets.DatasetTagged: (usage.tagged,),
    datasets.DatasetUntagged: (usage.untagged,),
    datasets.LeaseGranted: (_granted,),
    datasets.LeaseReleased: (_released,),
    said.DatasetAccessed: (usage.accessed,),
    said.WarmRequested: (_wished,),
    said.WarmCancelled: (_wish_cancelled,),
    said.CachePlanned: (_planned,),
    said.CacheFailed: (_failed,),
    said.CacheReserved: (_judge,),
    said.CacheWarming: (_judge,),
    said.CacheReady: (_judge,),
    said.CachePartial: (_judge,),
    said.CacheLost: (_judge,),
    said.CacheExpired: (_judge,),
    said.CacheEvicted: (_judge,),
    said.CachePolicySet: (_policy,),
    said.CachePoolSeen: (_pool,),
    DeadlinePassed: (),
}
READS: frozenset[type[EventBody]] = frozenset(_STEPS)


def _with(known: tuple[str, ...], one: str) -> tuple[str, ...]:
    return known if one in known else (*known, one)


def _without(known: tuple[str, ...], one: str) -> tuple[str, ...]:
    return tuple(other for other in known if other != one)
