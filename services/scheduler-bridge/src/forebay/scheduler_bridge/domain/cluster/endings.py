"""How an attempt on a cluster ended: node lost, preempted, evicted, deleted, out of memory, or its own doing.

An exit code alone proves nothing (137 is any SIGKILL): the pod's conditions, its
reason and the node's state are read with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.cluster.documents import ClusterObject
from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.cluster.view import View, has_run, main_container, statuses
from forebay.scheduler_bridge.domain.documents import Attempt
from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.facts import condition as condition_of
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Message
from forebay.scheduler_bridge.domain.output_lines import last_lines, with_cause

_DISRUPTIONS: dict[str, tuple[Reason, str]] = {
    "PreemptionByScheduler": (Reason.PREEMPTED, "a pod of higher priority took its place"),
    "PreemptionByKubeScheduler": (Reason.PREEMPTED, "a pod of higher priority took its place"),
    "DeletionByTaintManager": (Reason.NODE_LOST, "its node was tainted, and the pod did not tolerate that any longer"),
    "DeletionByPodGC": (Reason.NODE_LOST, "its node is gone"),
    "EvictionByEvictionAPI": (Reason.EVICTED, "it was evicted through the API, as when a node is drained"),
    "TerminationByKubelet": (Reason.EVICTED, "the kubelet ended it"),
    "WorkloadEvictedDueToPreempted": (Reason.PREEMPTED, "Kueue gave its quota to another workload"),
    "StoppedByKueue": (Reason.EVICTED, "Kueue took its quota back"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why and how an attempt is over."""

    reason: Reason
    message: str
    ran: bool
    exit_code: int | None = None
    signal: int | None = None
    at: str = ""
    """The cluster's own time of it."""
    output: tuple[str, ...] = ()
    """The last lines of the container, where its termination message has them."""
    pod: str = ""
    """Uid of the pod whose end it was."""

    def because(self, reason: Reason) -> Cause:
        return replace(self, reason=reason)


def ending_of(pod: ClusterObject, view: View, attempt: Attempt) -> Cause:
    """The cause of a pod's end, most decisive first."""
    status = pod.body.get("status") or {}
    terminated = _terminated(pod.body)
    cause = Cause(
        reason=Reason.UNKNOWN,
        message="",
        ran=has_run(pod.body),
        exit_code=terminated.get("exitCode"),
        signal=terminated.get("signal") or None,
        at=str(terminated.get("finishedAt") or ""),
    )
    if status.get("phase") == "Succeeded":
        return replace(cause, reason=Reason.COMPLETED, message="the command ended with exit code 0", exit_code=0)
    if pod.unseen and not _had_ended(pod):
        if view.outcome is not None and view.outcome[0] == "Complete":
            return replace(
                cause, reason=Reason.COMPLETED, message=f"its Job is complete; the pod is {pod.unseen}", exit_code=0
            )
        return replace(cause, message=f"the pod is {pod.unseen}")
    found = (
        _disrupted(pod.body, attempt)
        or _evicted(status)
        or _preflight(attempt)
        or _deleted(pod, view, attempt)
        or _container(pod.body, terminated)
    )
    if found is None:
        return replace(cause, message="the pod ended and left no reason")
    reason, message = found
    return replace(cause, reason=reason, message=message, output=last_lines(str(terminated.get("message") or "")))


