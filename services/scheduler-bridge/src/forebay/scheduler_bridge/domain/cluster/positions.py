"""Places in Kueue's queues as facts: exact near the front, rounded behind it, so that one admission is not a thousand events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forebay.scheduler_bridge.domain.cluster.objects import PENDING, Json

EXACT = 10
POSITION = "positionInClusterQueue"


def rounded(position: int) -> int:
    """0 to 9 as they are; 10, 20, … 90; 100, 200, …: a place that far back is no promise anyway."""
    if position < EXACT:
        return position
    step = 10 ** (len(str(position)) - 1)
    return int(position // step * step)


def placed(summary: Mapping[str, Any], *, at: str) -> Iterator[Json]:
    """One object per pending workload of a queue's summary, as it goes on record. Positions count from 0.

    `at` makes a version of it: a summary has none, and the same place may be reached twice.
    """
    for item in summary.get("items") or ():
        metadata = item.get("metadata") or {}
        position = item.get(POSITION)
        if not isinstance(position, int) or not metadata.get("name"):
            continue
        yield {
            "kind": PENDING,
            "apiVersion": "visibility.kueue.x-k8s.io/v1beta2",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata.get("namespace"),
                "uid": f"position-{metadata.get('uid') or metadata['name']}",
                "resourceVersion": at,
                "ownerReferences": metadata.get("ownerReferences") or [],
            },
            POSITION: rounded(position),
        }
