"""What should pass by itself and does not: lost nodes, contradictions, lost mounts, and loops through the queue."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import jobs, models
from forebay.scheduler_bridge.domain.cluster.moves import moves
from forebay.scheduler_bridge.domain.cluster.patience import OVERDUE, aged_diagnosis
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import diagnose
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects

from .cluster_objects import Cluster, condition, ended, kube_job, pod, running, stamped, workload

ADMITTED = condition("Admitted", reason="Admitted", lastTransitionTime="2026-01-10T08:00:01Z")

STUCK = condition(
    "PodScheduled", "False", reason="Unschedulable", message="0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
)


def node(name: str, status: str, since: str, beat: str = "") -> dict[str, Any]:
    ready = condition("Ready", status, reason="NodeStatusUnknown", lastTransitionTime=since, lastHeartbeatTime=beat)
    metadata = {"name": name, "uid": f"node-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": {"conditions": [ready]}}


def pass_time(world: Cluster, job: str, minutes: float) -> None:
    """The deadline that the bridge has set comes."""
    world.tick(minutes * 60)
    body = models.DeadlinePassed(part=Part.BRIDGE.value, entity=job, condition=OVERDUE, deadline=world.now)
    world.say(body, Part.BRIDGE)


def on_a_node(world: Cluster, name: str = "pick") -> str:
    """A job whose pod runs on gpu-7."""
    job = world.submit(name, image="busybox", restart={"max_attempts": 1})
    world.see(job, kube_job(job, suspend=False))
    world.see(job, workload(job, ADMITTED))
    at = world.stamp()
    world.see(job, pod(job, "a", at, node="gpu-7", **running(at)))
    assert world.job(job).state == "RUNNING"
    return job


def lose_the_node(world: Cluster, job: str) -> str:
    beat = stamped(world.now - timedelta(seconds=40))
    since = world.stamp()
    world.see(job, node("gpu-7", "Unknown", since, beat))
    return since


def test_nobody_says_running_about_a_lost_node() -> None:
    """Nobody knows what runs there: the job waits for its node, its last heartbeat has an age, and it holds its quota."""
    world = Cluster()
    job = on_a_node(world)
    lose_the_node(world, job)
    found = world.ask("why", job=job)
    assert (found["state"], found["queued_for"], found["verdict"]["cause"]) == ("QUEUED", "node", "NodeLost")
    assert world.job(job).state == "QUEUED"
    assert found["holds_quota"]
    assert [(one["node"], one["age_s"] > 40) for one in found["heartbeats"]] == [("gpu-7", True)]
    assert "no action needed before" in found["verdict"]["next_action"]
    world.see(job, node("gpu-7", "True", world.stamp(30)))
    assert world.ask("why", job=job)["state"] == "RUNNING"
    assert world.ask("why", job=job)["heartbeats"] == []


def test_a_lost_node_ages() -> None:
    """After its grace the advice changes, says how long it has been, and is announced."""
    world = Cluster()
    job = on_a_node(world)
    lose_the_node(world, job)
    before = world.said(jobs.VerdictChanged, job)[-1].verdict
    pass_time(world, job, 11)
    after = world.said(jobs.VerdictChanged, job)[-1].verdict
    assert after.rule == f"{before.rule}+overdue"
    assert "for more than 10 minutes" in after.message
    assert "out-of-service" in after.next_action
    assert f"forebay retry {job}" in after.next_action


def test_a_contradiction_ages() -> None:
    """Admitted and evicted at once is waited for, then it is somebody's work."""
    world = Cluster()
    job = on_a_node(world)
    at = world.stamp()
    evicted = condition("Evicted", reason="Preempted", message="preempted", lastTransitionTime=at)
    world.see(job, workload(job, ADMITTED, evicted))
    young = world.ask("why", job=job)["verdict"]
    assert (young["cause"], young["rule"].endswith("+overdue")) == ("Contradictory", False)
    pass_time(world, job, 6)
    old = world.ask("why", job=job)["verdict"]
    assert old["rule"] == f"{young['rule']}+overdue"
    assert old["next_action"] != young["next_action"]
    assert "for more than 5 minutes" in old["message"]


def test_an_ending_carries_the_cause_of_the_verdict() -> None:
    """A pod that is killed on a lost node ended by the node, not as a process that failed; it costs no attempt."""
    world = Cluster()
    job = on_a_node(world)
    since = lose_the_node(world, job)
    world.see(job, pod(job, "a", since, node="gpu-7", **ended(137, at=world.stamp(5))))
    ending = world.said(jobs.AttemptEnded, job)[-1]
    assert ending.reason.value == "NodeLost"
    assert "gpu-7" in ending.message
    assert "137" in ending.message or "SIGKILL" in ending.message


def test_a_crash_of_its_own_stays_one() -> None:
    """A healthy node explains nothing: exit code 1 is the process's."""
    world = Cluster()
    job = on_a_node(world)
    world.see(job, node("gpu-7", "True", world.stamp()))
    world.see(job, pod(job, "a", world.stamp(), node="gpu-7", **ended(1, at=world.stamp(5), message="ValueError: x")))
    ending = world.said(jobs.AttemptEnded, job)[-1]
    assert (ending.reason.value, ending.output) == ("ProcessFailed", ("ValueError: x",))


