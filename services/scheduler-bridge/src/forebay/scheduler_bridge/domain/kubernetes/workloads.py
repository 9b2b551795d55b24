"""What Kueue's Workload and its queues say, from 0.10 to 0.19: gates, quota, checks, evictions, and silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes import deactivation, deletion
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    Said,
    condition,
    is_true,
    items_at,
    kind_of,
    moment,
    name_of,
    namespace_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, NEXT, Cause, Message, finding

_NOT_UNSUSPENDED = timedelta(minutes=5)
_NO_ANSWER = frozenset({Reason.NOT_EVALUATED_YET, Reason.UNKNOWN})
_DATA_WORDS = ("data", "forebay", "cache", "warm")
_GATED = "AdmissionGated"
_CHECK_ORDER = {"Rejected": 0, "Retry": 1, "Pending": 2}


def look_at(facts: Facts, workload: Object, now: datetime, *, suspended: bool) -> Iterator[Seen]:
    """Everything found about a Workload that has not finished."""
    admitted, evicted = is_true(workload, "Admitted"), is_true(workload, "Evicted")
    reserved = condition(workload, "QuotaReserved")
    holds = reserved is not None and reserved.get("status") in ("True", True)
    yield from _finished(workload)
    yield from _being_deleted(workload)
    if deactivation.is_out(workload):
        yield from deactivation.look_at(facts, workload)
        return
    if evicted:
        yield from _evicted(facts, workload)
    if admitted and not evicted and suspended:
        yield _not_unsuspended(workload, now)
    if not admitted:
        yield from _checks(workload, holds=holds, now=now)
    if not holds and not admitted:
        yield from _queues(facts, workload)
        said = read_condition(reserved, "Workload") if reserved is not None else None
        if said is not None and said.finding.reason not in _NO_ANSWER:
            yield _with_place(facts, workload, _with_preemptor(facts, said))
        else:
            yield _not_evaluated(facts, workload, said)
    for event in facts.about(workload):
        if is_past(event, workload):
            continue
        seen = read_event(event)
        if seen.finding.cause not in {Cause.OTHER, Cause.PREEMPTED} and not admitted:
            yield seen.but(weight=max(seen.finding.weight, 58))


_OF_EVICTION = re.compile(r"^(?:EvictedDueTo\w*|Preempted|Stopped|Evicted)$")


def is_past(event: Said, workload: Object) -> bool:
    """It told of a gate or an eviction that the Workload's conditions do not know any more."""
    if _OF_EVICTION.match(event.reason):
        return not is_true(workload, "Evicted") and part(workload, "spec", "active") is not False
    reserved = condition(workload, "QuotaReserved")
    return event.reason == _GATED and reserved is not None and text_at(reserved, "reason") != _GATED


def _finished(workload: Object) -> Iterator[Seen]:
    finished = condition(workload, "Finished")
    if finished is None or finished.get("status") not in ("True", True):
        return
    if text_at(finished, "reason") in {"AdmissionChecksRejected", "AdmissionCheckRejected"}:
        seen = read_condition(finished, "Workload")
        yield _of_data(
            seen.but(
                sentence=f"an admission check rejected the job for good: {text_at(finished, 'message')}", weight=4
            ),
            text_at(finished, "message"),
        )


def _being_deleted(workload: Object) -> Iterator[Seen]:
    """A Workload that is told to go is never admitted; a new one is made when it has gone."""
    told = deletion.since(workload)
    if told is None:
        return
    held = deletion.finalizers(workload)
    said = f"its Workload {name_of(workload)} is being deleted since {told:%H:%M:%S} and is not gone yet"
    if held:
        said += f": the finalizer {', '.join(held)} holds it"
    yield Seen(
        finding=finding(
            Cause.OTHER,
            said,
            "workload-being-deleted@1",
            reason=Reason.BEING_DELETED,
            layer=Layer.JOB_OBJECT,
            next_action="see that Kueue's controller runs: it takes its finalizer away once the job's pods are gone",
            need=", ".join(held) or None,
            weight=26,
        ),
        since=told,
    )


def _of_data(seen: Seen, text: str) -> Seen:
    """A check about data makes the layer data, not admission."""
    return seen.but(layer=Layer.DATA) if any(word in text.casefold() for word in _DATA_WORDS) else seen


