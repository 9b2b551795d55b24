"""Many jobs behind the gate, gangs, and disks that run over: produced for real, and what `why` says about them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from forebay.scheduler_bridge.adapters.kubernetes_api import KubernetesApi
from forebay.scheduler_bridge.adapters.list_watch import Gone, Listed, ListWatch, Put
from forebay.testcluster.api import condition, is_true, path_of
from forebay.testcluster.cluster import TestCluster

from tests.cluster.queues import Queues
from tests.eventually import eventually

from .world import SOON, Bridge, project_file

pytestmark = pytest.mark.timeout(400)
Json = dict[str, Any]


@pytest.fixture(autouse=True)
async def registry(bridge: Bridge) -> None:
    """Every attempt asks where to continue."""
    await bridge.start_registry()


class QuotaMeter:
    """Seconds of quota that each Job's Workload has held, from a watch of its own."""

    def __init__(self) -> None:
        self.first: dict[str, float] = {}
        """Job -> when its quota was first seen reserved"""
        self.gated: set[str] = set()
        """Jobs of which Kueue has said that they are gated"""
        self._since: dict[str, float] = {}
        self._total: dict[str, float] = {}

    def see(self, item: Json, *, gone: bool = False) -> None:
        job = str(item["metadata"]["ownerReferences"][0]["name"])
        if (condition(item, "QuotaReserved") or {}).get("reason") == "AdmissionGated":
            self.gated.add(job)
        if is_true(item, "QuotaReserved") and not gone:
            self._since.setdefault(job, time.monotonic())
            self.first.setdefault(job, self._since[job])
        elif job in self._since:
            self._total[job] = self._total.get(job, 0.0) + time.monotonic() - self._since.pop(job)

    def held(self, jobs: Collection[str]) -> float:
        """Seconds in all, up to now."""
        open_spans = [time.monotonic() - since for job, since in self._since.items() if job in jobs]
        return sum(open_spans) + sum(self._total.get(job, 0.0) for job in jobs)


@asynccontextmanager
async def metered(cluster: TestCluster, namespace: str) -> AsyncIterator[QuotaMeter]:
    """A meter that sees every change of a Workload in a namespace."""
    meter = QuotaMeter()

    async def follow(api: KubernetesApi) -> None:
        async for seen in ListWatch(api, path_of("Workload", namespace)).run():
            match seen:
                case Listed(objects=objects):
                    for item in objects:
                        meter.see(item)
                case Put(object=item):
                    meter.see(item)
                case Gone(object=item):
                    meter.see(item, gone=True)
                case _:
                    raise AssertionError(seen)

    async with await KubernetesApi.connect(cluster.kubeconfig) as api:
        task = asyncio.create_task(follow(api))
        try:
            yield meter
        finally:
            assert not task.done(), "the meter's own watch ended"
            task.cancel()


async def test_twenty_wait_for_data_and_the_ready_ones_behind_them_run_at_once(
    bridge: Bridge, cluster: TestCluster, queues: Queues
) -> None:
    """Each of them would fill the queue; none holds a second of quota, so none stands in the way of one that is ready."""
    amount = {"cpu": "700m", "memory": "32Mi"}
    data = [{"name": "reach@train-ready"}]
    async with metered(cluster, bridge.namespace) as meter:
        asked = [bridge.submit(f"waits-{n}", "true", datasets=data, resources=amount) for n in range(20)]
        waiting = list(await asyncio.gather(*asked))
        await eventually(lambda: meter.gated >= set(waiting), what="Kueue says of all that they are gated", within=SOON)
        for strategy in ("BestEffortFIFO", "StrictFIFO"):
            change = {"spec": {"queueingStrategy": strategy}}
            await bridge.api.patch("ClusterQueue", None, queues.behind("main"), change)
            submitted = time.monotonic()
            ready = await bridge.submit(strategy.lower(), "true", resources=amount)
            done = await bridge.until(ready, lambda found: found["state"] == "SUCCEEDED", "the ready one runs")
            after, held = meter.first[ready] - submitted, meter.held(waiting)
            print(f"{strategy}: 20 waited and held {held} s of quota; one behind them had its own after {after:.2f} s")  # noqa: T201 a measured figure
            assert held == 0.0, "quota was held by jobs whose data is not ready"
            assert after < SOON / 3
            assert done["waited_seconds"].get("data", 0) == 0
        assert not any([(await bridge.why(job))["holds_quota"] for job in waiting])
        # The meter does measure: what is opened holds quota at once.
        await bridge.ready(waiting[0])
        await bridge.until(waiting[0], lambda found: found["holds_quota"], "the opened one holds quota")
        assert meter.held(waiting) > 0


async def test_a_disk_that_runs_over_is_no_lack_of_memory(bridge: Bridge) -> None:
    """More in an emptyDir than it may hold: the kubelet evicts the pod, names the volume, and says nothing of memory."""
    fill = "dd if=/dev/zero of=/forebay/run/fill bs=1M count=80 && sleep 600"
    job = await bridge.submit("full", fill, restart={"max_attempts": 1})
    done = await bridge.until(job, lambda found: found["state"] == "FAILED", "the job fails", within=120)
    ending = done["attempts"][0]["ending"]
    assert ending["reason"] == "EvictedDisk"
    assert 'Usage of EmptyDir volume "forebay-run" exceeds the limit "64Mi"' in ending["message"]
    assert "forebay-run" in done["sentence"]
    facts = [entry for entry in await bridge.history(job) if entry["event"] == "RuntimeFactRecorded"]
    assert any(entry["reason"] == "Evicted" and "exceeds the limit" in entry["message"] for entry in facts)


