"""What is on record of one job and its Job object, read at one moment. Pure; asked by the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject
from forebay.scheduler_bridge.domain.documents import Job, Plan, place
from forebay.scheduler_bridge.domain.readiness import warm_nodes


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as the bridge knows it."""

    job: Job
    carrier: Carrier | None
    seen: ClusterObject | None
    """Its Job object as last seen."""
    warm_nodes: Sequence[str]
    """Nodes that the pods should rather go to; none when it is the same everywhere."""


def record_of(state: State, key: str) -> JobRecord | None:
    """None while the job is not folded."""
    job, carrier = state.get(Job, key), state.get(Carrier, key)
    if job is None:
        return None
    seen = state.get(ClusterObject, f"{key}/{carrier.uid}") if carrier is not None and carrier.uid else None
    plans = [state.get(Plan, place(job.project, plan)) for plan in job.plans]
    return JobRecord(job, carrier, seen, sorted(warm_nodes(plan for plan in plans if plan is not None) or ()))
