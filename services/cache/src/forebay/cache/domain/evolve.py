"""The fold: what each event says about plans and the jobs that lease them."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.cache.domain.documents import EVICTED, FAILED, LOST, PARTIAL, READY, Job, Plan, Refusal, place
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import (
    CacheEvicted,
    CacheFailed,
    CacheLost,
    CachePartial,
    CachePlanned,
    CacheReady,
)
from forebay.contracts.v1.datasets import LeaseGranted, LeaseReleased
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.state import Fold

FOLD_VERSION = 1
READS: frozenset[type[EventBody]] = frozenset(
    {
        LeaseGranted,
        LeaseReleased,
        CachePlanned,
        CacheReady,
        CachePartial,
        CacheFailed,
        CacheLost,
        CacheEvicted,
        DeadlinePassed,
    }
)


def evolve(fold: Fold, recorded: Recorded[EventBody]) -> None:
    """Fold one event."""
    match recorded.body:
        case LeaseGranted() as body:
            inputs = tuple(item.model_dump(mode="json", exclude_none=True) for item in body.inputs)
            known = fold.get(Job, place(recorded.project, body.job))
            job = known or Job(project=recorded.project, id=body.job, inputs=inputs)
            fold.put(replace(job, inputs=inputs, released=False))
        case LeaseReleased() as body:
            _release(fold, recorded.project, body.job)
        case CachePlanned() as body:
            _planned(fold, recorded, body)
        case CacheFailed(job=str()) as body:
            _refused(fold, recorded.project, body)
        case CacheReady() | CachePartial() | CacheFailed() | CacheLost() | CacheEvicted() as body:
            plan = fold.get(Plan, place(recorded.project, body.plan))
            if plan is not None:
                fold.put(replace(_judged(plan, body), since=recorded.stored_at))


def _planned(fold: Fold, recorded: Recorded[EventBody], body: CachePlanned) -> None:
    plan = fold.get(Plan, place(recorded.project, body.plan)) or Plan(
        project=recorded.project,
        id=body.plan,
        digest=body.digest,
        name=body.name,
        number=body.number,
        root=body.root,
        columns=body.columns,
        files=body.files,
        total_bytes=body.total_bytes,
        aligned_bytes=body.aligned_bytes,
        whole_bytes=body.whole_bytes,
        ranges_uri=body.ranges.uri,
        ranges_sha256=body.ranges.sha256,
        since=recorded.stored_at,
    )
    job = fold.get(Job, place(recorded.project, body.job))
    if job is not None:
        fold.put(replace(job, plans=_with(job.plans, plan.id)))
        if not job.released:
            plan = replace(plan, jobs=_with(plan.jobs, job.id))
    fold.put(plan)


def _refused(fold: Fold, project: str, body: CacheFailed) -> None:
    job = fold.get(Job, place(project, body.job or ""))
    if job is None:
        return
    refusal = Refusal(
        plan=body.plan, name=body.name, number=body.number, reason=body.reason.value, message=body.message
    )
    others = tuple(one for one in job.refusals if one.plan != body.plan)
    fold.put(replace(job, refusals=(*others, refusal)))


def _release(fold: Fold, project: str, job_id: str) -> None:
    job = fold.get(Job, place(project, job_id))
    if job is None:
        return
    fold.put(replace(job, released=True))
    for plan_id in job.plans:
        plan = fold.get(Plan, place(project, plan_id))
        if plan is not None:
            fold.put(replace(plan, jobs=tuple(one for one in plan.jobs if one != job_id)))


def _judged(plan: Plan, body: CacheReady | CachePartial | CacheFailed | CacheLost | CacheEvicted) -> Plan:
    match body:
        case CacheReady():
            return replace(
                plan,
                state=READY,
                verified_bytes=body.verified_bytes,
                origin_bytes=plan.origin_bytes + body.origin_bytes,
                place=body.place,
                adapter=body.adapter,
                proof=body.proof,
                cannot_prove=body.cannot_prove,
                reason=Reason.WARM.value,
                message=None,
            )
        case CachePartial():
            return replace(
                plan,
                state=PARTIAL,
                verified_bytes=body.verified_bytes,
                reason=body.reason.value,
                message=body.message,
            )
        case CacheEvicted():
            return _cold(plan, EVICTED, Reason.CACHE_LOST.value, body.reason)
        case CacheLost():
            return _cold(plan, LOST, body.reason.value, body.message)
        case CacheFailed():
            return _cold(plan, FAILED, body.reason.value, body.message)


def _cold(plan: Plan, state: str, reason: str, message: str) -> Plan:
    return replace(plan, state=state, verified_bytes=0, generation=plan.generation + 1, reason=reason, message=message)


def _with(known: tuple[str, ...], one: str) -> tuple[str, ...]:
    return known if one in known else (*known, one)
