"""A Workload that was taken out of the queue: why, after how many tries, and that it does not come back by itself. Pure.

Whatever a scheduler said before is evidence of why its pods were not ready; the state is that nobody looks at it any more.
Called by `workloads.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.affinity import allowed, unmet
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    Said,
    condition,
    items_at,
    namespace_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, Finding, Message, finding

RULE = "workload-inactive@2"
_TIMEOUTS = re.compile(r"PodsReadyTimeout")
_WHY: tuple[tuple[re.Pattern[str], Cause, str, str], ...] = (
    (
        re.compile(r"Requeuing|re-?queuing retries", re.IGNORECASE),
        Cause.TIMEOUT,
        "after too many PodsReady timeouts",
        "once its pods can become ready",
    ),
    (
        re.compile(r"MaximumExecutionTime|maximum execution time", re.IGNORECASE),
        Cause.TIMEOUT,
        "because it ran as long as the queue allows",
        "after its maximum execution time was raised",
    ),
    (
        re.compile(r"admission ?check|rejected state", re.IGNORECASE),
        Cause.ADMISSION_CHECK,
        "because an admission check rejected it",
        "after what the check names was mended",
    ),
)


def is_out(workload: Object) -> bool:
    """It is out of the queue, whatever other conditions say."""
    return part(workload, "spec", "active") is False


def look_at(facts: Facts, workload: Object) -> Iterator[Seen]:
    """The end of its time in the queue."""
    evicted, reserved = condition(workload, "Evicted"), condition(workload, "QuotaReserved")
    holds = evicted is not None and evicted.get("status") in ("True", True)
    said = next((one for one in (evicted if holds else None, reserved) if one is not None), None)
    seen = read_condition(said, "Workload") if said is not None else None
    since = seen.since if seen is not None else None
    evidence = seen.evidence if seen is not None else ()
    held = text_at(workload, "metadata", "annotations", "forebay.dev/held")
    if held:
        yield Seen(finding=_held(held), since=since, evidence=evidence)
        return
    text = f"{text_at(said, 'reason')} {text_at(said, 'message')}" if said is not None else ""
    cause, because, once = next(
        ((cause, because, once) for pattern, cause, because, once in _WHY if pattern.search(text)),
        (Cause.OTHER, "(spec.active is false)", "when it should run"),
    )
    sentence = f"the Workload was deactivated {because}: it is out of the queue and does not come back by itself"
    tries = _tries(facts, workload)
    if cause is Cause.TIMEOUT and tries:
        sentence += f"; its pods were not ready in time {tries} times"
    rejected = (_rejected(workload) or text_at(said, "message")) if cause is Cause.ADMISSION_CHECK else ""
    if rejected:
        sentence += f"; {rejected}"
    words, proof = _why_not_ready(facts, workload) if cause is Cause.TIMEOUT else ("", ())
    lacking = _lacking(facts, workload) if words else ""
    if lacking:
        once = f"once nodes with {lacking} can be had"
    yield Seen(
        finding=finding(
            cause,
            sentence + (f", because {words}" if words else ""),
            RULE,
            reason=Reason.DEACTIVATED,
            layer=Layer.QUOTA,
            next_action=f"set spec.active of the Workload to true {once}",
            where=text_at(workload, "spec", "queueName") or None,
            weight=19,
        ),
        since=since,
        evidence=(*evidence, *proof),
    )


def _rejected(workload: Object) -> str:
    """The checks that said no, in their own words."""
    return "; ".join(
        f"check {text_at(one, 'name')} says: {text_at(one, 'message') or 'Rejected'}"
        for one in items_at(workload, "status", "admissionChecks")
        if text_at(one, "state") == "Rejected"
    )


def _held(why: str) -> Finding:
    return finding(
        Cause.OTHER,
        f"the Workload is set inactive by Forebay: {why}",
        RULE,
        reason=Reason.ADMISSION_GATED,
        layer=Layer.DATA,
        next_action=LATER,
        weight=30,
    )


def _tries(facts: Facts, workload: Object) -> int:
    counted = sum(event.count for event in facts.about(workload) if _TIMEOUTS.search(event.reason))
    state = part(workload, "status", "requeueState", "count")
    return max(counted, state if isinstance(state, int) else 0)


def of_its_pods(facts: Facts, workload: Object) -> list[Said]:
    """Events about pods of its job, which may be gone."""
    owners = {text_at(one, "name") for one in items_at(workload, "metadata", "ownerReferences")}
    return [
        event
        for event in facts.events
        if event.kind == "Pod"
        and event.namespace in {"", namespace_of(workload)}
        and any(event.name.startswith(f"{owner}-") for owner in owners)
    ]


def _why_not_ready(facts: Facts, workload: Object) -> tuple[str, tuple[Message, ...]]:
    """What the last of its pods said, and the autoscaler about it."""
    said = of_its_pods(facts, workload)
    seen = [read_event(event) for event in said if event.reason != "NotTriggerScaleUp"]
    telling = [one for one in seen if one.finding.cause not in {Cause.OTHER, Cause.TIMEOUT}]
    best = min(reversed(telling), key=lambda one: one.finding.weight, default=None)
    scaler = next((event for event in reversed(said) if event.reason in {"NotTriggerScaleUp", "FailedScaleUp"}), None)
    words = [best.finding.sentence] if best is not None else []
    lacking = _lacking(facts, workload) if best is not None and best.finding.cause is Cause.AFFINITY_TAINT else ""
    if lacking:
        words.append(f"no node has {lacking}")
    if scaler is not None:
        words.append(f"the autoscaler adds no node: {scaler.message}")
    proof = (*(best.evidence if best is not None else ()), *(read_event(scaler).evidence if scaler is not None else ()))
    return "; ".join(words), proof


def _lacking(facts: Facts, workload: Object) -> str:
    """What its pods demand of a node and no known one has."""
    nodes = facts.all("Node")
    for pods in items_at(workload, "spec", "podSets"):
        template = part(pods, "template")
        if nodes and template and not allowed(template, nodes):
            return unmet(template, nodes)
    return ""
