"""A job's history: one entry per event, business life and runtime facts apart, ordered by when it happened."""

from __future__ import annotations

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1 import datasets, jobs, models
from forebay.scheduler_bridge.domain.documents import Entry, Job

_BUSINESS = (
    jobs.JobSubmitted,
    jobs.JobGated,
    jobs.JobGateOpened,
    jobs.JobSucceeded,
    jobs.JobFailed,
    jobs.JobCancelled,
)


def entry_of(recorded: Recorded[EventBody], job: str) -> Entry:
    """The line that an event adds. Nothing in it depends on when it arrived."""
    body = recorded.body
    fact = body if isinstance(body, jobs.RuntimeFactRecorded) else None
    reason = getattr(body, "reason", None)
    attempt = getattr(body, "attempt", None)
    return Entry(
        project=recorded.project,
        job=job,
        at=recorded.event.time,
        id=recorded.event.id,
        event=body.event,
        machine="business" if isinstance(body, _BUSINESS) else "runtime",
        attempt=attempt if isinstance(attempt, int) else None,
        source=fact.source if fact else str(recorded.event.source),
        object=fact.object if fact else None,
        reason=None if reason is None else str(reason),
        message=sentence(body),
        exit_code=getattr(body, "exit_code", None),
        # An object itself is kept once, as it is now; the log has every state of it.
        data={name: value for name, value in fact.data.items() if name != "object"} if fact else {},
    )


def sentence(body: EventBody) -> str:
    """What an event says, in a line."""
    text = str(getattr(body, "message", None) or getattr(body, "reason", None) or "")
    match body:
        case jobs.JobSubmitted():
            text = f"submitted by {body.submitted_by} as run {body.run}"
        case jobs.JobGated():
            text = "; ".join(f"{item.type.value}={item.status} ({item.reason.value})" for item in body.conditions)
        case jobs.JobGateOpened():
            text = "every condition holds"
        case jobs.WorkloadAdmitted():
            where = f" on GPU {', '.join(body.devices)}" if body.devices else ""
            text = f"quota is held for attempt {body.attempt}{where}"
        case jobs.PreflightReported():
            failed = [check.name for check in body.checks if check.status == "fail"]
            text = f"{len(body.checks)} checks, failed: {', '.join(failed) or 'none'}"
        case jobs.AttemptStarted():
            text = f"process {body.process} on {body.host}"
        case models.ResumeDecided():
            text = body.mode if body.step is None else f"{body.mode} from step {body.step}"
        case jobs.VerdictChanged():
            text = body.sentence or body.verdict.message
        case datasets.LeaseGranted():
            text = ", ".join(f"{item.name}@v{item.number}" for item in body.inputs) or "no inputs"
        case _:
            pass
    return text


def remark(entry: Entry, job: Job) -> str | None:
    """Why an entry changed nothing, when it came after the end of what it is about."""
    attempt = next((item for item in job.attempts if item.number == entry.attempt), None)
    ending = attempt.ending if attempt else None
    if ending is not None and entry.event in {"AttemptStarted", "PreflightPassed"} and entry.at > ending.at:
        return "ignored: attempt finished"
    return None
