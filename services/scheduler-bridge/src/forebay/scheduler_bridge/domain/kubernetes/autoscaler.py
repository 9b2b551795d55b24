"""What the autoscaler and the cloud behind it say about a pod that no node can take: nodes are coming, or they are not. Pure.

The last word counts, and a machine that the cloud refused is the last word of a promise that was made before.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    Said,
    items_at,
    kind_of,
    moment,
    name_of,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause

_PROMISES = frozenset({"TriggeredScaleUp", "Nominated"})
_WORDS = _PROMISES | {"NotTriggerScaleUp"}
_MACHINES = ("NodeClaim", "Machine", "MachineSet", "MachinePool", "ProvisioningRequest")
_BY_CLOUD = frozenset({Reason.CLOUD_QUOTA, Reason.CLOUD_CAPACITY})


def with_it(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """The finding with the autoscaler's last word."""
    words = [event for event in facts.about(pod) if event.reason in _WORDS or _of_pools(event)]
    last = words[-1] if words else None
    refused = _last_refusal(facts, pod)
    if refused is not None and (last is None or last.reason not in _PROMISES or _after(refused, last)):
        return _with_refusal(seen, refused, last)
    if last is None:
        return _with_nomination(pod, seen)
    evidence = (*seen.evidence, *read_event(last).evidence)
    if last.reason not in _PROMISES:
        changed = seen.but(sentence=f"{seen.finding.sentence}; the autoscaler adds no node: {last.message}")
        return Seen(finding=changed.finding, since=seen.since, evidence=evidence)
    changed = seen.but(
        sentence=f"{seen.finding.sentence}; the autoscaler is adding a node: {last.message}",
        reason=Reason.SCALE_UP_TRIGGERED,
        next_action=LATER,
        fits="unknown",
    )
    return Seen(finding=changed.finding, since=seen.since, evidence=evidence)


def _of_pools(event: Said) -> bool:
    """Karpenter tells what keeps its node pools from adding a node in an event that has the scheduler's name."""
    return event.reason == "FailedScheduling" and read_event(event).finding.rule.startswith("node-pools@")


def _with_nomination(pod: Object, seen: Seen) -> Seen:
    nominated = text_at(pod, "status", "nominatedNodeName")
    if not nominated:
        return seen
    return seen.but(
        sentence=f"pods are being stopped on {nominated} to make room; {seen.finding.sentence}", next_action=LATER
    )


def _with_refusal(seen: Seen, refused: Seen, last: Said | None) -> Seen:
    also = f"; {last.message}" if last is not None and last.reason not in _PROMISES else ""
    by_quota = refused.finding.cause is Cause.QUOTA
    changed = seen.but(
        sentence=f"{seen.finding.sentence}; {refused.finding.sentence}{also}",
        cause=Cause.QUOTA if by_quota else seen.finding.cause,
        reason=refused.finding.reason,
        next_action=refused.finding.next_action,
        fits="unknown",
    )
    return Seen(finding=changed.finding, since=seen.since, evidence=(*seen.evidence, *refused.evidence))


def _last_refusal(facts: Facts, pod: Object) -> Seen | None:
    """The newest thing by which a cloud refused a machine, for this pod or for a machine that was being made."""
    found = [*_refusals(facts, pod)]
    return max(found, key=lambda one: one.since or datetime.min.replace(tzinfo=UTC), default=None)


def _refusals(facts: Facts, pod: Object) -> Iterator[Seen]:
    for event in facts.events:
        if event.kind == "Pod" and event.name != name_of(pod):
            continue
        seen = read_event(event)
        if seen.finding.reason in _BY_CLOUD:
            yield Seen(finding=seen.finding, since=event.at, evidence=seen.evidence)
    for machine in facts.all(*_MACHINES):
        for one in items_at(machine, "status", "conditions"):
            seen = read_condition(one, f"{kind_of(machine)} {name_of(machine)}")
            if one.get("status") not in ("True", True) and seen.finding.reason in _BY_CLOUD:
                yield Seen(finding=seen.finding, since=moment(one.get("lastTransitionTime")), evidence=seen.evidence)


def _after(refused: Seen, promise: Said) -> bool:
    return refused.since is None or promise.at is None or refused.since >= promise.at
