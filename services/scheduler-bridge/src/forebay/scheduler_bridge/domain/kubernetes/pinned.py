"""A pod that may go to one node only, or whose volume can be used on some nodes only: the verdict is about those nodes.

The scheduler counts all nodes, and most of them never were a choice. A node selector or affinity that names one host (as
Kueue's topology assignment does) is about that host; a volume's node affinity is about the nodes in its zone. Called by `pods.py`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.affinity import demanded, hosts_of, meets
from forebay.scheduler_bridge.domain.kubernetes.asking import requests
from forebay.scheduler_bridge.domain.kubernetes.facts import (
    Facts,
    Object,
    condition,
    items_at,
    labels_of,
    moment,
    name_of,
    part,
    text_at,
)
from forebay.scheduler_bridge.domain.kubernetes.histogram import Histogram, kind_of_taint
from forebay.scheduler_bridge.domain.kubernetes.mounts import claims, in_use
from forebay.scheduler_bridge.domain.kubernetes.quantities import amount, is_accelerator, show
from forebay.scheduler_bridge.domain.kubernetes.scheduling import CAUSES, OTHERS
from forebay.scheduler_bridge.domain.kubernetes.seen import Seen, read_condition
from forebay.scheduler_bridge.domain.kubernetes.taints import taints_of, tolerates
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Message, finding

RULE = "pinned-to-node@1"
_FEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """What keeps a pod from a node."""

    cause: Cause
    said: str
    """How a sentence about the node goes on: `which is cordoned`."""
    action: str = ""
    evidence: tuple[Message, ...] = ()


def to_one_node(facts: Facts, pod: Object, histogram: Histogram, seen: Seen) -> Seen | None:
    """The state of the one host that the pod may go to; None when it has a choice, or the host is not known."""
    hosts = hosts_of(pod)
    if len(hosts) != 1:
        return None
    (host,) = hosts
    nodes = facts.all("Node")
    node = next((one for one in nodes if host in {name_of(one), labels_of(one).get("kubernetes.io/hostname")}), None)
    if node is not None:
        state = _state(facts, pod, node)
    elif len(nodes) < histogram.nodes:
        return None
    else:
        state = _State(cause=Cause.NODE_LOST, said="and no node of that name exists (any more)")
    if state is None:
        return None
    by_queue = _assigned(facts, pod)
    chosen = "Kueue's topology assignment" if by_queue else "its node selector"
    again = "take the host out of the pod's selector"
    if by_queue:
        again = "set spec.active of its Workload to false and back to true, so that Kueue assigns other nodes"
    made = finding(
        state.cause,
        f"pod {name_of(pod)} may only run on {host} ({chosen}), {state.said}",
        RULE,
        layer=Layer.NODE,
        next_action=state.action or f"bring {host} back, or {again}",
        need=host,
        where=host,
        weight=22,
    )
    return Seen(finding=made, since=seen.since, evidence=(*seen.evidence, *state.evidence))


def _assigned(facts: Facts, pod: Object) -> bool:
    """Kueue chose the host: the pod carries its topology label, or a Workload has an assignment of nodes."""
    marks = {*labels_of(pod), *(part(pod, "metadata", "annotations") or {})}
    if any(str(name).startswith("kueue.x-k8s.io/") and "topology" in str(name) for name in marks):
        return True
    return any(
        part(one, "topologyAssignment") is not None
        for workload in facts.all("Workload")
        for one in items_at(workload, "status", "admission", "podSetAssignments")
    )


def _state(facts: Facts, pod: Object, node: Object) -> _State | None:
    name, elsewhere = name_of(node), "or let the pod go elsewhere"
    ready = condition(node, "Ready")
    if ready is not None and ready.get("status") not in ("True", True):
        since = moment(ready.get("lastTransitionTime"))
        at = f" since {since:%H:%M:%S}" if since else ""
        said = f"which is NotReady{at} ({text_at(ready, 'reason') or 'no reason is given'})"
        return _State(cause=Cause.NODE_LOST, said=said, evidence=read_condition(ready, f"Node {name}").evidence)
    if part(node, "spec", "unschedulable") is True:
        action = f"uncordon {name} when its maintenance is over, {elsewhere}"
        return _State(cause=Cause.AFFINITY_TAINT, said="which is cordoned (marked unschedulable)", action=action)
    repels = next((taint for taint in taints_of(node) if not tolerates(pod, taint)), None)
    if repels is not None:
        cause = CAUSES[kind_of_taint(repels.key)]
        said = f"which carries the taint {repels}, which the pod does not tolerate"
        action = f"tolerate {repels.key} if the job belongs there, {elsewhere}" if cause is Cause.AFFINITY_TAINT else ""
        return _State(cause=cause, said=said, action=action)
    short = _lacks(facts, pod, node)
    if short is None:
        return None
    resource, what = short
    cause = Cause.GPU_SHORTAGE if is_accelerator(resource) else Cause.CPU_MEM_SHORTAGE
    return _State(cause=cause, said=f"which has {what}", action=f"wait until pods on {name} end, {elsewhere}")


def _lacks(facts: Facts, pod: Object, node: Object) -> tuple[str, str] | None:
    """(resource, what of it there is) of the first that a node has too little of."""
    held: dict[str, list[Decimal]] = {}
    for one in facts.all("Pod"):
        if text_at(one, "spec", "nodeName") == name_of(node) and text_at(one, "status", "phase") not in {
            "Succeeded",
            "Failed",
        }:
            for name, value in requests(one).items():
                held.setdefault(name, []).append(value)
    for name, asked in requests(pod).items():
        has = amount(part(node, "status", "allocatable", name))
        if has is None and "/" in name:
            return name, f"no {name}"
        if has is None:
            continue
        free = has - sum(held.get(name, []), Decimal(0))
        if asked > has:
            return name, f"{show(has)} {name} where {show(asked)} are asked"
        if asked > free:
            return name, f"{show(free)} of {show(has)} {name} free where {show(asked)} are asked"
    return None


def with_volume(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """The claim and volume by name, where it may be used, and what the nodes there lack."""
    nodes = facts.all("Node")
    if _ONE_POD.search(seen.finding.sentence):
        return _held_by_another(facts, pod, seen)
    for _, claim_name, claim in claims(facts, pod):
        volume_name = text_at(claim, "spec", "volumeName") if claim else ""
        volume = facts.find("PersistentVolume", "", volume_name) if volume_name else None
        terms = items_at(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms") if volume else ()
        if not terms:
            continue
        there = [node for node in nodes if meets(terms, node)]
        if nodes and len(there) == len(nodes):
            continue
        place = demanded(terms)
        _, others, listed = seen.finding.sentence.partition(OTHERS)
        said = f"the claim {claim_name} (volume {volume_name}) can only be used on nodes with {place}"
        cause, code, action = (
            Cause.VOLUME_ATTACH,
            Reason.VOLUME_ELSEWHERE,
            f"copy its data into a volume that can be used where the pod fits, or have a node that fits the pod in {place}",
        )
        lost = [
            one
            for one in there
            if (ready := condition(one, "Ready")) is not None and ready.get("status") not in ("True", True)
        ]
        if nodes and not there:
            said += ", and no node there is known"
        elif there and len(lost) == len(there):
            cause, code = Cause.NODE_LOST, Reason.NODE_LOST
            said += f", and {_few(map(name_of, there))} {'is' if len(there) == 1 else 'are'} NotReady"
            action = f"bring {_few(map(name_of, there))} back; the data of {claim_name} is only there"
        elif there:
            reasons = _reasons(facts, pod, there)
            if reasons:
                said += f": {reasons}"
        return seen.but(
            cause=cause,
            reason=code,
            layer=Layer.VOLUME,
            sentence=f"{said}{others}{listed}",
            next_action=action,
            need=f"claim {claim_name}",
            where=place,
            weight=29,
        )
    return seen


_ONE_POD = re.compile(r"ReadWriteOncePod", re.IGNORECASE)


def _held_by_another(facts: Facts, pod: Object, seen: Seen) -> Seen:
    """A claim that one pod at a time may use, with the pod that does."""
    for _, name, _ in claims(facts, pod):
        used = in_use(facts, pod, name)
        if used:
            _, others, listed = seen.finding.sentence.partition(OTHERS)
            return seen.but(
                reason=Reason.VOLUME_IN_USE,
                sentence=f"the claim {name} may be used by one pod at a time (ReadWriteOncePod){used}{others}{listed}",
                need=f"claim {name}",
            )
    return seen


def _reasons(facts: Facts, pod: Object, nodes: Iterable[Object]) -> str:
    """What keeps the pod from each of a few nodes."""
    told = []
    for node in list(nodes)[:_FEW]:
        state = _state(facts, pod, node)
        if state is not None:
            told.append(f"{name_of(node)} {state.said.removeprefix('which ')}")
    return "; ".join(told)


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + (f" and {len(listed) - _FEW} more" if len(listed) > _FEW else "")
