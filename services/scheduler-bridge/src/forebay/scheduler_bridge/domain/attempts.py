"""What follows from an attempt: is its preflight good, and after its end, is there another attempt."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Action, Emit
from forebay.scheduler_bridge.domain.documents import Attempt, Job
from forebay.scheduler_bridge.domain.fold_attempts import attempt_of

FINAL = frozenset({Reason.PREFLIGHT_FAILED, Reason.RESUME_REFUSED, Reason.START_FAILED, Reason.COMMAND_NOT_FOUND})
"""Trying again changes nothing about these: the job fails at once, with the cause shown."""

FREE_RETRIES = 10
"""Ends by a full disk that cost no attempt. A command that fills the disk itself would go on for ever."""


def allowed_attempts(job: Job) -> int:
    """What the job asked for, and one more for each attempt that a full disk ended."""
    full = sum(1 for one in job.attempts if one.ending is not None and one.ending.reason == Reason.DISK_FULL)
    return job.request.restart.max_attempts + min(full, FREE_RETRIES)


def judge_preflight(job: Job, body: jobs.PreflightReported) -> Iterator[Action]:
    """Passed, or failed with every failed check. A report about an attempt that was never admitted counts for nothing."""
    attempt = attempt_of(job, body.attempt)
    if attempt is None or attempt.admitted_at is None:
        return
    failed = tuple(check for check in body.checks if check.status == "fail")
    judged: jobs.PreflightFailed | jobs.PreflightPassed
    if failed:
        judged = jobs.PreflightFailed(job=job.id, attempt=body.attempt, failed=failed)
    else:
        warnings = tuple(f"{check.name}: {check.message}" for check in body.checks if check.status == "warn")
        judged = jobs.PreflightPassed(job=job.id, attempt=body.attempt, warnings=warnings)
    yield Emit(project=job.project, body=judged, dedupe=(job.id, body.attempt))


def after_attempt(job: Job, body: jobs.AttemptEnded) -> Iterator[Action]:
    """Success, the next attempt under the same quota, or failure with the last cause."""
    last = job.last
    if last is None or last.number != body.attempt:
        return
    if body.ran and body.exit_code == 0 and not body.signal:
        succeeded = jobs.JobSucceeded(job=job.id, attempt=body.attempt, attempts=len(job.attempts))
        yield Emit(project=job.project, body=succeeded, dedupe=(job.id,))
        return
    allowed = allowed_attempts(job)
    if not body.ran and body.reason in FINAL:
        yield _failed(job, body.reason, _preflight_cause(last) or body.message)
    elif body.attempt >= allowed:
        message = f"attempt {body.attempt} of {allowed} ended: {body.message}"
        yield _failed(job, Reason.ATTEMPTS_EXHAUSTED, message)
    else:
        admitted = jobs.WorkloadAdmitted(
            job=job.id,
            attempt=body.attempt + 1,
            resources=job.resources,
            devices=last.devices,
            queue=job.request.queue,
        )
        yield Emit(project=job.project, body=admitted, dedupe=(job.id, admitted.attempt))


def _preflight_cause(attempt: Attempt) -> str | None:
    checks = attempt.preflight.checks if attempt.preflight else ()
    failed = [f"{check['name']}: {check['message']}" for check in checks if check.get("status") == "fail"]
    return "; ".join(failed) or None


def _failed(job: Job, reason: Reason, message: str) -> Emit:
    body = jobs.JobFailed(job=job.id, reason=reason, message=message, attempts=len(job.attempts))
    return Emit(project=job.project, body=body, dedupe=(job.id,))
