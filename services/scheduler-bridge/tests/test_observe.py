"""What a watch brings becomes facts: on change, joined by uid in any order, once, also across a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from forebay.contracts.v1 import jobs
from forebay.runtime.companion import Company
from forebay.runtime.machine import Action
from forebay.runtime.state import State
from forebay.scheduler_bridge.adapters.list_watch import Gone, Listed, Put, Seen, Trouble
from forebay.scheduler_bridge.domain.cluster.objects import Collection
from forebay.scheduler_bridge.workers.observe import Observer

from tests.eventually import WITHIN_S

from .cluster_objects import Cluster, condition, ended, kube_job, pod, workload

T = TypeVar("T")


class Stage:
    """Collections that a test fills, as watches."""

    def __init__(self) -> None:
        self._queues: dict[str, asyncio.Queue[Seen]] = {}

    def queue(self, kind: str) -> asyncio.Queue[Seen]:
        return self._queues.setdefault(kind, asyncio.Queue())

    def watch(self, collection: Collection) -> Stage.Watch:
        return Stage.Watch(self.queue(collection.kind))

    def bring(self, seen: Seen, kind: str) -> None:
        self.queue(kind).put_nowait(seen)

    class Watch:
        """Begins with a list, or with the news that there is none to be had."""

        def __init__(self, queue: asyncio.Queue[Seen]) -> None:
            self._queue = queue

        async def run(self) -> AsyncIterator[Seen]:
            first = None if self._queue.empty() else self._queue.get_nowait()
            if not isinstance(first, Listed):
                yield Trouble("no list in this scene")
            if first is not None:
                yield first
            while True:
                yield await self._queue.get()


class InMemory(Company):
    """The runtime's side, over a world in memory."""

    def __init__(self, world: Cluster) -> None:
        self.world = world
        self.said = asyncio.Event()

    async def say(self, *actions: Action) -> None:
        self.world.tick()
        self.world.accept(actions)
        self.world.settle()
        self.said.set()

    async def settle(self, *actions: Action) -> None:
        await self.say(*actions)

    async def read(self, question: Callable[[State], T]) -> T:
        return question(self.world.state)

    def probe(self, name: str, value: Callable[[], Any]) -> None:
        """Nobody looks."""


async def facts(world: Cluster, stage: Stage, *, until: Callable[[list[str]], bool]) -> list[str]:
    """Objects of the facts on record once `until` holds of them; the watch is a process that is then killed."""
    company = InMemory(world)
    task = asyncio.create_task(Observer(stage.watch, {"arm-lab": "arm-lab"})(company))
    try:
        async with asyncio.timeout(WITHIN_S):
            while not until(found := recorded(world)):
                company.said.clear()
                await company.said.wait()
        return found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def recorded(world: Cluster) -> list[str]:
    return [f"{body.object} {body.reason}" for body in world.said(jobs.RuntimeFactRecorded)]


def numbered(item: dict[str, Any], version: int) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


def event(uid: str, message: str, version: int) -> dict[str, Any]:
    item = {
        "kind": "Event",
        "metadata": {"name": f"e{version}", "namespace": "arm-lab", "uid": f"event-{version}"},
        "involvedObject": {"kind": "Pod", "uid": uid},
        "reason": "FailedMount",
        "message": message,
        "count": version,
        "source": {"component": "kubelet"},
    }
    return numbered(item, version)


def scene(world: Cluster) -> tuple[str, Stage]:
    job = world.submit("pick", image="busybox", command=["train"])
    stage = Stage()
    stage.bring(Listed([numbered(kube_job(job), 1)]), "Job")
    return job, stage


async def test_what_comes_before_its_owner_is_kept_for_it() -> None:
    """An event before its pod and a workload before its job are facts as soon as it is known whose they are."""
    world = Cluster()
    job = world.submit("pick", image="busybox", command=["train"])
    stage = Stage()
    stage.bring(Put(event("p1", "first word", 5)), "Event")
    stage.bring(Put(numbered(workload(job, condition("QuotaReserved", "False", message="gated")), 2)), "Workload")
    stage.bring(Listed([numbered(kube_job(job), 1)]), "Job")
    stage.bring(Put(numbered(pod(job, "p1", "2026-01-10T08:00:02Z"), 4)), "Pod")
    found = await facts(world, stage, until=lambda items: len(items) >= 4)
    assert {item.partition(" ")[0].partition("/")[0] for item in found} == {"Job", "Workload", "Pod", "Event"}
    assert any("first word" in body.message for body in world.said(jobs.RuntimeFactRecorded))


