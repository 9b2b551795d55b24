"""The pods of one attempt as a whole: they start together, and when one of them dies all of them end. Pure.

The Job controller makes a pod again for the rank that failed and knows nothing of the
others, which wait for it or write on. So the survivors are evicted (which counts as no
failure of theirs), the attempt ends when none of its pods can write any more, and only
then is the next one admitted: until that, new pods wait in their first container.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forebay.contracts.reasons import Reason
from forebay.scheduler_bridge.domain.cluster.documents import ClusterObject
from forebay.scheduler_bridge.domain.cluster.endings import Cause, ending_of
from forebay.scheduler_bridge.domain.cluster.view import View, has_run, is_over, rank_of
from forebay.scheduler_bridge.domain.documents import Attempt, Job
from forebay.scheduler_bridge.domain.kubernetes.facts import condition as condition_of

_OURS = "EvictionByEvictionAPI"
_FREE = frozenset(
    {
        Reason.EVICTED,
        Reason.EVICTED_MEMORY,
        Reason.PREEMPTED,
        Reason.NODE_LOST,
        Reason.CANCELLED,
        Reason.PREFLIGHT_FAILED,
    }
)
"""Ends that the Job controller does not count either (checks that fail for good fail the Job at once)."""
_FOLLOWS = frozenset({Reason.PROCESS_FAILED, Reason.PROCESS_KILLED})
"""What a rank ends with when its peers are gone, too."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of one attempt, and how many there must be."""

    size: int
    members: tuple[ClusterObject, ...]

    @property
    def has_run(self) -> bool:
        """The command of every rank was started."""
        return len(self.members) >= self.size and all(has_run(pod.body) for pod in self.members)

    @property
    def is_broken(self) -> bool:
        """One of them failed, is gone or is on its way out: the others cannot go on without it."""
        return any(_has_failed(pod) or _leaves(pod) for pod in self.members)

    @property
    def is_over(self) -> bool:
        """None of them can write any more, and none is still to come."""
        all_over = all(is_over(pod) for pod in self.members)
        return bool(self.members) and all_over and (len(self.members) >= self.size or self.is_broken)

    @property
    def survivors(self) -> Iterator[ClusterObject]:
        """Those to be ended because the attempt cannot go on."""
        if self.size > 1 and self.is_broken:
            yield from (pod for pod in self.members if not is_over(pod) and not _leaves(pod))


def gang_of(job: Job, view: View, attempt: int) -> Gang:
    return Gang(size_of(job, view), tuple(view.members(attempt)))


def size_of(job: Job, view: View) -> int:
    """How many pods an attempt has: as asked for, else as the Job object says.

    Of a Job that somebody applied it is not known whether its pods need each other, so none is ended for another.
    """
    if job.applied is not None:
        return 1
    return int(job.spec.get("nodes") or 0) or view.size


def used_up(job: Job) -> bool:
    """A gang has failed as often as it may. The Job controller counts each rank for itself, so it cannot know."""
    if int(job.spec.get("nodes") or 1) <= 1:
        return False
    failed = [item for item in job.attempts if item.ending is not None and not item.ending.completed]
    counted = [item for item in failed if item.ending is not None and item.ending.reason not in _FREE]
    return len(counted) >= job.request.restart.max_attempts


def end_of(gang: Gang, view: View, attempt: Attempt) -> Cause:
    """Why the attempt ended: by the rank that failed first, not by those that fell with it."""
    failed = [pod for pod in gang.members if _has_failed(pod)]
    causes = [(pod, ending_of(pod, view, attempt)) for pod in failed or gang.members[:1]]
    pod, cause = min(causes, key=_order)
    cause = replace(cause, pod=pod.uid)
    if gang.size == 1 or not failed:
        return cause
    name = pod.body["metadata"].get("name", "")
    at = max(other.at for _, other in causes)  # it has ended when the last of them has
    return replace(cause, at=at, message=f"rank {rank_of(pod)} of {gang.size} ({name}): {cause.message}")


def _order(found: tuple[ClusterObject, Cause]) -> tuple[Any, ...]:
    """Seconds are all that the kubelet tells; within one, a cause of its own counts before one that follows from others."""
    pod, cause = found
    target = condition_of(pod.body, "DisruptionTarget") or {}
    deleted = str(pod.body["metadata"].get("deletionTimestamp") or "")
    return target.get("reason") == _OURS, cause.at or deleted or "9", cause.reason in _FOLLOWS, rank_of(pod)


def _has_failed(pod: ClusterObject) -> bool:
    return is_over(pod) and (pod.body.get("status") or {}).get("phase") != "Succeeded"


def _leaves(pod: ClusterObject) -> bool:
    return not is_over(pod) and bool(pod.body.get("metadata", {}).get("deletionTimestamp"))


def pods_to_end(job: Job, view: View) -> Sequence[ClusterObject]:
    """The survivors of every attempt that one of its ranks has ended. Kueue itself ends those whose quota it takes."""
    open_attempts = [item for item in job.attempts if item.ending is None and item.evicted is None]
    return [pod for item in open_attempts for pod in gang_of(job, view, item.number).survivors]
