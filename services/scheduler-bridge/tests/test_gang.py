"""Gangs: several pods are one attempt, which starts and ends as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.v1 import jobs
from forebay.runtime.errors import Refused
from forebay.scheduler_bridge.domain.cluster.decide import EVICT
from forebay.scheduler_bridge.domain.cluster.moves import Move, moves

from .cluster_objects import Cluster, condition, ended, kube_job, pod, running, workload

Json = dict[str, Any]
EVICTED = condition("DisruptionTarget", reason="EvictionByEvictionAPI", message="Eviction API: evicting")


class Pair(Cluster):
    """A job of two nodes whose quota is given."""

    def __init__(self, **restart: Any) -> None:
        super().__init__()
        self.id = self.submit("pair", image="busybox", command=["train"], nodes=2, restart=restart)
        self.see(self.id, self.kube())
        at = self.stamp(2)
        self.see(self.id, workload(self.id, condition("QuotaReserved"), condition("Admitted", lastTransitionTime=at)))
        self.made: dict[str, str] = {}

    def kube(self, *conditions: Json) -> Json:
        item = kube_job(self.id, *conditions, suspend=False)
        return {**item, "spec": {**item["spec"], "completionMode": "Indexed", "parallelism": 2, "completions": 2}}

    def pod(self, uid: str, rank: int, *, gone: bool = False, deleted: bool = False, **status: Any) -> None:
        """A pod of a rank as it is now."""
        made = self.made.setdefault(uid, self.stamp(1))
        item = pod(self.id, uid, made, node=f"n{rank}", **status)
        item["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = str(rank)
        if deleted:
            item["metadata"]["deletionTimestamp"] = self.stamp()
        self.see(self.id, item, gone=gone)

    def both_run(self, suffix: str = "1") -> None:
        for rank, name in enumerate("ab"):
            self.pod(name + suffix, rank, **running(self.stamp()))

    @property
    def evictions(self) -> list[str]:
        """Pods; the same work asked for again is the same work."""
        return list({item.key: item.payload["uid"] for item in self.work if item.kind == EVICT}.values())

    @property
    def endings(self) -> list[str]:
        return [item.ending.reason if item.ending else "-" for item in self.job(self.id).attempts]


def test_a_gang_runs_when_every_rank_does() -> None:
    """Half a gang trains nothing: the job is not RUNNING, and the attempt has not started."""
    world = Pair()
    world.pod("a1", 0, **running(world.stamp()))
    assert world.job(world.id).state == "QUEUED"
    world.pod("b1", 1, **running(world.stamp()))
    assert world.job(world.id).state == "RUNNING"
    assert [body.process for body in world.said(jobs.AttemptStarted)] == ["pod/pair-1-a1@a1"]
    world.pod("a1", 0, **ended(0, "Completed", at=world.stamp(9), phase="Succeeded"))
    assert world.endings == ["-"], "rank 1 may still write"
    world.pod("b1", 1, **ended(0, "Completed", at=world.stamp(1), phase="Succeeded"))
    world.see(world.id, world.kube(condition("Complete")))
    assert (world.endings, world.job(world.id).state) == (["Completed"], "SUCCEEDED")
    assert world.evictions == []


def test_one_rank_that_dies_ends_all_and_the_next_attempt_waits_for_that() -> None:
    """The survivor is evicted; pods made meanwhile belong to no attempt until it is dead; then both ranks are attempt 2."""
    world = Pair()
    world.both_run()
    world.pod("b1", 1, **ended(3, at=world.stamp(5), message="ValueError: bad batch"))
    assert (world.evictions, world.endings) == (["a1"], ["-"])
    world.pod("a1", 0, deleted=True, **running(world.stamp()))
    world.pod("b2", 1)
    with pytest.raises(Refused, match="not seen yet"):
        world.ask("attempt-of", job=world.id, pod="b2")
    assert len(world.job(world.id).attempts) == 1
    world.pod("a1", 0, deleted=True, conditions=[EVICTED], **ended(143, at=world.stamp(20)))
    assert world.endings == ["ProcessFailed", "-"]
    said = world.said(jobs.AttemptEnded)[0]
    assert said.exit_code == 3
    assert said.message.startswith("rank 1 of 2 (pair-1-b1): exit code 3")
    world.pod("a2", 0)
    answers = [world.ask("attempt-of", job=world.id, pod=uid)["attempt"] for uid in ("a2", "b2")]
    assert answers == [2, 2]
    assert world.job(world.id).state == "RUNNING", "a recovery under the same quota"
    assert world.evictions == ["a1"]


def test_a_rank_on_its_way_out_ends_the_others_too() -> None:
    """A drained or lost node: the gang cannot go on, but it is over only when that pod is known to be dead."""
    world = Pair()
    world.both_run()
    world.pod("b1", 1, deleted=True, **running(world.stamp()))
    assert world.evictions == ["a1"]
    world.pod("a1", 0, conditions=[EVICTED], **ended(143, at=world.stamp(3)))
    assert world.endings == ["-"]
    world.pod("b1", 1, gone=True, **running(world.stamp()))
    assert world.endings == ["PodDeleted"]


def test_the_cause_is_the_one_that_came_first() -> None:
    """A rank without memory takes the others down in the same second; they only lost their peer."""
    world = Pair()
    world.both_run()
    at = world.stamp(5)
    world.pod("a1", 0, **ended(1, at=at, message="connection reset by peer"))
    world.pod("b1", 1, **ended(137, "OOMKilled", at=at))
    assert world.endings == ["OutOfMemory"]


def test_kueue_takes_all_ranks_back_at_once() -> None:
    """Nobody is evicted one by one, and what ends is an eviction."""
    world = Pair()
    world.both_run()
    evicted = condition("Evicted", reason="Preempted", message="Preempted", lastTransitionTime=world.stamp(5))
    world.see(world.id, workload(world.id, condition("QuotaReserved", "False"), evicted))
    for uid, rank in (("a1", 0), ("b1", 1)):
        world.pod(uid, rank, deleted=True, **running(world.stamp()))
        world.pod(uid, rank, gone=True, **ended(143, at=world.stamp()))
    assert (world.endings, world.evictions, world.job(world.id).state) == (["Evicted"], [], "QUEUED")


@pytest.mark.parametrize(("most", "patched"), [(2, True), (3, False)])
def test_attempts_are_counted_for_the_gang_not_for_each_rank(most: int, *, patched: bool) -> None:
    """Rank 0 fails once and rank 1 fails once: two attempts. The Job controller would allow each rank as many."""
    world = Pair(max_attempts=most)
    for number, rank in ((1, 0), (2, 1)):
        world.both_run(str(number))
        for other in (rank, 1 - rank):
            world.pod("ab"[other] + str(number), other, **ended(1, at=world.stamp(1 + other)))
    world.pod("a3", 0)
    assert len(world.job(world.id).attempts) == (2 if patched else 3)
    found = {**world.kube(), "metadata": {**world.kube()["metadata"], "resourceVersion": "1"}}
    todo = list(moves(world.job(world.id), found, None, pod_annotations={}))
    assert (
        Move("patch", "a gang has used up its attempts: its Job may fail", {"spec": {"backoffLimit": 0}}) in todo
    ) is patched
    limit = condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit")
    world.see(world.id, world.kube(limit))
    if patched:
        assert world.job(world.id).state == "FAILED"
