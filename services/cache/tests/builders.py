"""Events and documents with sensible defaults, and a whole service without a bus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from forebay.cache.domain.decide import Cache
from forebay.cache.domain.documents import LOCAL_NODE
from forebay.cache.domain.evolve import READS, evolve
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.parts import Part, Source
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import (
    CacheEvicted,
    CacheFailed,
    CacheLost,
    CachePartial,
    CachePlanned,
    CacheReady,
    CacheReserved,
)
from forebay.contracts.v1.datasets import LeaseGranted, LeaseReleased, PinnedInput
from forebay.runtime.documents import Document
from forebay.runtime.machine import Action, Emit, NothingPending
from forebay.runtime.state import MemoryState, State
from forebay.runtime.work import T

from tests.run_here import RunHere

D = TypeVar("D", bound=Document)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
PROJECT = "arm-lab"
PLAN_ID = "a" * 32
SHA = "0" * 64


class Log:
    """Folds events in order and collects what is decided on each."""

    def __init__(self, *, node: str = LOCAL_NODE, budget: int | None = None) -> None:
        self.state = MemoryState()
        self.cache = Cache(node=node, budget_bytes=budget)
        self.now = NOON
        self.seq = 0
        self.seen: set[str] = set()
        self.said: list[EventBody] = []

    def add(
        self, body: EventBody, *, project: str = PROJECT, source: Part = Part.CACHE, at: datetime | None = None
    ) -> list[Action]:
        self.seq += 1
        self.now = stored = at or self.now + timedelta(seconds=1)
        event = Event(id=str(self.seq), source=Source(source), project=project, body=body, time=stored)
        recorded = Recorded(event=event, seq=self.seq, stored_at=stored)
        if type(body) in READS:
            evolve(self.state, recorded)
            return list(self.cache.decide(self.state, NothingPending(), recorded))
        return []

    def publish(self, emits: list[Emit]) -> list[Action]:
        """What the outbox does: a fact that was said before is not said again. What is decided on it is said too."""
        actions: list[Action] = []
        waiting = list(emits)
        while waiting:
            emit = waiting.pop(0)
            if emit.event_id not in self.seen:
                self.seen.add(emit.event_id)
                self.said.append(emit.body)
                following = self.add(emit.body, project=emit.project)
                waiting += [one for one in following if isinstance(one, Emit)]
                actions += [one for one in following if not isinstance(one, Emit)]
        return actions

    def say(self, body: EventBody, **how: Any) -> list[Action]:
        """Add an event and everything that is decided on it at once; returns work and deadlines."""
        following = self.add(body, **how)
        actions: list[Action] = [one for one in following if not isinstance(one, Emit)]
        return actions + self.publish([one for one in following if isinstance(one, Emit)])


class Context(RunHere):
    """`WorkContext` over a `Log`: emitted events are folded at once."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.progressed: list[Mapping[str, Any]] = []
        self.emitted: list[Emit] = []
        self.looks = 0

    async def emit(self, *emits: Emit) -> None:
        self.emitted += emits
        self.log.publish(list(emits))

    def progress(self, payload: Mapping[str, Any]) -> None:
        self.progressed.append(payload)

    async def get(self, kind: type[D], key: str) -> D | None:
        self.looks += 1
        return self.log.state.get(kind, key)

    async def read(self, question: Callable[[State], T]) -> T:
        return question(self.log.state)


def pinned(root: Path | str = "/pool/v1", **changes: Any) -> PinnedInput:
    values: dict[str, Any] = {
        "kind": "dataset",
        "logical": "dataset:pick@train-ready",
        "name": "pick",
        "number": 1,
        "root": str(root),
        "manifest_sha256": SHA,
    }
    return PinnedInput(**(values | changes))


def granted(job: str = "train-1", *inputs: PinnedInput) -> LeaseGranted:
    return LeaseGranted(job=job, inputs=inputs or (pinned(),))


def released(job: str = "train-1") -> LeaseReleased:
    return LeaseReleased(job=job, reason="succeeded")


def planned(job: str = "train-1", plan: str = PLAN_ID, *, aligned: int = 2000, **changes: Any) -> CachePlanned:
    made = CachePlanned(
        plan=plan,
        job=job,
        digest=plan * 2,
        name="pick",
        number=1,
        root="/pool/v1",
        files=3,
        total_bytes=1000,
        aligned_bytes=aligned,
        whole_bytes=9000,
        ranges=FileRef(uri="file:///plans/a.json", sha256=SHA, bytes=5),
    )
    return made.model_copy(update=changes)


def reserved(plan: str = PLAN_ID, *, room: int = 2000) -> CacheReserved:
    return CacheReserved(plan=plan, name="pick", number=1, reserved_bytes=room)


def ready(plan: str = PLAN_ID, *, proof: Any = "blocks") -> CacheReady:
    return CacheReady(
        plan=plan,
        name="pick",
        number=1,
        verified_bytes=1000,
        origin_bytes=2000,
        place="/pool/v1",
        adapter="juicefs",
        proof=proof,
        seconds=1.5,
    )


def failed(reason: Reason, plan: str = PLAN_ID, job: str | None = None) -> CacheFailed:
    return CacheFailed(plan=plan, name="pick", number=1, reason=reason, message="no", job=job)


def lost(plan: str = PLAN_ID) -> CacheLost:
    return CacheLost(plan=plan, name="pick", number=1, reason=Reason.CACHE_LOST, message="gone")


def evicted(plan: str = PLAN_ID) -> CacheEvicted:
    return CacheEvicted(plan=plan, name="pick", number=1, freed_bytes=5, reason="room was needed")


def partial(plan: str = PLAN_ID) -> CachePartial:
    return CachePartial(
        plan=plan,
        name="pick",
        number=1,
        verified_bytes=400,
        planned_bytes=1000,
        reason=Reason.CACHE_PARTIAL,
        message="40 %",
    )
