"""Pods behind pods: the mount pod that serves a claim, and what its end means for who reads through it."""

from __future__ import annotations

import pytest
from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

from .kubernetes_objects import AT, FAILED, Json, container, ended, job, judged, meta, pod

BOUND: Json = {
    "kind": "PersistentVolumeClaim",
    "metadata": meta("data"),
    "spec": {"volumeName": "pvc-1"},
    "status": {"phase": "Bound"},
}
GONE = "OSError: [Errno 107] Transport endpoint is not connected: '/datasets/train.parquet'"
WORKS = container(state={"running": {"startedAt": AT}}, ready=True)


def mount_pod(*, ready: bool, phase: str = "Running", last: str = "", **status: object) -> Json:
    """The pod of the storage driver that serves the claim `data` on the same node."""
    state = {"running": {"startedAt": AT}} if ready else {"waiting": {"reason": "CrashLoopBackOff", "message": ""}}
    ran = {"terminated": {"exitCode": 137, "reason": last, "finishedAt": AT}} if last else {}
    return {
        "kind": "Pod",
        "metadata": {
            **meta("jfs-gpu-1-pvc-1-x", "kube-system"),
            "labels": {"app.kubernetes.io/name": "juicefs-mount", "volume-id": "pvc-1"},
        },
        "spec": {"nodeName": "gpu-1"},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(ready), "reason": "", "lastTransitionTime": AT}],
            "containerStatuses": [{"name": "mount", "state": state, "lastState": ran, "ready": ready}],
            **status,
        },
    }


def test_a_pod_that_runs_on_a_dead_mount_does_not_just_run() -> None:
    """Its reads hang or fail; the mount pod's own reason is told, and what mends it."""
    found = judged(
        job(active=1),
        pod(node="gpu-1", phase="Running", claims=("data",), **WORKS),
        BOUND,
        mount_pod(ready=False, last="OOMKilled"),
    )
    assert (found.cause, found.reason, found.where) == (Cause.VOLUME_MOUNT, Reason.MOUNT_LOST, "gpu-1")
    assert found.sentence.startswith("it runs, but the mount pod kube-system/jfs-gpu-1-pvc-1-x")
    assert "memory" in found.next_action


@pytest.mark.parametrize("last", ["", "OOMKilled"])
def test_a_mount_pod_that_works_is_no_reason(last: str) -> None:
    """Also when it was started again: whether this pod mounted before or after that is not known."""
    found = judged(
        job(active=1),
        pod(node="gpu-1", phase="Running", claims=("data",), **WORKS),
        BOUND,
        mount_pod(ready=True, last=last),
    )
    assert (found.cause, found.reason) == (Cause.OTHER, Reason.RUNNING)


def test_a_program_that_lost_its_mount_is_explained_by_the_end_of_the_mount_pod() -> None:
    """No crash of the program: the mount pod ran out of memory and is back, the mount in the pod is not."""
    fallen = pod(node="gpu-1", phase="Failed", claims=("data",), **ended(1, text=GONE))
    found = judged(job(conditions=[FAILED]), fallen, BOUND, mount_pod(ready=True, last="OOMKilled"))
    assert (found.cause, found.reason) == (Cause.VOLUME_MOUNT, Reason.MOUNT_LOST)
    assert "and was started again" in found.sentence
    assert "recreate the pod" in found.next_action
    assert len(found.evidence) == 3  # what the program said, how the mount pod ended, and that the job failed


def test_a_mount_pod_that_was_evicted_took_the_mount_with_it() -> None:
    """Not pending: ended."""
    fallen = pod(node="gpu-1", phase="Failed", claims=("data",), **ended(1, text=GONE))
    away = mount_pod(ready=False, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    found = judged(job(conditions=[FAILED]), fallen, BOUND, away)
    assert (found.cause, found.reason) == (Cause.VOLUME_MOUNT, Reason.MOUNT_LOST)
    assert "the node ran low on memory" in found.sentence
