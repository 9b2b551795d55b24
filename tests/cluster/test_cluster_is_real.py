"""The cluster that other tests stand on: what they take for granted is produced for real here."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.testcluster import objects
from forebay.testcluster.api import Api, condition, is_true
from forebay.testcluster.cluster import TestCluster

from tests.eventually import eventually

from .queues import Queues

pytestmark = pytest.mark.timeout(180)
QUOTA: dict[str, str | int] = {"cpu": "1", "memory": "1Gi"}
SOON = 60.0
"""Two cores may be busy with other things."""


async def pod_of(api: Api, namespace: str, job: str) -> dict[str, Any] | None:
    found = await api.pods_of(namespace, job)
    return found[0] if found else None


def waiting(pod: dict[str, Any] | None) -> str:
    """Why the pod's container waits, as the kubelet says it."""
    states = (pod or {}).get("status", {}).get("containerStatuses", [{}])
    return str(states[0].get("state", {}).get("waiting", {}).get("reason", ""))


async def job_is(api: Api, namespace: str, name: str, kind: str) -> bool:
    return is_true(await api.get("Job", namespace, name), kind)


async def unschedulable(api: Api, namespace: str, job: str) -> str:
    """What the scheduler says about the job's pod."""

    async def message() -> str:
        found = condition(await pod_of(api, namespace, job) or {}, "PodScheduled")
        return str(found["message"]) if found and found.get("reason") == "Unschedulable" else ""

    return str(await eventually(message, what="the scheduler says why the pod waits", within=SOON))


async def test_the_node_is_a_real_one(cluster: TestCluster, api: Api) -> None:
    """A kubelet on containerd reports a Ready node with its GPUs."""
    node = await api.get("Node", None, cluster.node)
    assert node is not None
    assert is_true(node, "Ready")
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert int(node["status"]["allocatable"][cluster.gpu]) > 0


async def test_a_job_runs_to_its_end_under_kueue(api: Api, namespace: str, queues: Queues, image: str) -> None:
    """Kueue admits the Job, its pod runs, its log can be read, and quota is given back."""
    queue = await queues.make(QUOTA)
    await api.create(objects.job(namespace, "hello", "echo it ran", queue=queue, image=image))
    await eventually(lambda: job_is(api, namespace, "hello", "Complete"), what="the Job is complete", within=SOON)
    pod = await pod_of(api, namespace, "hello")
    assert pod is not None
    assert await api.log(namespace, pod["metadata"]["name"]) == "it ran\n"

    async def finished() -> bool:
        return is_true(await api.workload_of(namespace, "hello"), "Finished")

    await eventually(finished, what="the Workload is finished", within=SOON)


async def test_a_gate_keeps_a_job_away_from_quota(api: Api, namespace: str, queues: Queues, image: str) -> None:
    """While the annotation stands the Workload is AdmissionGated and holds no quota; without it, it is admitted."""
    queue = await queues.make(QUOTA)
    await api.create(
        objects.job(namespace, "gated", "true", queue=queue, image=image, gated_by="forebay.dev/data-ready")
    )

    async def is_gated() -> bool:
        found = condition(await api.workload_of(namespace, "gated") or {}, "QuotaReserved")
        return found is not None and found["status"] == "False" and found["reason"] == "AdmissionGated"

    await eventually(is_gated, what="the Workload is AdmissionGated", within=SOON)
    behind = await api.get("ClusterQueue", None, queues.behind(queue))
    assert behind is not None
    assert behind["status"]["reservingWorkloads"] == 0
    await api.patch("Job", namespace, "gated", {"metadata": {"annotations": {objects.GATED_BY: None}}})
    await eventually(
        lambda: job_is(api, namespace, "gated", "Complete"), what="the opened Job is complete", within=SOON
    )


async def test_kueue_tells_positions(api: Api, namespace: str, queues: Queues, image: str) -> None:
    """The visibility API lists who waits behind a full queue, in order."""
    queue = await queues.make({"cpu": "10m", "memory": "1Gi"})
    for name in ("first", "second", "third"):
        await api.create(objects.job(namespace, name, "sleep 300", queue=queue, image=image))
    path = f"/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{queues.behind(queue)}/pendingworkloads"

    async def positions() -> list[int]:
        listed = (await api.json("GET", path))["items"]
        return [item["positionInClusterQueue"] for item in listed]

    async def two_wait() -> bool:
        return await positions() == [0, 1]

    await eventually(two_wait, what="two Workloads wait, at positions 0 and 1", within=SOON)


