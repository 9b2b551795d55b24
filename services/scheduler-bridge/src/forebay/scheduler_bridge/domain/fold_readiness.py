"""Fold what ingest and cache say about a job's inputs: leases, tags, plans and their warmth."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import cache, datasets
from forebay.runtime.state import Fold
from forebay.scheduler_bridge.domain.business import settle
from forebay.scheduler_bridge.domain.documents import (
    EVERYWHERE,
    Job,
    Lease,
    Objection,
    Pinned,
    Plan,
    Warmth,
    place,
)

ACCEPTED = "train-ready"
"""The tag whose loss makes a version unacceptable for every job."""


def _granted(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, datasets.LeaseGranted):
        return job
    inputs = tuple(
        Pinned(
            kind=item.kind,
            logical=item.logical,
            name=item.name,
            number=item.number,
            columns=item.columns,
            body=item.model_dump(mode="json", exclude_none=True),
        )
        for item in body.inputs
    )
    lease = Lease(state="granted", inputs=inputs, at=recorded.stored_at, event=recorded.event.id)
    return replace(job, lease=lease, unplannable={})


def _refused(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, datasets.LeaseRefused):
        return job
    objection = Objection(
        input=body.input,
        reason=body.reason.value,
        message=body.message,
        permanent=body.permanent,
        at=recorded.stored_at,
        event=recorded.event.id,
    )
    # Ingest names one input at a time, so its newest answer replaces the one before.
    # A job that is pinned stays pinned: then a refusal objects to a version it has.
    pinned = job.lease.state == "granted"
    others = job.lease.objections if pinned else {}
    state = "granted" if pinned else "refused"
    return replace(job, lease=replace(job.lease, state=state, objections={**others, body.input: objection}))


def _released(job: Job, _: Recorded[EventBody]) -> Job:
    return replace(job, lease=replace(job.lease, state="released"))


def tag_moved(job: Job, recorded: Recorded[EventBody], body: datasets.DatasetTagged | datasets.DatasetUntagged) -> Job:
    """An untag that names the pinned version objects to it; tagging that version again takes that back.

    That holds for the tag a job was pinned through and for `train-ready`, which is what
    makes a version accepted at all. Moving a tag on is no untag: pinned jobs keep theirs.
    """
    objections = dict(job.lease.objections)
    for item in job.lease.inputs:
        if (item.kind, item.name, item.number) != ("dataset", body.dataset, body.number):
            continue
        if body.tag not in {item.selector, ACCEPTED}:
            continue
        if isinstance(body, datasets.DatasetUntagged):
            said = f": {body.reason}" if body.reason else ""
            objections[item.logical] = Objection(
                input=item.logical,
                reason=Reason.DATASET_UNTAGGED.value,
                message=f"{body.by} took the tag {body.tag} from {item.label}{said}",
                at=recorded.stored_at,
                event=recorded.event.id,
            )
        elif item.logical in objections and objections[item.logical].reason == Reason.DATASET_UNTAGGED.value:
            del objections[item.logical]
    return replace(job, lease=replace(job.lease, objections=objections))


def fold_cache(fold: Fold, recorded: Recorded[EventBody]) -> None:
    """Change the plan, and tie it to the job that asked for it."""
    body = recorded.body
    if isinstance(body, cache.CachePlanned):
        _planned(fold, recorded, body)
    elif isinstance(body, cache.CacheFailed) and body.job is not None:
        _unplannable(fold, recorded, body, body.job)
    plan = fold.get(Plan, place(recorded.project, str(getattr(body, "plan", ""))))
    if plan is not None:
        fold.put(_plan_state(plan, recorded))


def _planned(fold: Fold, recorded: Recorded[EventBody], body: cache.CachePlanned) -> None:
    key = place(recorded.project, body.plan)
    if fold.get(Plan, key) is None:
        fold.put(
            Plan(
                project=recorded.project,
                id=body.plan,
                name=body.name,
                number=body.number,
                columns=body.columns,
                total_bytes=body.total_bytes,
                at=recorded.stored_at,
                event=recorded.event.id,
            )
        )
    job = fold.get(Job, place(recorded.project, body.job))
    if job is not None:
        plans = job.plans if body.plan in job.plans else (*job.plans, body.plan)
        unplannable = {key: item for key, item in job.unplannable.items() if key != f"{body.name}@v{body.number}"}
        fold.put(settle(replace(job, plans=plans, unplannable=unplannable), recorded.stored_at))


def _unplannable(fold: Fold, recorded: Recorded[EventBody], body: cache.CacheFailed, job_id: str) -> None:
    job = fold.get(Job, place(recorded.project, job_id))
    if job is None:
        return
    label = f"{body.name}@v{body.number}"
    objection = Objection(
        input=label,
        reason=body.reason.value,
        message=body.message,
        permanent=True,
        at=recorded.stored_at,
        event=recorded.event.id,
    )
    unplannable = {**job.unplannable, label: objection}
    fold.put(settle(replace(job, unplannable=unplannable), recorded.stored_at))


_FURTHEST = ("failed", "lost", "partial", "ready")


def _plan_state(plan: Plan, recorded: Recorded[EventBody]) -> Plan:
    """What one node's cache says is true of that node; the plan stands where the furthest of them stands."""
    warmth = _warmth(recorded)
    if warmth is None:
        return plan
    node = getattr(recorded.body, "node", None) or EVERYWHERE
    nodes = {**plan.nodes, node: warmth}
    best = max(nodes.values(), key=lambda item: (_FURTHEST.index(item.state), item.verified_bytes, item.at, item.event))
    return replace(
        plan,
        nodes=nodes,
        state=best.state,
        verified_bytes=best.verified_bytes,
        reason=best.reason,
        message=best.message,
        place=best.place or plan.place,
        at=best.at,
        event=best.event,
    )


def _warmth(recorded: Recorded[EventBody]) -> Warmth | None:
    body = recorded.body
    at, event = recorded.stored_at, recorded.event.id
    match body:
        case cache.CacheReady():
            said = f"verified through {body.adapter}"
            return Warmth(
                state="ready",
                verified_bytes=body.verified_bytes,
                reason=Reason.WARM.value,
                message=said,
                place=body.place,
                at=at,
                event=event,
            )
        case cache.CachePartial():
            return Warmth(
                state="partial",
                verified_bytes=body.verified_bytes,
                reason=body.reason.value,
                message=body.message,
                at=at,
                event=event,
            )
        case cache.CacheFailed():
            return Warmth(state="failed", reason=body.reason.value, message=body.message, at=at, event=event)
        case cache.CacheLost():
            return Warmth(state="lost", reason=body.reason.value, message=body.message, at=at, event=event)
        case cache.CacheEvicted():
            message = f"evicted to make room: {body.reason}"
            return Warmth(state="lost", reason=Reason.CACHE_LOST.value, message=message, at=at, event=event)
        case _:
            return None


CHANGES: dict[type[EventBody], Callable[[Job, Recorded[EventBody]], Job]] = {
    datasets.LeaseGranted: _granted,
    datasets.LeaseRefused: _refused,
    datasets.LeaseReleased: _released,
}