def _evicted(facts: Facts, workload: Object) -> Iterator[Seen]:
    evicted, reserved = condition(workload, "Evicted"), condition(workload, "QuotaReserved")
    if evicted is None:
        return
    why = read_condition(evicted, "Workload")
    if is_true(workload, "Admitted"):
        said = f"its Workload says admitted and evicted ({text_at(evicted, 'reason')}) at the same time: {why.finding.sentence}"
        contradiction = why.but(
            sentence=said,
            reason=Reason.CONTRADICTORY,
            next_action="nothing if it passes within a minute; else see that Kueue's controller runs and can stop the job",
            weight=5,
            rule=f"admitted-and-evicted@1/{why.finding.rule}",
        )
        both = (*contradiction.evidence, *read_condition(condition(workload, "Admitted") or {}, "Workload").evidence)
        yield Seen(finding=contradiction.finding, since=why.since, evidence=both)
        return
    why = _with_preemptor(facts, why)
    preempted = condition(workload, "Preempted")
    if preempted is not None and preempted.get("status") in ("True", True):
        why = Seen(
            finding=why.finding,
            since=why.since,
            evidence=(*why.evidence, *read_condition(preempted, "Workload").evidence),
        )
    newer = moment(reserved.get("lastTransitionTime")) if reserved else None
    replaced = (
        newer is not None
        and why.since is not None
        and newer > why.since
        and read_condition(reserved or {}, "").finding.weight < 60
    )
    again = _queued_again(workload) if not replaced else ""
    if why.finding.cause is Cause.TIMEOUT:
        before = _before_timeout(facts, workload)
        if before is not None:
            yield before.but(sentence=f"{before.finding.sentence}{again}")
    why = why.but(sentence=f"{why.finding.sentence}{again}")
    yield why.but(weight=62 if replaced else min(why.finding.weight, 33))


_LOOP_FROM = 3
"""So many rounds in vain are a loop."""


def _queued_again(workload: Object) -> str:
    """When it will be queued again, and how often it was."""
    at = moment(part(workload, "status", "requeueState", "requeueAt"))
    tries = part(workload, "status", "requeueState", "count")
    if at is None:
        return ""
    if isinstance(tries, int) and tries >= _LOOP_FROM:
        why = text_at(condition(workload, "Evicted") or {}, "reason")
        return f"; requeue loop: {tries} times for reason {why}, the next time at {at:%H:%M:%S}"
    return f"; it is queued again at {at:%H:%M:%S}" + (f", {tries} times so far" if isinstance(tries, int) else "")


_UIDS = re.compile(r"\bUID: (?P<workload>[\w\-]+)(?:, JobUID: (?P<job>[\w\-]+))?")


def _with_preemptor(facts: Facts, seen: Seen) -> Seen:
    """The same with the name of the workload that took its place, when that is among the objects."""
    uids = _UIDS.search(" ".join(message.text for message in seen.evidence))
    if uids is None or seen.finding.cause is not Cause.PREEMPTED:
        return seen
    found = next(
        (one for uid in (uids.group("job"), uids.group("workload")) if uid and (one := facts.by_uid(uid))), None
    )
    if found is None:
        return seen
    return seen.but(sentence=f"{seen.finding.sentence}: {kind_of(found)} {name_of(found)} took its place")


def _before_timeout(facts: Facts, workload: Object) -> Seen | None:
    """After a time limit the cause is what the last pods said, not the eviction."""
    read_all = map(read_event, deactivation.of_its_pods(facts, workload))
    found = [seen for seen in read_all if seen.finding.cause not in {Cause.OTHER, Cause.TIMEOUT}]
    if not found:
        return None
    best = min(found, key=lambda seen: seen.finding.weight)
    return best.but(sentence=f"its pods were not ready in time, because {best.finding.sentence}", weight=30)


def _not_unsuspended(workload: Object, now: datetime) -> Seen:
    admitted = condition(workload, "Admitted")
    since = moment(admitted.get("lastTransitionTime")) if admitted else None
    late = since is not None and now - since >= _NOT_UNSUSPENDED
    waited = f" for {int((now - since).total_seconds() // 60)} min" if late and since else ""
    queue = text_at(workload, "status", "admission", "clusterQueue")
    return Seen(
        finding=finding(
            Cause.OTHER,
            f"Kueue admitted the workload{f' in {queue}' if queue else ''}, but the Job is still suspended{waited}: quota is held and nothing runs",
            "admitted-not-started@1",
            reason=Reason.ADMITTED_NOT_STARTED,
            layer=Layer.JOB_OBJECT,
            next_action="look at Kueue's controller log for this Job; a stale Workload of an earlier Job of the same name must be deleted"
            if late
            else LATER,
            where=queue or None,
            fits="now",
            weight=32,
        ),
        since=since,
        evidence=read_condition(admitted, "Workload").evidence if admitted else (),
    )


