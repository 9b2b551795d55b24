"""How a job ended, and of what: the pod that fell first, how many fell like it, and whose end it really was.

A submitter or a launcher only starts others: when it gives up, the reason is with the pods that it waited for. Of pods that
train together the first to fall tells the cause; the others were stopped, or broke on its silence. Called by `situations.py`. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes import pods
from forebay.scheduler_bridge.domain.kubernetes.depends import fell
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
from forebay.scheduler_bridge.domain.kubernetes.job_status import ends
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, finding

_STARTER = re.compile(r"(?:^|[-_])(?:submitter|launcher)$", re.IGNORECASE)
_FIRST = re.compile(r"first failed job: (?P<name>[\w.\-]+)", re.IGNORECASE)
_LONGEST = 200
_OWN_END = 40
"""Weights from here on tell the end of a process; below, what ended it."""
_LATE = datetime.max.replace(tzinfo=UTC)


def look_at(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:
    """The end of a job, when it has one."""
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
    starters = [pod for pod in subject.pods if is_starter(pod)]
    waited_for = what_starters_waited_for(subject, now)
    found = _of_pods(subject, _of_first_job(subject, badly), now, starters, running_out=running_out)
    reason = text_at(badly, "reason")
    if waited_for is not None and not any(_fell(pod) for pod, _ in found if not is_starter(pod)):
        return Seen(
            finding=waited_for.but(
                sentence=f"the job failed ({reason}): {waited_for.finding.sentence}",
                weight=3,
                rule=f"{rule}/{waited_for.finding.rule}",
            ).finding,
            since=said.since,
            evidence=waited_for.evidence + said.evidence,
        )
    pod, decisive = _first(found)
    if decisive is None and running_out:
        decisive = _before_the_limit(subject)
    quoted = _quoted(badly)
    if quoted and pod is not None and is_starter(pod) and said.finding.cause is not Cause.OTHER:
        return said.but(sentence=f"the job failed ({reason}): {quoted}", reason=Reason.PROCESS_FAILED, weight=3)
    if decisive is not None and decisive.finding.reason is Reason.PROCESS_KILLED:
        decisive = _taken_off(subject) or decisive
    if decisive is None or (running_out and decisive.finding.cause in {Cause.CRASH, Cause.OOM, Cause.OTHER}):
        return said.but(
            sentence=f"the job failed: {said.finding.sentence.replace('its time limit', f'its time limit{_limit(subject)}')} ({reason}){f': {quoted}' if quoted else ''}",
            weight=3,
        )
    why = f"its time limit{_limit(subject)} passed" if running_out else f"the job failed ({reason}{_rounds(subject)})"
    sentence = f"{why}: {_whose(subject, pod)}{decisive.finding.sentence}{_alike(found, decisive)}"
    return Seen(
        finding=decisive.but(sentence=sentence, weight=3, rule=f"{rule}/{decisive.finding.rule}").finding,
        since=said.since,
        evidence=decisive.evidence + said.evidence,
    )


def _limit(subject: Subject) -> str:
    """The time limit that its owner gave it, in words that follow `its time limit`."""
    spec = part(subject.root, "spec")
    seconds = part(spec, "activeDeadlineSeconds") or part(spec, "runPolicy", "activeDeadlineSeconds")
    return f" of {seconds} s" if isinstance(seconds, int) else ""


def _quoted(badly: Object) -> str:
    """What an operator says of an output that it quotes, and the last line of it, which is where an exception stands."""
    lines = [line.strip() for line in text_at(badly, "message").splitlines() if line.strip()]
    if len(lines) < 2:
        return ""
    return f"{lines[0].partition(',')[0][:_LONGEST]}: {lines[-1][:_LONGEST]}"


def _before_the_limit(subject: Subject) -> Seen | None:
    """What was last said about pods that are gone: why they did not start in time."""
    names = [f"{name_of(job)}-" for job in subject.jobs]
    said = [
        read_event(event)
        for event in subject.facts.events
        if event.kind == "Pod" and any(event.name.startswith(name) for name in names)
    ]
    telling = [seen for seen in said if seen.finding.cause not in {Cause.OTHER, Cause.TIMEOUT}]
    return min(reversed(telling), key=lambda seen: seen.finding.weight, default=None)


def earlier_ends(subject: Subject, ended: list[Object], now: datetime, *, like: str = "") -> str:
    """How pods that were replaced had ended, each way with its number; empty when none was. `like`: how the last one did."""
    ways: Counter[str] = Counter()
    for pod in ended:
        best = pods.best(subject.facts, pod, now)
        if best is not None:
            ways[best.finding.sentence] += 1
    alike = ways.pop(like, 0)
    if alike:
        return f"; {alike + 1} pods ended this way"
    told = [f"{count} pod{'s' if count > 1 else ''} before ended: {way}" for way, count in ways.most_common(2)]
    return "; " + "; ".join(told) if told else ""


def _of_first_job(subject: Subject, badly: Object) -> tuple[Object, ...]:
    """The pods of the job that the operator names as the first that failed; all of them when it names none."""
    first = _FIRST.search(text_at(badly, "message"))
    job = next((one for one in subject.jobs if first is not None and name_of(one) == first.group("name")), None)
    mine = subject.facts.owned(job, "Pod") if job is not None else ()
    return mine or subject.pods


def _of_pods(
    subject: Subject, mine: tuple[Object, ...], now: datetime, starters: list[Object], *, running_out: bool
) -> list[tuple[Object, Seen]]:
    """What was found about each pod; a starter's own exit only when nobody else says anything."""
    found = [
        (pod, seen)
        for pod in mine
        for seen in pods.look_at(subject.facts, pod, now)
        if (seen.finding.cause is not Cause.OTHER or seen.finding.reason is Reason.PROCESS_KILLED)
        and not (running_out and seen.finding.cause is Cause.TIMEOUT)
    ]
    of_others = [
        (pod, seen)
        for pod, seen in found
        if not any(pod is one for one in starters) and (_fell(pod) or seen.finding.cause is Cause.NODE_LOST)
    ]
    return of_others or found