async def test_more_gpus_than_any_node_has(api: Api, namespace: str, image: str) -> None:
    """The scheduler says which resource is short."""
    job = objects.job(namespace, "big", "true", image=image, limits={"nvidia.com/gpu": "1000"})
    await api.create(job)
    assert "Insufficient nvidia.com/gpu" in await unschedulable(api, namespace, "big")


async def test_a_claim_that_does_not_exist(api: Api, namespace: str, image: str) -> None:
    """The scheduler names the missing claim."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "nope"}}]
    await api.create(objects.job(namespace, "claims", "true", image=image, pod={"volumes": volumes}))
    assert 'persistentvolumeclaim "nope" not found' in await unschedulable(api, namespace, "claims")


async def test_a_config_map_that_does_not_exist(api: Api, namespace: str, image: str) -> None:
    """The kubelet says so in an event of the pod, and nowhere else."""
    volumes = [{"name": "settings", "configMap": {"name": "nope"}}]
    mounted = {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
    await api.create(objects.job(namespace, "mounts", "true", image=image, pod={"volumes": volumes}, container=mounted))

    async def failed_mount() -> list[str]:
        pod = await pod_of(api, namespace, "mounts")
        events = await api.events_of(namespace, pod["metadata"]["name"]) if pod else []
        return [event["message"] for event in events if event["reason"] == "FailedMount"]

    messages = await eventually(failed_mount, what="an event FailedMount", within=SOON)
    assert 'configmap "nope" not found' in messages[0]


async def test_an_image_that_nobody_has(api: Api, namespace: str) -> None:
    """The kubelet tries to pull it, and says that it cannot."""
    await api.create(objects.job(namespace, "unknown", "true", image="127.0.0.1:9/nobody/has:1"))

    async def reason() -> bool:
        return waiting(await pod_of(api, namespace, "unknown")) in {"ErrImagePull", "ImagePullBackOff"}

    await eventually(reason, what="ErrImagePull or ImagePullBackOff", within=SOON)


async def test_out_of_memory(api: Api, namespace: str, image: str) -> None:
    """A container over its limit is killed by the kernel and says OOMKilled."""
    limits = {"memory": "32Mi", "cpu": "500m"}
    await api.create(objects.job(namespace, "hungry", "tail /dev/zero", image=image, limits=limits))

    async def ended() -> dict[str, Any]:
        states = ((await pod_of(api, namespace, "hungry")) or {}).get("status", {}).get("containerStatuses", [{}])
        found: dict[str, Any] = states[0].get("state", {}).get("terminated", {})
        return found

    terminated = await eventually(ended, what="the container has ended", within=SOON)
    assert (terminated["reason"], terminated["exitCode"]) == ("OOMKilled", 137)


async def test_a_container_sees_the_gpus_it_got(cluster: TestCluster, api: Api, namespace: str, image: str) -> None:
    """Two fake GPUs are two devices and their names in the environment."""
    command = "ls /dev/nvidia? | wc -l; echo $NVIDIA_VISIBLE_DEVICES | tr , '\\n' | wc -l"
    await api.create(objects.job(namespace, "gpus", command, image=image, limits={cluster.gpu: "2"}))
    await eventually(lambda: job_is(api, namespace, "gpus", "Complete"), what="the Job is complete", within=SOON)
    pod = await pod_of(api, namespace, "gpus")
    assert pod is not None
    assert (await api.log(namespace, pod["metadata"]["name"])).split() == ["2", "2"]


async def test_pods_of_a_gang_find_each_other(cluster: TestCluster, api: Api, namespace: str, image: str) -> None:
    """An Indexed Job behind a headless Service: every pod resolves the name of the first one."""
    headless = {"clusterIP": "None", "selector": {"batch.kubernetes.io/job-name": "gang"}}
    await api.create({"kind": "Service", "metadata": {"name": "gang", "namespace": namespace}, "spec": headless})
    command = f"until nslookup gang-0.gang.{namespace}.svc.cluster.local; do sleep 0.2; done"
    indexed = {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
    pod = {"subdomain": "gang"}
    await api.create(objects.job(namespace, "gang", f"{command}; sleep 1", image=image, spec=indexed, pod=pod))
    await eventually(lambda: job_is(api, namespace, "gang", "Complete"), what="both pods found it", within=SOON)
