"""Objects that tests put into a cluster: queues with their quota, and Jobs. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forebay.testcluster import images

Json = dict[str, Any]
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
QUEUE = "kueue.x-k8s.io/queue-name"


def namespace(name: str) -> Json:
    return {"kind": "Namespace", "metadata": {"name": name}}


def resource_flavor(name: str, node_labels: Mapping[str, str] | None = None) -> Json:
    return {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": dict(node_labels or {})}}


def cluster_queue(
    name: str,
    flavor: str,
    quota: Mapping[str, str | int],
    *,
    strategy: str = "BestEffortFIFO",
    preemption: Mapping[str, Any] | None = None,
    checks: Sequence[str] = (),
    cohort: str = "",
) -> Json:
    """A ClusterQueue of one flavor that takes LocalQueues of every namespace."""
    resources = [{"name": key, "nominalQuota": value} for key, value in quota.items()]
    spec: Json = {
        "namespaceSelector": {},
        "queueingStrategy": strategy,
        "resourceGroups": [
            {"coveredResources": list(quota), "flavors": [{"name": flavor, "resources": resources}]},
        ],
    }
    if preemption:
        spec["preemption"] = dict(preemption)
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    if cohort:
        spec["cohortName"] = cohort
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(namespace: str, name: str, cluster_queue: str) -> Json:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": cluster_queue},
    }


def kwok_node(name: str, capacity: Mapping[str, str], labels: Mapping[str, str] | None = None) -> Json:
    """A node that exists only as an object, tainted so that nobody's pod gets there unasked."""
    status = {"capacity": {"pods": "110", **capacity}, "allocatable": {"pods": "110", **capacity}}
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, **(labels or {})},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": status,
    }


def job(
    namespace: str,
    name: str,
    command: str,
    *,
    queue: str = "",
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    gated_by: str = "",
    image: str = images.BUSYBOX,
    backoff_limit: int = 0,
    spec: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
) -> Json:
    """A Job of one container that runs `command` in a shell; `spec`, `pod` and `container` add fields to those."""
    resources = {
        "requests": dict(requests or {"cpu": "10m", "memory": "16Mi"}) | dict(limits or {}),
        "limits": dict(limits or {}),
    }
    main = {"name": "main", "image": image, "command": ["sh", "-c", command], "resources": resources}
    metadata: Json = {"name": name, "namespace": namespace}
    if queue:
        metadata["labels"] = {QUEUE: queue}
    if gated_by:
        metadata["annotations"] = {GATED_BY: gated_by}
    template = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [main | dict(container or {})],
        **dict(pod or {}),
    }
    return {
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": backoff_limit, "template": {"spec": template}, **dict(spec or {})},
    }