def _fell(pod: Object) -> bool:
    return text_at(pod, "status", "phase") == "Failed" or fell(pod) is not None


def _first(found: list[tuple[Object, Seen]]) -> tuple[Object | None, Seen | None]:
    """What ended a process before how it ended; of equals, the first in time."""

    def rank(entry: tuple[Object, Seen]) -> tuple[int, datetime]:
        pod, seen = entry
        weight = seen.finding.weight
        killed = seen.finding.reason is Reason.PROCESS_KILLED
        end = fell(pod)
        return (weight if weight < _OWN_END or killed else _OWN_END, end[0] if end else seen.since or _LATE)

    return min(found, key=rank, default=(None, None))


def _alike(found: list[tuple[Object, Seen]], decisive: Seen) -> str:
    """How many pods ended the same way."""
    alike = {
        id(pod)
        for pod, seen in found
        if (seen.finding.sentence, seen.finding.cause) == (decisive.finding.sentence, decisive.finding.cause)
    }
    return f"; {len(alike)} pods ended this way" if len(alike) > 1 else ""


def _whose(subject: Subject, pod: Object | None) -> str:
    """The job below the root, and the pod, where there are several."""
    if pod is None or len(subject.pods) < 2:
        return ""
    job = next(
        (
            one
            for one in subject.jobs
            if one is not subject.root and any(pod is mine for mine in subject.facts.owned(one, "Pod"))
        ),
        None,
    )
    return f"{f'Job {name_of(job)}, ' if job is not None else ''}pod {name_of(pod)}, "


def _rounds(subject: Subject) -> str:
    times = part(subject.root, "status", "restarts") if subject.root else None
    return f", after {times} restart{'s' if times > 1 else ''}" if isinstance(times, int) and times > 0 else ""


def _taken_off(subject: Subject) -> Seen | None:
    """A kill that no pod can explain is the queue's, when it took the job off its nodes."""
    conditions = [
        found for one in subject.workloads if is_true(one, "Evicted") and (found := condition(one, "Evicted"))
    ]
    return read_condition(conditions[0], "Workload") if conditions else None


def is_starter(pod: Object) -> bool:
    """A pod that only starts what other pods do: Ray's submitter, MPI's launcher."""
    labels = labels_of(pod)
    role = labels.get("training.kubeflow.org/job-role") or labels.get("training.kubeflow.org/replica-type")
    names = [text_at(one, "name") for one in items_at(pod, "spec", "containers")]
    return (role or "").casefold() == "launcher" or any(_STARTER.search(name) for name in names)


def what_starters_waited_for(subject: Subject, now: datetime) -> Seen | None:
    """The first of the other pods that was not ready: the starter gave up on it, and its command never ran."""
    starters = [pod for pod in subject.pods if is_starter(pod)]
    if not any(_fell(pod) for pod in starters):
        return None
    role = _role(starters[0])
    others = [pod for pod in subject.pods if not any(pod is one for one in starters)]
    for pod in others:
        if _fell(pod) or is_true(pod, "Ready") or (pods.runs(pod) and condition(pod, "Ready") is None):
            continue
        best = pods.best(subject.facts, pod, now)
        unready = _unready(subject, pod)
        seen = unready if unready is not None and (best is None or best.finding.cause is Cause.OTHER) else best
        if seen is None:
            continue
        gave_up = f"the {role} gave up before {_what(pod)} was ready, so the training itself never ran: {seen.finding.sentence}"
        return seen.but(sentence=gave_up, where=text_at(pod, "spec", "nodeName") or seen.finding.where)
    return None


def _role(pod: Object) -> str:
    names = [text_at(one, "name") for one in items_at(pod, "spec", "containers")]
    return next((f"{name} container" for name in names if _STARTER.search(name)), "launcher")


def _what(pod: Object) -> str:
    kind = labels_of(pod).get("ray.io/node-type") or labels_of(pod).get("training.kubeflow.org/job-role") or ""
    return f"{kind} pod {name_of(pod)}".strip()


def _unready(subject: Subject, pod: Object) -> Seen | None:
    """A pod that runs and is not ready: what its readiness probe says, and how often it has said it."""
    said = [event for event in subject.facts.about(pod) if event.reason == "Unhealthy"]
    ready = condition(pod, "Ready")
    if not said and ready is None:
        return None
    times = sum(event.count for event in said)
    told = f"Ready=False ({text_at(ready, 'reason')}); " if ready is not None and text_at(ready, "reason") else ""
    last = said[-1].message if said else text_at(ready, "message")
    failed = f"its probe failed{f' {times} times' if times > 1 else ''}: {last}" if said else last
    return Seen(
        finding=finding(
            Cause.OTHER,
            f"{told}{failed}",
            "not-ready-in-time@1",
            reason=Reason.HELPER_FAILED,
            layer=Layer.GANG,
            next_action=f"see why {name_of(pod)} was not ready (its log and its probe), give it more time, and submit again",
            weight=30,
        ),
        since=moment((ready or {}).get("lastTransitionTime")),
        evidence=tuple(message for event in said[-1:] for message in read_event(event).evidence),
    )
