"""The data gate of a Job on a cluster: opening it tells the pod where its data lies. Pure, merge patches.

Only scheduling directives, labels and annotations of a suspended Job's pods may be
changed, so the pinned versions travel in annotations that the mounts are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forebay.scheduler_bridge.domain.pod_layout import GATE, KUEUE_GATED_BY, KUEUE_QUEUE, WAITING_QUEUE

Json = dict[str, Any]
_HOST = "kubernetes.io/hostname"
_WEIGHT = 100
MAX_NODES = 50
"""A longer list of warm nodes says as much as none: it is warm nearly everywhere."""


def opening(job: Mapping[str, Any], pod_annotations: Mapping[str, str], warm_nodes: Sequence[str] = ()) -> Json | None:
    """The merge patch that opens the gate of a Job as it was read, or as it is to be made; None: it is open.

    It carries the resourceVersion, so a Job that changed meanwhile answers 409 and is read again.
    """
    metadata, spec = job["metadata"], job["spec"]
    kueue = KUEUE_QUEUE in (metadata.get("labels") or {})
    kept_off = None if kueue else (metadata.get("annotations") or {}).get(WAITING_QUEUE)
    gates = gates_of(metadata)
    if GATE not in gates if kueue else not spec.get("suspend"):
        return None
    version = metadata.get("resourceVersion")
    patch: Json = {"metadata": {"resourceVersion": version} if version else {}, "spec": {}}
    if kept_off:
        patch["metadata"]["labels"] = {KUEUE_QUEUE: kept_off}
    elif kueue:
        left = [gate for gate in gates if gate != GATE]
        patch["metadata"]["annotations"] = {KUEUE_GATED_BY: ",".join(left) or None}
    else:
        patch["spec"]["suspend"] = False
    template: Json = {"metadata": {"annotations": dict(pod_annotations)}}
    if warm_nodes and len(warm_nodes) <= MAX_NODES:
        template["spec"] = {"affinity": _towards(spec["template"]["spec"], warm_nodes)}
    patch["spec"]["template"] = template
    return patch


def gates_of(metadata: Mapping[str, Any]) -> list[str]:
    """Whom Kueue waits for before it looks at a Job."""
    text = (metadata.get("annotations") or {}).get(KUEUE_GATED_BY) or ""
    return [gate.strip() for gate in text.split(",") if gate.strip()]


def _towards(pod: Mapping[str, Any], warm_nodes: Sequence[str]) -> Json:
    """Preferred, never required: a warm node that is full must not hold the job back."""
    expression = {"key": _HOST, "operator": "In", "values": sorted(set(warm_nodes))}
    term = {"weight": _WEIGHT, "preference": {"matchExpressions": [expression]}}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    there = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(field) or []
    return {"nodeAffinity": {field: [*(item for item in there if not _is_ours(item)), term]}}


def _is_ours(term: Mapping[str, Any]) -> bool:
    expressions = (term.get("preference") or {}).get("matchExpressions") or []
    return term.get("weight") == _WEIGHT and [item.get("key") for item in expressions] == [_HOST]
