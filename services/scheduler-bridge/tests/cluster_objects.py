"""Objects of a cluster as its API prints them, and a world whose jobs run there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from forebay.runtime.machine import Emit
from forebay.scheduler_bridge.domain.cluster.decide import ClusterBridge
from forebay.scheduler_bridge.domain.cluster.facts import fact_of
from forebay.scheduler_bridge.domain.cluster.objects import trim
from forebay.scheduler_bridge.domain.cluster.rules import CLUSTER_RULES
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.domain.pod_parts import AgentImage
from forebay.scheduler_bridge.domain.project import ProjectFile

from . import world

Json = dict[str, Any]
NAMESPACE = "arm-lab"
SITE = Site(
    project=ProjectFile(project="arm-lab", namespace=NAMESPACE, queues=("team-a",)),
    agent=AgentImage(image="forebay-agent", nats_url="nats://bus:4222"),
)


class Cluster(world.World):
    """A bridge on Kubernetes, and the objects that its watch would bring."""

    def __init__(self) -> None:
        super().__init__(backend=ClusterBridge(rules=CLUSTER_RULES, sites={"arm-lab": SITE}))
        self._versions = 0

    def see(self, job: str, item: Json, *, gone: bool = False, note: str = "") -> None:
        """The watch brings an object, and the bridge folds it and all that follows."""
        self._versions += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._versions)}}
        fact: Emit = fact_of(self.project, job, trim(item), gone=gone, note=note)
        self.tick()
        self.accept([fact])
        self.settle()

    def stamp(self, seconds: float = 0) -> str:
        """The cluster's clock, a little on from now."""
        self.tick(seconds)
        return stamped(self.now)


def stamped(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def condition(kind: str, status: str = "True", **fields: str) -> Json:
    return {"type": kind, "status": status, **fields}


def kube_job(name: str, *conditions: Json, suspend: bool = True, made: str = "2026-01-10T08:00:00Z") -> Json:
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"job-{name}",
            "creationTimestamp": made,
            "labels": {
                "forebay.dev/project": "arm-lab",
                "forebay.dev/job": name,
                "kueue.x-k8s.io/queue-name": "team-a",
            },
        },
        "spec": {"suspend": suspend, "parallelism": 1},
        "status": {"conditions": list(conditions)},
    }


def workload(name: str, *conditions: Json) -> Json:
    return {
        "kind": "Workload",
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "metadata": {
            "name": f"job-{name}-abc",
            "namespace": NAMESPACE,
            "uid": f"wl-{name}",
            "creationTimestamp": "2026-01-10T08:00:01Z",
            "ownerReferences": [{"kind": "Job", "name": name, "uid": f"job-{name}"}],
        },
        "spec": {"queueName": "team-a", "podSets": []},
        "status": {"conditions": list(conditions)},
    }


def pod(name: str, uid: str, made: str, **status: Any) -> Json:
    """A pod of a Job that nobody instrumented."""
    spec: Json = {"containers": [{"name": "train", "image": "busybox", "resources": {"limits": {"memory": "1Gi"}}}]}
    if node := status.pop("node", None):
        spec["nodeName"] = node
    if status.pop("instrumented", False):
        spec["initContainers"] = [{"name": "forebay-prepare", "image": "forebay-agent"}]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"{name}-{uid}",
            "namespace": NAMESPACE,
            "uid": uid,
            "creationTimestamp": made,
            "labels": {"forebay.dev/project": "arm-lab", "forebay.dev/job": name, "job-name": name},
            "ownerReferences": [{"kind": "Job", "name": name, "uid": f"job-{name}"}],
        },
        "spec": spec,
        "status": {"phase": "Pending", **status},
    }


def running(since: str) -> Json:
    return {"containerStatuses": [{"name": "train", "state": {"running": {"startedAt": since}}}], "phase": "Running"}


def ended(code: int, reason: str = "Error", *, at: str, phase: str = "Failed", **terminated: Any) -> Json:
    state = {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at, **terminated}
    return {"containerStatuses": [{"name": "train", "state": {"terminated": state}}], "phase": phase}
