"""A log in memory with ingest's fold and decisions behind it, as the runtime would run them.

Events get sequence numbers and pass once per identity; emitted events are appended
and folded in turn. Work is kept until a test runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from forebay.contracts.body import EventBody
from forebay.contracts.codec import decode_recorded, encode
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.datasets import DatasetVersionChecked
from forebay.ingest.domain.decide import LEASE, decide
from forebay.ingest.domain.documents import DOCUMENTS, Lease, place
from forebay.ingest.domain.evolve import READS, evolve
from forebay.runtime.documents import D
from forebay.runtime.machine import Action, Emit, NothingPending, Outcome, Request, Work
from forebay.runtime.outbox import Outbox
from forebay.runtime.records import OutboxEntry
from forebay.runtime.state import MemoryState, State
from forebay.runtime.work import T, Worker, WorkItem

from tests.run_here import RunHere

PROJECT = "arm-lab"
START = datetime(2026, 1, 1, tzinfo=UTC)
B = TypeVar("B", bound=EventBody)


@dataclass
class SimulatedLog:
    """Publish, and look at what ingest made of it."""

    state: MemoryState = field(default_factory=MemoryState)
    records: list[Recorded[EventBody]] = field(default_factory=list)
    work: dict[tuple[str, str], Work] = field(default_factory=dict)
    files_whole: bool = True
    """Versions are found whole as soon as a job asks for them; False: a test runs the worker that looks."""
    _seen: set[str] = field(default_factory=set)

    def publish(self, body: EventBody, identity: str, part: Part = Part.COLLECTOR) -> None:
        """Append one event and everything that follows from it."""
        source = Source(part, PROJECT if part in {Part.COLLECTOR, Part.AGENT} else None)
        self._append(Event(id=identity, source=source, project=PROJECT, body=body, time=START))

    def act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Emit):
                event = Event(
                    id=action.event_id, source=Source(Part.INGEST), project=action.project, body=action.body, time=START
                )
                self._append(event)
            elif isinstance(action, Work):
                self.work.setdefault((action.kind, action.key), action)
                if action.kind == LEASE and self.files_whole:
                    self.look(action.key)

    def look(self, job: str) -> None:
        """What the work `lease` finds when nothing is wrong."""
        lease = self.state.get(Lease, place(PROJECT, job))
        for use in () if lease is None else lease.uses:
            _, dataset, number = use.split("/")
            body = DatasetVersionChecked(dataset=dataset, number=int(number), check=job, whole=True)
            self.publish(body, f"checked-{job}-{use}", Part.INGEST)

    def opened(self, dataset: str, number: int) -> str:
        """The id of a check that a person asked for, which found the version whole."""
        id_ = f"check-{dataset}-{number}-{len(self.records)}"
        body = DatasetVersionChecked(dataset=dataset, number=number, check=id_, whole=True)
        self.publish(body, id_, Part.INGEST)
        return id_

    def command(self, outcome: Outcome) -> dict[str, Any]:
        self.act(outcome.actions)
        return outcome.result

    async def run(self, workers: Mapping[str, Worker]) -> None:
        """Do all work, and the work that follows, once."""
        done: set[tuple[str, str]] = set()
        while open_ := [work for identity, work in self.work.items() if identity not in done]:
            for work in open_:
                done.add((work.kind, work.key))
                self.act(await workers[work.kind](item_of(work), Context(self.state)))

    def of(self, kind: type[B]) -> list[B]:
        return [record.body for record in self.records if isinstance(record.body, kind)]

    def digest(self) -> str:
        return self.state.digest(DOCUMENTS)

    def _append(self, event: Event[EventBody]) -> None:
        if event.identity in self._seen:
            return
        self._seen.add(event.identity)
        wire, seq = encode(event), len(self.records) + 1
        stored = START + timedelta(seconds=seq)
        recorded = decode_recorded(wire.subject, wire.headers, wire.body, seq=seq, stored_at=stored)
        self.records.append(recorded)
        if type(recorded.body) in READS:
            evolve(self.state, recorded)
            self.act(list(decide(self.state, NothingPending(), recorded)))


def item_of(work: Work) -> WorkItem:
    return WorkItem(kind=work.kind, key=work.key, project=work.project, payload=work.payload, tries=0)


def pending_of(*bodies: EventBody) -> Outbox:
    """Events that are decided and not in the log yet."""
    outbox = Outbox()
    for order, body in enumerate(bodies, start=1):
        event = Event(id=f"pending-{order}", source=Source(Part.INGEST), project=PROJECT, body=body, time=START)
        wire = encode(event)
        entry = OutboxEntry(
            order=order,
            identity=event.identity,
            subject=wire.subject,
            headers=wire.headers,
            body=wire.body,
            decided_at=0.0,
        )
        outbox.add(entry, body)
    return outbox


def request(args: dict[str, Any], id_: str = "request-1") -> Request:
    return Request(id=id_, project=PROJECT, by="kim", args=args, now=START)


@dataclass
class Context(RunHere):
    """What a worker gets: the fold as it is, and nobody who watches."""

    state: MemoryState
    told: list[Mapping[str, Any]] = field(default_factory=list)

    async def emit(self, *emits: Emit) -> None:
        raise AssertionError(f"ingest's workers return their events, they do not emit {emits}")

    def progress(self, payload: Mapping[str, Any]) -> None:
        self.told.append(payload)

    async def get(self, kind: type[D], key: str) -> D | None:
        return self.state.get(kind, key)

    async def read(self, question: Callable[[State], T]) -> T:
        return question(self.state)