def _had_ended(pod: ClusterObject) -> bool:
    """Its last state that was seen is its end."""
    return (pod.body.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _terminated(pod: Json) -> Json:
    """How the training container ended; without that, the first container that ended badly."""
    main = main_container(pod) or {}
    ended: Json | None = (main.get("state") or {}).get("terminated") or (main.get("lastState") or {}).get("terminated")
    if ended is not None:
        return ended
    for status in statuses(pod):
        other: Json | None = (status.get("state") or {}).get("terminated")
        if other is not None and other.get("exitCode"):
            return other
    return {}


def _disrupted(pod: Json, attempt: Attempt) -> tuple[Reason, str] | None:
    condition = condition_of(pod, "DisruptionTarget")
    if condition is None or condition.get("status") != "True":
        return None
    reason = str(condition.get("reason") or "")
    if reason == "TerminationByKubelet" and (pod.get("status") or {}).get("reason") == "Evicted":
        return None  # the pod's own status says of what the node had too little
    known, words = _DISRUPTIONS.get(reason, (Reason.EVICTED, f"it was disrupted ({reason})"))
    if attempt.evicted is not None and known == Reason.EVICTED:
        words = attempt.evicted.message
    said = str(condition.get("message") or "")
    return known, f"{words}: {said}" if said else words


def _evicted(status: Json) -> tuple[Reason, str] | None:
    """The kubelet's or the node controller's own word about the whole pod."""
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason == "Evicted":
        seen = classify(Message(where="condition", reason=reason, text=message, object="pod.status")).reason
        why = seen if seen in {Reason.EVICTED_DISK, Reason.EVICTED_MEMORY} else Reason.EVICTED
        return why, f"the kubelet evicted the pod: {message}"
    if reason in {"NodeLost", "NodeShutdown", "Terminated", "Shutdown"}:
        return Reason.NODE_LOST, message or f"the node went away ({reason})"
    if reason:
        return Reason.START_FAILED, f"{reason}: {message}"
    return None


def _preflight(attempt: Attempt) -> tuple[Reason, str] | None:
    if attempt.preflight is not None and attempt.preflight.passed is False:
        failed = [
            f"{check['name']}: {check['message']}"
            for check in attempt.preflight.checks
            if check.get("status") == "fail"
        ]
        return Reason.PREFLIGHT_FAILED, "; ".join(failed) or "a check before the start failed"
    return None


def _deleted(pod: ClusterObject, view: View, attempt: Attempt) -> tuple[Reason, str] | None:
    """Gone without an end of its own: by Kueue, by its node, or by somebody's hand."""
    deleting = pod.body.get("metadata", {}).get("deletionTimestamp")
    if not pod.gone and not deleting:
        return None
    if attempt.evicted is not None:
        return Reason.EVICTED, attempt.evicted.message
    if _node_is_lost(pod, view):
        node = (pod.body.get("spec") or {}).get("nodeName")
        return Reason.NODE_LOST, f"node {node} stopped answering, and the pod was removed from it"
    if not deleting and (main_container(pod.body) or {}).get("state", {}).get("terminated"):
        return None
    return Reason.POD_DELETED, "the pod was deleted by somebody, not by its own end"


def _node_is_lost(pod: ClusterObject, view: View) -> bool:
    node = (pod.body.get("spec") or {}).get("nodeName")
    for item in view.of("Node"):
        if item.body.get("metadata", {}).get("name") == node:
            ready = condition_of(item.body, "Ready") or {}
            return item.gone or ready.get("status") == "Unknown"
    return False


_NOT_STARTED = {
    "ContainerCannotRun": (Reason.START_FAILED, "the container could not be started"),
    "StartError": (Reason.START_FAILED, "the container could not be started"),
    "ContainerStatusUnknown": (Reason.NODE_LOST, "its node could not say how the container ended"),
}


def _container(pod: Json, ended: Json) -> tuple[Reason, str] | None:
    """What the training container itself says."""
    if not ended:
        return None
    why, code = str(ended.get("reason") or ""), ended.get("exitCode")
    said = str(ended.get("message") or "").strip()
    reason, words = _NOT_STARTED.get(why, (Reason.PROCESS_FAILED, f"exit code {code}"))
    if why == "OOMKilled":
        reason, words = Reason.OUT_OF_MEMORY, f"the container reached its memory limit{_memory_limit(pod)}"
    elif why not in _NOT_STARTED and code == 137:
        reason, words = Reason.PROCESS_KILLED, "ended by SIGKILL from outside, not by its memory limit"
    elif why not in _NOT_STARTED and isinstance(code, int) and code > 128 and not said:
        reason, words = Reason.PROCESS_KILLED, f"ended by signal {code - 128} (exit code {code})"
    if reason == Reason.START_FAILED:
        return reason, f"{words}; {said}" if said else words
    return reason, with_cause(words, said)


def _memory_limit(pod: Json) -> str:
    for container in (pod.get("spec") or {}).get("containers") or ():
        limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
        if limit:
            return f" of {limit}"
    return ""
