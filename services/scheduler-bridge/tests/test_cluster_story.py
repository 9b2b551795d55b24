"""Jobs on Kubernetes from the facts of a watch to their end: attempts, evictions, recoveries, and who is to blame."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Work
from forebay.scheduler_bridge.domain.cluster.decide import RECONCILE, SENTENCE
from forebay.scheduler_bridge.domain.cluster.documents import Carrier
from forebay.scheduler_bridge.domain.cluster.facts import unseen

from .cluster_objects import Cluster, condition, ended, kube_job, pod, running, workload


def submitted(world: Cluster, name: str = "pick") -> str:
    """A job without inputs: its gate opens at once."""
    return world.submit(name, image="busybox", command=["train"])


def admitted(world: Cluster, job: str) -> None:
    """Kueue gives quota."""
    world.see(job, kube_job(job, suspend=False))
    at = world.stamp(2)
    world.see(job, workload(job, condition("QuotaReserved"), condition("Admitted", lastTransitionTime=at)))


def started(world: Cluster, job: str, uid: str = "p1", node: str = "n1") -> str:
    """A pod is made and runs; the moment it was made."""
    made = world.stamp(1)
    world.see(job, pod(job, uid, made))
    world.see(job, pod(job, uid, made, node=node, **running(world.stamp(1))))
    return made


def test_job_runs_to_its_end() -> None:
    """Admission, pod, running and completion become one attempt, and the job succeeds with it."""
    world = Cluster()
    job = submitted(world)
    assert {item.kind for item in world.work} == {RECONCILE, SENTENCE}
    assert world.job(job).state == "QUEUED"
    admitted(world, job)
    made = started(world, job)
    assert world.job(job).state == "RUNNING"
    world.see(job, pod(job, "p1", made, node="n1", **ended(0, "Completed", at=world.stamp(60), phase="Succeeded")))
    assert world.job(job).state == "RUNNING", "the Job object's own end is what ends a job"
    world.see(job, kube_job(job, condition("Complete"), suspend=False))
    assert world.job(job).state == "SUCCEEDED"
    assert [body.attempt for body in world.said(jobs.WorkloadAdmitted)] == [1]
    start = world.said(jobs.AttemptStarted)[0]
    assert (start.host, start.process) == ("n1", f"pod/{job}-p1@p1")


def test_facts_in_any_order_name_the_same_attempt() -> None:
    """A pod seen before its admission is bound when the admission is."""
    world = Cluster()
    job = submitted(world)
    world.see(job, kube_job(job, suspend=False))
    admitted_at = world.stamp(1)
    made = world.stamp(1)
    world.see(job, pod(job, "p1", made, node="n1", **running(world.stamp(1))))
    assert world.job(job).state == "QUEUED"
    world.see(job, workload(job, condition("QuotaReserved"), condition("Admitted", lastTransitionTime=admitted_at)))
    assert world.job(job).state == "RUNNING"
    carrier = world.state.get(Carrier, f"arm-lab/{job}")
    assert carrier is not None
    assert carrier.pods == {"p1": 1}
    assert carrier.uid == f"job-{job}"


@pytest.mark.parametrize(("codes", "state"), [((0,), "SUCCEEDED"), ((3, 3), "FAILED")])
def test_what_happened_while_nobody_watched_has_its_attempts(codes: tuple[int, ...], state: str) -> None:
    """Pods of a Job that is over already when it is first seen: each is an attempt, and its end comes before the job's."""
    world = Cluster()
    job = submitted(world)
    at = world.stamp(1)
    for number, code in enumerate(codes):
        made = world.stamp(5)
        phase = "Failed" if code else "Succeeded"
        world.see(job, pod(job, f"p{number}", made, node="n1", **ended(code, at=world.stamp(1), phase=phase)))
    given = [condition(kind, lastTransitionTime=at) for kind in ("QuotaReserved", "Admitted", "Finished")]
    world.see(job, workload(job, *given))
    world.see(job, kube_job(job, condition("Failed" if codes[-1] else "Complete"), suspend=False))
    assert world.job(job).state == state
    assert [body.attempt for body in world.said(jobs.AttemptStarted)] == [*range(1, len(codes) + 1)]
    assert [body.exit_code for body in world.said(jobs.AttemptEnded)] == [*codes]
    assert {body.process for body in world.said(jobs.AttemptStarted)} == {
        f"pod/{job}-p{number}@p{number}" for number in range(len(codes))
    }


