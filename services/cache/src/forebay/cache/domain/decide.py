"""What follows from an event: plans to make, room to reserve or to make, plans to warm, to look at, to let go.

Equal plans join one warm-up because a work item's identity is its plan; nothing here
touches files. Every state that waits for something has a deadline behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from forebay.cache.domain import wishes
from forebay.cache.domain.documents import (
    CLAIMING,
    FAILED,
    LOCAL_NODE,
    LOST,
    PARTIAL,
    READY,
    RESERVED,
    RESIDENT,
    UNDER_WAY,
    Histogram,
    Job,
    Plan,
    Policy,
    Warmth,
    Wish,
    place,
    series,
    version_place,
)
from forebay.cache.domain.expiry import expires_at, ttl_days
from forebay.cache.domain.room import Room, facts_of
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import cache as said
from forebay.contracts.v1 import datasets
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.machine import Action, Deadline, Emit, Pending, Work
from forebay.runtime.state import State

PLAN, WARM, CHECK, EVICT = "plan", "warm", "check", "evict"
RECHECK, EXPIRE, GIVE_UP, RETRY = "recheck", "expire", "give-up", "retry"
RECHECK_EVERY = timedelta(minutes=5)
"""How long a leased plan may be cold before anybody notices."""
GIVE_UP_AFTER = timedelta(minutes=30)
"""How long a warm-up may go on without getting any further."""
RETRY_AFTER = timedelta(minutes=10)
"""When a failed plan that is still wanted is tried again; longer after each failure, an hour at most."""
ASK_AGAIN_AFTER = timedelta(minutes=1)
"""When room is asked for again that others were to make: somebody may have come to want them meanwhile."""
_PREVIOUS_TRIED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Decisions of the cache of one node. What is not in the log: its name, and the budget it was given."""

    node: str = LOCAL_NODE
    budget_bytes: int | None = None

    def decide(self, state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
        """Decide on one event; `state` contains it already."""
        act = _ON.get(type(recorded.body))
        return () if act is None else act(self, state, pending, recorded)

    # who wants what

    def _granted(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: datasets.LeaseGranted = recorded.body
        for index, item in enumerate(body.inputs):
            payload = {"job": body.job, "index": index, "input": item.model_dump(mode="json", exclude_none=True)}
            payload |= _previous(state, recorded.project, item)
            yield Work(
                kind=PLAN, key=f"{recorded.project}/{body.job}/{index}", project=recorded.project, payload=payload
            )

    def _wished(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: said.WarmRequested = recorded.body
        shown = body.input.model_dump(mode="json", exclude_none=True)
        payload = {"job": body.request, "index": 0, "input": shown, "wish": True}
        payload |= _previous(state, recorded.project, body.input)
        yield Work(kind=PLAN, key=f"{recorded.project}/{body.request}/0", project=recorded.project, payload=payload)

    def _data_moved(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        yield from wishes.of_policy(state, recorded)

    def _released(self, state: State, pending: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: datasets.LeaseReleased = recorded.body
        job = state.get(Job, place(recorded.project, body.job))
        for plan_id in job.plans if job is not None else ():
            yield from self._let_go(state, recorded, plan_id, f"job {body.job} has ended")
        yield from self._claim_waiting(state, pending, recorded.stored_at)

    def _wish_ended(self, state: State, pending: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: said.WarmCancelled = recorded.body
        wish = state.get(Wish, place(recorded.project, body.request))
        if wish is not None and wish.plan is not None:
            yield from self._let_go(state, recorded, wish.plan, f"{body.by} took the request back")
        yield from self._claim_waiting(state, pending, recorded.stored_at)

    def _let_go(self, state: State, recorded: Recorded[Any], plan_id: str, why: str) -> Iterator[Action]:
        """Nobody wants it any more: a warm-up stops, warm bytes stay until they expire or room is needed."""
        plan = state.get(Plan, place(recorded.project, plan_id))
        if plan is None or plan.wanted:
            return
        warmth = plan.on(self.node)
        if warmth.state in UNDER_WAY and warmth.reason != Reason.CANCELLED.value:
            body = said.CachePartial(
                plan=plan.id,
                name=plan.name,
                number=plan.number,
                verified_bytes=warmth.verified_bytes,
                planned_bytes=plan.total_bytes,
                reason=Reason.CANCELLED,
                message=f"warming was stopped, since nobody waits for it: {why}",
                node=self._said(),
            )
            yield Emit(project=plan.project, body=body, dedupe=(*self._fact(plan), "cancelled"))
        yield self._expiry(state, plan)

    def _removed(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        """A version is cleaned up: what is cached of it only takes room."""
        body: datasets.DatasetVersionRemoved = recorded.body
        key = version_place(recorded.project, "dataset", body.dataset, body.number)
        gone = [plan for plan in state.find(Plan, "version", key) if self._resident(plan) and not plan.jobs]
        if gone:
            yield self._evict(state, gone, f"{body.dataset}@v{body.number} was cleaned up", f"{key}/removed")

    # room

    def _planned(self, state: State, pending: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: said.CachePlanned = recorded.body
        plan = state.get(Plan, place(recorded.project, body.plan))
        if plan is None:
            return
        warmth = plan.on(self.node)
        if plan.wanted and warmth.state == READY and warmth.proof == "blocks":
            yield _recheck(plan, recorded.stored_at)
        elif plan.wanted:
            yield from self._bring_in(state, pending, plan, recorded.stored_at)

    def _bring_in(self, state: State, pending: Pending, plan: Plan, now: datetime) -> Iterator[Action]:
        """What brings a wanted plan nearer to being ready: nothing, work, or a claim for room."""
        warmth = plan.on(self.node)
        if warmth.state == READY:
            return
        if _has_room(warmth):
            yield from _warm(plan, now)
            return
        yield from self._claim(state, pending, [plan], now)

    def _claim_waiting(self, state: State, pending: Pending, now: datetime) -> Iterator[Action]:
        """Room was made, or there is more of it: whoever waits for room asks again, the oldest first."""
        waiting = [plan for plan in state.find(Plan, "live", "live") if plan.wanted and self._waits_for_room(plan)]
        waiting.sort(key=lambda plan: (plan.since, plan.key))
        yield from self._claim(state, pending, waiting, now, again=True)

    def _waits_for_room(self, plan: Plan) -> bool:
        warmth = plan.on(self.node)
        if warmth.state == FAILED:
            return warmth.reason == Reason.CACHE_OVER_BUDGET.value
        return not _has_room(warmth)

    def _claim(
        self, state: State, pending: Pending, plans: list[Plan], now: datetime, *, again: bool = False
    ) -> Iterator[Action]:
        """Reserve room for plans, one after the other, or make it, or refuse with numbers.

        With `again`, a refusal that is on record is not said once more.
        """
        room = Room(state, pending, node=self.node, budget_bytes=self.budget_bytes)
        for plan in plans:
            answer = room.ask(plan)
            if answer.reserved is not None:
                body = said.CacheReserved(
                    plan=plan.id,
                    name=plan.name,
                    number=plan.number,
                    node=self._said(),
                    reserved_bytes=answer.reserved.reserved_bytes,
                    available_bytes=answer.reserved.available_bytes,
                )
                yield Emit(project=plan.project, body=body, dedupe=self._fact(plan))
            elif answer.victims:
                why = f"room was needed for {plan.name}@v{plan.number}"
                yield self._evict(state, answer.victims, why, plan.key)
                yield Deadline(project=plan.project, entity=plan.id, condition=RETRY, at=now + ASK_AGAIN_AFTER)
            elif answer.refused is not None and not (again and plan.on(self.node).state == FAILED):
                yield self._failed(plan, Reason.CACHE_OVER_BUDGET, answer.refused.message, **facts_of(answer.refused))

    def _reserved(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        plan = state.get(Plan, place(recorded.project, recorded.body.plan))
        if plan is not None and plan.wanted:
            yield from _warm(plan, recorded.stored_at)
        elif plan is not None:
            yield from self._let_go(state, recorded, plan.id, "whoever asked for it has gone")

    def _more_room(self, state: State, pending: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        yield from self._claim_waiting(state, pending, recorded.stored_at)

    def _evict(self, state: State, plans: Iterable[Plan], why: str, key: str) -> Work:
        victims = {plan.key: plan.project for plan in plans}
        return evict_work(state, self.node, list(victims), why, key)

    # how it goes

    def _ready(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: said.CacheReady = recorded.body
        plan = state.get(Plan, place(recorded.project, body.plan))
        if plan is None:
            return
        if plan.on(self.node).proof == "blocks":
            yield _recheck(plan, recorded.stored_at)
        if not plan.wanted:
            yield self._expiry(state, plan)

    def _partial(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: said.CachePartial = recorded.body
        plan = state.get(Plan, place(recorded.project, body.plan))
        if plan is None:
            return
        if body.reason != Reason.CANCELLED:
            at = recorded.stored_at + GIVE_UP_AFTER
            yield Deadline(project=plan.project, entity=plan.id, condition=GIVE_UP, at=at)
        elif plan.wanted:  # somebody came between the decision to stop and its record
            yield from self._claim(state, _, [plan], recorded.stored_at)

    def _cold(self, state: State, pending: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        """Lost, evicted or expired: whoever wants it gets it back, and others get the room."""
        plan = state.get(Plan, place(recorded.project, recorded.body.plan))
        if plan is not None and plan.wanted:
            yield from self._bring_in(state, pending, plan, recorded.stored_at)
        if isinstance(recorded.body, said.CacheEvicted):
            yield from self._claim_waiting(state, pending, recorded.stored_at)

    def _gave_up(self, state: State, _: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: said.CacheFailed = recorded.body
        plan = state.get(Plan, place(recorded.project, body.plan))
        if plan is None or body.job is not None or not plan.wanted:
            return
        at = recorded.stored_at + RETRY_AFTER * min(plan.on(self.node).generation, 6)
        yield Deadline(project=plan.project, entity=plan.id, condition=RETRY, at=at)

    def _passed(self, state: State, pending: Pending, recorded: Recorded[Any]) -> Iterator[Action]:
        body: DeadlinePassed = recorded.body
        if body.part != Part.CACHE.value:
            return
        plan = state.get(Plan, place(recorded.project, body.entity))
        if plan is None:
            return
        warmth = plan.on(self.node)
        if body.condition == RECHECK and warmth.state == READY and warmth.proof == "blocks" and plan.jobs:
            yield Work(kind=CHECK, key=plan.key, project=plan.project, again=True)
            yield _recheck(plan, recorded.stored_at)
        elif body.condition == EXPIRE and self._resident(plan) and not plan.wanted:
            yield from self._maybe_expired(state, plan, recorded.stored_at)
        elif body.condition == GIVE_UP and warmth.state == PARTIAL and plan.wanted:
            if warmth.since <= body.deadline - GIVE_UP_AFTER:
                minutes = int(GIVE_UP_AFTER.total_seconds() // 60)
                message = f"given up after {minutes} minutes without getting any further: {warmth.message}"
                yield self._failed(plan, Reason(warmth.reason or Reason.CACHE_PARTIAL), message)
        elif body.condition == RETRY and plan.wanted and warmth.state in {RESERVED, LOST}:
            yield from _warm(plan, recorded.stored_at)
        elif body.condition == RETRY and plan.wanted and not _has_room(warmth):
            yield from self._claim(state, pending, [plan], recorded.stored_at)

    def _maybe_expired(self, state: State, plan: Plan, now: datetime) -> Iterator[Action]:
        days = _ttl(state, plan.project)
        if plan.on(self.node).state == "expired":
            return
        if expires_at(plan.used_at, days) > now:
            yield self._expiry(state, plan)
            return
        body = said.CacheExpired(
            plan=plan.id,
            name=plan.name,
            number=plan.number,
            node=self._said(),
            last_used=plan.used_at,
            ttl_days=days,
        )
        yield Emit(project=plan.project, body=body, dedupe=self._fact(plan))

    def _expiry(self, state: State, plan: Plan) -> Deadline:
        at = expires_at(plan.used_at, _ttl(state, plan.project))
        return Deadline(project=plan.project, entity=plan.id, condition=EXPIRE, at=at)

    def _failed(self, plan: Plan, reason: Reason, message: str, **numbers: int) -> Emit:
        body = said.CacheFailed(
            plan=plan.id,
            name=plan.name,
            number=plan.number,
            reason=reason,
            message=message,
            node=self._said(),
            **numbers,
        )
        return Emit(project=plan.project, body=body, dedupe=self._fact(plan))

    def _resident(self, plan: Plan) -> bool:
        return plan.on(self.node).state in RESIDENT

    def _fact(self, plan: Plan) -> tuple[object, ...]:
        return fact(plan, self.node)

    def _said(self) -> str | None:
        return said_node(self.node)


_ON: dict[type[EventBody], Callable[[Cache, State, Pending, Recorded[Any]], Iterable[Action]]] = {
    datasets.LeaseGranted: Cache._granted,  # noqa: SLF001 its own table
    datasets.LeaseReleased: Cache._released,  # noqa: SLF001
    datasets.DatasetVersionCommitted: Cache._data_moved,  # noqa: SLF001
    datasets.DatasetTagged: Cache._data_moved,  # noqa: SLF001
    datasets.DatasetVersionRemoved: Cache._removed,  # noqa: SLF001
    said.WarmRequested: Cache._wished,  # noqa: SLF001
    said.WarmCancelled: Cache._wish_ended,  # noqa: SLF001
    said.CachePlanned: Cache._planned,  # noqa: SLF001
    said.CacheReserved: Cache._reserved,  # noqa: SLF001
    said.CacheReady: Cache._ready,  # noqa: SLF001
    said.CachePartial: Cache._partial,  # noqa: SLF001
    said.CacheLost: Cache._cold,  # noqa: SLF001
    said.CacheEvicted: Cache._cold,  # noqa: SLF001
    said.CacheExpired: Cache._cold,  # noqa: SLF001
    said.CacheFailed: Cache._gave_up,  # noqa: SLF001
    said.CachePoolSeen: Cache._more_room,  # noqa: SLF001
    said.CachePolicySet: Cache._more_room,  # noqa: SLF001
    DeadlinePassed: Cache._passed,  # noqa: SLF001
}


def said_node(node: str) -> str | None:
    """How events name a node: the only one of a machine is not named."""
    return None if node == LOCAL_NODE else node


def fact(plan: Plan, node: str) -> tuple[object, ...]:
    """The identity of what can happen once per generation of a plan's warmth on a node."""
    named = said_node(node)
    generation = plan.on(node).generation
    return (plan.id, generation) if named is None else (plan.id, generation, named)


def evict_work(state: State, node: str, victims: list[str], why: str, key: str) -> Work:
    """Work that frees the blocks of plans, save those that other plans need."""
    keep = [
        plan.key
        for plan in state.find(Plan, "live", "live")
        if plan.key not in victims and (plan.wanted or plan.on(node).state in RESIDENT)
    ]
    project = victims[0].partition("/")[0]
    return Work(
        kind=EVICT, key=key, project=project, payload={"victims": victims, "keep": keep, "why": why}, again=True
    )


def _has_room(warmth: Warmth) -> bool:
    """Whether room is reserved for a plan that is wanted."""
    return warmth.state in CLAIMING and warmth.reason != Reason.CANCELLED.value


def _recheck(plan: Plan, now: datetime) -> Deadline:
    """The next look, on the hour and every five minutes after it: however many jobs join, there is one alarm."""
    ahead = now + RECHECK_EVERY / 2
    past = timedelta(minutes=ahead.minute, seconds=ahead.second, microseconds=ahead.microsecond) % RECHECK_EVERY
    return Deadline(project=plan.project, entity=plan.id, condition=RECHECK, at=ahead - past + RECHECK_EVERY)


def _warm(plan: Plan, now: datetime) -> Iterator[Action]:
    """Warm it, and look in a minute whether that has begun: the work may just have been ending when it was asked for."""
    yield Work(kind=WARM, key=plan.key, project=plan.project, again=True)
    yield Deadline(project=plan.project, entity=plan.id, condition=RETRY, at=now + ASK_AGAIN_AFTER)


def _ttl(state: State, project: str) -> int:
    policy, histogram = state.get(Policy, project), state.get(Histogram, project)
    return ttl_days(histogram.ages if histogram is not None else {}, policy.ttl_days if policy is not None else None)


def _previous(state: State, project: str, item: datasets.PinnedInput) -> dict[str, Any]:
    """Plans that may share bytes with a new one: of older versions with the same columns, and of the same version."""
    columns = item.columns if item.kind == "dataset" else ()
    same = state.find(Plan, "series", series(project, item.kind, item.name, columns))
    older = [plan for plan in same if plan.number < item.number and plan.live is not None]
    older.sort(key=lambda plan: (-plan.number, plan.id))
    beside = state.find(Plan, "version", version_place(project, item.kind, item.name, item.number))
    there = [plan for plan in beside if plan.live is not None]
    there.sort(key=lambda plan: (-plan.total_bytes, plan.id))
    tried = [plan.id for plan in (*older[:_PREVIOUS_TRIED], *there[:_PREVIOUS_TRIED])]
    return {"previous": tried} if tried else {}