def _checks(workload: Object, *, holds: bool, now: datetime) -> Iterator[Seen]:
    """Admission checks that have not said Ready. Before quota is reserved only a rejection counts."""
    checks = [
        one for one in items_at(workload, "status", "admissionChecks") if text_at(one, "state") not in {"Ready", ""}
    ]
    checks.sort(key=lambda one: _CHECK_ORDER.get(text_at(one, "state"), 3))
    for check in checks[:1]:
        name, state, text = text_at(check, "name"), text_at(check, "state"), text_at(check, "message")
        if not holds and state == "Pending":
            continue
        since = moment(check.get("lastTransitionTime"))
        message = Message(
            where="condition", reason=state, text=text, object=f"Workload admissionChecks[{name}].state={state}"
        )
        reserved = condition(workload, "QuotaReserved")
        held = moment(reserved.get("lastTransitionTime")) if holds and reserved else None
        said = f"admission check {name} is {state}{f': {text}' if text else ''}"
        if held is not None:
            said += f"; quota is held since {held:%H:%M:%S} ({int((now - held).total_seconds() // 60)} min)"
        about = any(word in f"{name} {text}".casefold() for word in _DATA_WORDS)
        yield Seen(
            finding=finding(
                Cause.ADMISSION_CHECK,
                said,
                "admission-check@1",
                reason=Reason.ADMISSION_CHECK_REJECTED if state == "Rejected" else Reason.ADMISSION_CHECK_PENDING,
                layer=Layer.DATA if about else Layer.ADMISSION_CHECK,
                next_action=f"mend what {name} says and submit again"
                if state == "Rejected"
                else f"wait for {name}, or look at its controller",
                where=name,
                weight=6 if state == "Rejected" else 31,
            ),
            since=since,
            evidence=(message,),
        )


def _queues(facts: Facts, workload: Object) -> Iterator[Seen]:
    """The queues themselves, where they are among the facts: missing, inactive, stopped."""
    name = text_at(workload, "spec", "queueName")
    known = [one for one in facts.all("LocalQueue") if namespace_of(one) == namespace_of(workload)]
    local = next((one for one in known if name_of(one) == name), None)
    if known and local is None and name:
        said = f"the LocalQueue {name} does not exist; this namespace has {', '.join(sorted(name_of(one) for one in known))}"
        yield Seen(
            finding=finding(
                Cause.QUEUE_MISCONFIG,
                said,
                "local-queue-missing@1",
                reason=Reason.QUEUE_UNKNOWN,
                next_action=f"create the LocalQueue {name}, or correct the queue's name in the job",
                where=name,
                weight=24,
            )
        )
    cluster_name = text_at(local, "spec", "clusterQueue") if local else ""
    cluster = facts.find("ClusterQueue", "", cluster_name) if cluster_name else None
    for queue in (cluster, local):
        if queue is not None:
            yield from inactive(queue)


def inactive(queue: Object) -> Iterator[Seen]:
    """A queue, or an admission check, that is not active."""
    active = condition(queue, "Active")
    kind, name = kind_of(queue), name_of(queue)
    stopped = text_at(queue, "spec", "stopPolicy")
    if stopped in {"Hold", "HoldAndDrain"}:
        yield Seen(
            finding=finding(
                Cause.QUEUE_MISCONFIG,
                f"{kind} {name} is stopped ({stopped})",
                "queue-stop-policy@1",
                reason=Reason.QUEUE_STOPPED,
                next_action=f"have the owner of {name} set its stopPolicy to None",
                where=name,
                weight=23,
            ),
            since=moment(active.get("lastTransitionTime")) if active else None,
            evidence=read_condition(active, kind).evidence if active else (),
        )
    elif active is not None and active.get("status") in ("False", False):
        seen = read_condition(active, kind)
        cause = Cause.ADMISSION_CHECK if kind == "AdmissionCheck" else Cause.QUEUE_MISCONFIG
        yield seen.but(
            cause=cause,
            sentence=f"{kind} {name} is inactive: {text_at(active, 'message')}",
            next_action=NEXT[cause],
            where=name,
            weight=23,
        )


def _place_of(facts: Facts, workload: Object) -> str:
    place = facts.positions.get(f"{namespace_of(workload)}/{name_of(workload)}")
    return "" if place is None else f" (position {place + 1})"


def _with_place(facts: Facts, workload: Object, seen: Seen) -> Seen:
    place = _place_of(facts, workload)
    if text_at(workload, "spec", "queueName") and seen.finding.where is None:
        seen = seen.but(where=text_at(workload, "spec", "queueName"))
    if seen.finding.reason is Reason.ADMISSION_GATED:
        text = " ".join(message.text for message in seen.evidence)
        seen = _of_data(seen, text)
    return seen.but(sentence=f"{seen.finding.sentence}{place}") if place else seen


def _not_evaluated(facts: Facts, workload: Object, said: Seen | None) -> Seen:
    place = _place_of(facts, workload)
    queue = text_at(workload, "spec", "queueName")
    return Seen(
        finding=finding(
            Cause.OTHER,
            f"nobody has looked at it yet{place}: the queue{f' {queue}' if queue else ''} has not evaluated the workload",
            "queue-not-evaluated@1",
            reason=Reason.NOT_EVALUATED_YET,
            layer=Layer.NOT_EVALUATED,
            next_action=f"{LATER} when those before it are done; if it stays, look at Kueue's controller",
            where=queue or None,
            weight=64,
        ),
        since=moment(text_at(workload, "metadata", "creationTimestamp")),
        evidence=said.evidence if said else (),
    )
