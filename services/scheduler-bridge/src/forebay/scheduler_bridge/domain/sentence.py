"""The sentence that says where a job is, why, and what to do: one pure function for everybody who says it.

`forebay why`, the event `VerdictChanged` and the annotation on the Job all take it from here, whatever carries the job, so
that no two of them tell a person different things. What a layer is called is the backend's; the rest is the verdict's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from forebay.contracts.reasons import Layer
from forebay.scheduler_bridge.domain.business import recovering, standing
from forebay.scheduler_bridge.domain.documents import Job

_ENDED = {"SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELLED": "was cancelled"}
_WAITS = {
    Layer.DATA: "waits for its data",
    Layer.QUOTA: "waits for room on this machine",
    Layer.ADMISSION_CHECK: "waits for an admission check",
    Layer.NODE: "waits for a node",
    Layer.VOLUME: "waits for a volume",
    Layer.IMAGE: "waits for its image",
    Layer.CONFIG: "cannot start as it is",
    Layer.GANG: "waits for all of its pods",
    Layer.PREFLIGHT: "is being checked before its start",
    Layer.JOB_OBJECT: "waits for its Job object",
    Layer.NOT_EVALUATED: "has not been looked at yet",
}
_ON_CLUSTER = {Layer.QUOTA: "waits in its queue"}


def sentence(job: Job, verdict: Mapping[str, Any]) -> str:
    """Where the job is by its facts and this verdict, the reason, and the next step."""
    message = str(verdict.get("message", "")).rstrip(". ")
    return f"{job.id} {doing(job, verdict)}: {message}{_stopping(job)}. Next: {verdict.get('next_action', '')}."


def doing(job: Job, verdict: Mapping[str, Any]) -> str:
    """What the job does, in a few words."""
    if job.terminal is not None:
        return _ENDED[job.terminal.state]
    now = msgspec.structs.replace(job, verdict=dict(verdict))
    state, queued_for, _ = standing(now)
    if state == "RUNNING":
        return "is recovering" if recovering(now) else "runs"
    layer = queued_for or Layer.NOT_EVALUATED
    words = _ON_CLUSTER.get(layer) if job.on_cluster else None
    return words or _WAITS.get(layer, f"waits for {layer}")


def _stopping(job: Job) -> str:
    held = job.terminal is not None and any(item.holds for item in job.attempts)
    return "; its process is being stopped" if held else ""
