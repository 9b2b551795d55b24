"""The verdict on pods: where they cannot go, what does not mount or start, how they ended."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import diagnose_all
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause
from hypothesis import given, settings
from hypothesis import strategies as st

from .kubernetes_objects import (
    AT,
    FAILED,
    FULL,
    NOW,
    Json,
    container,
    ended,
    event,
    job,
    judged,
    meta,
    node,
    pod,
    unscheduled,
    waiting,
)


def test_busy_and_too_large_are_told_apart_by_the_nodes() -> None:
    """The same text: one request fits a node that is taken, the other fits none that exists."""
    nodes = [node("a", "4"), node("b", "4")]
    busy, never = (judged(pod(gpus=count, **unscheduled(FULL)), *nodes) for count in ("1", "8"))
    assert (busy.cause, busy.fits, busy.need, busy.have) == (
        Cause.GPU_SHORTAGE,
        "unknown",
        "nvidia.com/gpu=1",
        "0 of 8 free",
    )
    assert (never.cause, never.fits, never.reason, never.have) == (
        Cause.GPU_SHORTAGE,
        "never",
        Reason.NEVER_FITS,
        "4 on the largest node",
    )


@pytest.mark.parametrize(
    "more",
    [
        event(pod(), "TriggeredScaleUp", "pod triggered scale-up: [{big 0->1 (max: 2)}]"),
        event(pod(), "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached"),
        {"kind": "NodePool", "metadata": {"name": "gpus"}},
    ],
    ids=["coming", "could-come", "karpenter"],
)
def test_never_is_not_said_where_an_autoscaler_may_help(more: Json) -> None:
    """Larger nodes may come: the numbers are said, the word never is not."""
    found = judged(pod(gpus="8", **unscheduled(FULL)), node("a"), node("b"), more)
    assert (found.cause, found.fits) == (Cause.GPU_SHORTAGE, "unknown")
    assert "asks for 8 nvidia.com/gpu per pod, the largest node has 1" in found.sentence


def test_never_is_not_said_when_nodes_are_missing_from_the_facts() -> None:
    """Two nodes were counted and one is known: the other may be large enough."""
    assert judged(pod(gpus="8", **unscheduled(FULL)), node("a")).fits == "unknown"


def test_the_autoscaler_that_adds_a_node_is_the_next_step() -> None:
    """A node is on its way: nothing to do."""
    found = judged(
        pod(**unscheduled(FULL)), event(pod(), "TriggeredScaleUp", "pod triggered scale-up: [{g 1->2 (max: 4)}]")
    )
    assert (found.cause, found.reason) == (Cause.GPU_SHORTAGE, Reason.SCALE_UP_TRIGGERED)


def test_an_image_that_cannot_be_pulled_beats_the_jobs_count() -> None:
    """`active: 1` runs nothing, and the GPU that it holds is said."""
    found = judged(
        job(active=1, ready=0),
        pod(
            node="gpu-1",
            **waiting("ImagePullBackOff", 'Back-off pulling image "r.example/a:1": ErrImagePull: unauthorized'),
        ),
        event(pod(), "Failed", "Error: ImagePullBackOff"),
    )
    assert (found.subject, found.reason, found.where) == ("Job lab/pick", Reason.IMAGE_UNAUTHORIZED, "gpu-1")
    assert "holds 1 nvidia.com/gpu on gpu-1" in found.sentence


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (
            {"reason": "Evicted", "message": "The node was low on resource: ephemeral-storage. ", **ended(137)},
            Cause.EVICTED_DISK,
        ),
        ({"reason": "Evicted", "message": "The node was low on resource: memory. ", **ended(137)}, Cause.EVICTED_NODE),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "x"}
                ],
                **ended(137),
            },
            Cause.PREEMPTED,
        ),
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "x"}
                ],
                **ended(143),
            },
            Cause.NODE_LOST,
        ),
        (
            ended(137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated"),
            Cause.NODE_LOST,
        ),
        (ended(137, "OOMKilled"), Cause.OOM),
        (ended(137), Cause.OTHER),
        (ended(2), Cause.CRASH),
    ],
    ids=["disk", "memory", "preempted", "taint", "unknown", "oom", "nothing", "crash"],
)
def test_exit_137_is_explained_by_what_else_is_on_record(status: Json, cause: Cause) -> None:
    """The number alone proves nothing; eviction, disruption and lost nodes do."""
    assert judged(pod(node="gpu-1", phase="Failed", **status)).cause is cause


def test_a_failed_job_has_the_reason_of_its_pod() -> None:
    """BackoffLimitExceeded is where it ended, not why."""
    found = judged(job(failed=1, conditions=[FAILED]), pod(node="g", phase="Failed", **ended(137, "OOMKilled")))
    assert (found.cause, found.evidence[-1].reason) == (Cause.OOM, "BackoffLimitExceeded")
    assert judged(job(failed=1, conditions=[FAILED])).cause is Cause.CRASH


def test_crash_loops_say_how_the_last_run_ended() -> None:
    """What the container ended with is decisive, the back-off is not."""
    state = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 127, "reason": "Error"}},
    }
    assert judged(pod(node="g", phase="Running", **container(**state))).reason is Reason.COMMAND_NOT_FOUND


def test_a_failing_init_container_is_preflight() -> None:
    """The check before the start failed; the training never ran."""
    init: Json = {
        "initContainerStatuses": [
            {"name": "forebay-prepare", "state": {"terminated": {"exitCode": 210, "reason": "Error"}}}
        ]
    }
    found = judged(pod(node="g", phase="Failed", **init, **waiting("PodInitializing")))
    assert (found.layer, found.reason) == (Layer.PREFLIGHT, Reason.DATA_NOT_MOUNTED)


def test_the_specific_mount_event_wins_over_the_time_out() -> None:
    """The umbrella names no reason; the driver's event does. Another pod's events of the same name do not count."""
    one = pod(node="g", **waiting("ContainerCreating"))
    stranger = event(one, "FailedMount", 'MountVolume.SetUp failed for volume "x" : secret "gone" not found')
    stranger["involvedObject"]["uid"] = "an-earlier-pod"
    found = judged(
        one,
        event(
            one,
            "FailedMount",
            "Unable to attach or mount volumes: unmounted volumes=[d]: timed out waiting for the condition",
            "2026-03-01T09:20:00Z",
        ),
        event(
            one,
            "FailedMount",
            'MountVolume.MountDevice failed for volume "p" : driver name a.b.c not found in the list of registered CSI drivers',
        ),
        stranger,
    )
    assert (found.reason, found.where) == (Reason.CSI_NOT_REGISTERED, "g")


def test_a_mount_that_healed_is_no_reason() -> None:
    """Once the image is pulled the volumes are there; once the container runs nothing is wrong."""
    healed = event(
        pod(),
        "FailedMount",
        'MountVolume.SetUp failed for volume "p" : rpc error: code = Internal',
        "2026-03-01T09:01:00Z",
    )
    pulling = event(pod(), "Pulling", 'Pulling image "a"', "2026-03-01T09:05:00Z")
    assert judged(pod(node="g", **waiting("ContainerCreating")), healed, pulling).cause is Cause.OTHER
    assert (
        judged(pod(node="g", phase="Running", **container(state={"running": {}}, ready=True)), healed).reason
        is Reason.RUNNING
    )


@pytest.mark.parametrize(
    "labels",
    [{"app.kubernetes.io/name": "juicefs-mount", "volume-id": "pvc-7"}, {"role": "juicefs-fuse", "release": "data"}],
    ids=["juicefs", "fluid"],
)
def test_the_chain_goes_from_pod_to_claim_to_mount_pod(labels: Json) -> None:
    """The application pod waits; the pod behind its mount has no room, and that is the reason."""
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": meta("data"),
        "spec": {"volumeName": "pvc-7"},
        "status": {"phase": "Bound"},
    }
    mount = pod(
        "mounts-pvc-7",
        **unscheduled(
            "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector."
        ),
    )
    mount["metadata"] = meta("mounts-pvc-7", "kube-system", labels=labels)
    one = pod(node="g", claims=("data",), **waiting("ContainerCreating"))
    late = event(
        one,
        "FailedMount",
        "Unable to attach or mount volumes: unmounted volumes=[v-data]: timed out waiting for the condition",
    )
    found = judged(one, claim, mount, late)
    assert (found.cause, found.reason, found.need, found.where) == (
        Cause.VOLUME_MOUNT,
        Reason.MOUNT_POD_PENDING,
        "cpu",
        "g",
    )
    assert "claim data" in found.sentence


def test_an_unbound_claim_says_its_own_reason() -> None:
    """The scheduler only knows that the claim is not bound; the claim's event knows why."""
    claim = {"kind": "PersistentVolumeClaim", "metadata": meta("out"), "spec": {}, "status": {"phase": "Pending"}}
    text = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    found = judged(
        pod(claims=("out",), **unscheduled(text)),
        claim,
        event(claim, "ProvisioningFailed", 'storageclass.storage.k8s.io "quick" not found'),
    )
    assert (found.cause, found.need) == (Cause.VOLUME_UNBOUND, "out")
    assert "quick" in found.sentence


