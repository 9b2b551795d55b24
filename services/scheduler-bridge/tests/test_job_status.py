"""Jobs of operators: how they ended and what they wait for, in the words of their own status when nothing else is known."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause

from .kubernetes_objects import AT, Json, ended, judged, meta, pod


def made(kind: str, api: str = "", *, spec: Json | None = None, **status: Any) -> Json:
    return {"kind": kind, "apiVersion": api, "metadata": meta("pick"), "spec": spec or {}, "status": status}


def said(kind: str, state: str, reason: str, text: str = "") -> Json:
    return {"type": kind, "status": state, "reason": reason, "message": text, "lastTransitionTime": AT}


def volcano(phase: str, **more: str) -> Json:
    return made("Job", "batch.volcano.sh/v1alpha1", state={"phase": phase, **more})


def ray(deployment: str, **more: Any) -> Json:
    return made("RayJob", jobDeploymentStatus=deployment, **more)


@pytest.mark.parametrize(
    ("job", "cause", "reason"),
    [
        (ray("Failed", reason="AppFailed", message="Job entrypoint command failed with exit code 1"), Cause.CRASH, Reason.ATTEMPTS_EXHAUSTED),
        (ray("Complete", jobStatus="FAILED", message="exit code 1"), Cause.CRASH, Reason.ATTEMPTS_EXHAUSTED),
        (ray("Failed", reason="DeadlineExceeded", message="The RayJob has passed the activeDeadlineSeconds"), Cause.TIMEOUT, Reason.TIMED_OUT),
        (ray("Complete", jobStatus="SUCCEEDED"), Cause.OTHER, Reason.COMPLETED),
        (ray("Running", jobStatus="STOPPED"), Cause.OTHER, Reason.CANCELLED),
        (ray("Running", jobStatus="RUNNING"), Cause.OTHER, Reason.RUNNING),
        (ray("Initializing"), Cause.OTHER, Reason.STARTING),
        (volcano("Failed"), Cause.CRASH, Reason.ATTEMPTS_EXHAUSTED),
        (volcano("Completed"), Cause.OTHER, Reason.COMPLETED),
        (volcano("Aborted"), Cause.OTHER, Reason.CANCELLED),
        (volcano("Pending"), Cause.OTHER, Reason.STARTING),
        (made("Workflow", phase="Pending", message="Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."), Cause.CPU_MEM_SHORTAGE, Reason.RESOURCE_SHORTAGE),
        (made("PyTorchJob", conditions=[said("Running", "True", "PyTorchJobRunning")]), Cause.OTHER, Reason.RUNNING),
        (
            made("PyTorchJob", conditions=[said("Running", "False", "x"), said("Restarting", "True", "PyTorchJobRestarting", "it is restarting because 1 Worker replica(s) failed.")]),
            Cause.CRASH,
            Reason.PROCESS_FAILED,
        ),
        (made("PyTorchJob", spec={"runPolicy": {"suspend": True}}), Cause.OTHER, Reason.NOT_MANAGED),
        (
            made("Deployment", conditions=[said("Available", "False", "MinimumReplicasUnavailable"), said("ReplicaFailure", "True", "FailedCreate", 'pods "x" is forbidden: exceeded quota: q')]),
            Cause.QUOTA,
            Reason.NAMESPACE_QUOTA,
        ),
        (made("Deployment", conditions=[said("Progressing", "False", "ProgressDeadlineExceeded", "it has timed out progressing.")]), Cause.TIMEOUT, Reason.TIMED_OUT),
    ],
)  # fmt: skip
def test_a_status_that_says_something_is_not_nobody_has_looked(job: Json, cause: Cause, reason: Reason) -> None:
    """Conditions, phases and states of operators are read; only what says nothing is silence."""
    found = judged(job)
    assert (found.cause, found.reason) == (cause, reason), found.sentence
    assert "nobody has looked" not in found.sentence


def test_a_pod_says_more_than_the_phase_of_its_job() -> None:
    """An operator's own words are the weakest."""
    killed = pod(node="gpu-1", phase="Failed", **ended(137, "OOMKilled"))
    killed["metadata"]["ownerReferences"] = [{"kind": "RayJob", "name": "pick", "uid": "uid-pick", "controller": True}]
    assert judged(ray("Failed", reason="AppFailed"), killed).cause is Cause.OOM


def test_an_empty_status_is_silence() -> None:
    """Then, and only then, nobody has looked at it."""
    assert judged(made("RayJob")).reason is Reason.NOT_EVALUATED_YET
