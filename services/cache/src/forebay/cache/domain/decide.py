"""What follows from an event: plans to make, plans to warm, plans to look at again.

Equal plans join one warm-up because a work item's identity is its plan; nothing here
counts bytes or touches files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from forebay.cache.domain.documents import FAILED, HOLDING_ROOM, READY, Plan, place
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheEvicted, CacheLost, CachePlanned, CacheReady
from forebay.contracts.v1.datasets import LeaseGranted, LeaseReleased
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.machine import Action, Deadline, Pending, Work
from forebay.runtime.state import State

PLAN, WARM, CHECK = "plan", "warm", "check"
RECHECK = "recheck"
RECHECK_EVERY = timedelta(minutes=5)
"""How long a leased plan may be cold before anybody notices."""


def decide(state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:  # noqa: ARG001 the machine's signature
    """Decide on one event; `state` contains it already."""
    project = recorded.project
    match recorded.body:
        case LeaseGranted() as body:
            for index, item in enumerate(body.inputs):
                payload = {"job": body.job, "index": index, "input": item.model_dump(mode="json", exclude_none=True)}
                yield Work(kind=PLAN, key=f"{project}/{body.job}/{index}", project=project, payload=payload)
        case CachePlanned() as body:
            plan = state.get(Plan, place(project, body.plan))
            if plan is not None and plan.jobs and plan.state != READY:
                yield _warm(state, plan)
        case CacheReady(proof="blocks") as body:
            yield Deadline(project=project, entity=body.plan, condition=RECHECK, at=recorded.stored_at + RECHECK_EVERY)
        case CacheLost() | CacheEvicted() as body:
            plan = state.get(Plan, place(project, body.plan))
            if plan is not None and plan.jobs:
                yield _warm(state, plan)
        case LeaseReleased():
            yield from _room_was_made(state)
        case DeadlinePassed(part=Part.CACHE.value, condition="recheck") as body:
            yield from _look_again(state, recorded, body)


def _warm(state: State, plan: Plan) -> Work:
    reserved = sum(
        other.aligned_bytes
        for held in HOLDING_ROOM
        for other in state.find(Plan, "state", held)
        if other.jobs and other.key != plan.key
    )
    return Work(kind=WARM, key=plan.key, project=plan.project, payload={"reserved_bytes": reserved}, again=True)


def _room_was_made(state: State) -> Iterator[Action]:
    """A job has ended: plans that were refused for want of room get another chance."""
    for plan in state.find(Plan, "state", FAILED):
        if plan.jobs and plan.reason == Reason.CACHE_OVER_BUDGET.value:
            yield _warm(state, plan)


def _look_again(state: State, recorded: Recorded[EventBody], body: DeadlinePassed) -> Iterator[Action]:
    plan = state.get(Plan, place(recorded.project, body.entity))
    if plan is None or plan.state != READY or not plan.jobs:
        return
    yield Work(kind=CHECK, key=plan.key, project=plan.project, again=True)
    yield Deadline(project=plan.project, entity=plan.id, condition=RECHECK, at=recorded.stored_at + RECHECK_EVERY)
