"""Raw facts about a cluster's objects, as they go on record. Pure; called by `workers/observe.py`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Emit
from forebay.scheduler_bridge.domain.cluster.fold import OBJECT
from forebay.scheduler_bridge.domain.cluster.objects import PENDING, Json, digest_of, label_of
from forebay.scheduler_bridge.domain.kubernetes.facts import condition as condition_of
from forebay.scheduler_bridge.domain.kubernetes.facts import is_true, uid_of

_SOURCES = {
    PENDING: "kueue",
    "Workload": "kueue",
    "ClusterQueue": "kueue",
    "LocalQueue": "kueue",
    "Job": "job-controller",
    "Pod": "kubelet",
}
_TELLING = ("Failed", "Complete", "Evicted", "Admitted", "QuotaReserved", "PodScheduled", "Ready", "Active")
"""Conditions in the order in which one of them says most about its object."""


def fact_of(project: str, job: str, trimmed: Json, *, gone: bool = False, note: str = "") -> Emit:
    """The event that an object's state is. The same state is the same event, whoever sees it again.

    `note`: what is to be said of an object that went while nobody watched.
    """
    reason, message = headline(trimmed)
    if gone:
        reason, message = "Deleted", note or "deleted from the cluster"
    data: dict[str, Any] = {OBJECT: trimmed, "digest": digest_of(trimmed)}
    if gone:
        data["gone"] = True
        if note:
            data["unseen"] = note
    body = jobs.RuntimeFactRecorded(
        job=job,
        source=_source(trimmed),
        object=label_of(trimmed),
        reason=reason,
        message=message,
        exit_code=_exit_code(trimmed),
        data=data,
    )
    version = str(trimmed["metadata"].get("resourceVersion") or "")
    return Emit(project=project, body=body, dedupe=(job, uid_of(trimmed), version, "gone" if gone else data["digest"]))


def unseen(since: datetime, until: datetime) -> str:
    """What is said of an object that went while nobody watched: we were away, or the API server forgot our place."""
    return (
        f"gone; it was deleted between {since:%Y-%m-%d %H:%M:%S} and {until:%Y-%m-%d %H:%M:%S} UTC, while nobody watched,"
        " so how it ended is not known"
    )


def said_of(
    project: str, job: str, *, source: str, about: str, reason: str, message: str, dedupe: tuple[object, ...]
) -> Emit:
    """A fact that is about no object: an answer of the API server, or a time in which nobody watched."""
    body = jobs.RuntimeFactRecorded(job=job, source=source, object=about, reason=reason, message=message)
    return Emit(project=project, body=body, dedupe=(job, about, reason, *dedupe))


def headline(item: Json) -> tuple[str, str]:
    """(reason, message) of an object for a line of history; its whole state is kept beside it."""
    if item["kind"] == "Event":
        return str(item.get("reason") or "Event"), str(item.get("message") or "")
    if item["kind"] == PENDING:
        return "Position", f"about place {item['positionInClusterQueue'] + 1} in its queue"
    status = item.get("status") or {}
    if item["kind"] == "Pod":
        found = _pod_headline(status)
        if found is not None:
            return found
    for kind in _TELLING:
        condition = condition_of(item, kind)
        if condition is not None and (condition.get("status") == "True" or condition.get("message")):
            reason = f"{kind}={condition.get('status')}"
            words = " ".join(str(condition.get(name)) for name in ("reason", "message") if condition.get(name))
            return reason, words
    return str(status.get("phase") or "Seen"), ""


def _pod_headline(status: Json) -> tuple[str, str] | None:
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message") or "")
    for name in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(name) or ():
            for state in (one.get("state") or {}).values():
                if state.get("reason") not in {None, "ContainerCreating", "PodInitializing", "Completed"}:
                    code = f" (exit code {state['exitCode']})" if "exitCode" in state else ""
                    return str(
                        state["reason"]
                    ), f"container {one.get('name')}{code}: {state.get('message') or ''}".strip(": ")
    for condition in status.get("conditions") or ():
        if condition.get("status") == "False" and condition.get("reason") in {"Unschedulable", "SchedulingGated"}:
            return str(condition["reason"]), str(condition.get("message") or "")
    return (str(status["phase"]), "") if status.get("phase") else None


def _source(item: Json) -> str:
    if item["kind"] == "Event":
        return str((item.get("source") or {}).get("component") or item.get("reportingComponent") or "events")
    return _SOURCES.get(item["kind"], "kubernetes")


def _exit_code(item: Json) -> int | None:
    for one in (item.get("status") or {}).get("containerStatuses") or ():
        code = ((one.get("state") or {}).get("terminated") or {}).get("exitCode")
        if code is not None:
            return int(code)
    return None


def has_finished(item: Json) -> bool:
    """A Job that is over: what belongs to it happened before."""
    return item["kind"] == "Job" and (is_true(item, "Complete") or is_true(item, "Failed"))


def is_over(item: Json) -> bool:
    """A Pod or Workload that has ended: what happens around it now is not its business."""
    status = item.get("status") or {}
    if item["kind"] == "Pod":
        return status.get("phase") in {"Succeeded", "Failed"}
    return item["kind"] == "Workload" and is_true(item, "Finished")


def is_troubled(item: Json) -> bool:
    """A node, queue or claim that may explain a wait; healthy ones of a large cluster are not written down per job."""
    status, spec = item.get("status") or {}, item.get("spec") or {}
    match item["kind"]:
        case "Node":
            ready = condition_of(item, "Ready") or {}
            pressed = [
                one
                for one in status.get("conditions") or ()
                if one.get("type") != "Ready" and one.get("status") == "True"
            ]
            return ready.get("status") != "True" or bool(pressed) or bool(spec.get("unschedulable"))
        case "ClusterQueue" | "LocalQueue":
            active = condition_of(item, "Active") or {}
            return active.get("status") == "False" or spec.get("stopPolicy") not in {None, "None"}
        case "PersistentVolumeClaim":
            return status.get("phase") != "Bound"
        case _:
            return True
