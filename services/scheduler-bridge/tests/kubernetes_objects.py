"""API objects of a small cluster, as short as a test needs them, and the verdict on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from forebay.scheduler_bridge.domain.kubernetes.diagnosis import Diagnosis, diagnose
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects

Json = dict[str, Any]


NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


AT = "2026-03-01T09:00:00Z"


FULL = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."


FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "BackoffLimitExceeded",
    "message": "Job has reached the specified backoff limit",
    "lastTransitionTime": AT,
}


def judged(*objects: object) -> Diagnosis:
    return diagnose(facts_from_objects(objects), NOW)


def meta(name: str, namespace: str = "lab", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": AT, **more}


def job(
    name: str = "pick", *, suspend: bool = False, parallelism: int = 1, labels: Json | None = None, **status: Any
) -> Json:
    spec = {"suspend": suspend, "parallelism": parallelism, "completions": parallelism, "backoffLimit": 0}
    return {
        "kind": "Job",
        "metadata": meta(name, labels=labels or {"kueue.x-k8s.io/queue-name": "team"}),
        "spec": spec,
        "status": status,
    }


def pod(
    name: str = "pick-a",
    *,
    node: str = "",
    gpus: str = "1",
    phase: str = "Pending",
    claims: tuple[str, ...] = (),
    **more: Any,
) -> Json:
    spec: Json = {
        "containers": [{"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": gpus, "memory": "8Gi"}}}],
        "volumes": [{"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims],
    }
    if node:
        spec["nodeName"] = node
    owner = [{"kind": "Job", "name": "pick", "uid": "uid-pick", "controller": True}]
    return {
        "kind": "Pod",
        "metadata": meta(name, **{"ownerReferences": owner, **more.pop("meta", {})}),
        "spec": spec,
        "status": {"phase": phase, **more},
    }


def unscheduled(text: str) -> Json:
    return {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": text,
                "lastTransitionTime": AT,
            }
        ]
    }


def container(**state: Any) -> Json:
    return {"containerStatuses": [{"name": "trainer", "ready": False, "restartCount": 0, **state}]}


def waiting(reason: str, text: str = "") -> Json:
    return container(state={"waiting": {"reason": reason, "message": text}})


def ended(code: int, reason: str = "Error", text: str = "") -> Json:
    return container(state={"terminated": {"exitCode": code, "reason": reason, "message": text, "finishedAt": AT}})


def event(about: Json, reason: str, text: str, at: str = AT) -> Json:
    target = {"kind": about["kind"], **{key: about["metadata"].get(key) for key in ("name", "namespace", "uid")}}
    return {
        "kind": "Event",
        "metadata": {"name": f"{reason}{at}"},
        "involvedObject": target,
        "reason": reason,
        "message": text,
        "lastTimestamp": at,
    }


def node(name: str, gpus: str = "1", *, ready: str = "True") -> Json:
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "allocatable": {"nvidia.com/gpu": gpus},
            "conditions": [
                {
                    "type": "Ready",
                    "status": ready,
                    "reason": "NodeStatusUnknown" if ready != "True" else "KubeletReady",
                    "message": "",
                    "lastTransitionTime": AT,
                }
            ],
        },
    }


def workload(*conditions: tuple[str, str, str, str], **status: Any) -> Json:
    listed = [
        {"type": kind, "status": state, "reason": reason, "message": text, "lastTransitionTime": AT}
        for kind, state, reason, text in conditions
    ]
    owner = [{"kind": "Job", "name": "pick", "uid": "uid-pick", "controller": True}]
    return {
        "kind": "Workload",
        "metadata": meta("job-pick", ownerReferences=owner),
        "spec": {"queueName": "team", "active": True},
        "status": {"conditions": listed, **status},
    }
