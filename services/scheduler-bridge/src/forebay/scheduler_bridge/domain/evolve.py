"""Fold events into documents. Pure; called by the runtime for every event that the bridge reads.

Two machines are kept apart: attempts and history are runtime facts, the business
state is derived from them by `business.settle` and never set by a message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1 import cache, datasets, episodes, jobs, models
from forebay.runtime.state import Fold
from forebay.scheduler_bridge.domain import fold_attempts, fold_readiness
from forebay.scheduler_bridge.domain.business import settle
from forebay.scheduler_bridge.domain.cluster.documents import Carrier
from forebay.scheduler_bridge.domain.cluster.fold import bind, fold_fact
from forebay.scheduler_bridge.domain.documents import Applied, Condition, Job, KnownName, Terminal, Waiting, place
from forebay.scheduler_bridge.domain.history import entry_of

FOLD_VERSION = 6

OWN: tuple[type[EventBody], ...] = (
    jobs.JobSubmitted,
    jobs.JobGated,
    jobs.JobGateOpened,
    jobs.WorkloadPending,
    jobs.WorkloadAdmitted,
    jobs.WorkloadEvicted,
    jobs.PodScheduled,
    jobs.PodUnschedulable,
    jobs.ContainerWaiting,
    jobs.VolumeMountFailed,
    jobs.PreflightPassed,
    jobs.PreflightFailed,
    jobs.AttemptStarted,
    jobs.AttemptEnded,
    jobs.JobSucceeded,
    jobs.JobFailed,
    jobs.JobCancelled,
    jobs.RuntimeFactRecorded,
    jobs.VerdictChanged,
)
FOREIGN: tuple[type[EventBody], ...] = (
    episodes.UploadStarted,
    datasets.DatasetVersionCommitted,
    datasets.DatasetTagged,
    datasets.DatasetUntagged,
    datasets.LeaseGranted,
    datasets.LeaseRefused,
    datasets.LeaseReleased,
    cache.CachePlanned,
    cache.CacheReady,
    cache.CachePartial,
    cache.CacheFailed,
    cache.CacheLost,
    cache.CacheEvicted,
    jobs.PreflightReported,
    models.ResumeDecided,
    models.CheckpointVerified,
    models.DeadlinePassed,
    models.ModelVersionRegistered,
)
READS: frozenset[type[EventBody]] = frozenset(OWN + FOREIGN)

E = TypeVar("E", bound=EventBody)
Change = Callable[[Job, Recorded[EventBody]], Job]


def evolve(fold: Fold, recorded: Recorded[EventBody]) -> None:
    """Change the documents that one event touches."""
    match recorded.body:
        case jobs.JobSubmitted():
            _submitted(fold, recorded, recorded.body)
        case episodes.UploadStarted(dataset=name):
            _known(fold, recorded.project, "dataset", name, 0)
        case datasets.DatasetVersionCommitted(dataset=name, number=number):
            _known(fold, recorded.project, "dataset", name, number)
        case models.ModelVersionRegistered(model=name, number=number):
            _known(fold, recorded.project, "model", name, number)
        case models.CheckpointVerified():
            _saved(fold, recorded.project, recorded.body)
        case datasets.DatasetTagged() | datasets.DatasetUntagged():
            _tag_moved(fold, recorded, recorded.body)
        case (
            cache.CachePlanned()
            | cache.CacheReady()
            | cache.CachePartial()
            | cache.CacheFailed()
            | cache.CacheLost()
            | cache.CacheEvicted()
        ):
            fold_readiness.fold_cache(fold, recorded)
        case _:
            _of_job(fold, recorded)


def _submitted(fold: Fold, recorded: Recorded[EventBody], body: jobs.JobSubmitted) -> None:
    if fold.get(Job, place(recorded.project, body.job)) is not None:
        return
    job = Job(
        project=recorded.project,
        id=body.job,
        name=body.spec.name,
        run=body.run,
        spec=body.spec.model_dump(mode="json", exclude_none=True),
        spec_sha256=body.spec_sha256,
        submitted_by=body.submitted_by,
        client_id=body.client_id,
        submitted_at=recorded.stored_at,
        submitted_event=recorded.event.id,
    )
    if body.applied is not None:
        job = _applied(fold, job, body.applied)
    fold.put(settle(job, recorded.stored_at))
    fold.put(entry_of(recorded, body.job))


def _applied(fold: Fold, job: Job, found: jobs.AppliedObject) -> Job:
    """Its object exists, so none is ever made; what came past the webhook stands behind no gate."""
    fold.put(Carrier(project=job.project, job=job.id, uid=found.uid))
    applied = Applied(name=found.name, uid=found.uid, gated=found.gated, problem=found.problem)
    return replace(job, applied=applied, on_cluster=True, gate="unset" if found.gated else "open")


def _known(fold: Fold, project: str, of: str, name: str, number: int, *, tag: str | None = None) -> None:
    fresh = KnownName(project=project, of=of, name=name)
    known = fold.get(KnownName, fresh.key) or fresh
    tags = known.tags if tag is None or tag in known.tags else tuple(sorted((*known.tags, tag)))
    fold.put(replace(known, highest=max(known.highest, number), tags=tags))


_USABLE = frozenset({"complete", "inexact", "weights-only"})
_KEPT_STEPS = 1000


def _saved(fold: Fold, project: str, body: models.CheckpointVerified) -> None:
    """A checkpoint that a later job could start from."""
    job = fold.get(Job, place(project, body.job))
    if job is None or body.step in job.saved_steps or body.status not in _USABLE:
        return
    steps = tuple(sorted((*job.saved_steps, body.step)))[-_KEPT_STEPS:]
    fold.put(replace(job, saved_steps=steps))


def _tag_moved(
    fold: Fold, recorded: Recorded[EventBody], body: datasets.DatasetTagged | datasets.DatasetUntagged
) -> None:
    _known(fold, recorded.project, "dataset", body.dataset, body.number, tag=body.tag)
    for job in fold.find(Job, "pinned", place(recorded.project, f"dataset/{body.dataset}")):
        changed = fold_readiness.tag_moved(job, recorded, body)
        if changed != job:
            fold.put(settle(changed, recorded.stored_at))


def _of_job(fold: Fold, recorded: Recorded[EventBody]) -> None:
    change = _CHANGES.get(type(recorded.body))
    job = fold.get(Job, place(recorded.project, str(getattr(recorded.body, "job", ""))))
    if change is None or job is None:
        return
    changed = change(job, recorded)
    if fold_fact(fold, job, recorded):
        changed = replace(changed, on_cluster=True)
    fold.put(settle(changed, recorded.stored_at))
    fold.put(entry_of(recorded, job.id))
    if changed.on_cluster:
        bind(fold, changed)


def _gated(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.JobGated | jobs.JobGateOpened) or body.generation <= job.gate_generation:
        return job
    opened = isinstance(body, jobs.JobGateOpened)
    return replace(
        job,
        gate="open" if opened else "shut",
        gate_generation=body.generation,
        gate_changed_at=recorded.stored_at,
        conditions=tuple(
            Condition(
                type=item.type.value,
                status=item.status,
                reason=item.reason.value,
                message=item.message,
                since=item.since,
                evidence=item.evidence,
            )
            for item in body.conditions
        ),
        waiting=job.waiting if opened else None,
    )


def _pending(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.WorkloadPending) or body.generation <= job.waiting_generation:
        return job
    waiting = Waiting(
        reason=body.reason.value,
        message=body.message,
        lacking=tuple(item.resource for item in body.lacking),
        at=recorded.stored_at,
        event=recorded.event.id,
    )
    return replace(job, waiting=waiting, waiting_generation=body.generation)


def _verdict(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.VerdictChanged) or body.generation <= job.verdict_generation:
        return job
    return replace(
        job, verdict=body.verdict.model_dump(mode="json", exclude_none=True), verdict_generation=body.generation
    )


def _ended(job: Job, recorded: Recorded[EventBody]) -> Job:
    if job.terminal is not None:
        return job
    body = recorded.body
    state, reason, message = "SUCCEEDED", "Completed", "the command ended with exit code 0"
    if isinstance(body, jobs.JobFailed):
        state, reason, message = "FAILED", body.reason.value, body.message
    elif isinstance(body, jobs.JobCancelled):
        said = f": {body.reason}" if body.reason else ""
        state, reason, message = "CANCELLED", "Cancelled", f"cancelled by {body.by}{said}"
    return replace(
        job,
        terminal=Terminal(state=state, reason=reason, message=message, at=recorded.stored_at, event=recorded.event.id),
    )


def _unchanged(job: Job, _: Recorded[EventBody]) -> Job:
    return job


_CHANGES: dict[type[EventBody], Change] = {
    jobs.JobGated: _gated,
    jobs.JobGateOpened: _gated,
    jobs.WorkloadPending: _pending,
    jobs.VerdictChanged: _verdict,
    jobs.JobSucceeded: _ended,
    jobs.JobFailed: _ended,
    jobs.JobCancelled: _ended,
    jobs.RuntimeFactRecorded: _unchanged,
    jobs.PodScheduled: _unchanged,
    jobs.PodUnschedulable: _unchanged,
    jobs.ContainerWaiting: _unchanged,
    jobs.VolumeMountFailed: _unchanged,
    **fold_attempts.CHANGES,
    **fold_readiness.CHANGES,
}