def test_a_lost_node_and_an_old_pod_that_may_still_write() -> None:
    """A node that does not answer is said; a pod that was told to stop there is not confirmed dead."""
    running = pod(node="g", phase="Running", **container(state={"running": {}}, ready=True))
    assert judged(running, node("g", ready="Unknown")).cause is Cause.NODE_LOST
    told = pod(node="g", phase="Running", meta={"deletionTimestamp": AT}, **container(state={"running": {}}))
    found = judged(told, node("g", ready="Unknown"))
    assert (found.cause, found.reason) == (Cause.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD)
    both = judged(
        job(active=1, terminating=1),
        told,
        pod("pick-b", node="h", phase="Running", **container(state={"running": {}}, ready=True)),
    )
    assert both.reason is Reason.OLD_POD_NOT_CONFIRMED_DEAD
    assert "1 terminating" in both.sentence


_KEYS = [
    "kind",
    "metadata",
    "status",
    "spec",
    "conditions",
    "type",
    "object",
    "items",
    "name",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "waiting",
    "terminated",
    "exitCode",
    "lastState",
    "reason",
    "message",
    "involvedObject",
    "labels",
    "annotations",
    "ownerReferences",
    "job-name",
    "volume-id",
    "release",
    "role",
    "parallelism",
    "suspend",
    "active",
    "ready",
    "admissionChecks",
    "podSets",
    "resources",
    "limits",
    "requests",
    "containers",
    "volumes",
    "persistentVolumeClaim",
    "claimName",
    "lastTransitionTime",
    "deletionTimestamp",
    "phase",
    "nodeName",
    "schedulingConditions",
    "reasons",
    "minMember",
    "queueName",
    "positionInClusterQueue",
    "code",
]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["True", "Pod", "Job", "Ready", "QuotaReserved", "Pending", "Running", AT, "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6),
    max_leaves=30,
)


