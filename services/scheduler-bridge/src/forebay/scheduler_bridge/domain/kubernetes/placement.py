"""Busy, or too large for every node: the request of a pod beside what the nodes have.

"Never" needs proof: every node that the scheduler counted is among the facts, none that the pod's node selector and required
affinity allow is large enough for the one resource, not even with the devices that are out of order, and nothing shows an autoscaler that might bring a larger one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from forebay.scheduler_bridge.domain.kubernetes.affinity import allowed
from forebay.scheduler_bridge.domain.kubernetes.asking import requests
from forebay.scheduler_bridge.domain.kubernetes.facts import Facts, Object, part
from forebay.scheduler_bridge.domain.kubernetes.histogram import Kind, classify_reason
from forebay.scheduler_bridge.domain.kubernetes.quantities import amount, is_accelerator, show

_GROWING = frozenset({"TriggeredScaleUp", "Nominated", "ScaledUpGroup", "NominatedNode"})
_SCALERS = ("NodePool", "NodeClaim", "Provisioner", "Machine", "MachineSet", "ProvisioningRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One resource: what a pod asks for and what the nodes have."""

    resource: str
    asked: Decimal
    largest: Decimal
    """Allocatable on the largest node."""
    built: Decimal
    """What the largest node has when all its devices work."""
    chosen: bool
    """Only some nodes count, by the pod's node selector and affinity."""
    elsewhere: bool
    """The scheduler found other reasons on some nodes that have the resource: what is free there is not known."""
    suited: int
    """Nodes that are large enough when empty."""
    total: Decimal
    free: Decimal | None
    """Over all nodes that have any; None when what runs there is not known."""
    complete: bool
    """Every node that the scheduler counted is among the facts."""
    growing: bool
    scaler: bool

    @property
    def never(self) -> bool:
        known = self.complete and not self.growing and not self.scaler
        return self.asked > self.built > 0 and known

    @property
    def need(self) -> str:
        return f"{self.resource}={show(self.asked)}"

    @property
    def have(self) -> str:
        if self.asked > self.largest:
            return f"{show(self.largest)} on {self._node}"
        if self.free is not None and not self.elsewhere:
            return f"{show(self.free)} of {show(self.total)} free"
        if self.asked == 1 and not self.elsewhere:
            return f"0 of {show(self.total)} free"
        if self.elsewhere:
            return f"less than {show(self.asked)} free on each node that could take the pod"
        return f"less than {show(self.asked)} free on each of {self.suited} nodes that have as many"

    @property
    def _node(self) -> str:
        return "the largest node that its selector or affinity allows" if self.chosen else "the largest node"

    @property
    def sentence(self) -> str:
        short = self.resource
        if self.built == 0:
            return f"asks for {show(self.asked)} {short}, which no node offers: none has it, or its device plugin does not run"
        if self.largest < self.asked <= self.built:
            return f"asks for {show(self.asked)} {short} per pod, but {self._node} offers {show(self.largest)} of its {show(self.built)}: the others are out of order, or the device plugin does not run"
        if self.asked > self.largest:
            what = f"asks for {show(self.asked)} {short} per pod, {self._node} has {show(self.largest)}"
            if self.never:
                return f"{what}: it cannot be placed on any node that exists"
            return f"{what}; {'the autoscaler is adding nodes' if self.growing else 'only a larger node, if one is added, can take it'}"
        return f"{show(self.asked)} {short} needed, {self.have}"


def room(facts: Facts, pod: Object, resource: str, counted: int, short: int | None) -> Room | None:
    """The comparison for one resource; None when the nodes are not known. `counted`: all nodes, `short`: those without room."""
    nodes = facts.all("Node")
    asked = requests(pod).get(resource)
    if asked is None or not nodes:
        return None
    suited = allowed(pod, nodes) or list(nodes)
    sizes = _sizes(suited, "allocatable", resource)
    largest = max(sizes, default=Decimal(0))
    about = facts.about(pod)
    return Room(
        resource=resource,
        asked=asked,
        largest=largest,
        built=max([largest, *_sizes(suited, "capacity", resource)]) if is_accelerator(resource) else largest,
        chosen=len(suited) < len(nodes),
        elsewhere=short is not None and short < sum(1 for size in sizes if size > 0),
        suited=sum(1 for size in sizes if size >= asked),
        total=sum(sizes, Decimal(0)),
        free=_free(facts, resource, sum(sizes, Decimal(0))),
        complete=len(nodes) >= counted > 0,
        growing=any(event.reason in _GROWING for event in about),
        scaler=bool(facts.all(*_SCALERS)) or any("max node group size" in event.message for event in about),
    )


def _sizes(nodes: Iterable[Object], which: str, resource: str) -> list[Decimal]:
    return [found for node in nodes if (found := amount(part(node, "status", which, resource))) is not None]


def _free(facts: Facts, resource: str, total: Decimal) -> Decimal | None:
    """Only when pods that hold some of it are among the facts: else nobody knows."""
    held = facts.held.get(resource)
    return None if held is None or not facts.all_nodes_known else max(total - held, Decimal(0))


def scarce(text: str, pod: Object) -> str | None:
    """The resource of the pod that a reason names: `Insufficient nvidia.com/gpu`, or GPUs in other words."""
    reason = classify_reason(text, None)
    asked = requests(pod)
    if reason.detail in asked:
        return reason.detail
    if reason.kind is Kind.GPU:
        return next((name for name in asked if is_accelerator(name)), None)
    return None
