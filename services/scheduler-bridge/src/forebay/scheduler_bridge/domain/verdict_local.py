"""Verdict rules of the local backend: the end, the process, preflight, the queue, the gate.

Each rule has a test in `tests/test_verdict.py`. Sentences carry numbers; every
verdict says what to do next, even when that is "nothing".
"""

from __future__ import annotations

from typing import Literal

from forebay.contracts.reasons import SENTENCES, Layer, Reason
from forebay.contracts.v1.jobs import Verdict
from forebay.scheduler_bridge.domain.amounts import asked_by
from forebay.scheduler_bridge.domain.attempts import allowed_attempts, is_stop, root_cause
from forebay.scheduler_bridge.domain.business import dominant, gate_layer
from forebay.scheduler_bridge.domain.documents import Attempt, Condition, Ending, Job
from forebay.scheduler_bridge.domain.readiness import GATE_FAILURES
from forebay.scheduler_bridge.domain.verdict import Rule, Situation

Fits = Literal["now", "never", "unknown"]

_LATER = "nothing: it goes on by itself"
_ROOM = "free space on the disk that `forebay status` names; it goes on by itself when there is room"
_RECOVERY: dict[str, str] = {
    Reason.DISK_FULL: _ROOM,
    Reason.DATA_NOT_MOUNTED: "mount the volume that the message names; the job tries again by itself",
}
_DATA_ACTIONS: dict[str, str] = {
    Reason.DATASET_UNKNOWN: "upload the dataset with `forebay upload`, or correct the name and submit again",
    Reason.DATASET_VERSION_MISSING: "look at the versions with `forebay dataset show`, or wait for that one",
    Reason.DATASET_UNTAGGED: "tag a version with `forebay dataset tag`",
    Reason.DATASET_NOT_READY: f"{_LATER}; `forebay dataset show` tells how far it is",
    Reason.DATASET_NOT_PLACED: "put the version there with `forebay dataset place`, or leave `access` out and submit again",
    Reason.DATASET_WITHDRAWN: "submit the job again with another version",
    Reason.DATASET_CHANGED: "restore the version's files, or commit them as a new version",
    Reason.MODEL_UNKNOWN: "register the model with `forebay model register`",
    Reason.LEASE_RELEASED: "submit the job again",
    Reason.PLANNING: _LATER,
    Reason.WARMING: f"{_LATER}; `forebay watch` shows the progress",
    Reason.CACHE_PARTIAL: f"{_LATER}; `forebay watch` shows the progress",
    Reason.CACHE_LOST: "look at the cache with `forebay plan`; it is warmed again when it can be",
    Reason.CACHE_OVER_BUDGET: "give the cache more room, or read fewer columns or episodes",
    Reason.CACHE_MOUNT_GONE: "mount the pool again",
    Reason.CACHE_ORIGIN_FAILED: "see to the object storage that the message names; warming goes on by itself",
    Reason.CACHE_FAILED: "mend the cause in the message, then submit again",
    Reason.COLUMN_UNKNOWN: "correct `columns` in the job and submit again",
    Reason.FORMAT_UNSUPPORTED: "convert the dataset with this version of Forebay",
    Reason.NOT_EVALUATED_YET: f"{_LATER}; if it stays, see that the services run with `forebay status`",
    Reason.NEVER_FITS: "ask for less, or declare more on this machine",
}


def _terminal(situation: Situation, rule: str) -> Verdict | None:
    job, end = situation.job, situation.job.terminal
    if end is None:
        return None
    last = job.last
    if end.state == "SUCCEEDED":
        action = "register its model with `forebay model register`"
    elif end.state == "CANCELLED":
        action = f"`forebay retry {situation.job.id}` continues it"
    else:
        action = _after_failure(situation.job, end.reason)
    layer = Layer.NONE
    if end.state == "FAILED":
        layer = _failed_in(job, end.reason)
    return Verdict(
        layer=layer,
        cause=Reason(end.reason),
        message=end.message,
        where=_where(last),
        fits="unknown",
        since=end.at,
        evidence=(end.event,),
        next_action=action,
        rule=rule,
    )


