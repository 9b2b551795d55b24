"""Fold raw facts about a cluster into documents, and bind pods to attempts. Pure; called by `evolve.py`."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1 import jobs
from forebay.runtime.state import Fold
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject, Refusal
from forebay.scheduler_bridge.domain.cluster.view import View, rank_of, view_of
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.kubernetes.facts import moment

_SECOND = timedelta(seconds=1)
"""What the API's clocks are rounded to."""
OBJECT = "object"
"""Where a `RuntimeFactRecorded` carries the object itself, in its `data`."""


REFUSALS = frozenset({"FailedCreate", "AlreadyExists"})
"""Facts that say why there is no Job object."""


def fold_fact(fold: Fold, job: Job, recorded: Recorded[EventBody]) -> bool:
    """Keep the object that a fact is about, or the refusal to make one; False when the fact is neither."""
    body = recorded.body
    if isinstance(body, jobs.RuntimeFactRecorded) and body.reason in REFUSALS and OBJECT not in body.data:
        carrier = fold.get(Carrier, job.key) or Carrier(project=job.project, job=job.id)
        refusal = Refusal(reason=body.reason, message=body.message, event=recorded.event.id)
        fold.put(replace(carrier, refusal=refusal))
        return True
    item = body.data.get(OBJECT) if isinstance(body, jobs.RuntimeFactRecorded) else None
    if not isinstance(body, jobs.RuntimeFactRecorded) or not isinstance(item, dict):
        return False
    uid = str((item.get("metadata") or {}).get("uid") or body.object)
    seen = ClusterObject(
        project=job.project,
        job=job.id,
        uid=uid,
        body=item,
        digest=str(body.data.get("digest", "")),
        gone=bool(body.data.get("gone")),
        unseen=str(body.data.get("unseen") or ""),
        at=recorded.event.time,
        event=recorded.event.id,
    )
    before = fold.get(ClusterObject, seen.key)
    if before is not None and before.gone:
        return True  # what was deleted does not come back under the same uid
    fold.put(seen)
    if seen.type in {"Job", "Workload"}:
        _carried_by(fold, job, seen)
    return True


def _carried_by(fold: Fold, job: Job, seen: ClusterObject) -> None:
    carrier = fold.get(Carrier, job.key) or Carrier(project=job.project, job=job.id)
    name = str((seen.body.get("metadata") or {}).get("name"))
    if seen.type == "Job" and carrier.uid is None:
        fold.put(replace(carrier, uid=seen.uid))
    elif seen.type == "Workload" and (carrier.workload == name) is seen.gone:
        fold.put(replace(carrier, workload=None if seen.gone else name))


def bind(fold: Fold, job: Job) -> None:
    """Give each attempt that is not over the oldest pod of each rank that has no attempt."""
    view = view_of(fold, job)
    pairs = _pairs(job, view)
    if not pairs:
        return
    carrier = view.carrier or Carrier(project=job.project, job=job.id)
    fold.put(replace(carrier, pods={**carrier.pods, **pairs}))


def _pairs(job: Job, view: View) -> dict[str, int]:
    pairs: dict[str, int] = {}
    pods = view.claimable
    for attempt in job.attempts:
        if attempt.admitted_at is None or attempt.ending is not None:
            continue
        # A pod from before this quota was given belongs to an attempt that is over.
        since = attempt.admitted_at - _SECOND
        pods = [pod for pod in pods if (made := _made(pod)) is None or made >= since]
        ranks = {rank_of(pod) for pod in view.members(attempt.number)}
        for pod in tuple(pods):
            if rank_of(pod) not in ranks:
                ranks.add(rank_of(pod))
                pairs[pod.uid] = attempt.number
                pods.remove(pod)
    return pairs


def _made(pod: ClusterObject) -> datetime | None:
    return moment(pod.body.get("metadata", {}).get("creationTimestamp"))