@pytest.mark.parametrize(("minute", "overdue"), [(6, False), (20, True)])
def test_objects_out_of_a_file_age_alike(minute: int, *, overdue: bool) -> None:
    """`forebay diagnose --at` judges a lost node by the same limits, and says when it was last heard."""
    at = "2026-01-10T08:00:00Z"
    objects = [pod("pick", "a", at, node="gpu-7", **running(at)), node("gpu-7", "Unknown", at, "2026-01-10T07:59:20Z")]
    facts, now = facts_from_objects(objects), datetime(2026, 1, 10, 8, minute, tzinfo=UTC)
    found = aged_diagnosis(diagnose(facts, now), now, facts.all("Node"))
    assert found.reason.value == "NodeLost"
    assert f"last heartbeat was at 07:59:20, {minute} min before" in found.sentence
    assert found.rule.endswith("+overdue") == overdue
    assert ("no action needed before 08:10:00" in found.next_action) != overdue
    assert ("for more than 10 minutes" in found.sentence) == overdue


def requeued(world: Cluster, job: str, rounds: int, reason: str = "PodsReadyTimeout") -> None:
    """Quota given and taken back before anything ran, again and again, because no node takes the pod."""
    for _ in range(rounds):
        at = world.stamp(60)
        world.see(job, workload(job, condition("Admitted", reason="Admitted", lastTransitionTime=at)))
        made = pod(job, f"p{world.now:%H%M%S}", world.stamp(), conditions=[STUCK])
        world.see(job, made)
        taken = {"reason": reason, "message": "Exceeded the timeout", "lastTransitionTime": world.stamp(300)}
        world.see(job, workload(job, condition("Evicted", **taken)))
        world.see(job, made, gone=True)


def looping(rounds: int, reason: str = "PodsReadyTimeout") -> tuple[Cluster, str]:
    world = Cluster()
    job = world.submit(image="busybox")
    world.see(job, kube_job(job, suspend=False))
    requeued(world, job, rounds, reason)
    return world, job


def test_a_loop_is_counted_with_its_reason_and_cause() -> None:
    """Three rounds in vain are a loop: how often, why the quota was taken, and what kept the pods from starting."""
    world, job = looping(3)
    verdict = world.ask("why", job=job)["verdict"]
    assert verdict["cause"] == "RequeueLoop"
    assert verdict["message"].startswith("requeue loop: 3 times for reason PodsReadyTimeout, cause: ")
    assert "nvidia.com/gpu" in verdict["message"]
    assert "after 2 more rounds the job is held" in verdict["next_action"]


def moves_of(world: Cluster, job: str) -> list[Any]:
    active = {"metadata": {"name": "w", "resourceVersion": "1"}, "spec": {"active": True}, "status": {"conditions": []}}
    found = kube_job(job, suspend=False)
    return list(moves(world.job(job), found, active, pod_annotations={}, rounds=5))


@pytest.mark.parametrize(("rounds", "held"), [(4, False), (5, True)])
def test_a_loop_is_held_after_its_rounds(rounds: int, *, held: bool) -> None:
    """The policy deactivates the Workload, which gives the quota back, and says what to do."""
    world, job = looping(rounds)
    assert any(move.what == "patch-workload" for move in moves_of(world, job)) == held
    assert ("its quota was given back" in world.ask("why", job=job)["sentence"]) == held
    assert any(item.kind == "reconcile" for item in world.work)


def test_preemption_is_counted_and_never_held() -> None:
    """A job of low priority did nothing wrong: it keeps its place."""
    world, job = looping(6, "Preempted")
    assert "6 times for reason Preempted" in world.ask("why", job=job)["sentence"]
    assert not moves_of(world, job)


def test_a_round_that_ran_ends_the_loop() -> None:
    """A command that has run is progress: counting starts again."""
    world, job = looping(4)
    at = world.stamp(60)
    world.see(job, workload(job, condition("Admitted", reason="Admitted", lastTransitionTime=at)))
    world.see(job, pod(job, "ran", world.stamp(), node="gpu-7", **running(world.stamp())))
    assert world.ask("why", job=job)["state"] == "RUNNING"
    assert "requeue loop" not in world.ask("why", job=job)["sentence"]


def test_a_bridge_that_starts_again_says_the_same() -> None:
    """States, endings, loops and ages are a function of the log: another bridge that reads it answers alike."""
    world, job = looping(5)
    lost = on_a_node(world, "other")
    lose_the_node(world, lost)
    pass_time(world, lost, 11)
    again = Cluster()
    for recorded in world.log:
        again.now = recorded.stored_at
        again.store(recorded.event)
    again.now = world.now
    for one in (job, lost):
        assert again.job(one) == world.job(one)
        assert again.ask("why", job=one) == world.ask("why", job=one)
