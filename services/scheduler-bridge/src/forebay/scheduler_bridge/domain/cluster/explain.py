"""Why an attempt ended, by the verdict on the objects around it. Pure.

The pod alone often knows only an exit code. What its job depended on and lost (node,
mount, device, quota) is found by the same rules that make the verdict, so the ending on
record and the sentence of `forebay why` name one cause.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.cluster.endings import Cause
from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.cluster.view import View
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import diagnose
from forebay.scheduler_bridge.domain.kubernetes.facts import facts_from_objects

_UNEXPLAINED = frozenset({Reason.PROCESS_FAILED, Reason.PROCESS_KILLED, Reason.POD_DELETED, Reason.UNKNOWN})
"""Endings that say how, not why."""
_OUTSIDE = frozenset(
    {
        Reason.NODE_LOST,
        Reason.MOUNT_LOST,
        Reason.DEVICE_FAILED,
        Reason.PREEMPTED,
        Reason.EVICTED_DISK,
        Reason.EVICTED_MEMORY,
        Reason.EVICTED_DRAIN,
        Reason.OUT_OF_MEMORY,
    }
)
"""Causes around the process that explain its end."""
_LASTING = {
    Reason.NODE_LOST: Reason.NODE_LOST,
    Reason.MOUNT_LOST: Reason.MOUNT_LOST,
}
"""Verdicts on a job that was believed to run -> the reason of the end that follows from them."""


def explained(cause: Cause, job: Job, view: View, now: datetime) -> Cause:
    """The cause of the verdict, where the pod's own end has none."""
    if cause.reason not in _UNEXPLAINED or cause.exit_code == 0:
        return cause
    others = {pod.uid for pod in view.pods if pod.uid != cause.pod and owner_of(pod.body) == "Job"}
    objects = [item.object for item in view.witnesses if (item.object.get("metadata") or {}).get("uid") not in others]
    found = diagnose(facts_from_objects(objects, of_one_job=True), now)
    if found.reason in _OUTSIDE and found.layer != Layer.PROCESS:
        return replace(cause, reason=found.reason, message=_told(found.sentence, cause.message))
    before = job.verdict or {}
    reason = _LASTING.get(Reason(before["cause"])) if before.get("cause") in set(Reason) else None
    if reason is not None:
        return replace(cause, reason=reason, message=_told(str(before.get("message") or ""), cause.message))
    return cause


def owner_of(pod: Json) -> str:
    """The kind of object that made a pod; "" for one that nobody owns."""
    owners = pod.get("metadata", {}).get("ownerReferences") or [{}]
    return str(owners[0].get("kind") or "")


def _told(why: str, how: str) -> str:
    return f"{why} ({how})" if how and how not in why else why
