"""Which nodes of a cluster go on record for a pod that none of them takes: what explains it, not a thousand.

Kept by `workers/observe.py`. The scheduler counts nodes and names none: examples tell
which taints there are, and all nodes of a small cluster whether one is large enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.kubernetes.facts import condition, text_at
from forebay.scheduler_bridge.domain.kubernetes.histogram import Kind, parse
from forebay.scheduler_bridge.domain.kubernetes.taints import Taint, taints_of, tolerates

EXAMPLES = 2
"""Nodes per taint that go on record."""
MOST = 10
FEW = 10
"""A cluster of so many nodes is written down as a whole."""
_FIXED = frozenset({"", "k3s", "rke2", "kind", "metal3", "microk8s", "talos", "tinkerbell"})
"""Makers of nodes, as a node's providerID begins, that add none by themselves."""


class TaintedNodes:
    """The nodes that have taints, by taint."""

    def __init__(self) -> None:
        self._nodes: dict[Taint, set[str]] = {}

    def put(self, node: Json) -> bool:
        """Take in a node as it is now; True when it has a taint that no other had."""
        name = str(node["metadata"].get("name"))
        self.drop(name)
        fresh = False
        for taint in taints_of(node):
            fresh = fresh or taint not in self._nodes
            self._nodes.setdefault(taint, set()).add(name)
        return fresh

    def drop(self, name: str) -> None:
        """A node is gone, or its taints are."""
        for taint in [taint for taint, names in self._nodes.items() if name in names]:
            self._nodes[taint].discard(name)
            if not self._nodes[taint]:
                del self._nodes[taint]

    def repelling(self, pod: Json) -> Iterator[str]:
        """Examples of nodes that have a taint which the pod does not tolerate."""
        found: dict[str, None] = {}
        for taint, names in sorted(self._nodes.items()):
            if not tolerates(pod, taint):
                found |= dict.fromkeys(sorted(names)[:EXAMPLES])
        yield from list(found)[:MOST]


def as_a_whole(nodes: Mapping[str, Json]) -> list[Json]:
    """Every node of a small cluster that does not grow by itself: only there "larger than any node" can be proven."""
    if len(nodes) > FEW:
        return []
    makers = {text_at(node, "spec", "providerID").partition(":")[0] for node in nodes.values()}
    return list(nodes.values()) if makers <= _FIXED else []


def is_short(pod: Json) -> bool:
    """No node has room for the pod, by the scheduler's word."""
    said = condition(pod, "PodScheduled")
    histogram = parse(text_at(said, "message")) if said is not None else None
    return histogram is not None and any(reason.kind in {Kind.GPU, Kind.COMPUTE} for reason in histogram.reasons)
