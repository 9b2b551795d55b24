"""Caches of single nodes: a job's data is ready where all of it is warm, and its pods should rather go there."""

from __future__ import annotations

from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import cache
from forebay.scheduler_bridge.domain.documents import Plan
from forebay.scheduler_bridge.domain.readiness import warm_nodes

from . import world


class Caches(world.World):
    """A world in which every node has a cache of its own."""

    def ready(self, plan: str, node: str | None) -> None:
        body = cache.CacheReady(
            plan=plan,
            name="pick-place",
            number=1,
            verified_bytes=1000,
            origin_bytes=1000,
            place="/pool",
            adapter="juicefs",
            proof="blocks",
            seconds=1,
            node=node,
        )
        self.say(body, Part.CACHE)

    def partial(self, plan: str, node: str | None, verified: int) -> None:
        body = cache.CachePartial(
            plan=plan,
            name="pick-place",
            number=1,
            verified_bytes=verified,
            planned_bytes=1000,
            reason=Reason.WARMING,
            message=f"{node} is reading",
            node=node,
        )
        self.say(body, Part.CACHE)

    def lost(self, plan: str, node: str | None) -> None:
        body = cache.CacheLost(
            plan=plan, name="pick-place", number=1, reason=Reason.CACHE_MOUNT_GONE, message="gone", node=node
        )
        self.say(body, Part.CACHE)

    def warm(self, job: str) -> tuple[str, str]:
        """(status, sentence) of the condition CacheWarm."""
        found = next(item for item in self.ask("why", job=job)["conditions"] if item["type"] == "CacheWarm")
        return found["status"], found["message"]

    def nodes(self, *plans: str) -> list[str] | None:
        found = [self.state.get(Plan, f"arm-lab/{plan}") for plan in plans]
        nodes = warm_nodes(plan for plan in found if plan is not None)
        return None if nodes is None else sorted(nodes)


def planned(caches: Caches, *plans: str) -> str:
    """A job with one dataset per plan, leased and planned."""
    names = [f"data-{plan}" for plan in plans]
    for name in names:
        caches.say(world.upload(name), Part.COLLECTOR)
    job = caches.submit(datasets=[{"name": name} for name in names])
    caches.say(world.granted(job, *(world.pinned(f"dataset:{name}@train-ready") for name in names)))
    for plan, name in zip(plans, names, strict=True):
        caches.say(world.planned(job, plan, name), Part.CACHE)
    return job


def test_one_warm_node_is_enough_whatever_another_says_after_it() -> None:
    """A node that is still reading does not take back what another has verified."""
    caches = Caches()
    job = planned(caches, "p1")
    caches.partial("p1", "gpu-1", 300)
    assert caches.warm(job)[0] == "False"
    caches.ready("p1", "gpu-2")
    caches.partial("p1", "gpu-1", 400)
    status, said = caches.warm(job)
    assert (status, caches.job(job).gate) == ("True", "open")
    assert said.endswith("on gpu-2")
    assert caches.nodes("p1") == ["gpu-2"]


def test_what_one_node_loses_another_may_have() -> None:
    """The data is cold only when the last warm node has lost it; then what the others do counts again."""
    caches = Caches()
    job = planned(caches, "p1")
    for node in ("gpu-1", "gpu-2"):
        caches.ready("p1", node)
    caches.lost("p1", "gpu-1")
    assert (caches.warm(job)[0], caches.nodes("p1")) == ("True", ["gpu-2"])
    caches.lost("p1", "gpu-2")
    assert caches.warm(job) == ("False", "data-p1@v1: gone")
    caches.partial("p1", "gpu-1", 600_000_000)
    assert "50 %" in caches.warm(job)[1]


def test_all_inputs_must_be_warm_on_the_same_node() -> None:
    """A pod runs on one node; two halves on two nodes are no whole."""
    caches = Caches()
    job = planned(caches, "p1", "p2")
    caches.ready("p1", "gpu-1")
    caches.ready("p2", "gpu-2")
    status, said = caches.warm(job)
    assert status == "False"
    assert "data-p1@v1 is warm on gpu-1; data-p2@v1 is warm on gpu-2" in said
    caches.ready("p2", "gpu-1")
    assert (caches.warm(job)[0], caches.nodes("p1", "p2")) == ("True", ["gpu-1"])


def test_a_cache_that_all_nodes_share_prefers_none() -> None:
    """What lies in the shared pool does not narrow where the rest is warm."""
    caches = Caches()
    job = planned(caches, "p1", "p2")
    caches.ready("p1", None)
    caches.ready("p2", "gpu-1")
    assert (caches.warm(job)[0], caches.nodes("p1"), caches.nodes("p1", "p2")) == ("True", None, ["gpu-1"])
