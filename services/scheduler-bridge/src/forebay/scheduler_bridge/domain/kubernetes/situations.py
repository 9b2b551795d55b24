"""The rules about a whole job: how it ended, what blocks the first of its pods, what its queue says, or that nobody has said anything.

Each answers with what it saw; `diagnosis.py` takes the most decisive. The last rule always answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes import (
    containers,
    deletion,
    failed_jobs,
    injected,
    pods,
    suspension,
    workloads,
)
from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Object,
    condition,
    items_at,
    kind_of,
    labels_of,
    moment,
    name_of,
    owner_names,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.job_status import is_batch, own_words
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Message, finding


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
    replaced = [pod for pod in subject.pods if not any(pod is one for one in living)]
    waits = failed_jobs.what_starters_waited_for(subject, now) if blocked else None
    if waits is not None:
        yield waits
    elif blocked:
        pod, seen = min(blocked, key=lambda entry: entry[1].finding.weight)
        before = failed_jobs.earlier_ends(subject, replaced, now, like=seen.finding.sentence)
        alike = sum(1 for _, other in blocked if other.finding.sentence == seen.finding.sentence)
        before += f"; {alike} pods are like this" if alike > 1 and not before else ""
        seen = seen.but(sentence=f"{seen.finding.sentence}{before}")
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
        seen = _running(running, rule)
        before = f"{containers.earlier_ends(running)}{failed_jobs.earlier_ends(subject, replaced, now)}"
        yield seen.but(sentence=f"{seen.finding.sentence}{before}")


def _replaced(pod: Object, siblings: tuple[Object, ...]) -> bool:
    """Another pod has taken this one's place: it was made later, for the same index."""
    made = text_at(pod, "metadata", "creationTimestamp")
    return any(
        text_at(one, "metadata", "creationTimestamp") > made and _place_in_job(one) == _place_in_job(pod)
        for one in siblings
        if one is not pod
    )


def _place_in_job(pod: Object) -> tuple[object, ...]:
    """Which pod of which job it is; pods without an index stand for each other."""
    owners = sorted(owner_names(pod))
    return (*owners, labels_of(pod).get("batch.kubernetes.io/job-completion-index"))


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
    suspended = any(suspension.is_suspended(job) for job in subject.jobs) and not subject.pods
    for workload in subject.workloads:
        yield from workloads.look_at(subject.facts, workload, now, suspended=suspended)


_NO_NEWS = frozenset(
    {
        *("SuccessfulCreate", "Suspended", "Resumed", "Scheduled", "Killing", "Completed"),
        *(
            "CreatedWorkload",
            "UpdatedWorkload",
            "FinishedWorkload",
            "Started",
            "QuotaReserved",
            "Admitted",
            "AdmissionGateCleared",
        ),
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
        seen = injected.refused(subject.facts, event, read_event(event))
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
    SituationRule("job-ended", 4, failed_jobs.look_at),
    SituationRule("deletion", 1, deletion.look_at),
    SituationRule("pods", 2, _pods),
    SituationRule("queue", 2, _queue),
    SituationRule("refused", 3, _refused),
    SituationRule("not-managed", 2, suspension.look_at),
    SituationRule("job-status", 1, _job_status),
    SituationRule("own-words", 1, own_words),
    SituationRule("api-answers", 1, _api_answers),
    SituationRule("nothing-said", 1, _nothing_said),
)
