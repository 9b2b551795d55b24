"""A job's objects on the cluster, looked at as a whole. Pure; made anew whenever somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject
from forebay.scheduler_bridge.domain.cluster.objects import Json
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.kubernetes.facts import Object
from forebay.scheduler_bridge.domain.kubernetes.facts import condition as condition_of
from forebay.scheduler_bridge.domain.kubernetes.facts import is_true as holds
from forebay.scheduler_bridge.domain.pod_layout import PREPARE
from forebay.scheduler_bridge.domain.verdict import Witness

_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class View:
    """Everything that was last seen of one job's objects."""

    objects: tuple[ClusterObject, ...]
    carrier: Carrier | None = None

    def of(self, kind: str, *, gone: bool | None = None) -> list[ClusterObject]:
        return [item for item in self.objects if item.type == kind and gone in {None, item.gone}]

    @cached_property
    def job(self) -> ClusterObject | None:
        """Our Job object: the one we made, whatever else carries its labels."""
        known = [item for item in self.of("Job") if self.carrier is None or item.uid == self.carrier.uid]
        return known[-1] if known else None

    @cached_property
    def workload(self) -> ClusterObject | None:
        """Kueue's Workload of the Job; the newest one that exists."""
        return newest(self.of("Workload", gone=False))

    @cached_property
    def pods(self) -> list[ClusterObject]:
        """Every pod of the job, of every rank, oldest first."""
        return sorted(self.of("Pod"), key=age)

    @cached_property
    def size(self) -> int:
        """How many pods run together: the ranks of an Indexed Job."""
        spec = self.job.body.get("spec", {}) if self.job is not None else {}
        return int(spec.get("parallelism") or 1) if spec.get("completionMode") == "Indexed" else 1

    def members(self, attempt: int) -> list[ClusterObject]:
        """The pods that an attempt is bound to, by rank."""
        bound = self.carrier.pods if self.carrier else {}
        return sorted((pod for pod in self.pods if bound.get(pod.uid) == attempt), key=rank_of)

    @property
    def unbound(self) -> list[ClusterObject]:
        """Pods that no attempt is bound to yet, oldest first."""
        bound = self.carrier.pods if self.carrier else {}
        return [pod for pod in self.pods if pod.uid not in bound]

    @property
    def claimable(self) -> list[ClusterObject]:
        """Those of them that an attempt may be bound to."""
        return [pod for pod in self.unbound if not self._superseded(pod)]

    def _superseded(self, pod: ClusterObject) -> bool:
        """It came to nothing while its gang's earlier attempt was not over, and another of its rank was made since."""
        if not is_over(pod) or has_run(pod.body):
            return False
        return any(rank_of(other) == rank_of(pod) and age(other) > age(pod) for other in self.unbound)

    @cached_property
    def admitted(self) -> bool:
        """Quota is held: Kueue says so, or without Kueue the Job is not suspended."""
        if self.workload is not None:
            return holds(self.workload.body, "Admitted") and not self.evicted
        if self.job is None or self.job.gone or _queued(self.job):
            return False
        return self.job.body.get("spec", {}).get("suspend") is False

    @cached_property
    def evicted(self) -> Object | None:
        """Kueue's Evicted condition while it holds."""
        if self.workload is None or not holds(self.workload.body, "Evicted"):
            return None
        return condition_of(self.workload.body, "Evicted")

    @cached_property
    def outcome(self) -> tuple[str, Object] | None:
        """`Complete` or `Failed` of the Job object, with its condition."""
        if self.job is None:
            return None
        for kind in ("Complete", "Failed"):
            if holds(self.job.body, kind):
                return kind, condition_of(self.job.body, kind) or {}
        return None

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """The objects that exist, and events and refusals: what a judgement is made from."""
        found = [Witness(item.event, item.body) for item in self.objects if not item.gone]
        refusal = self.carrier.refusal if self.carrier is not None and self.job is None else None
        if refusal is not None:
            status = {"kind": "Status", "status": "Failure", "reason": refusal.reason, "message": refusal.message}
            found.append(Witness(refusal.event, {**status, "code": 403}))
        return tuple(found)


def view_of(state: State, job: Job) -> View:
    return View(tuple(state.find(ClusterObject, "of", job.key)), state.get(Carrier, job.key))


def newest(items: Sequence[ClusterObject]) -> ClusterObject | None:
    return max(items, key=age, default=None)


def age(item: ClusterObject) -> tuple[str, str]:
    return str(item.body.get("metadata", {}).get("creationTimestamp", "")), item.uid


def rank_of(pod: ClusterObject) -> int:
    """0 for the only pod of a Job, the completion index of an Indexed Job's."""
    metadata = pod.body.get("metadata", {})
    index = (metadata.get("annotations") or {}).get(_INDEX) or (metadata.get("labels") or {}).get(_INDEX) or "0"
    return int(index) if str(index).isdigit() else 0


def statuses(pod: Json) -> Iterable[Json]:
    """Statuses of the pod's own containers, init containers first."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def main_container(pod: Json) -> Json | None:
    """Status of the container that trains: the first that is not a side-car."""
    found = (pod.get("status") or {}).get("containerStatuses") or []
    names = [item.get("name") for item in (pod.get("spec") or {}).get("containers") or ()]
    return next((item for name in names for item in found if item.get("name") == name), None)


def preparation(pod: Json) -> Json | None:
    """Status of our init container; None in a pod that nobody instrumented."""
    found = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return next((item for item in found if item.get("name") == PREPARE), None)


def is_instrumented(pod: Json) -> bool:
    return any(item.get("name") == PREPARE for item in (pod.get("spec") or {}).get("initContainers") or ())


def has_run(pod: Json) -> bool:
    """The training container was started, whether or not it still runs."""
    main = main_container(pod) or {}
    states = (main.get("state") or {}, main.get("lastState") or {})
    return any(
        "running" in state or (state.get("terminated") or {}).get("startedAt") is not None
        for state in states
        if _started(state)
    )


def _started(state: dict[str, Any]) -> bool:
    """A container that the kubelet could not start is `terminated` too, with a reason that says so."""
    reason = (state.get("terminated") or {}).get("reason")
    return reason not in {"ContainerCannotRun", "StartError", "ContainerStatusUnknown"}


def is_over(pod: ClusterObject) -> bool:
    """Nothing of the pod can write any more: it ended, or it is gone from the API."""
    return pod.gone or (pod.body.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _queued(job: ClusterObject) -> bool:
    """The Job names a queue, so that only its Workload says whether quota is held."""
    return bool((job.body.get("metadata", {}).get("labels") or {}).get("kueue.x-k8s.io/queue-name"))
