"""Each reason produced for real on a real cluster, and what `why` says about it."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.testcluster.api import Api, condition, is_true
from forebay.testcluster.cluster import TestCluster

from tests.cluster.queues import Queues
from tests.eventually import eventually

from .world import SOON, Bridge

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(autouse=True)
async def registry(bridge: Bridge) -> None:
    """Every attempt asks where to continue."""
    await bridge.start_registry()


def state_is(wanted: str) -> Any:
    return lambda found: found["state"] == wanted


async def test_a_job_runs_to_its_end(bridge: Bridge) -> None:
    """Without inputs the gate opens at once; checks, training and the end are facts of attempt 1."""
    job = await bridge.submit("hello", "echo it ran")
    done = await bridge.until(job, state_is("SUCCEEDED"), "the job succeeds")
    assert [item["attempt"] for item in done["attempts"]] == [1]
    assert done["attempts"][0]["preflight"]["passed"] is True
    found = await bridge.api.get("Job", bridge.namespace, job)
    assert found is not None
    assert "forebay.dev/why" in found["metadata"]["annotations"]


async def test_no_quota_is_held_while_data_is_not_ready(bridge: Bridge, cluster: TestCluster, queues: Queues) -> None:
    """Kueue itself says that the Workload is gated; when the data is ready it is admitted at once, and prefers the node
    where it is warm."""
    job = await bridge.submit("train", "true", datasets=[{"name": "reach@train-ready"}])
    waiting = await bridge.until(job, lambda found: found["queued_for"] in {"data", "not-evaluated-yet"}, "it waits")
    assert waiting["state"] == "QUEUED"

    async def gated() -> bool:
        found = condition(await bridge.api.workload_of(bridge.namespace, job) or {}, "QuotaReserved")
        return found is not None and found["reason"] == "AdmissionGated"

    await eventually(gated, what="Kueue says AdmissionGated", within=SOON)
    assert await bridge.quota_used(queues.behind("main")) == 0
    ready = await bridge.submit("ready", "true")
    await bridge.until(ready, state_is("SUCCEEDED"), "a ready job behind it runs at once")
    assert await gated(), "and the first still holds nothing"
    await bridge.ready(job, node=cluster.node)

    async def admitted() -> bool:
        return is_true(await bridge.api.workload_of(bridge.namespace, job), "QuotaReserved")

    await eventually(admitted, what="the opened job has quota", within=SOON)
    opened = await bridge.api.get("Job", bridge.namespace, job)
    assert opened is not None
    affinity = opened["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = term["preference"]["matchExpressions"]
    assert expression == {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.node]}
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity


async def test_quota_used_up(bridge: Bridge) -> None:
    """The second job names the resource that lacks, and starts when the first is cancelled."""
    first = await bridge.submit("first", "sleep 600", resources={"cpu": "600m", "memory": "32Mi"})
    await bridge.until(first, state_is("RUNNING"), "the first runs")
    second = await bridge.submit("second", "true", resources={"cpu": "600m", "memory": "32Mi"})
    verdict = await bridge.cause(second, "QuotaExceeded")
    assert verdict["layer"] == "quota"
    assert "cpu" in verdict["message"]
    await bridge.client.ask("scheduler-bridge", "arm-lab", "cancel", {"job": first})
    await bridge.until(second, state_is("SUCCEEDED"), "the second runs when the first is gone")
    assert (await bridge.why(first))["state"] == "CANCELLED"


async def test_more_than_the_queue_can_ever_give(bridge: Bridge) -> None:
    """Larger than the queue's whole quota is not `busy`."""
    job = await bridge.submit("big", "true", resources={"cpu": "8", "memory": "32Mi"})
    verdict = await bridge.until(job, lambda found: found["verdict"]["fits"] == "never", "it never fits")
    assert verdict["queued_for"] == "quota"


async def test_gpus_that_no_node_has(bridge: Bridge, queues: Queues, cluster: TestCluster) -> None:
    """Quota allows it, the nodes do not: with every node of a small cluster on record it is known that it never fits."""
    await cluster.set_gpus(2)
    try:
        job = await bridge.submit("gpus", "true", resources={"cpu": "10m", "memory": "32Mi", "gpus": 4})
        found = await bridge.until(job, lambda answer: answer["verdict"]["fits"] == "never", "it never fits")
        assert found["verdict"]["layer"] == "node"
        assert found["verdict"]["need"] == f"{cluster.gpu}=4"
        assert found["verdict"]["have"].startswith("2 on ")
    finally:
        await cluster.set_gpus(8)
    await bridge.until(job, state_is("SUCCEEDED"), "it runs when the node has more")