@settings(max_examples=60, deadline=None)
@given(
    objects=st.lists(_JSON, max_size=3),
    status=_JSON,
    spec=_JSON,
    labels=_JSON,
    kind=st.sampled_from(["Pod", "Job", "Workload", "PodGroup", "Node", "PersistentVolumeClaim", "LocalQueue"]),
)
def test_hostile_objects_harm_nothing(objects: list[Any], status: Any, spec: Any, labels: Any, kind: str) -> None:
    """Whatever the objects look like, there is an answer or nothing to judge, never a failure."""
    named = {"name": "x", "namespace": "y", "labels": labels, "annotations": labels, "ownerReferences": status}
    odd = {"kind": kind, "metadata": named, "status": status, "spec": spec}
    owned = {"kind": "Pod", "metadata": {"name": "p", "labels": labels}, "status": status, "spec": spec}
    diagnose_all(
        facts_from_objects([*objects, odd, owned, {"kind": "Event", "involvedObject": status, "message": spec}]), NOW
    )


def test_a_kill_is_explained_by_the_node() -> None:
    """The node ran out of memory at that moment, or it does not answer: else nobody knows."""
    killed = pod(node="g", phase="Failed", **ended(137))
    memory = event(
        {"kind": "Node", "metadata": {"name": "g"}}, "OOMKilling", "Memory cgroup out of memory: Killed process 7"
    )
    assert judged(killed, node("g"), memory).cause is Cause.OOM
    assert judged(killed, node("g", ready="Unknown")).cause is Cause.NODE_LOST
    assert judged(killed, node("g")).reason is Reason.PROCESS_KILLED


