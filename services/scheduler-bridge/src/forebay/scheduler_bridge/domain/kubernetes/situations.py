"""The rules about a whole job: how it ended, what blocks the first of its pods, what its queue says, or that nobody has said anything.

Each answers with what it saw; `diagnosis.py` takes the most decisive. The last rule always answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes import pods, workloads
from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Object,
    condition,
    is_true,
    items_at,
    kind_of,
    labels_of,
    moment,
    name_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.job_status import ends, is_batch, own_words
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Message, finding

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_UNMANAGED = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class SituationRule:
    """One small versioned judgement about a whole job. Raise `version` whenever it may answer differently."""

    name: str
    version: int
    ask: Callable[[Subject, datetime, str], Iterable[Seen]]

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"

    def judge(self, subject: Subject, now: datetime, rule: str) -> Iterable[Seen]:
        return self.ask(subject, now, rule)


def _job_ended(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:
    root = subject.root
    if root is None:
        return
    well, badly = ends(root)
    if well is not None and badly is not None:
        yield _both_ends(root, well, badly)
    elif well is not None:
        ended = finding(
            Cause.OTHER,
            "it has ended well",
            rule,
            reason=Reason.COMPLETED,
            layer=Layer.NONE,
            next_action="nothing",
            fits="now",
            weight=0,
        )
        yield Seen(
            finding=ended,
            since=moment(well.get("lastTransitionTime")),
            evidence=read_condition(well, "Job", where="jobCondition").evidence,
        )
    elif badly is not None:
        yield _failed(subject, badly, now, rule)


def _both_ends(root: Object, well: Object, badly: Object) -> Seen:
    evidence = (
        read_condition(well, "Job", where="jobCondition").evidence
        + read_condition(badly, "Job", where="jobCondition").evidence
    )
    return Seen(
        finding=finding(
            Cause.OTHER,
            f"{kind_of(root)} {name_of(root)} says that it succeeded and that it failed",
            "succeeded-and-failed@1",
            reason=Reason.CONTRADICTORY,
            next_action="look at its pods and their logs, and decide by the output",
            weight=2,
        ),
        since=moment(badly.get("lastTransitionTime")),
        evidence=evidence,
    )


def _failed(subject: Subject, badly: Object, now: datetime, rule: str) -> Seen:
    """A job that failed, with the reason of the pod that made it fail."""
    said = read_condition(badly, kind_of(subject.root or {}) or "Job", where="jobCondition")
    running_out = said.finding.cause is Cause.TIMEOUT
    found = [
        seen
        for pod in subject.pods
        for seen in pods.look_at(subject.facts, pod, now)
        if (seen.finding.cause is not Cause.OTHER or seen.finding.reason is Reason.PROCESS_KILLED)
        and not (running_out and seen.finding.cause is Cause.TIMEOUT)
    ]
    decisive = min(found, key=lambda seen: seen.finding.weight, default=None)
    if decisive is not None and decisive.finding.reason is Reason.PROCESS_KILLED:
        decisive = _taken_off(subject) or decisive
    if decisive is None or (running_out and decisive.finding.cause in {Cause.CRASH, Cause.OOM, Cause.OTHER}):
        return said.but(sentence=f"the job failed: {said.finding.sentence} ({text_at(badly, 'reason')})", weight=3)
    why = "its time limit passed" if running_out else f"the job failed ({text_at(badly, 'reason')})"
    return Seen(
        finding=decisive.but(
            sentence=f"{why}: {decisive.finding.sentence}", weight=3, rule=f"{rule}/{decisive.finding.rule}"
        ).finding,
        since=said.since,
        evidence=decisive.evidence + said.evidence,
    )


def _taken_off(subject: Subject) -> Seen | None:
    """A kill that no pod can explain is the queue's, when it took the job off its nodes."""
    conditions = [
        found for one in subject.workloads if is_true(one, "Evicted") and (found := condition(one, "Evicted"))
    ]
    return read_condition(conditions[0], "Workload") if conditions else None