async def test_a_selector_that_no_node_has(bridge: Bridge) -> None:
    """The scheduler's histogram is read by its grammar."""
    overlay = {"imagePullPolicy": "IfNotPresent", "nodeSelector": {"gpu-type": "z9000"}}
    job = await bridge.submit("picky", "true", pod=overlay)
    await bridge.cause(job, "NodeConstraint")
    await bridge.until(job, lambda found: found["queued_for"] == "node", "it is queued for a node")


async def test_a_taint_that_is_not_tolerated(bridge: Bridge, cluster: TestCluster, api: Api) -> None:
    """A taint of the only node holds the job until it is taken away."""
    taint = [{"key": "lab", "value": "other", "effect": "NoSchedule"}]
    await api.patch("Node", None, cluster.node, {"spec": {"taints": taint}})
    try:
        job = await bridge.submit("tainted", "true")
        verdict = await bridge.cause(job, "NodeConstraint")
        assert verdict["layer"] == "node"
        await bridge.until(
            job,
            lambda found: "lab=other:NoSchedule" in found["verdict"]["message"],
            "the taint is named, which the scheduler does not do from 1.34 on",
        )
        assert cluster.node in (await bridge.why(job))["verdict"]["message"]
    finally:
        await api.patch("Node", None, cluster.node, {"spec": {"taints": None}})
    await bridge.until(job, state_is("SUCCEEDED"), "it runs when the taint is gone")


async def test_a_claim_that_does_not_exist(bridge: Bridge) -> None:
    """The missing claim is named."""
    job = await bridge.submit("claims", "true", mounts="nope(pvc):/mnt")
    verdict = await bridge.cause(job, "VolumeUnbound")
    assert "nope" in verdict["message"]
    assert verdict["layer"] == "volume"