def _failed_in(job: Job, reason: str) -> Layer:
    """The layer of the cause: the process when the attempt that explains the end has run."""
    if not job.attempts:
        return Layer.DATA if reason in GATE_FAILURES else Layer.PREFLIGHT
    root = root_cause(job) or job.last
    return Layer.PROCESS if root is not None and root.ending is not None and root.ending.ran else Layer.PREFLIGHT


def _after_failure(job: Job, reason: str) -> str:
    retry = f"`forebay retry {job.id}`"
    if reason == Reason.RESUME_REFUSED:
        return f"restore a checkpoint, or set restart.allow_cold_start to start at step 0, then run {retry}"
    if reason in {Reason.PREFLIGHT_FAILED, Reason.START_FAILED, Reason.COMMAND_NOT_FOUND}:
        return f"fix what the message names, then run {retry}"
    if reason in GATE_FAILURES:
        return f"{_DATA_ACTIONS[reason]}"
    root = root_cause(job)
    if root is not None and root.ending is not None and root.ending.reason == Reason.OUT_OF_MEMORY:
        return "ask for more memory, or make batches smaller, and submit the changed file"
    if root is not None and root.ending is not None and root.ending.output:
        return f"fix the cause (log.txt of attempt {root.number} has the whole output), then run {retry}"
    return f"fix the cause, then run {retry}"


def _where(last: Attempt | None) -> str | None:
    return last.start.host if last is not None and last.start is not None else None


def _running(situation: Situation, rule: str) -> Verdict | None:
    job = situation.job
    last = job.last
    if job.state != "RUNNING" or last is None or last.start is None or last.state != "RUNNING":
        return None
    doubt = dominant(situation.conditions)
    said = f"attempt {last.number} runs on {last.start.host}"
    action = "nothing"
    evidence: tuple[str, ...] = (last.start.event,)
    if doubt is not None:
        said += f", but {doubt.type} no longer holds: {doubt.message}"
        action = "decide whether its result is still wanted; `forebay cancel` ends it"
        evidence += doubt.evidence
    return Verdict(
        layer=Layer.NONE,
        cause=Reason.RUNNING,
        message=said,
        need=doubt.type if doubt else None,
        where=last.start.host,
        fits="now",
        since=last.start.at,
        evidence=evidence,
        next_action=action,
        rule=rule,
    )


def _recovering(situation: Situation, rule: str) -> Verdict | None:
    job = situation.job
    last = job.last
    if last is None or last.number < 2 or last.state != "PREFLIGHT":
        return None
    before = next((item for item in reversed(job.attempts) if item.ending is not None), None)
    ending = before.ending if before else None
    said = f"attempt {last.number} of {allowed_attempts(job)} is being started"
    return Verdict(
        layer=Layer.PREFLIGHT,
        cause=Reason(ending.reason) if ending else Reason.PREFLIGHT_RUNNING,
        message=f"{said}; {_ended_before(job, before, ending)}" if before and ending else said,
        fits="now",
        since=last.admitted_at or situation.now,
        evidence=(ending.event,) if ending else (),
        next_action=_RECOVERY.get(ending.reason, _LATER) if ending else _LATER,
        rule=rule,
    )


def _ended_before(job: Job, before: Attempt, ending: Ending) -> str:
    """Why there is another attempt: the last end, and the root cause where that is another one."""
    said = f"attempt {before.number} ended: {ending.message}"
    if is_stop(ending):
        return f"{said} (this costs no attempt)"
    root = root_cause(job)
    if root is not None and root.ending is not None and root.number != before.number:
        return f"attempt {root.number} ended: {root.ending.message}; then {said}"
    return said


def _starting(situation: Situation, rule: str) -> Verdict | None:
    last = situation.job.last
    if last is None or last.state != "PREFLIGHT":
        return None
    failed = [check for check in (last.preflight.checks if last.preflight else ()) if check.get("status") == "fail"]
    passed = last.preflight is not None and last.preflight.passed
    cause, message = (
        Reason.PREFLIGHT_RUNNING,
        f"attempt {last.number} has its quota and is being checked before its start",
    )
    if failed:
        cause = Reason.PREFLIGHT_FAILED
        message = "; ".join(f"{check['name']}: {check['message']}" for check in failed)
    elif passed:
        message = f"the checks of attempt {last.number} passed; its command is being started"
    return Verdict(
        layer=Layer.PREFLIGHT,
        cause=cause,
        message=message,
        fits="now",
        since=last.admitted_at or situation.now,
        evidence=(last.preflight.event,) if last.preflight else (),
        next_action="fix what the message names" if failed else _LATER,
        rule=rule,
    )