async def test_a_second_process_repeats_nothing_and_says_what_went_unseen() -> None:
    """The first list after a restart is compared with the record."""
    world = Cluster()
    job, stage = scene(world)
    stage.bring(Put(numbered(pod(job, "p1", "2026-01-10T08:00:02Z"), 4)), "Pod")
    first = await facts(world, stage, until=lambda items: len(items) >= 2)
    again = Stage()
    again.bring(Listed([numbered(kube_job(job), 1)]), "Job")
    again.bring(Listed([]), "Pod")
    found = await facts(world, again, until=lambda items: len(items) > len(first))
    assert len(found) == len(first) + 1
    assert found[-1].startswith(f"Pod/arm-lab/{job}-p1 Deleted")
    assert "while nobody watched" in world.said(jobs.RuntimeFactRecorded)[-1].message
    (unseen,) = world.ask("why", job=job)["unseen"]
    assert unseen["object"] == f"Pod/arm-lab/{job}-p1"
    assert "deleted between 2026-" in unseen["message"]


@pytest.mark.parametrize("there", [True, False])
async def test_what_got_well_or_went_while_nobody_watched_is_not_held_against_a_job(*, there: bool) -> None:
    """A lost node that answers again, or is gone, by the first list after a restart."""
    world = Cluster()
    job, stage = scene(world)

    def node(ready: str) -> dict[str, Any]:
        status = {"conditions": [condition("Ready", ready, reason="NodeStatusUnknown")]}
        return {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": status}

    placed = numbered(pod(job, "p1", "2026-01-10T08:00:02Z", node="n1"), 4)
    stage.bring(Put(numbered(node("Unknown"), 3)), "Node")
    stage.bring(Put(placed), "Pod")
    await facts(world, stage, until=lambda items: any(item.startswith("Node/") for item in items))
    again = Stage()
    again.bring(Listed([numbered(kube_job(job), 1)]), "Job")
    again.bring(Listed([placed]), "Pod")
    again.bring(Listed([numbered(node("True"), 8)] if there else []), "Node")
    found = await facts(world, again, until=lambda items: len([item for item in items if "Node/n1" in item]) == 2)
    assert found[-1] == ("Node/n1 Ready=True" if there else "Node/n1 Deleted")


async def test_a_watch_that_was_cut_says_from_when_on_it_saw_nothing() -> None:
    """After a 410 the process itself knows until when it had heard; what exists still is no gap."""
    world = Cluster()
    job, stage = scene(world)
    kept = numbered(pod(job, "p2", "2026-01-10T08:00:02Z"), 5)
    stage.bring(Listed([numbered(pod(job, "p1", "2026-01-10T08:00:02Z"), 4), kept]), "Pod")
    await facts(world, stage, until=lambda items: len(items) >= 3)
    stage.bring(Listed([numbered(kube_job(job), 1)]), "Job")
    stage.bring(Listed([kept], since=datetime(2026, 1, 10, 9, 30, tzinfo=UTC)), "Pod")
    await facts(world, stage, until=lambda items: any("Deleted" in item for item in items))
    (unseen,) = world.ask("why", job=job)["unseen"]
    assert unseen["object"].endswith("-p1")
    assert "between 2026-01-10 09:30:00 and" in unseen["message"]


@pytest.mark.parametrize("healthy", [True, False])
async def test_nodes_and_queues_are_facts_of_a_job_only_when_they_may_explain_it(*, healthy: bool) -> None:
    """A thousand healthy nodes are not written down for every job."""
    world = Cluster()
    job, stage = scene(world)
    ready = condition("Ready", "True" if healthy else "Unknown", reason="NodeStatusUnknown", message="stopped")
    node = {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": {"conditions": [ready]}}
    stage.bring(Put(numbered(node, 3)), "Node")
    stage.bring(Put(numbered(pod(job, "p1", "2026-01-10T08:00:02Z", node="n1"), 4)), "Pod")
    gone = numbered(pod(job, "p1", "2026-01-10T08:00:02Z", node="n1"), 9)
    wanted = 2 if healthy else 3
    await facts(world, stage, until=lambda items: len(items) >= wanted)
    stage.bring(Gone(gone), "Pod")
    found = await facts(world, stage, until=lambda items: any("Deleted" in item for item in items))
    assert any(item.startswith("Node/") for item in found) is not healthy


async def test_a_job_that_is_over_depends_on_nothing() -> None:
    """Its node lives on, and what happens there later is not written down for every job that ever ran on it."""
    world = Cluster()
    job, stage = scene(world)
    made = "2026-01-10T08:00:02Z"
    stage.bring(Put(numbered(pod(job, "p1", made, node="n1", phase="Running"), 4)), "Pod")
    stage.bring(Put(numbered(pod(job, "p1", made, node="n1", **ended(0, at=made, phase="Succeeded")), 5)), "Pod")
    stage.bring(Put(numbered(kube_job(job, condition("Complete")), 6)), "Job")
    lost = condition("Ready", "Unknown", reason="NodeStatusUnknown", message="stopped")
    node = {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": {"conditions": [lost]}}

    def over(items: list[str]) -> bool:
        if any("Complete" in item for item in items) and stage.queue("Node").empty():
            stage.bring(Put(numbered(node, 7)), "Node")
            stage.bring(Put(event("p1", "said later", 8)), "Event")
        return any("FailedMount" in item for item in items)

    found = await facts(world, stage, until=over)
    assert not any(item.startswith("Node/") for item in found)


async def test_foreign_objects_are_nobody_s_business() -> None:
    """Pods of others, of jobs that the log does not know, and of another namespace that carry our labels, are no facts."""
    world = Cluster()
    job, stage = scene(world)
    stranger = numbered(pod("other", "s1", "2026-01-10T08:00:02Z"), 7)
    elsewhere = numbered(pod(job, "e1", "2026-01-10T08:00:02Z"), 6)
    elsewhere["metadata"] = {**elsewhere["metadata"], "namespace": "another-lab", "ownerReferences": []}
    plain = {"kind": "Pod", "metadata": {"name": "web", "namespace": "x", "uid": "w1", "resourceVersion": "8"}}
    stage.bring(Listed([stranger, elsewhere, plain]), "Pod")
    stage.bring(Put(numbered(pod(job, "p1", "2026-01-10T08:00:02Z"), 9)), "Pod")
    found = await facts(world, stage, until=lambda items: any(item.startswith("Pod/") for item in items))
    assert all(job in item for item in found)
    assert not any("another-lab" in item for item in found)


@pytest.mark.parametrize("node_first", [True, False])
async def test_a_healthy_node_is_a_fact_of_a_job_when_its_taints_repel_it(*, node_first: bool) -> None:
    """The scheduler does not name taints, so the node that has one goes on record, whichever is seen first."""
    world = Cluster()
    job, stage = scene(world)
    ready = {"conditions": [condition("Ready", "True", reason="KubeletReady")]}
    node = {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": ready}
    taint = {"taints": [{"key": "lab", "value": "other", "effect": "NoSchedule"}]}
    said = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    blocked = condition("PodScheduled", "False", reason="Unschedulable", message=said)
    first, second = (
        (Put(numbered({**node, "spec": taint}, 3)), "Node"),
        (Put(numbered(pod(job, "p1", "2026-01-10T08:00:02Z", conditions=[blocked]), 4)), "Pod"),
    )[:: 1 if node_first else -1]
    stage.bring(*first)
    waiting = [second]

    def both(items: list[str]) -> bool:
        """The second comes when the first was taken."""
        if waiting and items:
            stage.bring(*waiting.pop())
        return any("Node/n1" in item for item in items)

    await facts(world, stage, until=both)


async def test_nodes_of_a_small_cluster_are_facts_of_a_job_that_none_has_room_for() -> None:
    """Only with all of them can it be said that a request fits none; a node that grows is said again."""
    world = Cluster()
    job, stage = scene(world)

    def node(gpus: str) -> dict[str, Any]:
        status = {"allocatable": {"nvidia.com/gpu": gpus}, "conditions": [condition("Ready", "True")]}
        return {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": status}

    said = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    blocked = condition("PodScheduled", "False", reason="Unschedulable", message=said)
    stage.bring(Put(numbered(pod(job, "p1", "2026-01-10T08:00:02Z", conditions=[blocked]), 4)), "Pod")
    stage.bring(Listed([numbered(node("2"), 3)]), "Node")
    brought: list[str] = []

    def twice(items: list[str]) -> bool:
        nodes = [item for item in items if "Node/n1" in item]
        if nodes and not brought:
            brought.append("larger")
            stage.bring(Put(numbered(node("8"), 9)), "Node")
        return len(nodes) == 2

    await facts(world, stage, until=twice)