async def test_a_config_map_that_appears_later(bridge: Bridge) -> None:
    """FailedMount of a ConfigMap is a configuration matter, and heals when it is made."""
    job = await bridge.submit("maps", "true", mounts="settings(configmap):/settings")
    verdict = await bridge.cause(job, "ConfigMissing", within=170)
    assert "settings" in verdict["message"]
    metadata = {"name": "settings", "namespace": bridge.namespace}
    await bridge.api.create({"kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    await bridge.until(job, state_is("SUCCEEDED"), "it runs when the ConfigMap is there", within=170)


async def test_an_image_that_does_not_exist(bridge: Bridge) -> None:
    """The image is named, and the job waits for it as such."""
    job = await bridge.submit("images", "true", image="forebay.test/nothing:9")
    await bridge.until(
        job, lambda answer: "forebay.test/nothing:9" in answer["verdict"]["message"], "the image is named"
    )
    await bridge.until(job, lambda answer: answer["queued_for"] == "image", "the job is queued for it")


async def test_a_command_that_fails_uses_up_its_attempts(bridge: Bridge) -> None:
    """Each pod is an attempt with its exit code; the last one's end is the job's."""
    job = await bridge.submit(
        "broken", "echo no such thing >&2; exit 3", restart={"max_attempts": 2, "allow_cold_start": True}
    )
    done = await bridge.until(job, state_is("FAILED"), "the job fails", within=170)
    assert [item["ending"]["exit_code"] for item in done["attempts"]] == [3, 3]
    assert "no such thing" in done["verdict"]["message"]


async def test_out_of_memory(bridge: Bridge) -> None:
    """OOMKilled, with the limit that was reached."""
    job = await bridge.submit("hungry", "tail /dev/zero", restart={"max_attempts": 1})
    done = await bridge.until(job, state_is("FAILED"), "the job fails", within=170)
    assert done["attempts"][0]["ending"]["reason"] == "OutOfMemory"


async def test_a_pod_that_somebody_deletes(bridge: Bridge) -> None:
    """The Job makes another one: the job recovers as attempt 2, and the first end says what happened."""
    job = await bridge.submit("deleted", "sleep 600", restart={"max_attempts": 3, "allow_cold_start": True})
    await bridge.until(job, state_is("RUNNING"), "it runs")
    pod = (await bridge.api.pods_of(bridge.namespace, job))[0]["metadata"]["name"]
    await bridge.api.delete("Pod", bridge.namespace, pod)

    def again(found: dict[str, Any]) -> bool:
        return len(found["attempts"]) == 2 and found["attempts"][1]["state"] == "RUNNING"

    found = await bridge.until(job, again, "attempt 2 runs", within=170)
    assert found["attempts"][0]["ending"]["reason"] == "PodDeleted"


async def test_a_queue_that_does_not_exist(bridge: Bridge) -> None:
    """The LocalQueue is named by Kueue."""
    await bridge.api.delete("LocalQueue", bridge.namespace, "main")
    job = await bridge.submit("queued", "true")
    verdict = await bridge.until(
        job, lambda found: found["verdict"]["cause"].startswith("Queue"), "the queue is missing"
    )
    assert "main" in verdict["verdict"]["message"]


async def test_a_stopped_queue(bridge: Bridge, queues: Queues) -> None:
    """Stopped by its owner, and on again."""
    await bridge.api.patch("ClusterQueue", None, queues.behind("main"), {"spec": {"stopPolicy": "Hold"}})
    job = await bridge.submit("stopped", "true")
    await bridge.until(
        job, lambda found: found["verdict"]["cause"] in {"QueueStopped", "QueueMisconfigured"}, "it is stopped"
    )
    await bridge.api.patch("ClusterQueue", None, queues.behind("main"), {"spec": {"stopPolicy": "None"}})
    await bridge.until(job, state_is("SUCCEEDED"), "it runs when the queue is on again")


async def test_a_quota_of_the_namespace_denies_the_pod(bridge: Bridge) -> None:
    """A ResourceQuota refuses the pod, not the Job: the Job controller's event says so."""
    metadata = {"name": "tight", "namespace": bridge.namespace}
    await bridge.api.create({"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}})
    job = await bridge.submit("denied", "true")
    found = await bridge.until(
        job, lambda answer: "quota" in answer["verdict"]["message"].lower(), "the quota denies", within=60
    )
    assert found["state"] == "QUEUED"


async def test_checks_before_the_start_name_what_is_wrong(bridge: Bridge) -> None:
    """The pool's claim is an empty folder of the node: the checks say so, and the job is tried again at no cost."""
    metadata = {"name": "pool", "namespace": bridge.namespace}
    await bridge.api.create(volume(bridge.namespace))
    claim = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "",
        "volumeName": f"pv-{bridge.namespace}",
    }
    await bridge.api.create({"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
    job = await bridge.submit("unread", "true", datasets=[{"name": "reach@train-ready"}])
    await bridge.ready(job)
    try:

        def not_mounted(found: dict[str, Any]) -> bool:
            return bool(found["verdict"]) and found["verdict"]["cause"] == "DataNotMounted"

        waiting = await bridge.until(job, not_mounted, "the checks miss the pool", within=170)
        assert waiting["state"] != "FAILED"
        assert "reach@v1" in waiting["verdict"]["message"]
        assert "the pool is not mounted there" in waiting["verdict"]["message"]
    finally:
        await bridge.api.delete("PersistentVolume", None, f"pv-{bridge.namespace}")


def volume(namespace: str) -> dict[str, Any]:
    """An empty folder of the node."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "hostPath": {"path": f"/tmp/forebay-{namespace}", "type": "DirectoryOrCreate"},
    }
    return {"kind": "PersistentVolume", "metadata": {"name": f"pv-{namespace}"}, "spec": spec}


async def test_preemption_is_a_return_to_the_queue(bridge: Bridge, queues: Queues) -> None:
    """A workload of higher priority takes the quota; afterwards the job runs as attempt 2."""
    for name, value in (("low", 1), ("high", 100)):
        kind = {"kind": "WorkloadPriorityClass", "metadata": {"name": f"{bridge.namespace}-{name}"}, "value": value}
        await bridge.api.create(kind)
    preemption = {"withinClusterQueue": "LowerPriority"}
    await bridge.api.patch("ClusterQueue", None, queues.behind("main"), {"spec": {"preemption": preemption}})
    amount = {"cpu": "600m", "memory": "32Mi"}
    low = await bridge.submit(
        "low",
        "sleep 600",
        resources=amount,
        priority_class=f"{bridge.namespace}-low",
        restart={"allow_cold_start": True},
    )
    await bridge.until(low, state_is("RUNNING"), "the low one runs")
    high = await bridge.submit("high", "sleep 4", resources=amount, priority_class=f"{bridge.namespace}-high")

    def taken(found: dict[str, Any]) -> bool:
        return found["state"] == "QUEUED" and bool(found["attempts"][0]["ending"])

    lost = await bridge.until(low, taken, "the low one is back in the queue", within=170)
    assert lost["attempts"][0]["ending"]["reason"] in {"Evicted", "Preempted"}
    await bridge.until(high, state_is("SUCCEEDED"), "the high one runs", within=170)
    back = await bridge.until(low, lambda found: len(found["attempts"]) == 2, "the low one is attempt 2", within=170)
    assert back["attempts"][1]["attempt"] == 2
    for name in ("low", "high"):
        await bridge.api.delete("WorkloadPriorityClass", None, f"{bridge.namespace}-{name}")