def test_a_failed_liveness_probe_explains_restarts() -> None:
    """Killed by the kubelet because it did not answer: a crash loop, not a preemption."""
    state = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "Error"}},
    }
    one = pod(node="g", phase="Running", **container(**state))
    found = judged(one, event(one, "Killing", "Container trainer failed liveness probe, will be restarted"))
    assert (found.cause, found.reason) == (Cause.CRASH, Reason.CRASH_LOOP)


def test_scheduling_gates_are_named() -> None:
    """The queue's gate means quota, a stranger's gate means the stranger."""
    gated: Json = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    }
    ours, theirs = pod(**gated), pod(**gated)
    ours["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    theirs["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}, {"name": "x.io/network"}]
    assert judged(ours).layer is Layer.QUOTA
    assert (judged(theirs).layer, judged(theirs).need) == (Layer.ADMISSION_CHECK, "x.io/network")


def with_devices(name: str, works: str, built: str, **labels: str) -> Json:
    """A node of whose devices only some are offered."""
    made = node(name, works)
    made["metadata"]["labels"] = labels
    made["status"]["capacity"] = {"nvidia.com/gpu": built}
    return made


def test_devices_that_are_out_of_order_are_not_never() -> None:
    """A device plugin that does not run hides GPUs: the pod fits when it is back, and the numbers say so."""
    down = judged(pod(**unscheduled(FULL)), with_devices("a", "0", "8"), with_devices("b", "0", "8"))
    assert (down.fits, down.reason) == ("unknown", Reason.GPU_SHORTAGE)
    assert "offers 0 of its 8" in down.sentence
    none: Json = {"kind": "Node", "metadata": {"name": "c"}, "status": {"allocatable": {"cpu": "8"}}}
    nowhere = judged(pod(**unscheduled(FULL)), none, {**none, "metadata": {"name": "d"}})
    assert nowhere.fits == "unknown"
    assert "no node offers" in nowhere.sentence


def test_a_failed_job_whose_pod_was_killed_by_nobody_known() -> None:
    """Exit 137 proves no fault of the program: the job's own count of attempts is not the reason."""
    found = judged(job(conditions=[FAILED]), pod(node="gpu-1", phase="Failed", **ended(137)))
    assert (found.cause, found.reason) == (Cause.OTHER, Reason.PROCESS_KILLED)
    assert "BackoffLimitExceeded" in found.sentence


def test_a_time_limit_that_passed_before_any_node_was_found_has_the_schedulers_reason() -> None:
    """What kept the pod from a node is the news; that time is over is what came of it."""
    late = {**FAILED, "reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}
    waited = pod(
        phase="Failed", reason="DeadlineExceeded", message="Pod was active on the node longer", **unscheduled(FULL)
    )
    found = judged(job(conditions=[late]), waited)
    assert (found.cause, found.layer) == (Cause.GPU_SHORTAGE, Layer.NODE)
    assert found.sentence.startswith("its time limit passed: 2 of 2 nodes")
    started = pod(node="gpu-1", phase="Failed", reason="DeadlineExceeded", message="Pod was active on the node longer")
    ran = judged(job(conditions=[late]), started)
    assert (ran.cause, ran.sentence.count("time limit")) == (Cause.TIMEOUT, 1)


@pytest.mark.parametrize("probe", ["Liveness", "Startup"])
def test_a_probe_that_kills_is_named_with_what_mends_it(probe: str) -> None:
    """A container that a probe stops did not end by itself: its log says nothing, more time for the probe may."""
    looped = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed"}}}
    killed = {"lastState": {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": AT}}}
    there = pod(node="gpu-1", phase="Running", **container(**looped, **killed))
    found = judged(there, event(there, "Unhealthy", f"{probe} probe failed: HTTP probe failed with statuscode: 503"))
    assert (found.cause, found.reason) == (Cause.CRASH, Reason.CRASH_LOOP)
    assert f"{probe} probe" in found.sentence
    assert "failureThreshold" in found.next_action
