"""What a job's own status says: conditions of operators, the phases of Ray, Volcano and Argo, the counts of a Job.

Called by `situations.py`. Operators tell the end of a job in three ways: a condition, a phase, or (Ray) two of them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Object,
    condition,
    is_true,
    items_at,
    kind_of,
    moment,
    name_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, finding

_ENDED_WELL = ("Complete", "SuccessCriteriaMet", "Succeeded", "Completed")
_ENDED_BADLY = ("Failed", "FailureTarget")
_PHASES = (
    ("status", "jobStatus"),
    ("status", "jobDeploymentStatus"),
    ("status", "state", "phase"),
    ("status", "phase"),
)
_GOOD = frozenset({"succeeded", "complete", "completed"})
_BAD = frozenset({"failed", "error", "terminated"})
_STOPPED = frozenset({"aborted", "stopped"})
"""By a person, not by a fault."""
_NO_JOBS = frozenset({"Node", "PersistentVolumeClaim", "LocalQueue", "ClusterQueue", "AdmissionCheck"})
_HOLDS_WHEN_FALSE = frozenset({"Progressing"})
_SAYS_NOTHING = frozenset({"Created", "Available", "Progressing", "Initialized", *_ENDED_WELL, *_ENDED_BADLY})


def ends(root: Object) -> tuple[Object | None, Object | None]:
    """(how it ended well, how it ended badly), each as a condition."""
    if kind_of(root) in _NO_JOBS:
        return None, None
    well, badly = (
        next((found for name in names if is_true(root, name) and (found := condition(root, name))), None)
        for names in (_ENDED_WELL, _ENDED_BADLY)
    )
    if well is None and badly is None and not is_batch(root):
        phases = [phase.casefold() for phase in _phases(root)]
        bad, good = _BAD.intersection(phases), _GOOD.intersection(phases)
        if bad:
            badly = _as_condition(root, "Failed")
        elif good:
            well = _as_condition(root, "Complete")
    return well, badly


def is_batch(root: Object) -> bool:
    """Kubernetes' own Job, which says everything in conditions and counts; Volcano's has the same kind."""
    return kind_of(root) == "Job" and text_at(root, "apiVersion") in {"", "batch/v1"}


def _phases(root: Object) -> list[str]:
    return [found for path in _PHASES if (found := text_at(root, *path))]


def _as_condition(root: Object, kind: str) -> Object:
    state = part(root, "status", "state")
    told = state if isinstance(state, dict) and (state.get("reason") or state.get("message")) else part(root, "status")
    return {
        "type": kind,
        "status": "True",
        "reason": text_at(told, "reason") or f"{kind_of(root)}{kind}",
        "message": text_at(told, "message"),
        "lastTransitionTime": text_at(root, "status", "endTime") or text_at(told, "lastTransitionTime"),
    }


def own_words(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001
    """What an operator says about a job that has not ended. Pods that are known say more, so this is weak."""
    root = subject.root
    if root is None or is_batch(root) or kind_of(root) in _NO_JOBS:
        return
    kind = kind_of(root)
    for one in items_at(root, "status", "conditions"):
        name, holds = text_at(one, "type"), one.get("status") in ("True", True)
        if holds == (name in _HOLDS_WHEN_FALSE) or (holds and name in _SAYS_NOTHING):
            continue
        if holds and name == "Running":
            yield _runs(root, rule, moment(one.get("lastTransitionTime")))
            continue
        seen = read_condition(one, kind, where="jobCondition")
        if seen.finding.reason is not Reason.UNKNOWN:
            yield seen.but(weight=max(seen.finding.weight, 56))
    phases = _phases(root)
    if phases and not {phase.casefold() for phase in phases} & (_GOOD | _BAD):
        yield from _phase(root, phases, rule)


def _phase(root: Object, phases: list[str], rule: str) -> Iterator[Seen]:
    stopped = phases[0].casefold() in _STOPPED
    if not stopped and "running" in {phase.casefold() for phase in phases}:
        yield _runs(root, rule, moment(text_at(root, "status", "startTime")))
        return
    said = text_at(root, "status", "message") or text_at(root, "status", "state", "message")
    if said:
        seen = read_condition({**_as_condition(root, phases[-1]), "type": phases[-1]}, kind_of(root))
        if seen.finding.cause is not Cause.OTHER:
            yield seen.but(weight=max(seen.finding.weight, 56))
            return
    told = finding(
        Cause.OTHER,
        f"{kind_of(root)} {name_of(root)} is {phases[0] if stopped else phases[-1]}{f': {said}' if said else ''}",
        rule,
        reason=Reason.CANCELLED if stopped else Reason.STARTING,
        layer=Layer.NONE,
        next_action="resume it, or submit it again, when it should run"
        if stopped
        else "look at its pods, its queue and its events: what it waits for is said there",
        weight=67,
    )
    yield Seen(finding=told, since=moment(text_at(root, "metadata", "creationTimestamp")))


def _runs(root: Object, rule: str, since: datetime | None) -> Seen:
    told = finding(
        Cause.OTHER,
        f"{kind_of(root)} {name_of(root)} runs",
        rule,
        reason=Reason.RUNNING,
        layer=Layer.NONE,
        next_action="nothing",
        fits="now",
        weight=57,
    )
    return Seen(finding=told, since=since)
