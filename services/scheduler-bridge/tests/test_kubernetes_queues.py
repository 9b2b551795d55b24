"""The verdict on jobs as a whole: gates, quota, checks, queues, gangs, and what has ended."""

from __future__ import annotations

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import diagnose_all
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

from .kubernetes_objects import (
    AT,
    FAILED,
    FULL,
    NOW,
    container,
    ended,
    event,
    job,
    judged,
    meta,
    pod,
    unscheduled,
    waiting,
    workload,
)


def test_nobody_has_looked_at_it_yet_is_a_verdict() -> None:
    """No condition at all, and a place in the queue."""
    place = {
        "items": [{"metadata": {"name": "job-pick", "namespace": "lab"}, "positionInClusterQueue": 3, "priority": 0}]
    }
    found = judged(job(suspend=True), workload(), place)
    assert (found.layer, found.reason) == (Layer.NOT_EVALUATED, Reason.NOT_EVALUATED_YET)
    assert "nobody has looked at it yet (position 4)" in found.sentence


def test_the_gate_before_quota_is_the_datas_layer() -> None:
    """Held before quota by ours: data. By another's gate: admission."""
    ours, theirs = (
        judged(
            job(suspend=True), workload(("QuotaReserved", "False", "AdmissionGated", f"Admission is gated by: {name}"))
        )
        for name in ("forebay.dev/data-ready", "x.io/right-size")
    )
    assert (ours.layer, theirs.layer, ours.cause) == (Layer.DATA, Layer.ADMISSION_CHECK, Cause.ADMISSION_CHECK)


def test_quota_held_while_a_check_is_pending_is_said() -> None:
    """The check's own words, and since when quota is held for nothing."""
    checks = [
        {"name": "prov", "state": "Ready"},
        {"name": "dataset-ready", "state": "Pending", "message": "57 % cached", "lastTransitionTime": AT},
    ]
    found = judged(
        job(suspend=True), workload(("QuotaReserved", "True", "QuotaReserved", "ok"), admissionChecks=checks)
    )
    assert (found.cause, found.layer, found.where) == (Cause.ADMISSION_CHECK, Layer.DATA, "dataset-ready")
    assert "57 % cached; quota is held since 09:00:00 (30 min)" in found.sentence


