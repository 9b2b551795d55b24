"""What the bridge says about attempts once it has seen the cluster move. Pure; called by `ClusterBridge`.

Every event is named by the attempt or pod it is about, so saying it again on the
next fact changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from forebay.contracts.body import EventBody
from forebay.contracts.identifiers import content_digest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Emit
from forebay.scheduler_bridge.domain import announcements
from forebay.scheduler_bridge.domain.announcements import Decided
from forebay.scheduler_bridge.domain.attempts import cause_of_attempt, failure_message, root_cause
from forebay.scheduler_bridge.domain.cluster.documents import ClusterObject
from forebay.scheduler_bridge.domain.cluster.endings import Cause
from forebay.scheduler_bridge.domain.cluster.explain import explained
from forebay.scheduler_bridge.domain.cluster.gang import Gang, end_of, gang_of, size_of, used_up
from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.cluster.view import (
    View,
    has_run,
    is_instrumented,
    is_over,
    preparation,
    rank_of,
    statuses,
)
from forebay.scheduler_bridge.domain.documents import Attempt, Job
from forebay.scheduler_bridge.domain.kubernetes.facts import Object, moment
from forebay.scheduler_bridge.domain.kubernetes.facts import condition as condition_of

_NORMAL = frozenset({"ContainerCreating", "PodInitializing", ""})
_MOUNTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})


def follow(job: Job, view: View, decided: Decided, now: datetime) -> Iterator[Emit]:
    """Every event that the objects of a job call for."""
    if announcements.has_ended(job, decided):
        yield from _ended(job, view)
        return
    admitted = list(_admission(job, view, decided))
    yield from admitted
    if admitted or announcements.pending_admission(job, decided) is not None:
        return  # the story of that attempt comes before the job's end
    for attempt in job.attempts:
        if attempt.ending is None:
            yield from _attempt(job, attempt, view, now)
    yield from _outcome(job, view)


def _emit(job: Job, body: EventBody, *dedupe: object, at: str = "") -> Emit:
    return Emit(project=job.project, body=body, dedupe=dedupe, time=moment(at))


def _admission(job: Job, view: View, decided: Decided) -> Iterator[Emit]:
    """Quota was given, or another pod was made under the quota that is held: the next attempt."""
    if any(item.ending is None for item in job.attempts) or used_up(job):
        return
    if announcements.pending_admission(job, decided) is not None:
        return
    if view.outcome is not None:
        pods = _left_behind(job, view)
    elif not view.admitted:
        return
    elif job.last is None or job.last.evicted is not None:
        condition = condition_of(view.workload.body, "Admitted") if view.workload is not None else None
        yield _admitted(job, str((condition or {}).get("lastTransitionTime") or ""))
        return
    else:
        # The Job controller tries again under the same quota, but maybe not: wait until its pod is there.
        pods = [pod for pod in view.unbound if not is_over(pod)]
    if pods:
        yield _admitted(job, str(pods[0].body.get("metadata", {}).get("creationTimestamp") or ""))


def _left_behind(job: Job, view: View) -> list[ClusterObject]:
    """Pods of a Job that ended while nobody watched: they were an attempt, too."""
    pods = view.claimable
    return pods if len({rank_of(pod) for pod in pods}) >= size_of(job, view) else []


def _admitted(job: Job, at: str) -> Emit:
    number = (job.last.number if job.last else 0) + 1
    body = jobs.WorkloadAdmitted(job=job.id, attempt=number, resources=job.resources, queue=job.request.queue)
    return _emit(job, body, job.id, number, at=at)


def _attempt(job: Job, attempt: Attempt, view: View, now: datetime) -> Iterator[Emit]:
    gang = gang_of(job, view, attempt.number)
    evicted = view.evicted
    if evicted is not None and attempt.evicted is None:
        message = str(evicted.get("message") or evicted.get("reason") or "evicted by Kueue")
        said = str(evicted.get("reason") or "") or None
        body = jobs.WorkloadEvicted(
            job=job.id, attempt=attempt.number, reason=Reason.EVICTED, message=message, said=said
        )
        yield _emit(job, body, job.id, attempt.number, at=str(evicted.get("lastTransitionTime") or ""))
    if not gang.members:
        if attempt.evicted is not None and not view.unbound:
            cause = Cause(reason=Reason.EVICTED, message=attempt.evicted.message, ran=False)
            yield _end(job, attempt, cause)
        return
    for pod in gang.members:
        yield from _placed(job, attempt.number, pod)
        yield from _obstacles(job, attempt.number, pod, view)
    yield from _preflight(job, attempt, gang)
    if gang.has_run:
        yield _started(job, attempt.number, gang.members[0])
    if gang.is_over:
        yield _end(job, attempt, explained(end_of(gang, view, attempt), job, view, now))


def _placed(job: Job, number: int, pod: ClusterObject) -> Iterator[Emit]:
    name, node = str(pod.body.get("metadata", {}).get("name", "")), (pod.body.get("spec") or {}).get("nodeName")
    if node:
        yield _emit(job, jobs.PodScheduled(job=job.id, attempt=number, pod=name, node=node), job.id, number, pod.uid)


def _started(job: Job, number: int, pod: ClusterObject) -> Emit:
    """Every rank's command runs; the pod of rank 0 is named."""
    name, node = str(pod.body.get("metadata", {}).get("name", "")), (pod.body.get("spec") or {}).get("nodeName")
    body = jobs.AttemptStarted(
        job=job.id,
        attempt=number,
        host=node or "unknown",
        process=f"pod/{name}@{pod.uid}",
        recovers=number - 1 if number > 1 else None,
    )
    return _emit(job, body, job.id, number)


