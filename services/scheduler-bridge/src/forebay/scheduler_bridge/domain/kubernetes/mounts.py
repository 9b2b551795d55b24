"""From a pod's volumes to what is behind them: claim, volume, and the pod that serves the mount (JuiceFS CSI, Fluid)."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes import deletion
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    is_true,
    items_at,
    labels_of,
    moment,
    name_of,
    namespace_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_ended, read_event
from forebay.scheduler_bridge.domain.kubernetes.subjects import is_mount_pod
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Message, finding

RULE = "mount-pod@1"


def claims(facts: Facts, pod: Object) -> Iterator[tuple[str, str, Object | None]]:
    """(volume of the pod, claim's name, the claim where it is known)."""
    for volume in items_at(pod, "spec", "volumes"):
        name = text_at(volume, "persistentVolumeClaim", "claimName")
        if not name and part(volume, "ephemeral") is not None:
            name = f"{name_of(pod)}-{text_at(volume, 'name')}"
        if name:
            yield text_at(volume, "name"), name, facts.find("PersistentVolumeClaim", namespace_of(pod), name)


def users_of(facts: Facts, namespace: str, claim: str, *, but: Object | None = None) -> list[Object]:
    """The pods on nodes that use a claim and have not ended."""
    return [
        pod
        for pod in facts.all("Pod")
        if pod is not but
        and namespace_of(pod) == namespace
        and text_at(pod, "spec", "nodeName")
        and text_at(pod, "status", "phase") not in {"Succeeded", "Failed"}
        and any(text_at(one, "persistentVolumeClaim", "claimName") == claim for one in items_at(pod, "spec", "volumes"))
    ]


def in_use(facts: Facts, pod: Object, claim: str) -> str:
    """Who else uses a claim, as the end of a sentence; empty when nobody is known to."""
    others = users_of(facts, namespace_of(pod), claim, but=pod)
    names = ", ".join(f"{name_of(one)} on {text_at(one, 'spec', 'nodeName')}" for one in others)
    return f"; pod {names} uses it" if names else ""


def _attached(facts: Facts, pod: Object, volume: str) -> str:
    """The other nodes to which a volume is attached, as the end of a sentence."""
    here = text_at(pod, "spec", "nodeName")
    nodes = facts.all("Node")
    told = []
    for one in facts.all("VolumeAttachment"):
        name = text_at(one, "spec", "nodeName")
        if volume and text_at(one, "spec", "source", "persistentVolumeName") == volume and name not in {"", here}:
            gone = bool(nodes) and not facts.of_one_job and facts.find("Node", "", name) is None
            told.append(f"{name}, which is not among the nodes any more" if gone else name)
    return f"; it is attached to {'; '.join(told)}" if told else ""


def mount_pods(facts: Facts, pod: Object) -> Iterator[tuple[str, Object]]:
    """(claim, mount pod) for every volume of the pod that another pod serves on the same node."""
    candidates = [one for one in facts.all("Pod") if is_mount_pod(one)]
    if not candidates:
        return
    for _, claim_name, claim in claims(facts, pod):
        volume = text_at(claim, "spec", "volumeName") if claim else ""
        handle = _handle(facts, volume)
        for one in candidates:
            if _serves(one, volume, handle, claim_name) and _on_the_same_node(one, pod):
                yield claim_name, one


def _handle(facts: Facts, volume: str) -> str:
    found = facts.find("PersistentVolume", "", volume) if volume else None
    return text_at(found, "spec", "csi", "volumeHandle") if found else ""


def _serves(mount: Object, volume: str, handle: str, claim: str) -> bool:
    labels = labels_of(mount)
    ids = {
        labels.get("volume-id"),
        labels.get("juicefs-uniqueid"),
        text_at(mount, "metadata", "annotations", "juicefs-uniqueid"),
    }
    if (volume and volume in ids) or (handle and handle in ids):
        return True
    if labels.get("release") == claim or name_of(mount).startswith(f"{claim}-fuse"):
        return True
    return bool(volume) and f"-{volume}-" in f"{name_of(mount)}-"


def _on_the_same_node(mount: Object, pod: Object) -> bool:
    here, there = text_at(pod, "spec", "nodeName"), text_at(mount, "spec", "nodeName")
    return not here or not there or here == there


def blocked_mount(facts: Facts, pod: Object, own: list[tuple[Object, Seen | None]]) -> Seen | None:
    """The mount pod that is not running, with its own reason. `own`: what was found about each mount pod."""
    for claim, mount in mount_pods(facts, pod):
        if is_true(mount, "Ready") or (
            text_at(mount, "status", "phase") == "Running" and not items_at(mount, "status", "conditions")
        ):
            continue
        seen = next((found for one, found in own if one is mount), None)
        phase = text_at(mount, "status", "phase") or "not running"
        ended = phase in {"Failed", "Succeeded"}
        said = seen.finding.sentence if seen else "nothing says why"
        node = text_at(pod, "spec", "nodeName") or text_at(mount, "spec", "nodeName")
        return Seen(
            finding=finding(
                Cause.VOLUME_MOUNT,
                f"the mount pod {namespace_of(mount)}/{name_of(mount)}, which serves the claim {claim}, is {'not ready' if phase == 'Running' else phase}: {said}",
                f"{RULE}/{seen.finding.rule}" if seen else RULE,
                reason=Reason.MOUNT_LOST if ended else Reason.MOUNT_POD_PENDING,
                layer=Layer.VOLUME,
                next_action=f"mend the mount pod: {_mending(seen)}"
                if seen
                else "look at the mount pod with `kubectl describe`",
                need=seen.finding.need if seen else None,
                where=node or None,
                weight=9,
            ),
            since=(seen.since if seen else None) or moment(text_at(mount, "metadata", "creationTimestamp")),
            evidence=seen.evidence if seen else (),
        )
    return None


def _mending(seen: Seen) -> str:
    return "give it more memory" if seen.finding.cause is Cause.OOM else seen.finding.next_action


def fallen_mount(facts: Facts, pod: Object, lost: Seen) -> Seen | None:
    """The mount pod that ended and was started again under a pod whose mount does not answer since. `lost`: what that pod said."""
    for claim, mount in mount_pods(facts, pod):
        for status in items_at(mount, "status", "containerStatuses"):
            ended = part(status, "lastState", "terminated")
            if ended is None:
                continue
            about = f"mount pod {namespace_of(mount)}/{name_of(mount)}"
            why = read_ended(ended, about)
            said = f"{about}, which serves the claim {claim}, ended and was started again: {why.finding.sentence}"
            return Seen(
                finding=finding(
                    Cause.VOLUME_MOUNT,
                    f"{said}; the mount in this pod does not come back by itself",
                    f"{RULE}/{why.finding.rule}",
                    reason=Reason.MOUNT_LOST,
                    next_action=f"recreate the pod; for its mount pod: {_mending(why)}",
                    where=text_at(pod, "spec", "nodeName") or None,
                    weight=9,
                ),
                since=why.since,
                evidence=(*lost.evidence, *why.evidence),
            )
    return None


def unbound_claim(facts: Facts, pod: Object) -> Seen | None:
    """What is known about a claim of the pod that is not bound: its own event says more than the scheduler."""
    for _, name, claim in claims(facts, pod):
        if claim is None:
            continue
        going = deletion.claim(facts, claim)
        if going is not None:
            return going
        phase = text_at(claim, "status", "phase")
        if phase == "Lost":
            said = f"the claim {name} has lost its volume"
            lost = finding(Cause.VOLUME_UNBOUND, said, "claim-lost@1", need=name, weight=14)
            return Seen(
                finding=lost,
                evidence=(Message(where="condition", reason="ClaimLost", text=said, object=f"PVC {name}"),),
            )
        if phase in {"Bound", ""}:
            continue
        for event in reversed(facts.about(claim)):
            seen = read_event(event)
            if seen.finding.cause is Cause.VOLUME_UNBOUND:
                return seen.but(sentence=f"the claim {name} is not bound: {event.message}", need=name, weight=24)
        said = f"the claim {name} is {phase}"
        return Seen(
            finding=finding(Cause.VOLUME_UNBOUND, said, "claim-unbound-object@1", need=name, weight=46),
            since=moment(text_at(claim, "metadata", "creationTimestamp")),
            evidence=(Message(where="condition", reason=phase, text=said, object=f"PVC {name}"),),
        )
    return None


def claim_of(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """The same finding with the claim's name where only the volume's was said."""
    text = " ".join(message.text for message in seen.evidence)
    for volume, name, claim in claims(facts, pod):
        backing = text_at(claim, "spec", "volumeName") if claim else ""
        if (backing and f'"{backing}"' in text) or f"[{volume}]" in text:
            used = ""
            if seen.finding.reason is Reason.VOLUME_IN_USE:
                used = in_use(facts, pod, name) + _attached(facts, pod, backing)
            return seen.but(
                need=seen.finding.need or f"claim {name}", sentence=f"{seen.finding.sentence} (claim {name}){used}"
            )
    return seen
