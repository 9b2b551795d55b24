"""Busy, or too large for every node: the request of a pod beside what the nodes have.

"Never" needs proof: every node that the scheduler counted is among the facts, none is large enough for the one resource, and
nothing shows an autoscaler that might bring a larger one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

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
        return self.asked > self.largest and self.complete and not self.growing and not self.scaler

    @property
    def need(self) -> str:
        return f"{self.resource}={show(self.asked)}"

    @property
    def have(self) -> str:
        if self.asked > self.largest:
            return f"{show(self.largest)} on the largest node"
        if self.free is not None:
            return f"{show(self.free)} of {show(self.total)} free"
        if self.asked == 1:
            return f"0 of {show(self.total)} free"
        return f"less than {show(self.asked)} free on each of {self.suited} nodes that have as many"

    @property
    def sentence(self) -> str:
        short = self.resource
        if self.asked > self.largest:
            what = f"asks for {show(self.asked)} {short} per pod, the largest node has {show(self.largest)}"
            if self.never:
                return f"{what}: it cannot be placed on any node that exists"
            return f"{what}; {'the autoscaler is adding nodes' if self.growing else 'only a larger node, if one is added, can take it'}"
        return f"{show(self.asked)} {short} needed, {self.have}"


def room(facts: Facts, pod: Object, resource: str, counted: int, said: str) -> Room | None:
    """The comparison for one resource; None when the nodes are not known."""
    nodes = facts.all("Node")
    asked = requests(pod).get(resource)
    sizes = [found for node in nodes if (found := amount(part(node, "status", "allocatable", resource))) is not None]
    if asked is None or not nodes:
        return None
    largest = max(sizes, default=Decimal(0))
    about = facts.about(pod)
    return Room(
        resource=resource,
        asked=asked,
        largest=largest,
        suited=sum(1 for size in sizes if size >= asked),
        total=sum(sizes, Decimal(0)),
        free=_free(facts, resource, sum(sizes, Decimal(0))),
        complete=len(nodes) >= counted > 0,
        growing=any(event.reason in _GROWING for event in about),
        scaler=bool(facts.all(*_SCALERS)) or ("max node group size" in said),
    )


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
