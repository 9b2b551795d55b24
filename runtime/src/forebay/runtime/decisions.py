"""Decisions that are made and not yet fulfilled: events to publish, work to do, deadlines to keep.

The store holds them as documents; this is the copy in memory that the publisher,
the workshop and `decide` (as `Pending`) look at. Every method only prepares a
`Batch`; the engine writes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from forebay.contracts.body import EventBody
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Recorded
from forebay.contracts.subjects import DEAD_ROOT
from forebay.runtime import telemetry
from forebay.runtime.batch import Batch, put_of
from forebay.runtime.documents import Document, decode_document
from forebay.runtime.machine import Action, Deadline, Emit, Service, Work, event_of
from forebay.runtime.open_work import OpenWork
from forebay.runtime.outbox import Outbox, identity_key
from forebay.runtime.records import SEEN, DeadlineRecord, OutboxEntry, ParkedMessage, WorkRecord
from forebay.runtime.stores.port import Delete, Store, WriteBatch

_Document = TypeVar("_Document", bound=Document)


class Origin:
    """Why something was decided: the ids and the trace that its events inherit."""

    def __init__(self, causation: str | None, correlation: str | None, traceparent: str | None) -> None:
        self.causation = causation
        self.correlation = correlation
        self.traceparent = traceparent

    @classmethod
    def of(cls, cause: Recorded[EventBody] | None) -> Origin:
        """Of an event, or of a person's command when there is none."""
        if cause is None:
            return cls(None, None, telemetry.traceparent())
        event = cause.event
        return cls(cause.identity, event.correlation or cause.identity, telemetry.traceparent() or event.traceparent)

    @classmethod
    def of_work(cls, record: WorkRecord) -> Origin:
        return cls(record.causation, record.correlation, record.traceparent)


class Decisions:
    """Open decisions of one service."""

    def __init__(self, service: Service, store: Store) -> None:
        self._service = service
        self.store = store
        self.outbox = Outbox()
        self.work = OpenWork()
        self.deadlines: dict[str, DeadlineRecord] = {}
        self.parked: set[int] = set()

    async def load(self) -> None:
        """Read what the store holds."""
        self.outbox = Outbox()
        self.outbox.restore(await self._all(OutboxEntry))
        self.work = OpenWork(await self._open_work())
        self.deadlines = {record.key: record for record in await self._all(DeadlineRecord)}
        self.parked = {record.seq for record in await self._all(ParkedMessage)}

    async def _open_work(self) -> list[WorkRecord]:
        """Older stores name work without its project; what is open in them gets its present name."""
        found = [
            (key, decode_document(WorkRecord, body))
            for key, body in await self.store.find(WorkRecord.kind, "state", "open")
        ]
        renamed = [(key, record) for key, record in found if key != record.key]
        if renamed:
            puts = [put_of(record) for _, record in renamed]
            deletes = [Delete(WorkRecord.kind, key) for key, _ in renamed]
            await self.store.write(WriteBatch(puts=puts, deletes=deletes))
        return [record for _, record in found]

    async def _all(self, kind: type[_Document]) -> list[_Document]:
        found: list[_Document] = []
        after = ""
        while rows := await self.store.page(kind.kind, after=after, limit=1000):
            found += [decode_document(kind, body) for _, body in rows]
            after = rows[-1][0]
        return found

    async def accept(self, batch: Batch, actions: Iterable[Action], origin: Origin) -> list[str]:
        """Put actions into the batch; returns the identities of the events among them.

        Raises a `ContractError` when an event cannot be encoded.
        """
        identities: list[str] = []
        for action in actions:
            if isinstance(action, Emit):
                identities.append(await self._emit(batch, action, origin))
            elif isinstance(action, Work):
                await self._queue(batch, action, origin)
            else:
                self._keep_deadline(batch, action)
        return identities

    async def _emit(self, batch: Batch, emit: Emit, origin: Origin) -> str:
        event = event_of(self._service, emit, causation=origin.causation, correlation=origin.correlation)
        identity = event.identity
        key = identity_key(identity)
        if identity in self.outbox or key in batch.seen or await self.store.get(SEEN, [key]):
            return identity
        message = encode(msgspec.structs.replace(event, traceparent=origin.traceparent))
        entry = OutboxEntry(
            order=self.outbox.next_order(),
            identity=identity,
            subject=message.subject,
            headers=message.headers,
            body=message.body,
        )
        self.outbox.add(entry, emit.body)
        batch.put(entry)
        return identity

    async def _queue(self, batch: Batch, work: Work, origin: Origin) -> None:
        record = WorkRecord(
            work=work.kind,
            item=work.key,
            project=work.project,
            payload=work.payload,
            not_before=work.not_before.timestamp() if work.not_before else 0.0,
            asked_at=time.time(),
            group=work.group,
            causation=origin.causation,
            correlation=origin.correlation,
            traceparent=origin.traceparent,
        )
        if record.key in self.work.by_key:
            return
        if not work.again and await self.store.get(WorkRecord.kind, [record.key]):
            return
        self.open_work(batch, record)

    def open_work(self, batch: Batch, record: WorkRecord) -> None:
        self.work.put(record)
        batch.put(record)

    def close_work(self, batch: Batch, record: WorkRecord) -> None:
        self.work.remove(record)
        batch.put(record)

    def _keep_deadline(self, batch: Batch, deadline: Deadline) -> None:
        record = DeadlineRecord(
            project=deadline.project, entity=deadline.entity, condition=deadline.condition, at=deadline.at
        )
        self.deadlines[record.key] = record
        batch.put(record)

    def drop_deadline(self, batch: Batch, record: DeadlineRecord) -> None:
        self.deadlines.pop(record.key, None)
        batch.delete(DeadlineRecord, record.key)

    def seen_back(self, batch: Batch, identity: str) -> None:
        """An own event is in the log: its outbox entry has done its duty."""
        entry = self.outbox.remove(identity)
        if entry is not None:
            batch.delete(OutboxEntry, entry.key)
        batch.stored.append(identity)

    def park(self, batch: Batch, message: ParkedMessage) -> None:
        self.parked.add(message.seq)
        batch.put(message)

    def unpark(self, batch: Batch, message: ParkedMessage) -> None:
        self.parked.discard(message.seq)
        batch.delete(ParkedMessage, message.key)

    def dead_letter(self, batch: Batch, *, name: str, letter: dict[str, Any]) -> None:
        """Tell FOREBAY_DEAD what was given up, with all that is needed to judge it."""
        order = self.outbox.next_order()
        consumer = self._service.name
        identity = f"dead:{consumer}:{name}:{order}"
        entry = OutboxEntry(
            order=order,
            identity=identity,
            subject=f"{DEAD_ROOT}.{consumer}.{letter['what']}",
            headers={"Nats-Msg-Id": identity},
            body=json.dumps({"consumer": consumer, **letter}, default=str).encode(),
            dead=True,
        )
        self.outbox.add(entry, None)
        batch.put(entry)
