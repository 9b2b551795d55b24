"""What must be done to the cluster so that a job's objects are as its state wants them. Pure, level-triggered.

The worker `reconcile` looks at the objects, asks here, does what is answered, and
looks again; a kill in between changes nothing, because only what is there counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from forebay.scheduler_bridge.domain.cluster.gang import used_up
from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.cluster.past_webhook import what_to_stop
from forebay.scheduler_bridge.domain.cluster.patience import is_held, loop_of
from forebay.scheduler_bridge.domain.cluster.sentence import sentence_of
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.gate import opening
from forebay.scheduler_bridge.domain.kubernetes.facts import condition as condition_of
from forebay.scheduler_bridge.domain.kubernetes.facts import is_true as holds
from forebay.scheduler_bridge.domain.merge_patch import merged
from forebay.scheduler_bridge.domain.pod_layout import GATE, HELD, KUEUE_GATED_BY, KUEUE_QUEUE, WAITING_QUEUE

GateKind = Literal["annotation", "label", "suspend"]
"""`annotation`: Kueue's own gate. `label`: Kueue does not know that gate, so the queue's name is kept off the Job.
`suspend`: there is no Kueue."""
HELD_BY: Mapping[GateKind, str] = {
    "annotation": "Kueue gates it before quota",
    "label": (
        "Kueue does not honour the gate before quota (its feature gate AdmissionGatedBy is off), so the queue's name is"
        " kept off the Job until its data is ready"
    ),
    "suspend": "without Kueue it stays suspended until its data is ready",
}
"""How a Job is held back, for its history."""
NOT_HELD = "its data is ready, so nothing of ours holds it back"


@dataclass(frozen=True, slots=True)
class Move:
    """One change, with the sentence for the log."""

    what: Literal["delete", "patch", "patch-workload"]
    why: str
    patch: Json = field(default_factory=dict)


def with_gate(item: Json, kind: GateKind) -> Json:
    """A rendered Job with the gate that this cluster honours."""
    metadata = item["metadata"]
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    if kind != "annotation":
        annotations.pop(KUEUE_GATED_BY, None)
        queue = labels.pop(KUEUE_QUEUE, None)
        if kind == "label" and queue:
            annotations[WAITING_QUEUE] = queue
    return {**item, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def to_make(item: Json, kind: GateKind, job: Job, warm_nodes: Sequence[str] = ()) -> Json:
    """A rendered Job as it is made: behind its gate while its data is not ready, and with the sentence that says why."""
    made = with_gate(item, kind)
    if job.gate == "open":  # then all that is said yet is that there is no Job
        return merged(made, opening(made, {}, warm_nodes) or {})
    return merged(made, {"metadata": {"annotations": sentence_of(job)}})


def moves(
    job: Job,
    found: Json,
    workload: Json | None,
    *,
    pod_annotations: Mapping[str, str],
    warm_nodes: Sequence[str] = (),
    has_pods: bool = True,
    rounds: int = 0,
) -> Iterator[Move]:
    """What is left to do about a Job that exists.

    `has_pods` is asked only of one that stands behind no gate of ours; `rounds`: after so many in vain it is held.
    """
    if job.terminal is not None:
        never_ran = job.terminal.state == "FAILED" and not job.attempts and job.applied is None
        over = job.terminal.state == "CANCELLED" or never_ran
        if over and not found["metadata"].get("deletionTimestamp"):
            yield Move("delete", job.terminal.message)
    elif not job.held_by_us:
        if not has_pods:
            yield from _stop(found, workload)
    elif used_up(job) and (found.get("spec") or {}).get("backoffLimit") != 0:
        yield Move("patch", "a gang has used up its attempts: its Job may fail", {"spec": {"backoffLimit": 0}})
    elif is_held(job, rounds):
        yield from _hold_loop(workload, job)
    elif job.gate == "open":
        patch = opening(found, pod_annotations, warm_nodes)
        if patch is not None and not _has_started(found):
            yield Move("patch", "the data is ready: the gate is opened", patch)
            return  # the object has another version now
        yield from _release(workload)
    else:
        yield from _hold(job, found, workload)


def _has_started(found: Json) -> bool:
    """Suspended by somebody else after it ran is not our gate."""
    return bool((found.get("status") or {}).get("startTime"))


def _hold(job: Job, found: Json, workload: Json | None) -> Iterator[Move]:
    """Shut a gate that was open, while no quota is held. A name that was taken off Kueue's gate cannot be put back."""
    if opening(found, {}) is not None or any(item.holds for item in job.attempts):
        return
    if KUEUE_QUEUE not in (found["metadata"].get("labels") or {}):
        version = found["metadata"].get("resourceVersion")
        patch = {"metadata": {"resourceVersion": version}, "spec": {"suspend": True}}
        yield Move("patch", "the data is not ready any more: the Job is suspended again", patch)
        return
    if workload is None or holds(workload, "QuotaReserved") or holds(workload, "Finished"):
        return
    if (workload.get("spec") or {}).get("active", True):
        yield Move("patch-workload", "the data is not ready any more: held", _activity(workload, active=False))


def _hold_loop(workload: Json | None, job: Job) -> Iterator[Move]:
    """Deactivated, its Workload gives back the quota that others could use, and is not queued again."""
    if workload is not None and (workload.get("spec") or {}).get("active", True) and not holds(workload, "Finished"):
        yield Move("patch-workload", f"{loop_of(job)}: held", _activity(workload, active=False))


def _stop(found: Json, workload: Json | None) -> Iterator[Move]:
    """It came past the webhook and holds nothing. What has begun to hold something has another version: then it is told."""
    why = "it came past the webhook and would start without its data: stopped"
    match what_to_stop(found, workload):
        case "workload" if workload is not None:
            yield Move("patch-workload", why, _activity(workload, active=False))
        case "job":
            version = found["metadata"].get("resourceVersion")
            held = {"resourceVersion": version, "annotations": {HELD: "true"}}
            yield Move("patch", why, {"metadata": held, "spec": {"suspend": True}})


def _release(workload: Json | None) -> Iterator[Move]:
    if workload is None or (workload.get("spec") or {}).get("active", True):
        return
    if _annotations(workload).get(HELD) == "true":
        yield Move("patch-workload", "the data is ready again: no longer held", _activity(workload, active=True))


def _activity(workload: Json, *, active: bool) -> Json:
    version = workload["metadata"].get("resourceVersion")
    held = {HELD: None if active else "true"}
    return {"metadata": {"resourceVersion": version, "annotations": held}, "spec": {"active": active}}


def _annotations(item: Json) -> Mapping[str, Any]:
    found: Mapping[str, Any] = item["metadata"].get("annotations") or {}
    return found


def gate_in_force(workload: Json | None) -> bool | None:
    """Whether Kueue honours our name on its gate: None until it has said anything about the workload."""
    condition = condition_of(workload, "QuotaReserved") if workload is not None else None
    if condition is None:
        return None
    if condition.get("status") == "True":
        return False
    return condition.get("reason") == "AdmissionGated" and GATE in str(condition.get("message", ""))