def _pods(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:
    """The first pod that is blocked speaks for the job; how many of how many are there is said with it."""
    expected = _expected(subject)
    living = [
        pod
        for pod in subject.pods
        if not (text_at(pod, "status", "phase") == "Failed" and _replaced(pod, subject.pods))
    ]
    found = [(pod, seen) for pod in living if (seen := pods.best(subject.facts, pod, now)) is not None]
    running = [
        pod
        for pod in living
        if pods.runs(pod) and not any(one is pod and seen.finding.weight < 50 for one, seen in found)
    ]
    blocked = [(pod, seen) for pod, seen in found if not any(pod is one for one in running)]
    yield from _terminating(living, rule)
    if blocked:
        pod, seen = min(blocked, key=lambda entry: entry[1].finding.weight)
        yield _of_gang(pod, seen, expected, len(running), any(text_at(one, "spec", "nodeName") for one in running))
    elif running and len(running) < expected and not _done(subject):
        missing = expected - len(running)
        yield Seen(
            finding=finding(
                Cause.OTHER,
                f"{len(running)} of {expected} pods are running; {missing} have not been made or have not reported yet",
                "gang-incomplete@1",
                reason=Reason.GANG_INCOMPLETE,
                layer=Layer.GANG,
                next_action="look at the job's events for what keeps the others from being made",
                need=f"{expected} pods",
                have=f"{len(running)} running",
                weight=63,
            )
        )
    elif running:
        yield _running(running, rule)


def _replaced(pod: Object, siblings: tuple[Object, ...]) -> bool:
    """Another pod has taken this one's place: it was made later, for the same index."""
    made = text_at(pod, "metadata", "creationTimestamp")
    index = labels_of(pod).get("batch.kubernetes.io/job-completion-index")
    return any(
        text_at(one, "metadata", "creationTimestamp") > made
        and labels_of(one).get("batch.kubernetes.io/job-completion-index") == index
        for one in siblings
        if one is not pod
    )


def _expected(subject: Subject) -> int:
    asked = part(subject.root, "spec", "parallelism") if subject.root else None
    completions = part(subject.root, "spec", "completions") if subject.root else None
    members = [part(group, "spec", "minMember") for group in subject.groups]
    numbers = [number for number in (asked, *members) if isinstance(number, int) and not isinstance(number, bool)]
    most = max(numbers, default=len(subject.pods))
    return (
        min(most, completions)
        if isinstance(completions, int) and not isinstance(completions, bool) and completions > 0
        else most
    )


def _done(subject: Subject) -> bool:
    succeeded = part(subject.root, "status", "succeeded") if subject.root else None
    return isinstance(succeeded, int) and succeeded > 0


def _terminating(living: list[Object], rule: str) -> Iterator[Seen]:
    """An old pod that is still stopping while another of the same job runs: two may write at once."""
    old = [
        pod
        for pod in living
        if text_at(pod, "metadata", "deletionTimestamp") and text_at(pod, "status", "phase") == "Running"
    ]
    new = [
        pod
        for pod in living
        if not text_at(pod, "metadata", "deletionTimestamp")
        and text_at(pod, "status", "phase") in {"Running", "Pending"}
    ]
    if not old or not new:
        return
    names = ", ".join(f"{name_of(pod)} on {text_at(pod, 'spec', 'nodeName')}" for pod in old)
    yield Seen(
        finding=finding(
            Cause.OTHER,
            f"{len(old)} terminating: {names} is not confirmed dead and may still write, while {name_of(new[0])} takes its place",
            f"{rule}/old-pod-terminating@1",
            reason=Reason.OLD_POD_NOT_CONFIRMED_DEAD,
            layer=Layer.NODE,
            next_action="wait until the old pod is gone; nothing that it writes now may count (podReplacementPolicy: Failed prevents this)",
            where=text_at(old[0], "spec", "nodeName") or None,
            weight=6,
        ),
        since=moment(text_at(old[0], "metadata", "deletionTimestamp")),
    )


def _of_gang(pod: Object, seen: Seen, expected: int, running: int, placed: bool) -> Seen:  # noqa: FBT001 a fact about the others
    if expected <= 1:
        return seen
    half = placed and seen.finding.layer is Layer.NODE
    return seen.but(
        sentence=f"{running} of {expected} pods are ready; {name_of(pod)} is not: {seen.finding.sentence}",
        layer=Layer.GANG if half else seen.finding.layer,
    )


def _running(running: list[Object], rule: str) -> Seen:
    nodes = ", ".join(sorted({text_at(pod, "spec", "nodeName") for pod in running} - {""}))
    return Seen(
        finding=finding(
            Cause.OTHER,
            f"it runs{f' on {nodes}' if nodes else ''}",
            f"{rule}/running@1",
            reason=Reason.RUNNING,
            layer=Layer.NONE,
            next_action="nothing",
            where=nodes or None,
            fits="now",
            weight=7,
        ),
        since=min((found for pod in running if (found := moment(text_at(pod, "status", "startTime")))), default=None),
    )


def _queue(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001 the rule's own findings carry their ids
    suspended = any(_is_suspended(job) for job in subject.jobs) and not subject.pods
    for workload in subject.workloads:
        yield from workloads.look_at(subject.facts, workload, now, suspended=suspended)


_NO_NEWS = frozenset(
    {
        *("SuccessfulCreate", "Suspended", "Resumed", "Scheduled", "Killing", "Completed"),
        *("CreatedWorkload", "UpdatedWorkload", "FinishedWorkload", "Started", "QuotaReserved", "Admitted"),
    }
)
"""What controllers say when all goes its way."""


def _said_of_it(subject: Subject) -> Iterator[Seen]:
    """Events about the job itself. That pods may not be made holds as long as some are missing."""
    made = sum(1 for pod in subject.pods if text_at(pod, "status", "phase") != "Failed")
    expected = _expected(subject)
    for event in subject.events:
        if any(workloads.is_past(event, workload) for workload in subject.workloads):
            continue
        if event.reason in _NO_NEWS:
            continue
        seen = read_event(event)
        if event.reason == "FailedCreate" and made and event.kind != "Pod":
            if made < expected:
                said = f"{made} of {expected} pods were made, and the others may not be: {seen.finding.sentence}"
                yield seen.but(sentence=said, weight=min(seen.finding.weight, 61))
        elif event.kind == "Pod" or not subject.pods or seen.finding.weight >= 50:
            yield seen if not subject.pods else seen.but(weight=max(seen.finding.weight, 66))


def _refused(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001
    """What was said about the job itself: pods that may not be made, and other events and conditions."""
    yield from _said_of_it(subject)
    for group in subject.groups:
        yield from _group(group)
    root = subject.root
    if root is not None and kind_of(root) in {"LocalQueue", "ClusterQueue", "AdmissionCheck"}:
        yield from workloads.inactive(root)
    if (
        root is not None
        and kind_of(root) == "PersistentVolumeClaim"
        and text_at(root, "status", "phase") in {"Pending", "Lost"}
    ):
        said = f"the claim {name_of(root)} is {text_at(root, 'status', 'phase')}"
        yield Seen(finding=finding(Cause.VOLUME_UNBOUND, said, "claim-unbound-object@1", weight=46))
    if root is not None and kind_of(root) == "Node":
        ready = condition(root, "Ready")
        if ready is not None and ready.get("status") not in ("True", True):
            seen = read_condition(ready, "Node")
            yield seen.but(cause=Cause.NODE_LOST, layer=Layer.NODE, reason=Reason.NODE_LOST, weight=12)


def _group(group: Object) -> Iterator[Seen]:
    """PodGroups of Volcano and KAI: their own words, when no pod of theirs says more."""
    for path in (("status", "conditions"), ("status", "schedulingConditions")):
        for one in items_at(group, *path):
            if one.get("status") not in ("True", True):
                continue
            reasons = items_at(one, "reasons")
            for said in reasons or [one]:
                message = Message(
                    where="condition", reason=text_at(said, "reason"), text=text_at(said, "message"), object="PodGroup"
                )
                seen = read(message, moment(one.get("lastTransitionTime")))
                if seen.finding.reason is not Reason.UNKNOWN:
                    yield seen.but(weight=max(seen.finding.weight, 34))


def _is_suspended(job: Object) -> bool:
    return part(job, "spec", "suspend") is True or part(job, "spec", "runPolicy", "suspend") is True


def _unmanaged(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:
    """A suspended Job for which no queue controller made anything."""
    root = subject.root
    if root is None or subject.workloads or subject.pods or not _is_suspended(root):
        return
    made = moment(text_at(root, "metadata", "creationTimestamp"))
    queue = labels_of(root).get(QUEUE_LABEL) or text_at(root, "metadata", "annotations", QUEUE_LABEL)
    young = made is not None and now - made < _UNMANAGED
    if queue and young:
        said, action = f"the Job was just made; the queue {queue} has not taken it over yet", LATER
        code, layer, cause, weight = Reason.NOT_EVALUATED_YET, Layer.NOT_EVALUATED, Cause.OTHER, 66
    elif queue:
        said = f"the Job names the queue {queue}, but no Workload of it exists: no queue controller has taken it over"
        action = "see that Kueue runs and that its integration for this kind of job is enabled"
        code, layer, cause, weight = Reason.NOT_MANAGED, Layer.JOB_OBJECT, Cause.QUEUE_MISCONFIG, 44
    else:
        said = f"the Job is suspended and has no label {QUEUE_LABEL}, so no queue will ever start it"
        action = f"add the label {QUEUE_LABEL} to the Job, or unsuspend it"
        code, layer, cause, weight = Reason.NOT_MANAGED, Layer.JOB_OBJECT, Cause.QUEUE_MISCONFIG, 44
    yield Seen(
        finding=finding(
            cause,
            said,
            rule,
            reason=code,
            layer=layer,
            next_action=action,
            where=str(queue) if queue else None,
            weight=weight,
        ),
        since=made,
    )


def _job_status(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001
    """A Job whose pods are not among the objects: its own counts."""
    root = subject.root
    if root is None or subject.pods or not is_batch(root) or part(root, "spec", "suspend") is True:
        return
    active, ready = part(root, "status", "active"), part(root, "status", "ready")
    if not isinstance(active, int) or not active:
        return
    expected = _expected(subject) or active
    running = isinstance(ready, int) and ready >= expected
    said = (
        "it runs"
        if running
        else f"{ready or 0} of {expected} pods are ready; the pods themselves are not among the objects"
    )
    yield Seen(
        finding=finding(
            Cause.OTHER,
            said,
            rule,
            reason=Reason.RUNNING if running else Reason.STARTING,
            next_action="nothing" if running else "look at the pods: what they wait for is said there",
            fits="now",
            weight=57,
        ),
        since=moment(text_at(root, "status", "startTime")),
    )


def _api_answers(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001
    """What the API server answered when something was to be made."""
    for answer in subject.answers:
        message = Message(
            where="apiError", reason=text_at(answer, "reason"), text=text_at(answer, "message"), object="Status"
        )
        yield Seen(finding=classify(message), evidence=(message,))


def _nothing_said(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001
    made = next(
        (
            moment(text_at(one, "metadata", "creationTimestamp"))
            for one in (subject.root, *subject.workloads, *subject.pods)
            if one
        ),
        None,
    )
    yield Seen(
        finding=finding(
            Cause.OTHER,
            "nobody has looked at it yet: nothing was said about it",
            rule,
            reason=Reason.NOT_EVALUATED_YET,
            layer=Layer.NOT_EVALUATED,
            next_action=f"{LATER}; if it stays, see that the controllers and the scheduler run",
            weight=99,
        ),
        since=made,
    )


SITUATION_RULES: tuple[SituationRule, ...] = (
    SituationRule("job-ended", 3, _job_ended),
    SituationRule("pods", 1, _pods),
    SituationRule("queue", 1, _queue),
    SituationRule("refused", 2, _refused),
    SituationRule("not-managed", 1, _unmanaged),
    SituationRule("job-status", 1, _job_status),
    SituationRule("own-words", 1, own_words),
    SituationRule("api-answers", 1, _api_answers),
    SituationRule("nothing-said", 1, _nothing_said),
)