def _between(situation: Situation, rule: str) -> Verdict | None:
    last = situation.job.last
    if last is None or last.ending is None:
        return None
    return Verdict(
        layer=Layer.PROCESS,
        cause=Reason(last.ending.reason),
        message=f"attempt {last.number} ended: {last.ending.message}; what follows is being decided",
        where=_where(last),
        since=last.ending.at,
        evidence=(last.ending.event,),
        next_action=_LATER,
        rule=rule,
    )


def _queued(situation: Situation, rule: str) -> Verdict | None:
    job = situation.job
    if job.gate != "open" or job.attempts:
        return None
    since = job.gate_changed_at or situation.now
    wait, known = situation.wait, job.waiting
    if wait is None and known is None:
        return Verdict(
            layer=Layer.QUOTA,
            cause=Reason.NOT_EVALUATED_YET,
            message="the gate is open; the queue has not looked at it yet",
            since=since,
            next_action=_LATER,
            rule=rule,
        )
    reason = wait.reason.value if wait else known.reason if known else ""
    never = reason == Reason.NEVER_FITS
    lacking = wait.lacking if wait else ()
    message = wait.message if wait else known.message if known else ""
    place = f" (position {wait.position})" if wait else ""
    names = wait.short if wait else known.lacking if known else ()
    return Verdict(
        layer=Layer.QUOTA,
        cause=Reason(reason),
        message=f"{message}{place}",
        need=asked_by(job.spec).show_all(names) if names else None,
        have=", ".join(f"{item.free:g} of {item.total:g} {item.resource} free" for item in lacking) or None,
        where="this machine",
        fits="never" if never else "unknown",
        since=since,
        evidence=(known.event,) if known else (),
        next_action=_DATA_ACTIONS[Reason.NEVER_FITS] if never else f"{_LATER} when the jobs before it end",
        rule=rule,
    )


def _gated(situation: Situation, rule: str) -> Verdict | None:
    cause = dominant(situation.conditions)
    if cause is None or situation.job.attempts:
        return None
    never = cause.reason == Reason.NEVER_FITS
    return Verdict(
        layer=gate_layer(situation.conditions),
        cause=Reason(cause.reason),
        message=f"{cause.type} is {cause.status}: {cause.message}",
        where=_gate_place(cause),
        fits="never" if never else "unknown",
        since=cause.since,
        evidence=cause.evidence,
        next_action=_DATA_ACTIONS.get(cause.reason, _LATER),
        rule=rule,
    )


def _gate_place(cause: Condition) -> str:
    return {"RequestValid": "this machine", "CacheWarm": "cache"}.get(cause.type, "ingest")


def _otherwise(situation: Situation, rule: str) -> Verdict | None:
    return Verdict(
        layer=Layer.NOT_EVALUATED,
        cause=Reason.NOT_EVALUATED_YET,
        message=SENTENCES[Reason.NOT_EVALUATED_YET],
        since=situation.job.gate_changed_at or situation.job.submitted_at,
        next_action=_DATA_ACTIONS[Reason.NOT_EVALUATED_YET],
        rule=rule,
    )


LOCAL_RULES: tuple[Rule, ...] = (
    Rule(name="job-ended", version=1, rank=0, judge=_terminal),
    Rule(name="process-running", version=1, rank=10, judge=_running),
    Rule(name="process-recovering", version=1, rank=20, judge=_recovering),
    Rule(name="preflight", version=1, rank=30, judge=_starting),
    Rule(name="process-ended", version=1, rank=35, judge=_between),
    Rule(name="gate-shut", version=1, rank=40, judge=_gated),
    Rule(name="local-queue", version=1, rank=50, judge=_queued),
    Rule(name="not-evaluated", version=1, rank=90, judge=_otherwise),
)
