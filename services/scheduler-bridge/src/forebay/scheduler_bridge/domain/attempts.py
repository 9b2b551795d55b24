"""What follows from an attempt: is its preflight good, and after its end, is there another attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Action, Emit
from forebay.scheduler_bridge.domain.documents import STOPS, Attempt, Ending, Job, is_success
from forebay.scheduler_bridge.domain.fold_attempts import attempt_of

FINAL = frozenset(
    {
        Reason.PREFLIGHT_FAILED,
        Reason.RESUME_REFUSED,
        Reason.START_FAILED,
        Reason.COMMAND_NOT_FOUND,
    }
)
"""Trying again changes nothing about these: the job fails at once, with the cause shown."""

PASSING = frozenset({Reason.DISK_FULL, Reason.DATA_NOT_MOUNTED})
"""Faults of the machine that somebody repairs: they cost no attempt, but only so often."""

FREE_RETRIES = 10
"""How often ends of `PASSING` cost no attempt. A command that fills the disk itself would go on for ever."""
_FIRST_PAUSE_S = 15.0
_LONGEST_PAUSE_S = 600.0


def is_stop(ending: Ending) -> bool:
    """The attempt was ended from outside, and its training did not fail."""
    return ending.reason in STOPS


def allowed_attempts(job: Job) -> int:
    """What the job asked for, and one more for each attempt whose end was not its own failure."""
    ends = [one.ending for one in job.attempts if one.ending is not None]
    passing = sum(1 for ending in ends if ending.reason in PASSING)
    return job.request.restart.max_attempts + sum(map(is_stop, ends)) + min(passing, FREE_RETRIES)


def start_after(job: Job, number: int, now: datetime) -> datetime | None:
    """When the attempt may start: data that was not mounted is given time to come back."""
    before = [one.ending for one in job.attempts if one.number < number and one.ending is not None]
    missing = sum(1 for ending in before if ending.reason == Reason.DATA_NOT_MOUNTED)
    if not before or before[-1].reason != Reason.DATA_NOT_MOUNTED:
        return None
    return now + timedelta(seconds=min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (missing - 1)))


def root_cause(job: Job) -> Attempt | None:
    """The attempt whose end explains the job's: the first failure since training last got further."""
    failed = [one for one in job.attempts if one.ending is not None and not one.ending.completed]
    own = [one for one in failed if one.ending is not None and not is_stop(one.ending)] or failed
    furthest = max((one.resume.step or 0 for one in own if one.resume is not None), default=0)
    reached = [one.number for one in own if one.resume is not None and (one.resume.step or 0) == furthest]
    since = min(reached, default=0) if furthest else 0
    return next((one for one in own if one.number >= since), None)


def failure_message(job: Job) -> str:
    """The root cause first, then how the attempts after it ended."""
    root = root_cause(job)
    if root is None or root.ending is None:
        return "it ended, and no attempt says why"
    said = cause_of_attempt(root)
    later = [one for one in job.attempts if one.number > root.number and one.ending is not None]
    if not later:
        return said
    if all(cause_of_attempt(one) == said for one in later):
        more = "1 more attempt" if len(later) == 1 else f"{len(later)} more attempts"
        return f"{said}; {more} ended the same way"
    return f"{said}; then attempt {later[-1].number} ended: {cause_of_attempt(later[-1])}"


def cause_of_attempt(attempt: Attempt) -> str:
    """How an attempt ended, in words."""
    ending = attempt.ending
    if ending is None:
        return ""
    return ending.message if ending.ran else _preflight_cause(attempt) or ending.message


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
    """Success, the next attempt under the same quota, or failure with its cause."""
    last = job.last
    if last is None or last.number != body.attempt:
        return
    if is_success(ran=body.ran, exit_code=body.exit_code, signal=body.signal, reason=body.reason):
        succeeded = jobs.JobSucceeded(job=job.id, attempt=body.attempt, attempts=len(job.attempts))
        yield Emit(project=job.project, body=succeeded, dedupe=(job.id,))
        return
    root, allowed = root_cause(job), allowed_attempts(job)
    first = root.number if root is not None else body.attempt
    if not body.ran and body.reason in FINAL:
        if root is None or root.ending is None or first == body.attempt:
            yield _failed(job, body.reason, cause_of_attempt(last))
        else:
            yield _failed(job, Reason(root.ending.reason), f"attempt {first} ended: {failure_message(job)}")
    elif body.attempt >= allowed:
        yield _failed(job, Reason.ATTEMPTS_EXHAUSTED, f"attempt {first} of {allowed} ended: {failure_message(job)}")
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
