"""Fold what happens to attempts. Any order and any repetition of these events gives the same attempts.

Where two messages claim the same fact, the earlier one (by time, then id) stands,
so a late "running" never moves what is known already.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.reasons import Layer
from forebay.contracts.v1 import jobs, models
from forebay.scheduler_bridge.domain.documents import Attempt, Ending, Eviction, Job, Preflight, Resume, Start


def attempt_of(job: Job, number: int) -> Attempt | None:
    return next((attempt for attempt in job.attempts if attempt.number == number), None)


def _with(job: Job, attempt: Attempt) -> Job:
    others = [other for other in job.attempts if other.number != attempt.number]
    return replace(job, attempts=tuple(sorted((*others, attempt), key=lambda item: item.number)))


def _admitted(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.WorkloadAdmitted):
        return job
    attempt = attempt_of(job, body.attempt) or Attempt(number=body.attempt)
    if attempt.admitted_at is not None:
        return job
    attempt = replace(
        attempt,
        resources=body.resources.model_dump(mode="json"),
        devices=body.devices,
        admitted_at=recorded.event.time,
    )
    return replace(_with(job, attempt), waiting=None)


def _reported(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.PreflightReported) or (attempt := attempt_of(job, body.attempt)) is None:
        return job
    known = attempt.preflight
    preflight = Preflight(
        passed=known.passed if known else None,
        checks=tuple(check.model_dump(mode="json") for check in body.checks),
        at=recorded.event.time,
        event=recorded.event.id,
    )
    if known and known.checks and (known.at, known.event) <= (preflight.at, preflight.event):
        return job
    return _with(job, replace(attempt, preflight=preflight))


def _judged(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.PreflightPassed | jobs.PreflightFailed):
        return job
    attempt = attempt_of(job, body.attempt) or Attempt(number=body.attempt)
    known = attempt.preflight or Preflight(at=recorded.event.time, event=recorded.event.id)
    passed = isinstance(body, jobs.PreflightPassed) and known.passed is not False
    return _with(job, replace(attempt, preflight=replace(known, passed=passed)))


def _started(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.AttemptStarted):
        return job
    attempt = attempt_of(job, body.attempt) or Attempt(number=body.attempt)
    start = Start(
        host=body.host,
        process=body.process,
        recovers=body.recovers,
        at=recorded.event.time,
        event=recorded.event.id,
    )
    if attempt.start is not None and (attempt.start.at, attempt.start.event) <= (start.at, start.event):
        return job
    return _with(job, replace(attempt, start=start))


def _gone(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.AttemptEnded):
        return job
    attempt = attempt_of(job, body.attempt) or Attempt(number=body.attempt)
    ending = Ending(
        exit_code=body.exit_code,
        signal=body.signal,
        reason=body.reason.value,
        message=body.message,
        ran=body.ran,
        output=body.output or (),
        at=recorded.event.time,
        event=recorded.event.id,
    )
    if attempt.ending is not None and (attempt.ending.at, attempt.ending.event) <= (ending.at, ending.event):
        return job
    return _with(job, replace(attempt, ending=ending))


def _resume_decided(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, models.ResumeDecided) or (attempt := attempt_of(job, body.attempt)) is None:
        return job
    resume = Resume(
        mode=body.mode,
        checkpoint=body.checkpoint,
        step=body.step,
        reasons=body.reasons,
        skipped=tuple(item.model_dump(mode="json") for item in body.skipped),
        at=recorded.event.time,
        event=recorded.event.id,
    )
    return _with(job, replace(attempt, resume=resume))


def _evicted(job: Job, recorded: Recorded[EventBody]) -> Job:
    body = recorded.body
    if not isinstance(body, jobs.WorkloadEvicted):
        return job
    attempt = attempt_of(job, body.attempt) or Attempt(number=body.attempt)
    verdict = job.verdict or {}
    known = verdict.get("layer") not in {Layer.NONE, Layer.QUOTA, Layer.NOT_EVALUATED} and not attempt.has_run
    eviction = Eviction(
        message=body.message,
        reason=body.said or body.reason.value,
        cause=str(verdict.get("message") or "") if known else "",
        at=recorded.event.time,
        event=recorded.event.id,
    )
    if attempt.evicted is not None and (attempt.evicted.at, attempt.evicted.event) <= (eviction.at, eviction.event):
        return job
    return _with(job, replace(attempt, evicted=eviction))


CHANGES: dict[type[EventBody], Callable[[Job, Recorded[EventBody]], Job]] = {
    jobs.WorkloadAdmitted: _admitted,
    jobs.WorkloadEvicted: _evicted,
    jobs.PreflightReported: _reported,
    jobs.PreflightPassed: _judged,
    jobs.PreflightFailed: _judged,
    jobs.AttemptStarted: _started,
    jobs.AttemptEnded: _gone,
    models.ResumeDecided: _resume_decided,
}
