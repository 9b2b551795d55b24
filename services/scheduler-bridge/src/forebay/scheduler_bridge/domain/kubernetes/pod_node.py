"""What a pod's node says about it: that it does not answer, that it is gone, that memory ran out there when the pod was killed.

Called by `pods.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.deletion import foreign
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    condition,
    items_at,
    moment,
    name_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition, read_event
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, finding

_JUST_BEFORE = timedelta(minutes=3)
_WHY_UNREADY = ("Unknown", "False", False)


def on_its_node(facts: Facts, pod: Object, now: datetime) -> Iterator[Seen]:
    """A pod that should run on a node that does not answer; and an old pod that may still write."""
    name = text_at(pod, "spec", "nodeName")
    node = facts.find("Node", "", name) if name else None
    ready = condition(node, "Ready") if node else None
    lost = ready is not None and ready.get("status") in _WHY_UNREADY
    deleted = moment(text_at(pod, "metadata", "deletionTimestamp"))
    if text_at(pod, "status", "phase") in {"Succeeded", "Failed"}:
        if node is not None and _was_killed(pod):
            yield from _behind_a_kill(facts, pod, node, ready if lost else None)
        if deleted is not None and foreign(pod):
            yield _held_after_its_end(pod, deleted)
        return
    if deleted is not None and not lost:
        listed = bool(facts.all("Node")) and not facts.of_one_job
        yield _being_stopped(pod, deleted, now, gone=bool(name) and node is None and listed)
    if lost and ready is not None:
        seen = read_condition(ready, f"Node {name}")
        unready = moment(ready.get("lastTransitionTime"))
        at = f" since {unready:%H:%M:%S}" if unready is not None else ""
        said = f"node {name} does not answer{at} ({text_at(ready, 'reason') or 'not ready'})"
        if deleted is not None and deleted <= now:
            yield Seen(
                finding=finding(
                    Cause.NODE_LOST,
                    f"{said}; pod {name_of(pod)} was told to stop, but it is not confirmed dead and may still write",
                    "old-pod-not-confirmed-dead@1",
                    reason=Reason.OLD_POD_NOT_CONFIRMED_DEAD,
                    next_action=f"make sure that {name} is off, then taint it node.kubernetes.io/out-of-service or delete the node",
                    where=name,
                    weight=8,
                ),
                since=deleted,
                evidence=seen.evidence,
            )
            return
        yield Seen(
            finding=finding(
                Cause.NODE_LOST,
                f"{said}; what pod {name_of(pod)} does there is not known",
                "node-not-ready@1",
                where=name,
                weight=11,
            ),
            since=seen.since,
            evidence=seen.evidence,
        )


def _held_after_its_end(pod: Object, since: datetime) -> Seen:
    """A pod that ended and is to go, and that somebody's finalizer keeps: whatever waits for its end waits on."""
    held = ", ".join(foreign(pod))
    said = f"pod {name_of(pod)} has ended and is being deleted since {since:%H:%M:%S}; the finalizer {held} holds it"
    told = finding(
        Cause.OTHER,
        said,
        "pod-held@1",
        reason=Reason.BEING_DELETED,
        layer=Layer.JOB_OBJECT,
        next_action=f"see why the owner of {held} does not take its finalizer away",
        need=held,
        weight=44,
    )
    return Seen(finding=told, since=since)


def _being_stopped(pod: Object, since: datetime, now: datetime, *, gone: bool) -> Seen:
    """A pod that was told to stop and is still there; whether it is dead nobody can say when its node is gone."""
    name, node = name_of(pod), text_at(pod, "spec", "nodeName")
    if gone:
        said = f"node {node} is not among the nodes any more; pod {name} was told to stop, but it is not confirmed dead"
        action = f"make sure that {node} is off, then delete the pod by force"
        cause, code, weight = Cause.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD, 13
    else:
        held = ", ".join(foreign(pod))
        said = f"pod {name} was told to stop at {since:%H:%M:%S} and has not ended yet"
        action = f"{LATER} within the pod's grace period; if it stays, look at its node and its finalizers"
        grace = part(pod, "metadata", "deletionGracePeriodSeconds")
        allowed = timedelta(seconds=grace if isinstance(grace, int) else 30)
        late = now - since > allowed + _JUST_BEFORE
        if late and not held:
            minutes = int((now - since).total_seconds() // 60)
            said += f": {minutes} min, though its grace period is {int(allowed.total_seconds())} s"
            action = f"look at {node or 'its node'} (the kubelet, mounts that hang); delete the pod by force only when its process is known to be dead"
        if held:
            said += f"; the finalizer {held} holds it"
            action = f"see why the owner of {held} does not take its finalizer away"
        cause, code, weight = Cause.OTHER, Reason.POD_DELETED, 28 if held else 59
    told = finding(cause, said, "pod-stopping@1", reason=code, layer=Layer.NODE, next_action=action, weight=weight)
    return Seen(finding=told, since=since)


def _was_killed(pod: Object) -> bool:
    codes = [part(one, "state", "terminated", "exitCode") for one in items_at(pod, "status", "containerStatuses")]
    return any(code in (137, 143) for code in codes)


def _behind_a_kill(facts: Facts, pod: Object, node: Object, unready: Object | None) -> Iterator[Seen]:
    """What the node knows about a kill that the pod cannot explain: memory ran out there, or it does not answer."""
    ended, name = ended_at(pod), name_of(node)
    for event in facts.about(node):
        if event.reason in {"SystemOOM", "OOMKilling"} and event.at and ended and abs(ended - event.at) <= _JUST_BEFORE:
            seen = read_event(event)
            yield seen.but(
                sentence=f"memory ran out on node {name} when the container was killed: {event.message}", weight=28
            )
    if unready is not None:
        seen = read_condition(unready, f"Node {name}")
        yield Seen(
            finding=finding(
                Cause.NODE_LOST,
                f"the container was killed, and its node {name} does not answer now",
                "killed-on-lost-node@1",
                where=name,
                weight=42,
            ),
            since=seen.since,
            evidence=seen.evidence,
        )


def ended_at(pod: Object) -> datetime | None:
    times = [
        found
        for status in items_at(pod, "status", "containerStatuses")
        if (found := moment(part(status, "state", "terminated", "finishedAt"))) is not None
    ]
    changed = [
        found
        for one in items_at(pod, "status", "conditions")
        if (found := moment(one.get("lastTransitionTime"))) is not None
    ]
    return max(times or changed, default=None)