def test_eviction_queues_the_job_again_and_the_next_quota_is_the_next_attempt() -> None:
    """RUNNING, then QUEUED with Kueue's words, then RUNNING as attempt 2."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = started(world, job)
    words = "Preempted to accommodate a workload (UID: 1) due to prioritization in the ClusterQueue"
    evicted = condition("Evicted", reason="Preempted", message=words, lastTransitionTime=world.stamp(5))
    world.see(job, workload(job, condition("QuotaReserved", "False"), condition("Admitted", "False"), evicted))
    target = condition("DisruptionTarget", reason="StoppedByKueue", message="preempted")
    world.see(job, pod(job, "p1", made, node="n1", conditions=[target], **ended(143, at=world.stamp(1))), gone=True)
    state = world.job(job)
    assert (state.state, state.queued_for) == ("QUEUED", "quota")
    assert state.attempts[0].ending is not None
    assert state.attempts[0].ending.reason == "Evicted"
    assert words in state.attempts[0].ending.message
    at = world.stamp(5)
    world.see(
        job,
        workload(
            job, condition("QuotaReserved"), condition("Admitted", lastTransitionTime=at), condition("Evicted", "False")
        ),
    )
    started(world, job, "p2", "n2")
    state = world.job(job)
    assert (state.state, len(state.attempts)) == ("RUNNING", 2)
    assert world.said(jobs.AttemptStarted)[-1].recovers == 1


@pytest.mark.parametrize(
    ("status", "gone", "reason"),
    [
        (ended(137, "OOMKilled", at="2026-01-10T09:00:00Z"), False, "OutOfMemory"),
        (ended(137, "Error", at="2026-01-10T09:00:00Z"), False, "ProcessKilled"),
        (ended(3, "Error", at="2026-01-10T09:00:00Z"), False, "ProcessFailed"),
        (ended(128, "StartError", at="2026-01-10T09:00:00Z", message="no such file"), False, "StartFailed"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
            False,
            "EvictedDisk",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
            False,
            "EvictedMemory",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "Preempted in order to admit critical pod"},
            False,
            "Evicted",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [condition("DisruptionTarget", reason="DeletionByTaintManager", message="NotReady")],
            },
            False,
            "NodeLost",
        ),
        (
            {
                "phase": "Failed",
                "conditions": [condition("DisruptionTarget", reason="PreemptionByScheduler", message="higher")],
            },
            False,
            "Preempted",
        ),
        ({"phase": "Running"}, True, "PodDeleted"),
    ],
)
def test_endings_are_told_apart(status: dict[str, Any], *, gone: bool, reason: str) -> None:
    """The same exit code has many causes; the pod's conditions and reason decide, not the number."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = started(world, job)
    world.see(job, pod(job, "p1", made, node="n1", **status), gone=gone)
    ending = world.job(job).attempts[0].ending
    assert ending is not None
    assert ending.reason == reason