def _obstacles(job: Job, number: int, pod: ClusterObject, view: View) -> Iterator[Emit]:
    """What keeps a pod from running, in the words of whoever refuses; each said once."""
    name = str(pod.body.get("metadata", {}).get("name", ""))
    scheduled = condition_of(pod.body, "PodScheduled") or {}
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        message = str(scheduled.get("message") or "")
        body = jobs.PodUnschedulable(job=job.id, attempt=number, pod=name, reason="Unschedulable", message=message)
        yield _emit(job, body, job.id, number, pod.uid, content_digest({"said": message}))
    for status in statuses(pod.body):
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason = str(waiting.get("reason") or "")
        if reason in _NORMAL:
            continue
        container, message = str(status.get("name", "")), str(waiting.get("message") or "")
        stuck = jobs.ContainerWaiting(
            job=job.id, attempt=number, pod=name, container=container, reason=reason, message=message
        )
        yield _emit(job, stuck, job.id, number, pod.uid, container, reason, content_digest({"said": message}))
    for event in view.of("Event"):
        involved = event.body.get("involvedObject") or {}
        if event.body.get("reason") in _MOUNTS and involved.get("uid") == pod.uid:
            message = str(event.body.get("message") or "")
            failed = jobs.VolumeMountFailed(
                job=job.id, attempt=number, pod=name, reason=str(event.body["reason"]), message=message
            )
            yield _emit(job, failed, job.id, number, pod.uid, content_digest({"said": message}))


def _preflight(job: Job, attempt: Attempt, gang: Gang) -> Iterator[Emit]:
    """The checks' answer as exit codes of init containers tell it, whether or not a report reached the bus."""
    known = attempt.preflight.passed if attempt.preflight is not None else None
    number = attempt.number
    codes = [_checked(pod.body) for pod in gang.members]
    for pod, code in zip(gang.members, codes, strict=True):
        if code is not None and 200 <= code <= 219 and known is not False:
            failed = tuple(_failed_checks(pod.body))
            yield _emit(job, jobs.PreflightFailed(job=job.id, attempt=number, failed=failed), job.id, number)
            return
    if known is None and len(codes) >= gang.size and set(codes) == {0}:
        bare = not any(is_instrumented(pod.body) for pod in gang.members)
        warnings = ("preflight: none; nothing of ours is in this pod",) if bare else ()
        yield _emit(job, jobs.PreflightPassed(job=job.id, attempt=number, warnings=warnings), job.id, number)


def _checked(pod: Json) -> int | None:
    """The exit code of the checks; 0 for a running pod that has none, None while they are not over."""
    if not is_instrumented(pod):
        return 0 if has_run(pod) else None
    ended = ((preparation(pod) or {}).get("state") or {}).get("terminated")
    return None if ended is None else int(ended.get("exitCode") or 0)


def _failed_checks(pod: Json) -> Iterator[jobs.PreflightCheck]:
    """From the termination message, which is the report as JSON, as far as it fitted."""
    ended = ((preparation(pod) or {}).get("state") or {}).get("terminated") or {}
    message = str(ended.get("message") or "")
    try:
        checks = json.loads(message).get("checks", [])
        found = [jobs.PreflightCheck.model_validate(item) for item in checks]
    except (ValueError, AttributeError, TypeError):
        found = []
    failed = [check for check in found if check.status == "fail"]
    if failed:
        yield from failed
        return
    said = message.strip() or f"the checks ended with exit code {ended.get('exitCode')} and left no report"
    yield jobs.PreflightCheck(name="preflight", status="fail", reason=Reason.PREFLIGHT_FAILED, message=said)


