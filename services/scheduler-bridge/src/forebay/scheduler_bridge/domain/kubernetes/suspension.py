"""A suspended job that no queue holds: nobody has taken it over, or somebody suspended it by hand. Called by `situations.py`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Object,
    condition,
    is_true,
    kind_of,
    labels_of,
    moment,
    name_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Finding, finding

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_UNMANAGED = timedelta(minutes=2)
_AT_ONCE = timedelta(seconds=10)
_FIELD = {"PyTorchJob": "spec.runPolicy.suspend", "MPIJob": "spec.runPolicy.suspend", "TFJob": "spec.runPolicy.suspend"}


def is_suspended(job: Object) -> bool:
    """Its owner, or a queue, said that it must not run."""
    return part(job, "spec", "suspend") is True or part(job, "spec", "runPolicy", "suspend") is True


def look_at(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:
    """A suspended job for which no queue controller made anything."""
    root = subject.root
    if root is not None and part(root, "spec", "parallelism") == 0 and not is_suspended(root) and not subject.pods:
        yield Seen(finding=_no_pods(root, rule), since=moment(text_at(root, "metadata", "creationTimestamp")))
    if root is None or subject.workloads or not is_suspended(root) or any(not _stops(pod) for pod in subject.pods):
        return
    made = moment(text_at(root, "metadata", "creationTimestamp"))
    queue = labels_of(root).get(QUEUE_LABEL) or text_at(root, "metadata", "annotations", QUEUE_LABEL)
    stated = condition(root, "Suspended") if is_true(root, "Suspended") else None
    since = moment(text_at(stated, "lastTransitionTime")) if stated else made
    told = _in_queue(root, str(queue), made, now, rule) if queue else _without_queue(root, made, since, rule)
    evidence = read_condition(stated, kind_of(root), where="jobCondition").evidence if stated else ()
    yield Seen(finding=told, since=made if queue else since, evidence=evidence)


def _no_pods(root: Object, rule: str) -> Finding:
    """A Job that may run no pod at a time waits as a suspended one does."""
    return finding(
        Cause.OTHER,
        f"{kind_of(root)} {name_of(root)} may run 0 pods at a time (spec.parallelism is 0), so it waits until somebody changes that",
        rule,
        reason=Reason.SUSPENDED,
        layer=Layer.JOB_OBJECT,
        next_action="set spec.parallelism to the number of pods that should run",
        weight=27,
    )


def _stops(pod: Object) -> bool:
    ended = text_at(pod, "status", "phase") in {"Succeeded", "Failed"}
    return ended or bool(text_at(pod, "metadata", "deletionTimestamp"))


def _in_queue(root: Object, queue: str, made: datetime | None, now: datetime, rule: str) -> Finding:
    kind = kind_of(root)
    waited = round((now - made).total_seconds() / 60) if made is not None else None
    if made is not None and now - made < _UNMANAGED:
        return finding(
            Cause.OTHER,
            f"the {kind} was just made; the queue {queue} has not taken it over yet",
            rule,
            reason=Reason.NOT_EVALUATED_YET,
            layer=Layer.NOT_EVALUATED,
            next_action=LATER,
            where=queue,
            weight=66,
        )
    since = f" for {waited} min" if waited is not None else ""
    return finding(
        Cause.QUEUE_MISCONFIG,
        f"the {kind} names the queue {queue}, but no Workload of it exists{since}: no queue controller has taken it over",
        rule,
        reason=Reason.NOT_MANAGED,
        layer=Layer.JOB_OBJECT,
        next_action=f"see that Kueue runs, that its integration for {kind} is enabled, and that it manages this namespace",
        where=queue,
        weight=44,
    )


def _without_queue(root: Object, made: datetime | None, since: datetime | None, rule: str) -> Finding:
    """Without a queue only a person, or a tool of theirs, suspends a job; one that was made so was perhaps meant for a queue."""
    field = _FIELD.get(kind_of(root), "spec.suspend")
    if made is not None and since is not None and since - made < _AT_ONCE:
        return finding(
            Cause.OTHER,
            f"{kind_of(root)} {name_of(root)} was made suspended ({field} is true) and has no label {QUEUE_LABEL}: no queue will ever start it, only somebody who sets {field} to false",
            rule,
            reason=Reason.NOT_MANAGED,
            layer=Layer.JOB_OBJECT,
            next_action=f"add the label {QUEUE_LABEL} if a queue shall start it, or set {field} to false",
            weight=27,
        )
    ran = text_at(root, "status", "startTime") or is_true(root, "Running")
    at = f" since {since:%H:%M:%S}" if since is not None else ""
    return finding(
        Cause.OTHER,
        f"{kind_of(root)} {name_of(root)} is suspended{at} ({field} is true): somebody set it by hand, since the job has no label {QUEUE_LABEL} and belongs to no queue"
        + ("; its pods were stopped" if ran else ""),
        rule,
        reason=Reason.SUSPENDED,
        layer=Layer.JOB_OBJECT,
        next_action=f"set {field} to false to resume it; nothing else will",
        weight=27,
    )
