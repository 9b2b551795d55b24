"""What the bridge says and does while the node is lost or Kueue is another one. Last, because it changes them."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.testcluster import kueue
from forebay.testcluster.api import is_true
from forebay.testcluster.cluster import TestCluster

from tests.eventually import eventually

from .by_hand import kwok_nodes
from .world import SOON, Bridge

pytestmark = pytest.mark.timeout(400)
Json = dict[str, Any]


async def test_a_lost_node_and_its_return(bridge: Bridge, cluster: TestCluster) -> None:
    """Its pod may still write, so no other is made; when the node is back and has ended it, attempt 2 begins."""
    await bridge.start_registry()
    overlay = {"imagePullPolicy": "IfNotPresent", "terminationGracePeriodSeconds": 3}
    restart = {"max_attempts": 3, "allow_cold_start": True}
    job = await bridge.submit("lost", "trap 'exit 143' TERM; sleep 600 & wait", restart=restart, pod=overlay)
    await bridge.until(job, lambda found: found["state"] == "RUNNING", "it runs")
    # Where every node is lost, the controllers suspect themselves and evict nobody. A second node stays.
    async with kwok_nodes(cluster, bridge.api, [f"{bridge.namespace}-stays"]):
        await cluster.stop_kubelet()
        try:
            lost = await bridge.cause(job, "NodeLost")
            assert cluster.node in lost["message"]
            unsure = await bridge.cause(job, "OldPodNotConfirmedDead")
            assert "may still write" in unsure["message"]
            assert "out-of-service" in unsure["next_action"]
            assert unsure["where"] == cluster.node
            (pod,) = await bridge.api.pods_of(bridge.namespace, job)
            answer = await bridge.why(job)
            assert [item["ending"] for item in answer["attempts"]] == [None], "it is not over while its pod may write"
        finally:
            await cluster.start_kubelet()

    def again(found: Json) -> bool:
        return len(found["attempts"]) == 2 and found["attempts"][1]["state"] == "RUNNING"

    found = await bridge.until(job, again, "attempt 2 runs", within=150)
    first, second = found["attempts"]
    assert first["ending"]["reason"] == "NodeLost"
    assert first["ending"]["at"] <= second["process"]["at"]
    facts = [entry for entry in await bridge.history(job) if entry["event"] == "RuntimeFactRecorded"]
    assert any(entry["object"] == f"Node/{cluster.node}" and "Unknown" in entry["reason"] for entry in facts)
    assert any(pod["metadata"]["name"] in entry["object"] for entry in facts)


async def test_a_kueue_that_ignores_the_gate_is_found_out(bridge: Bridge, cluster: TestCluster) -> None:
    """Its feature gate is off: the queue's name is kept off the Job until its data is ready, and the history says so."""
    await bridge.stop()
    await cluster.set_kueue_gates({"AdmissionGatedBy": False})
    try:
        await bridge.start()
        job = await bridge.submit("slips", "true", datasets=[{"name": "reach@train-ready"}])

        async def made() -> Json | None:
            return await bridge.api.get("Job", bridge.namespace, job)

        item = await eventually(made, what="the Job is made", within=SOON)
        assert item["spec"]["suspend"] is True
        assert "kueue.x-k8s.io/queue-name" not in item["metadata"]["labels"]

        async def said() -> bool:
            made = [entry["message"] for entry in await bridge.history(job) if entry.get("reason") == "Created"]
            return any("AdmissionGatedBy" in message for message in made)

        await eventually(said, what="the history says how it is held back", within=SOON)
        behind = await bridge.submit("ready", "true")
        await bridge.until(behind, lambda found: found["state"] == "SUCCEEDED", "a ready one behind it runs")
        assert await bridge.api.workload_of(bridge.namespace, job) is None, (
            "Kueue knows nothing of it, so no quota is held"
        )
        await bridge.ready(job)

        async def admitted() -> bool:
            return is_true(await bridge.api.workload_of(bridge.namespace, job), "QuotaReserved")

        await eventually(admitted, what="the opened job has quota", within=SOON)
    finally:
        await cluster.set_kueue_gates(kueue.GATES)