def _end(job: Job, attempt: Attempt, cause: Cause) -> Emit:
    body = jobs.AttemptEnded(
        job=job.id,
        attempt=attempt.number,
        exit_code=cause.exit_code,
        signal=cause.signal,
        reason=cause.reason,
        message=cause.message,
        ran=cause.ran,
        output=cause.output or None,
    )
    return _emit(job, body, job.id, attempt.number, at=cause.at)


def _outcome(job: Job, view: View) -> Iterator[Emit]:
    """The Job object's own end is the job's, once every attempt of it has ended."""
    open_attempts = [item for item in job.attempts if item.ending is None]
    count = len(job.attempts)
    if view.outcome is not None:
        if any(view.members(item.number) for item in open_attempts):
            return  # the pod's own end comes first: it says why
        kind, condition = view.outcome
        at, message = str(condition.get("lastTransitionTime") or ""), str(condition.get("message") or "")
        if kind == "Complete":
            yield from _unseen(
                job, open_attempts, Cause(reason=Reason.COMPLETED, message=message, ran=True, exit_code=0, at=at)
            )
            last = job.last.number if job.last else 1
            yield _emit(job, jobs.JobSucceeded(job=job.id, attempt=last, attempts=max(count, 1)), job.id)
            return
        yield from _unseen(job, open_attempts, Cause(reason=Reason.UNKNOWN, message=message, ran=False, at=at))
        reason, said = failure_of(job, condition)
        yield _emit(job, jobs.JobFailed(job=job.id, reason=reason, message=said, attempts=count), job.id)
    elif view.job is not None and view.job.gone and job.applied is not None and not view.job.unseen:
        deleted = jobs.JobCancelled(job=job.id, by="kubectl", reason="its Job was deleted on the cluster")
        yield _emit(job, deleted, job.id)
    elif view.job is not None and view.job.gone and not any(not is_over(pod) for pod in view.pods):
        message = "its Job object was deleted on the cluster, and not by us"
        yield from _unseen(job, open_attempts, Cause(reason=Reason.JOB_DELETED, message=message, ran=False))
        body = jobs.JobFailed(job=job.id, reason=Reason.JOB_DELETED, message=message, attempts=count)
        yield _emit(job, body, job.id)


def _unseen(job: Job, attempts: list[Attempt], cause: Cause) -> Iterator[Emit]:
    """Attempts whose pod was never seen: they ended when their Job did."""
    for attempt in attempts:
        yield _end(job, attempt, cause)


def failure_of(job: Job, condition: Object) -> tuple[Reason, str]:
    """Why a Job failed: its last attempt's cause; the Job controller's words beside it."""
    said = f"{condition.get('reason') or 'Failed'}: {condition.get('message') or 'the Job has failed'}"
    last = job.last
    if last is None or last.ending is None:
        return Reason.UNKNOWN, said
    if last.preflight is not None and last.preflight.passed is False and root_cause(job) is last:
        return Reason.PREFLIGHT_FAILED, cause_of_attempt(last)
    root = root_cause(job) or last
    cause = f"attempt {root.number} ended: {failure_message(job)} ({said})"
    if condition.get("reason") in {"BackoffLimitExceeded", "MaxFailedIndexesExceeded", "FailedIndexes"}:
        return Reason.ATTEMPTS_EXHAUSTED, cause
    return Reason(root.ending.reason if root.ending is not None else last.ending.reason), cause


def _ended(job: Job, view: View) -> Iterator[Emit]:
    """After a job's end its attempts still end: quota is free when the pod is gone, not when somebody cancels."""
    cancelled = job.terminal is not None and job.terminal.state == "CANCELLED"
    for attempt in job.attempts:
        if attempt.ending is not None:
            continue
        gang = gang_of(job, view, attempt.number)
        if gang.members and all(is_over(pod) for pod in gang.members):
            cause = end_of(gang, view, attempt)
            yield _end(job, attempt, cause.because(Reason.CANCELLED) if cancelled else cause)
        elif not gang.members and view.job is not None and view.job.gone:
            yield _end(job, attempt, Cause(reason=Reason.CANCELLED, message="deleted before a pod was made", ran=False))