def test_admitted_but_still_suspended() -> None:
    """Kueue did its part; the Job did not start."""
    found = judged(
        job(suspend=True),
        workload(
            ("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "Admitted", "The workload is admitted")
        ),
    )
    assert (found.reason, found.fits) == (Reason.ADMITTED_NOT_STARTED, "now")
    assert "30 min" in found.sentence


def test_admitted_and_evicted_at_once_is_a_verdict() -> None:
    """What cannot be true together is said as such, with both."""
    found = judged(
        job(),
        workload(
            ("Admitted", "True", "Admitted", ""),
            ("Evicted", "True", "Preempted", "Preempted to accommodate a workload (UID: 1)"),
        ),
    )
    assert (found.reason, found.cause, len(found.evidence)) == (Reason.CONTRADICTORY, Cause.PREEMPTED, 2)


def test_after_preemption_the_present_reason_stands() -> None:
    """Evicted earlier, and now it waits for quota: quota."""
    state = workload(
        ("Evicted", "True", "Preempted", "Preempted to accommodate a workload"),
        (
            "QuotaReserved",
            "False",
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, 2 more needed",
        ),
    )
    state["status"]["conditions"][1]["lastTransitionTime"] = "2026-03-01T09:10:00Z"
    assert judged(job(suspend=True), state).cause is Cause.QUOTA


def test_after_a_time_limit_the_cause_is_what_the_pods_said() -> None:
    """PodsReadyTimeout is not why; the last pod's event is."""
    gone = pod("pick-gone")
    state = workload(
        ("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout lab/job-pick"),
        ("QuotaReserved", "False", "Pending", "Exceeded the PodsReady timeout"),
    )
    found = judged(job(suspend=True), state, event(gone, "Failed", 'Failed to pull image "a/b:1": a/b:1: not found'))
    assert found.cause is Cause.IMAGE
    assert judged(job(suspend=True), state).cause is Cause.TIMEOUT


def test_queues_that_are_missing_stopped_or_not_used() -> None:
    """Three reasons to wait for ever, and none of them is quota."""
    pending = workload()
    queue = {"kind": "LocalQueue", "metadata": meta("other"), "spec": {"clusterQueue": "cq"}}
    missing = judged(job(suspend=True), pending, queue)
    queue_of_ours = {"kind": "LocalQueue", "metadata": meta("team"), "spec": {"clusterQueue": "cq"}}
    stopped = judged(
        job(suspend=True),
        pending,
        queue_of_ours,
        {"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {"stopPolicy": "Hold"}},
    )
    unmanaged = judged(job(suspend=True, labels={"app": "x"}))
    forgotten = judged(job(suspend=True))
    assert [one.reason for one in (missing, stopped, unmanaged, forgotten)] == [
        Reason.QUEUE_UNKNOWN,
        Reason.QUEUE_STOPPED,
        Reason.NOT_MANAGED,
        Reason.NOT_MANAGED,
    ]
    assert "label" in unmanaged.sentence


def test_pods_that_may_not_be_made() -> None:
    """The controller's event is the reason of a Job without pods."""
    one = job()
    found = judged(
        one,
        event(
            one,
            "FailedCreate",
            'Error creating: pods "pick-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9',
        ),
    )
    assert (found.cause, found.have) == (Cause.QUOTA, "pods=9 of 9 used")


def test_a_gang_has_the_reason_of_its_first_blocked_pod() -> None:
    """3 of 4 are ready; the fourth says why."""
    ready = [
        pod(f"pick-{n}", node=f"g{n}", phase="Running", **container(state={"running": {}}, ready=True))
        for n in range(3)
    ]
    found = judged(job(parallelism=4), *ready, pod("pick-3", **unscheduled(FULL)))
    assert (found.cause, found.layer) == (Cause.GPU_SHORTAGE, Layer.GANG)
    assert found.sentence.startswith("3 of 4 pods are ready; pick-3 is not: ")
    assert judged(job(parallelism=4), *ready).reason is Reason.GANG_INCOMPLETE


def test_a_pod_group_descends_to_its_pods() -> None:
    """The group only says that it cannot start; its pod says why."""
    group = {
        "kind": "PodGroup",
        "metadata": meta("pg"),
        "spec": {"minMember": 2},
        "status": {
            "conditions": [
                {
                    "type": "Unschedulable",
                    "status": "True",
                    "reason": "NotEnoughResources",
                    "message": "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable.",
                }
            ]
        },
    }
    members = [
        pod(
            f"m-{n}",
            meta={"ownerReferences": [], "annotations": {"scheduling.k8s.io/group-name": "pg"}},
            **unscheduled("0/2 nodes are available: 2 node(s) had untolerated taint {a: b}."),
        )
        for n in range(2)
    ]
    assert judged(group, *members).cause is Cause.AFFINITY_TAINT
    assert judged(group).reason is Reason.GANG_INCOMPLETE


def test_running_and_ended_are_verdicts_too() -> None:
    """Nothing stands in the way, or everything is over; a finished job stays what it was after its clean-up."""
    assert (
        judged(pod(node="g", phase="Running", **container(state={"running": {}}, ready=True))).reason is Reason.RUNNING
    )
    assert judged(job(active=1, ready=1)).reason is Reason.RUNNING
    well = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
    assert judged(job(succeeded=1, conditions=[well])).reason is Reason.COMPLETED
    assert (
        judged(
            {"type": "ADDED", "object": job()}, {"type": "DELETED", "object": job(failed=1, conditions=[FAILED])}
        ).cause
        is Cause.CRASH
    )
    assert judged(job(conditions=[well, FAILED])).reason is Reason.CONTRADICTORY


def test_each_job_has_one_verdict_and_credentials_are_masked() -> None:
    """Two jobs, two verdicts; what looks like a key never comes out."""
    other = job("place", suspend=True)
    text = "failed to mount s3://AKIAABCDEFGHIJKLMNOP:secret@bucket"
    one = pod(node="g", **waiting("ContainerCreating"))
    found = diagnose_all(facts_from_objects([job(), one, event(one, "FailedMount", text), other]), NOW)
    assert [each.subject for each in found] == ["Job lab/pick", "Job lab/place"]
    assert "AKIAABCDEFGHIJKLMNOP" not in repr(found[0])
    assert found[0].verdict(("e1",)).evidence == ("e1",)


def test_a_gang_whose_other_pods_may_not_be_made() -> None:
    """Two pods run; the quota of the namespace forbids the other two: that is the reason, not their absence. Once all are there it is over."""
    running = {"phase": "Running", **container(state={"running": {"startedAt": AT}}, ready=True)}
    pods = [pod(f"pick-{place}", node="gpu-1", **running) for place in range(4)]
    gang = job(parallelism=4, active=4)
    denied = event(
        gang,
        "FailedCreate",
        'Error creating: pods "pick-3" is forbidden: exceeded quota: lab, requested: requests.nvidia.com/gpu=1, '
        "used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2",
    )
    half = judged(gang, *pods[:2], denied)
    assert (half.cause, half.fits) == (Cause.QUOTA, "unknown")
    assert half.sentence.startswith("2 of 4 pods were made")
    assert judged(gang, *pods, denied).reason is Reason.RUNNING


def test_a_workload_that_was_put_back_says_when_it_is_queued_again() -> None:
    """Evicted because its pods were late: the time of the next try and how many there were."""
    late = "Exceeded the PodsReady timeout lab/job-pick"
    gone = ("Evicted", "True", "PodsReadyTimeout", late), ("QuotaReserved", "False", "Pending", late)
    found = judged(job(suspend=True), workload(*gone, requeueState={"count": 2, "requeueAt": "2026-03-01T09:45:00Z"}))
    assert (found.cause, found.reason) == (Cause.TIMEOUT, Reason.TIMED_OUT)
    assert found.sentence.endswith("; it is queued again at 09:45:00, 2 times so far")


def test_the_names_of_checks_keep_their_quotes_in_pairs() -> None:
    """A check's own words come through whole."""
    said = 'Evicted due to AdmissionCheck in Retry state: "prov" (Retrying after failure: no room)'
    found = judged(job(suspend=True), workload(("Evicted", "True", "AdmissionCheck", said)))
    assert found.sentence.endswith(': "prov" (Retrying after failure: no room)')


def test_a_kill_that_no_pod_explains_is_the_queues_when_it_took_the_job_off() -> None:
    """SIGTERM and a job that may not fail once: preempted, not failed by itself."""
    said = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
    gone = ("Evicted", "True", "Preempted", said), ("QuotaReserved", "False", "Pending", said)
    found = judged(job(conditions=[FAILED]), workload(*gone), pod(node="gpu-1", phase="Failed", **ended(143)))
    assert (found.cause, found.reason) == (Cause.PREEMPTED, Reason.PREEMPTED)
    alone = judged(job(conditions=[FAILED]), pod(node="gpu-1", phase="Failed", **ended(143)))
    assert (alone.cause, alone.reason) == (Cause.OTHER, Reason.PROCESS_KILLED)
