"""The words of a Kubernetes verdict: causes, what they mean for a job's layer, and one message with its judgement.

Everything in this package is a pure function of API objects and texts. The causes are the coarse
vocabulary of `forebay diagnose --json`; `Reason` of the contracts is the finer code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from forebay.contracts.reasons import Layer, Reason

Fits = Literal["now", "never", "unknown"]


class Cause(StrEnum):
    """What kind of thing stands in the way. A member never changes its meaning."""

    QUOTA = "quota"
    GPU_SHORTAGE = "gpu_shortage"
    CPU_MEM_SHORTAGE = "cpu_mem_shortage"
    AFFINITY_TAINT = "affinity_taint"
    VOLUME_UNBOUND = "volume_unbound"
    VOLUME_MOUNT = "volume_mount"
    VOLUME_ATTACH = "volume_attach"
    IMAGE = "image"
    CONFIG = "config"
    PERMISSION = "permission"
    ADMISSION_DENIED = "admission_denied"
    PREEMPTED = "preempted"
    EVICTED_DISK = "evicted_disk"
    EVICTED_NODE = "evicted_node"
    OOM = "oom"
    CRASH = "crash"
    NODE_LOST = "node_lost"
    QUEUE_MISCONFIG = "queue_misconfig"
    ADMISSION_CHECK = "admission_check"
    TIMEOUT = "timeout"
    OTHER = "other"


LAYERS: dict[Cause, Layer] = {
    Cause.QUOTA: Layer.QUOTA,
    Cause.GPU_SHORTAGE: Layer.NODE,
    Cause.CPU_MEM_SHORTAGE: Layer.NODE,
    Cause.AFFINITY_TAINT: Layer.NODE,
    Cause.VOLUME_UNBOUND: Layer.VOLUME,
    Cause.VOLUME_MOUNT: Layer.VOLUME,
    Cause.VOLUME_ATTACH: Layer.VOLUME,
    Cause.IMAGE: Layer.IMAGE,
    Cause.CONFIG: Layer.CONFIG,
    Cause.PERMISSION: Layer.CONFIG,
    Cause.ADMISSION_DENIED: Layer.JOB_OBJECT,
    Cause.PREEMPTED: Layer.QUOTA,
    Cause.EVICTED_DISK: Layer.NODE,
    Cause.EVICTED_NODE: Layer.NODE,
    Cause.OOM: Layer.PROCESS,
    Cause.CRASH: Layer.PROCESS,
    Cause.NODE_LOST: Layer.NODE,
    Cause.QUEUE_MISCONFIG: Layer.QUOTA,
    Cause.ADMISSION_CHECK: Layer.ADMISSION_CHECK,
    Cause.TIMEOUT: Layer.NONE,
    Cause.OTHER: Layer.NONE,
}

REASONS: dict[Cause, Reason] = {
    Cause.QUOTA: Reason.QUOTA_EXCEEDED,
    Cause.GPU_SHORTAGE: Reason.GPU_SHORTAGE,
    Cause.CPU_MEM_SHORTAGE: Reason.RESOURCE_SHORTAGE,
    Cause.AFFINITY_TAINT: Reason.NODE_CONSTRAINT,
    Cause.VOLUME_UNBOUND: Reason.VOLUME_UNBOUND,
    Cause.VOLUME_MOUNT: Reason.VOLUME_MOUNT_FAILED,
    Cause.VOLUME_ATTACH: Reason.VOLUME_ATTACH_FAILED,
    Cause.IMAGE: Reason.IMAGE_PULL_FAILED,
    Cause.CONFIG: Reason.CONFIG_INVALID,
    Cause.PERMISSION: Reason.PERMISSION_DENIED,
    Cause.ADMISSION_DENIED: Reason.ADMISSION_DENIED,
    Cause.PREEMPTED: Reason.PREEMPTED,
    Cause.EVICTED_DISK: Reason.EVICTED_DISK,
    Cause.EVICTED_NODE: Reason.EVICTED_MEMORY,
    Cause.OOM: Reason.OUT_OF_MEMORY,
    Cause.CRASH: Reason.PROCESS_FAILED,
    Cause.NODE_LOST: Reason.NODE_LOST,
    Cause.QUEUE_MISCONFIG: Reason.QUEUE_MISCONFIGURED,
    Cause.ADMISSION_CHECK: Reason.ADMISSION_CHECK_PENDING,
    Cause.TIMEOUT: Reason.TIMED_OUT,
    Cause.OTHER: Reason.UNKNOWN,
}

LATER = "nothing: it goes on by itself"

NEXT: dict[Cause, str] = {
    Cause.QUOTA: "wait until others end, or ask for more quota for the queue",
    Cause.GPU_SHORTAGE: "wait until GPUs are free, ask for fewer, or add nodes",
    Cause.CPU_MEM_SHORTAGE: "wait until other pods end, ask for less, or add nodes",
    Cause.AFFINITY_TAINT: "add the toleration, or correct the node selector or affinity of the pod",
    Cause.VOLUME_UNBOUND: "look at the claim with `kubectl describe pvc`; create it, or correct its name or storage class",
    Cause.VOLUME_MOUNT: "look at the storage driver on that node and at the source of the volume",
    Cause.VOLUME_ATTACH: "release the volume where it is attached, or use one that can be attached here",
    Cause.IMAGE: "correct the image's name and tag, and see that the node can reach its registry",
    Cause.CONFIG: "correct what the message names, and submit again",
    Cause.PERMISSION: "grant the missing permission to the identity that the message names",
    Cause.ADMISSION_DENIED: "change the pod so that it meets the policy that the message names, and submit again",
    Cause.PREEMPTED: f"{LATER} when there is room again; a higher priority keeps it from happening",
    Cause.EVICTED_DISK: "free or add disk on the node, or ask for ephemeral-storage; it can be tried again elsewhere",
    Cause.EVICTED_NODE: "ask for as much memory as the job uses; it can be tried again",
    Cause.OOM: "ask for more memory, or make batches smaller",
    Cause.CRASH: "read the container's log, mend the cause and submit again",
    Cause.NODE_LOST: "bring the node back or delete it; the job can be tried on another node",
    Cause.QUEUE_MISCONFIG: "have the owner of the queue mend what the message names",
    Cause.ADMISSION_CHECK: "look at the check that the message names and at its controller",
    Cause.TIMEOUT: "find what took so long before the limit, or raise the limit",
    Cause.OTHER: "look at the raw message",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One text as a component of the cluster printed it, and where it stood."""

    where: str = ""
    """condition, event, containerStatus, jobCondition or apiError."""
    reason: str = ""
    text: str = ""
    exit_code: int | None = None
    object: str = ""
    """What it was said about: a kind, or a place like `Workload QuotaReserved=False`."""
    source: str = ""
    """Who printed it. Kept as evidence; no rule looks at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one message means."""

    cause: Cause
    sentence: str
    rule: str
    next_action: str
    reason: Reason
    layer: Layer
    need: str | None = None
    have: str | None = None
    where: str | None = None
    fits: Fits = "unknown"
    weight: int = 50
    """How decisive it is among findings about the same job: lower is more."""


def finding(
    cause: Cause,
    sentence: str,
    rule: str,
    *,
    reason: Reason | None = None,
    layer: Layer | None = None,
    next_action: str | None = None,
    need: str | None = None,
    have: str | None = None,
    where: str | None = None,
    fits: Fits = "unknown",
    weight: int = 50,
) -> Finding:
    """A finding with what follows from its cause filled in."""
    return Finding(
        cause=cause,
        sentence=sentence,
        rule=rule,
        next_action=next_action or NEXT[cause],
        reason=reason or REASONS[cause],
        layer=layer or LAYERS[cause],
        need=need,
        have=have,
        where=where,
        fits=fits,
        weight=weight,
    )
