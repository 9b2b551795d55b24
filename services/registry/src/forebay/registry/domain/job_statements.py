"""What events about jobs and their attempts say about which node."""

from __future__ import annotations

from typing import Any

from forebay.contracts.v1 import cache, datasets, jobs, models
from forebay.registry.domain.nodes import CHECKPOINT, Link, attempt_id, dataset_id, job_id, model_id
from forebay.registry.domain.relations import ATTEMPT_OF, READS, RESUMED_FROM, STARTS_FROM, Statement, known, plain


def job_submitted(body: jobs.JobSubmitted) -> list[Statement]:
    spec = body.spec
    values = known(
        name=spec.name,
        run=body.run,
        command=list(spec.command),
        declared_datasets=[one.name for one in spec.datasets],
        declared_models=[one.name for one in spec.models],
        code_revision=spec.code_revision,
        image=spec.image,
        parameters=dict(spec.parameters),
        resources=plain(spec.resources),
        start_from=spec.restart.start_from,
        spec_sha256=body.spec_sha256,
        submitted_by=body.submitted_by,
    )
    return [(job_id(body.job), values, ())]


def lease_granted(body: datasets.LeaseGranted) -> list[Statement]:
    inputs = [
        known(
            kind=one.kind,
            logical=one.logical,
            pinned=f"{one.kind}:{one.name}@v{one.number}",
            manifest_sha256=one.manifest_sha256,
            columns=list(one.columns),
            episodes=None if one.episodes is None else list(one.episodes),
        )
        for one in body.inputs
    ]
    parents = tuple(
        (READS, dataset_id(one.name, one.number))
        if one.kind == "dataset"
        else (STARTS_FROM, model_id(one.name, one.number))
        for one in body.inputs
    )
    return [(job_id(body.job), {"inputs": inputs}, parents)]


def cache_planned(body: cache.CachePlanned) -> list[Statement]:
    if body.wish:  # warmed in advance: no job is behind it
        return []
    values = {"plan": body.plan, "dataset": f"{body.name}@v{body.number}", "total_bytes": body.total_bytes}
    return [(job_id(body.job), {"plans": values}, ())]


def job_succeeded(body: jobs.JobSucceeded) -> list[Statement]:
    return [(job_id(body.job), {"attempts": body.attempts, "succeeded_attempt": body.attempt}, ())]


def job_failed(body: jobs.JobFailed) -> list[Statement]:
    values = {"attempts": body.attempts, "failure": body.reason.value, "message": body.message}
    return [(job_id(body.job), values, ())]


def job_cancelled(body: jobs.JobCancelled) -> list[Statement]:
    return [(job_id(body.job), known(cancelled_by=body.by, cancelled_reason=body.reason), ())]


def of_attempt(job: str, attempt: int, values: dict[str, Any], *more: Link) -> list[Statement]:
    return [(attempt_id(job, attempt), values, ((ATTEMPT_OF, job_id(job)), *more))]


def admitted(body: jobs.WorkloadAdmitted) -> list[Statement]:
    values = {"resources": plain(body.resources), "devices": list(body.devices), "queue": body.queue}
    return of_attempt(body.job, body.attempt, values)


def evicted(body: jobs.WorkloadEvicted) -> list[Statement]:
    return of_attempt(body.job, body.attempt, {"evicted": {"reason": body.reason.value, "message": body.message}})


def pod_scheduled(body: jobs.PodScheduled) -> list[Statement]:
    return of_attempt(body.job, body.attempt, {"placed": {"pod": body.pod, "node": body.node}})


def preflight_passed(body: jobs.PreflightPassed) -> list[Statement]:
    return of_attempt(body.job, body.attempt, {"preflight": "passed"})


def preflight_failed(body: jobs.PreflightFailed) -> list[Statement]:
    failed = [{"name": one.name, "reason": one.reason.value} for one in body.failed]
    return of_attempt(body.job, body.attempt, {"preflight": "failed", "preflight_failed": failed})


def attempt_started(body: jobs.AttemptStarted) -> list[Statement]:
    values = known(host=body.host, process=body.process, recovers=body.recovers)
    return of_attempt(body.job, body.attempt, values)


def attempt_ended(body: jobs.AttemptEnded) -> list[Statement]:
    values = known(
        exit_code=body.exit_code,
        signal=body.signal,
        end_reason=body.reason.value,
        end_message=body.message,
        ran=body.ran,
    )
    return of_attempt(body.job, body.attempt, values)


def resume_decided(body: models.ResumeDecided) -> list[Statement]:
    values = known(
        resume_mode=body.mode,
        resume_step=body.step,
        resume_checkpoint=body.checkpoint,
        resume_reasons=list(body.reasons),
        resume_skipped=[[one.checkpoint, one.step, one.reason] for one in body.skipped],
    )
    origin = () if body.checkpoint is None else ((RESUMED_FROM, f"{CHECKPOINT}:{body.checkpoint}"),)
    return of_attempt(body.job, body.attempt, values, *origin)
