"""What is being deleted, and what holds it until then: finalizers, pods that still stop, nodes that do not answer. Pure.

An object with a deletionTimestamp is not gone: its finalizers are removed by their owners, and until then it counts.
Called by `situations.py`, `pod_node.py` and `mounts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    condition,
    items_at,
    kind_of,
    moment,
    name_of,
    namespace_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen
from forebay.scheduler_bridge.domain.kubernetes.subjects import Subject
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LATER, Cause, finding

_BY_ITSELF = frozenset({"batch.kubernetes.io/job-tracking", "foregroundDeletion", "orphan"})
"""Kubernetes takes these away itself once what they wait for has happened."""


def since(subject: Object) -> datetime | None:
    """When it was told to go."""
    return moment(text_at(subject, "metadata", "deletionTimestamp"))


def finalizers(subject: Object) -> tuple[str, ...]:
    """Those that an object has."""
    found = part(subject, "metadata", "finalizers")
    return tuple(str(one) for one in found) if isinstance(found, list) else ()


def foreign(subject: Object) -> tuple[str, ...]:
    """The finalizers that somebody else must take away."""
    return tuple(name for name in finalizers(subject) if name not in _BY_ITSELF)


def look_at(subject: Subject, now: datetime, rule: str) -> Iterator[Seen]:  # noqa: ARG001
    """A job that is being deleted, and a pod that still stops while another of the same job runs."""
    root = subject.root
    told = since(root) if root is not None else None
    if root is not None and told is not None:
        yield _job(subject, root, told, rule)
    yield from _old_pods(subject, rule)


def _job(subject: Subject, root: Object, told: datetime, rule: str) -> Seen:
    stopping = [pod for pod in subject.pods if not _over(pod)]
    held = [*foreign(root), *(name for pod in subject.pods for name in foreign(pod))]
    kind = kind_of(root)
    said = f"{kind} {name_of(root)} is being deleted since {told:%H:%M:%S} and is not gone yet"
    if finalizers(root):
        said += f"; it has the finalizer {', '.join(finalizers(root))}"
    for pod in subject.pods:
        if foreign(pod):
            said += f"; pod {name_of(pod)} is held by the finalizer {', '.join(foreign(pod))}"
        elif not _over(pod):
            said += f"; pod {name_of(pod)} is still there{_on_lost_node(subject.facts, pod)}"
    action = f"see why the owner of {held[0]} does not take its finalizer away" if held else LATER
    lost = [place for pod in stopping if is_lost(subject.facts, place := text_at(pod, "spec", "nodeName"))]
    if lost and not held:
        action = f"make sure that {lost[0]} is off, then taint it node.kubernetes.io/out-of-service or delete the node"
    if not held and not stopping and finalizers(root):
        action = "see that the controller that owns the finalizer runs"
    return Seen(
        finding=finding(
            Cause.OTHER,
            said,
            f"{rule}/being-deleted@1",
            reason=Reason.BEING_DELETED,
            layer=Layer.JOB_OBJECT,
            next_action=f"{action}; submit it again under another name if it should run",
            need=", ".join(dict.fromkeys(held)) or None,
            weight=5,
        ),
        since=told,
    )


def _over(pod: Object) -> bool:
    return text_at(pod, "status", "phase") in {"Succeeded", "Failed"}


def _on_lost_node(facts: Facts, pod: Object) -> str:
    name = text_at(pod, "spec", "nodeName")
    return f" on {name}, which does not answer" if is_lost(facts, name) else f" on {name}" if name else ""


def is_lost(facts: Facts, name: str) -> bool:
    """A node that is known, and not ready."""
    node = facts.find("Node", "", name) if name else None
    ready = condition(node, "Ready") if node is not None else None
    return ready is not None and ready.get("status") not in ("True", True)


def _old_pods(subject: Subject, rule: str) -> Iterator[Seen]:
    """An old pod that is still stopping while another of the same job runs: two may write at once."""
    old = [pod for pod in subject.pods if since(pod) is not None and text_at(pod, "status", "phase") == "Running"]
    new = [
        pod for pod in subject.pods if since(pod) is None and text_at(pod, "status", "phase") in {"Running", "Pending"}
    ]
    if not old or not new:
        return
    places = [text_at(pod, "spec", "nodeName") for pod in old]
    lost = [place for place in places if is_lost(subject.facts, place)]
    names = ", ".join(
        f"{name_of(pod)} on {place}" if place else name_of(pod) for pod, place in zip(old, places, strict=True)
    )
    said = f"{len(old)} terminating: {names} is not confirmed dead and may still write, while {name_of(new[0])} takes its place"
    action = "wait until the old pod is gone; nothing that it writes now may count (podReplacementPolicy: Failed prevents this)"
    if lost:
        said += f"; node {', '.join(lost)} does not answer"
        action = f"make sure that {lost[0]} is off, then taint it node.kubernetes.io/out-of-service or delete the node"
    shared = _shared_claims(old, new[0])
    if shared:
        said += f"; both use the claim {', '.join(shared)}, which {name_of(new[0])} may get only when {name_of(old[0])} is gone"
    held = [f"{name_of(pod)} by {', '.join(foreign(pod))}" for pod in old if foreign(pod)]
    if held:
        said += f"; finalizers hold {'; '.join(held)}"
    yield Seen(
        finding=finding(
            Cause.NODE_LOST if lost else Cause.OTHER,
            said,
            f"{rule}/old-pod-terminating@2",
            reason=Reason.OLD_POD_NOT_CONFIRMED_DEAD,
            layer=Layer.NODE,
            next_action=action,
            where=places[0] or None,
            weight=6,
        ),
        since=since(old[0]),
    )


def _claims(pod: Object) -> set[str]:
    return {text_at(one, "persistentVolumeClaim", "claimName") for one in items_at(pod, "spec", "volumes")} - {""}


def _shared_claims(old: list[Object], new: Object) -> list[str]:
    waits = text_at(new, "status", "phase") == "Pending"
    return sorted(set().union(*map(_claims, old)) & _claims(new)) if waits else []


def claim(facts: Facts, found: Object) -> Seen | None:
    """A claim that is being deleted: who still uses it, and that no new pod may."""
    told = since(found)
    if told is None:
        return None
    name = name_of(found)
    users = [
        pod
        for pod in facts.all("Pod")
        if namespace_of(pod) == namespace_of(found)
        and name in _claims(pod)
        and text_at(pod, "spec", "nodeName")
        and not _over(pod)
    ]
    said = f"the claim {name} is being deleted since {told:%H:%M:%S}, so no new pod may use it"
    if finalizers(found):
        said += f"; the finalizer {', '.join(finalizers(found))} keeps it"
    if users:
        said += f" until pod {', '.join(map(name_of, users))} has ended"
    action = "make a new claim (with the data that is wanted) and name it in the job; a deletion cannot be taken back"
    return Seen(
        finding=finding(Cause.VOLUME_UNBOUND, said, "claim-being-deleted@1", next_action=action, need=name, weight=23),
        since=told,
    )