def test_retry_under_the_same_quota_is_a_recovery() -> None:
    """The Job controller's next pod is attempt 2; between the two the job stays RUNNING, and no attempt is invented."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = started(world, job)
    world.see(job, pod(job, "p1", made, node="n1", **ended(1, at=world.stamp(5))))
    state = world.job(job)
    assert (state.state, len(state.attempts)) == ("RUNNING", 1)
    started(world, job, "p2")
    assert (world.job(job).state, len(world.job(job).attempts)) == ("RUNNING", 2)


def test_failed_job_says_why_its_last_attempt_ended() -> None:
    """`BackoffLimitExceeded` alone explains nothing."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = started(world, job)
    world.see(job, pod(job, "p1", made, node="n1", **ended(1, at=world.stamp(5), message="ValueError: bad")))
    failed = condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit")
    world.see(job, kube_job(job, failed, suspend=False))
    state = world.job(job)
    assert state.state == "FAILED"
    assert state.terminal is not None
    assert "ValueError: bad" in state.terminal.message


def test_job_deleted_behind_our_back_fails_and_is_not_made_again() -> None:
    """Its uid is known, so whoever deleted it meant it."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    world.see(job, kube_job(job, suspend=False), gone=True)
    state = world.job(job)
    assert (state.state, state.terminal.reason if state.terminal else "") == ("FAILED", "JobDeleted")


def test_cancelled_job_holds_quota_until_its_pod_is_gone() -> None:
    """Cancelling is a wish; the attempt ends when nothing of it can write."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = started(world, job)
    world.command("cancel", job=job)
    assert world.job(job).attempts[0].holds
    world.see(job, pod(job, "p1", made, node="n1", **ended(143, at=world.stamp(1))), gone=True)
    state = world.job(job)
    assert state.state == "CANCELLED"
    assert state.attempts[0].ending is not None
    assert state.attempts[0].ending.reason == "Cancelled"


def test_preflight_of_an_instrumented_pod_is_read_from_its_exit_code() -> None:
    """The report may not have reached the bus; the termination message has it."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = world.stamp(1)
    message = '{"checks": [{"name": "data", "status": "fail", "reason": "DataUnreadable", "message": "empty folder"}]}'
    init = {"name": "forebay-prepare", "state": {"terminated": {"exitCode": 201, "message": message}}}
    world.see(job, pod(job, "p1", made, node="n1", instrumented=True, initContainerStatuses=[init]))
    failed = world.said(jobs.PreflightFailed)
    assert [check.message for check in failed[0].failed] == ["empty folder"]
    assert world.job(job).state == "QUEUED"


@pytest.mark.parametrize(
    ("outcome", "reason", "state"), [("Complete", "Completed", "SUCCEEDED"), ("Failed", "Unknown", "FAILED")]
)
def test_a_pod_that_went_unseen_is_not_said_to_have_been_deleted_by_somebody(
    outcome: str, reason: str, state: str
) -> None:
    """Its Job says whether it succeeded; else how it ended is not known, and between when and when."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = started(world, job)
    world.see(job, kube_job(job, condition(outcome), suspend=False))
    note = unseen(datetime(2026, 1, 10, 8, tzinfo=UTC), datetime(2026, 1, 10, 9, tzinfo=UTC))
    world.see(job, pod(job, "p1", made, node="n1", phase="Running"), gone=True, note=note)
    ending = world.job(job).attempts[0].ending
    assert ending is not None
    assert (ending.reason, world.job(job).state) == (reason, state)
    assert "between 2026-01-10 08:00:00 and 2026-01-10 09:00:00 UTC" in ending.message


def test_an_event_about_a_gate_that_is_open_is_past() -> None:
    """Kueue's event stays for an hour; the condition of the Workload says what holds now."""
    world = Cluster()
    job = submitted(world)
    world.see(job, kube_job(job))
    gated = "Admission is gated by: forebay.dev/data-ready"
    world.see(job, workload(job, condition("QuotaReserved", "False", reason="AdmissionGated", message=gated)))
    event = {
        "kind": "Event",
        "metadata": {"name": "e1", "namespace": "arm-lab", "uid": "e1"},
        "involvedObject": {"kind": "Workload", "name": f"job-{job}-abc", "namespace": "arm-lab", "uid": f"wl-{job}"},
        "reason": "AdmissionGated",
        "message": f"Workload {gated.lower()}",
    }
    world.see(job, event)
    assert why(world, job)[1] == "AdmissionGated"
    full = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 300m more needed"
    world.see(job, workload(job, condition("QuotaReserved", "False", reason="Pending", message=full)))
    assert why(world, job)[:2] == ("quota", "QuotaExceeded")