async def wide_queue(bridge: Bridge, queues: Queues, quota: dict[str, str | int]) -> None:
    """A queue with room for more than the node has."""
    await queues.make(quota, name="wide")
    await bridge.stop()
    project_file(bridge.folder, bridge.namespace, ("wide",))
    await bridge.start()


async def test_a_gang_that_is_half_placed(bridge: Bridge, cluster: TestCluster, queues: Queues) -> None:
    """Quota for both pods, GPUs for one: the one that cannot be placed is named, and the job does not count as running."""
    node = await bridge.api.get("Node", None, cluster.node)
    assert node is not None
    gpus = int(node["status"]["allocatable"][cluster.gpu]) // 2 + 1
    await wide_queue(bridge, queues, {"cpu": "1", "memory": "2Gi", cluster.gpu: 2 * gpus})
    resources = {"cpu": "10m", "memory": "32Mi", "gpus": gpus}
    job = await bridge.submit("half", "sleep 600", nodes=2, resources=resources)
    found = await bridge.until(
        job, lambda answer: answer["verdict"]["message"].startswith("1 of 2 pods are ready"), "half of it is placed"
    )
    pods = await bridge.api.pods_of(bridge.namespace, job)
    blocked = next(pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName"))
    verdict = found["verdict"]
    assert (verdict["layer"], verdict["cause"]) == ("gang", "GpuShortage")
    assert blocked in verdict["message"]
    assert (found["state"], found["queued_for"]) == ("QUEUED", "gang")
    facts = [entry for entry in await bridge.history(job) if entry["event"] == "RuntimeFactRecorded"]
    assert any("Insufficient nvidia.com/gpu" in entry["message"] for entry in facts)


async def test_a_gang_restarts_as_a_whole(bridge: Bridge) -> None:
    """Rank 1 dies: rank 0 is ended with it, and no pod of attempt 2 begins before the last of attempt 1 is dead."""
    script = (
        'trap "sleep 12; exit 143" TERM; if [ "$RANK" = 1 ] && [ "$FOREBAY_ATTEMPT" = 1 ]; then sleep 2; exit 3; fi;'
        ' if [ "$FOREBAY_ATTEMPT" = 2 ]; then exit 0; fi; sleep 600 & wait'
    )
    job = await bridge.submit("whole", script, nodes=2, restart={"max_attempts": 3, "allow_cold_start": True})
    done = await bridge.until(job, lambda found: found["state"] == "SUCCEEDED", "attempt 2 succeeds", within=150)
    first, second = done["attempts"]
    assert (first["ending"]["reason"], first["ending"]["exit_code"]) == ("ProcessFailed", 3)
    assert first["ending"]["message"].startswith("rank 1 of 2")
    assert second["ending"]["reason"] == "Completed"
    pods = [pod for pod in await bridge.api.pods_of(bridge.namespace, job) if pod["status"]["phase"] == "Succeeded"]
    began = [moment(trained(pod)["startedAt"]) for pod in pods]
    dead = moment(first["ending"]["at"])
    assert len(began) == 2
    assert dead <= min(began), "no half gang ever wrote"
    waited = [moment(pod["metadata"]["creationTimestamp"]) < dead for pod in pods]
    assert any(waited), "the pod that was made while an old one lived has waited for its end"


def trained(pod: Json) -> Json:
    """How the training container of a pod ended."""
    found: Json = next(one for one in pod["status"]["containerStatuses"] if one["name"] == "train")
    return dict(found["state"]["terminated"])


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_what_happened_while_the_bridge_was_away(bridge: Bridge) -> None:
    """Its Job ends and its pod is deleted meanwhile: the job succeeds, and `why` says what was not seen and when."""
    other = await bridge.submit("other", "true")
    await bridge.until(other, lambda found: found["state"] == "SUCCEEDED", "another job ends while it watches")
    job = await bridge.submit("away", "sleep 10")  # longer than it takes to see its pod and to stop the bridge
    await bridge.until(job, lambda found: found["attempts"] != [], "the job has quota")

    async def seen() -> bool:
        return any("Pod" in (entry.get("object") or "") for entry in await bridge.history(job))

    await eventually(seen, what="its pod was seen", within=SOON)
    left = datetime.now(UTC)
    await bridge.stop()

    async def complete() -> bool:
        return is_true(await bridge.api.get("Job", bridge.namespace, job), "Complete")

    await eventually(complete, what="the Job ends while nobody watches", within=SOON)
    (pod,) = await bridge.api.pods_of(bridge.namespace, job)
    await bridge.api.delete("Pod", bridge.namespace, pod["metadata"]["name"])
    await bridge.start()
    done = await bridge.until(job, lambda found: found["state"] == "SUCCEEDED", "it is known to have succeeded")
    (unseen,) = done["unseen"]
    assert unseen["object"] == f"Pod/{bridge.namespace}/{pod['metadata']['name']}"
    since = datetime.strptime(unseen["message"].partition("between ")[2][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    assert since <= left <= datetime.now(UTC)
    assert "how it ended is not known" in done["attempts"][0]["ending"]["message"]
    assert done["attempts"][0]["ending"]["reason"] == "Completed"
    assert any(
        entry.get("reason") == "Deleted" and "nobody watched" in entry["message"] for entry in await bridge.history(job)
    )
    assert (await bridge.why(other))["unseen"] == []
