"""What tests do to the node and to Kueue, and that it is undone."""

from __future__ import annotations

import pytest
from forebay.testcluster import kueue, objects
from forebay.testcluster.api import Api, is_true
from forebay.testcluster.cluster import TestCluster

from tests.eventually import eventually

from .queues import Queues

pytestmark = pytest.mark.timeout(180)


async def test_gpus_come_and_go(cluster: TestCluster, api: Api) -> None:
    """The node's status follows the number that a test sets."""
    before = int((await api.get("Node", None, cluster.node) or {})["status"]["allocatable"][cluster.gpu])
    await cluster.set_gpus(before + 3)
    node = await api.get("Node", None, cluster.node)
    assert node is not None
    assert node["status"]["allocatable"][cluster.gpu] == str(before + 3)
    await cluster.set_gpus(before)


async def test_the_kubelet_stops_and_comes_back(cluster: TestCluster, api: Api, namespace: str, image: str) -> None:
    """Without its kubelet the node is lost; with it, the same container has gone on and its end is seen."""
    stays = {"tolerations": [{"operator": "Exists"}]}  # else it is evicted from a node that is lost
    await api.create(objects.job(namespace, "survives", "sleep 30", image=image, pod=stays))

    async def runs() -> bool:
        pods = await api.pods_of(namespace, "survives")
        return bool(pods) and pods[0]["status"]["phase"] == "Running"

    await eventually(runs, what="the pod runs", within=30)
    await cluster.stop_kubelet()
    try:
        await cluster.wait_for_node(ready=False, within=60)
    finally:
        await cluster.start_kubelet()

    async def complete() -> bool:
        return is_true(await api.get("Job", namespace, "survives"), "Complete")

    await eventually(complete, what="the Job is complete", within=60)
    (pod,) = await api.pods_of(namespace, "survives")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_kueue_without_the_gate(
    cluster: TestCluster, api: Api, namespace: str, queues: Queues, image: str
) -> None:
    """With the feature gate off the annotation holds nobody back, which whoever relies on it must notice."""
    queue = await queues.make({"cpu": "1", "memory": "1Gi"})
    await cluster.set_kueue_gates({"AdmissionGatedBy": False})
    try:
        job = objects.job(namespace, "slips", "true", queue=queue, image=image, gated_by="forebay.dev/data-ready")
        await api.create(job)

        async def complete() -> bool:
            return is_true(await api.get("Job", namespace, "slips"), "Complete")

        await eventually(complete, what="the Job is complete in spite of the annotation", within=30)
    finally:
        await cluster.set_kueue_gates(kueue.GATES)