def test_what_is_free_on_a_node_is_not_guessed_from_ones_own_pods() -> None:
    """Other jobs' pods are not among a job's facts; the size of the nodes is, and that one is enough for "never"."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = world.stamp(1)
    said = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    blocked = condition("PodScheduled", "False", reason="Unschedulable", message=said)
    item = pod(job, "p1", made, conditions=[blocked])
    item["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "5"}}
    world.see(job, item)
    taken = pod(job, "p0", made, node="n1", **running(made))
    taken["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "5"}}
    world.see(job, taken)
    status = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [condition("Ready")]}
    world.see(job, {"kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": status})
    assert "free on each of 1 nodes that have as many" in why(world, job)[2]
    world.see(
        job,
        {
            "kind": "Node",
            "metadata": {"name": "n1", "uid": "n1"},
            "status": {**status, "allocatable": {"nvidia.com/gpu": "2"}},
        },
    )
    verdict = world.ask("why", job=job)["verdict"]
    assert (verdict["fits"], verdict["cause"], verdict["have"]) == ("never", "NeverFits", "2 on the largest node")


def test_every_state_of_an_object_is_said_once() -> None:
    """The same state seen again by a watch that was cut is no second event."""
    world = Cluster()
    job = submitted(world)
    admitted(world, job)
    made = world.stamp(1)
    world.see(
        job,
        pod(
            job,
            "p1",
            made,
            conditions=[condition("PodScheduled", "False", reason="Unschedulable", message="0/1 nodes")],
        ),
    )
    before = len(world.said(jobs.PodUnschedulable))
    world.see(
        job,
        pod(
            job,
            "p1",
            made,
            conditions=[condition("PodScheduled", "False", reason="Unschedulable", message="0/1 nodes")],
        ),
    )
    assert before == len(world.said(jobs.PodUnschedulable)) == 1
    assert all(isinstance(item, Work) for item in world.work)


def why(world: Cluster, job: str) -> tuple[str, str, str]:
    """(layer, cause, sentence) as `forebay why` shows them."""
    verdict = world.ask("why", job=job)["verdict"]
    return verdict["layer"], verdict["cause"], verdict["message"]


def test_the_verdict_follows_a_job_through_its_layers() -> None:
    """Quota, then a node, then an image, then running: each in the words of whoever holds it up."""
    world = Cluster()
    job = submitted(world)
    assert why(world, job)[0] == "job-object"
    world.see(job, kube_job(job))
    full = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a, 4 more needed"
    waiting = condition("QuotaReserved", "False", reason="Pending", message=full, lastTransitionTime=world.stamp())
    world.see(job, workload(job, waiting))
    layer, cause, sentence = why(world, job)
    assert (layer, cause) == ("quota", "QuotaExceeded")
    assert world.job(job).queued_for == "quota"
    admitted(world, job)
    made = world.stamp(1)
    message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
    unschedulable = condition("PodScheduled", "False", reason="Unschedulable", message=message)
    world.see(job, pod(job, "p1", made, conditions=[unschedulable]))
    assert why(world, job)[0] == "node"
    assert (world.job(job).state, world.job(job).queued_for) == ("QUEUED", "node")
    waiting_image = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nope:1"'}}
    world.see(
        job,
        pod(
            job, "p1", made, node="n1", containerStatuses=[{"name": "train", "image": "nope:1", "state": waiting_image}]
        ),
    )
    assert why(world, job)[0] == "image"
    world.see(job, pod(job, "p1", made, node="n1", **running(world.stamp(1))))
    layer, cause, sentence = why(world, job)
    assert (layer, cause) == ("none", "Running")
    assert "n1" in sentence
