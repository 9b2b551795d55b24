"""Whatever happens in whatever order: never over budget, nothing leased is evicted, and nobody waits for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from forebay.cache.domain.budget import held_bytes
from forebay.cache.domain.decide import EVICT, GIVE_UP, RETRY, WARM
from forebay.cache.domain.documents import DOCUMENTS, FAILED, LOCAL_NODE, LOST, READY, RESIDENT, Plan, place
from forebay.cache.domain.evolve import evolve
from forebay.cache.domain.room import claim_of, holds
from forebay.cache.workers.warm import _has_room
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.parts import Part, Source
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheWarming, WarmCancelled, WarmRequested
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.machine import Action, Deadline, Work
from forebay.runtime.state import MemoryState
from hypothesis import given, settings
from hypothesis import strategies as st

from .builders import NOON, PROJECT, Log, evicted, failed, granted, lost, partial, pinned, planned, ready, released

BUDGET = 1000
PLANS = {letter * 32: size for letter, size in zip("abcdef", (300, 700, 450, 999, 1, 1200), strict=True)}
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 5)), max_size=60)


class Life:
    """A cache whose work ends as the draw says; open work and alarms are kept like the runtime keeps them."""

    def __init__(self) -> None:
        self.log = Log(budget=BUDGET)
        self.open: dict[tuple[str, str], Work] = {}
        self.alarms: dict[tuple[str, str, Any], Deadline] = {}
        self.jobs: dict[str, str] = {}
        self.made = 0

    def say(self, body: EventBody, **how: Any) -> None:
        self.take(self.log.say(body, **how))

    def take(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Work) and action.kind in {WARM, EVICT}:
                self.open.setdefault((action.kind, action.key), action)
            elif isinstance(action, Deadline):
                self.alarms[action.entity, action.condition, action.at] = action

    def step(self, what: int, one: int, how: int) -> None:
        plan = sorted(PLANS)[one]
        if what <= 2:
            self.made += 1
            job = f"job-{self.made}"
            self.jobs[job] = plan
            self.say(granted(job), source=Part.INGEST)
            self.say(planned(job, plan, aligned=PLANS[plan]))
        elif what == 3:
            self.made += 1
            wish = f"warm-{self.made}"
            self.say(WarmRequested(request=wish, input=pinned(), by="mia", reason="asked"))
            self.say(planned(wish, plan, aligned=PLANS[plan], wish=True))
            if how == 0:
                self.say(WarmCancelled(request=wish, by="mia"))
        elif what <= 5 and self.jobs:
            job = sorted(self.jobs)[one % len(self.jobs)]
            del self.jobs[job]
            self.say(released(job), source=Part.INGEST)
        elif what <= 8 and self.open:
            self.work(sorted(self.open)[one % len(self.open)], how)
        elif self.alarms:
            self.alarm(min(self.alarms, key=lambda key: (key[2], key[0], key[1])))

    def work(self, key: tuple[str, str], how: int) -> None:
        """What the workers do, as far as the log sees it."""
        work = self.open.pop(key)
        if work.kind == EVICT:
            for victim in work.payload["victims"]:
                known = self.plan(victim)
                if not known.wanted and known.on(LOCAL_NODE).state in {*RESIDENT, LOST}:
                    self.say(evicted(known.id))
            return
        known = self.plan(work.key)
        if not known.wanted or not _has_room(known, LOCAL_NODE):
            return
        if how == 0:
            self.say(partial(known.id))
            self.open.setdefault(key, work)  # tried again
        elif how == 1:
            self.say(failed(Reason.DATASET_CHANGED, known.id))
        else:
            self.say(
                CacheWarming(plan=known.id, name="pick", number=1, stage="warming", found_bytes=0, planned_bytes=1000)
            )
            self.say(ready(known.id))
            if how == 2:
                self.say(lost(known.id))

    def alarm(self, key: tuple[str, str, Any]) -> None:
        due = self.alarms.pop(key)
        body = DeadlinePassed(part="cache", entity=due.entity, condition=due.condition, deadline=due.at)
        self.say(body, at=max(due.at, self.log.now + timedelta(seconds=1)))

    def plan(self, key: str) -> Plan:
        found = self.log.state.get(Plan, key)
        assert found is not None
        return found

    def check(self) -> None:
        plans = self.log.state.all(Plan, limit=100)
        claims = [claim_of(self.log.state, one, LOCAL_NODE) for one in plans if holds(one, LOCAL_NODE)]
        assert held_bytes(claims) <= BUDGET
        for one in plans:
            warmth = one.on(LOCAL_NODE)
            if not one.wanted or warmth.state == READY:
                continue
            has_work = (WARM, one.key) in self.open
            has_alarm = any(entity == one.id and what in {GIVE_UP, RETRY} for entity, what, _ in self.alarms)
            makes_room = any(kind == EVICT for kind, _ in self.open)
            no_room = warmth.state == FAILED and warmth.reason == Reason.CACHE_OVER_BUDGET.value
            assert has_work or has_alarm or makes_room or no_room, (one.id[0], warmth)


@given(STEPS)
@settings(max_examples=80, deadline=None)
def test_the_promises_hold_at_every_moment(steps: list[tuple[int, int, int]]) -> None:
    """Jobs come and go, warm-ups succeed, stall, fail and are lost, room is made, alarms ring."""
    life = Life()
    for what, one, how in steps:
        life.step(what, one, how)
        life.check()
    for job in list(life.jobs):
        life.say(released(job), source=Part.INGEST)
        life.check()
    leased = [one for one in life.log.state.all(Plan, limit=100) if one.jobs]
    assert leased == []


@given(STEPS)
@settings(max_examples=30, deadline=None)
def test_a_fold_of_the_same_log_is_the_same_state(steps: list[tuple[int, int, int]]) -> None:
    """Also when every event comes twice, as long as the machine passes over repeats."""
    life = Life()
    bodies: list[tuple[EventBody, Any]] = []
    add = life.log.add

    def recording(body: EventBody, **how: Any) -> list[Action]:
        actions = add(body, **how)
        bodies.append((body, life.log.now))
        return actions

    life.log.add = recording  # type: ignore[method-assign]
    for what, one, how in steps:
        life.step(what, one, how)
    again = MemoryState()
    for number, (body, at) in enumerate(bodies):
        event = Event(id=str(number), source=Source(Part.CACHE), project=PROJECT, body=body, time=at)
        evolve(again, Recorded(event=event, seq=number + 1, stored_at=at))
    assert again.digest(DOCUMENTS) == life.log.state.digest(DOCUMENTS)
    assert again.get(Plan, place(PROJECT, "x")) is None
    assert life.log.now >= NOON
