"""Which nodes of a cluster may explain why taints repel a pod: one or two for each taint, not a thousand. Pure but for itself.

Kept by `workers/observe.py`, so that the facts of a job name the taints that the
scheduler only counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.kubernetes.taints import Taint, taints_of, tolerates

EXAMPLES = 2
"""Nodes per taint that go on record."""
MOST = 10


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
