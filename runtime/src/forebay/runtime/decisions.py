"""Decisions that are made and not yet fulfilled: events to publish, work to do, deadlines to keep.

The store holds them as documents; this is the copy in memory that the publisher,
the workshop and `decide` (as `Pending`) look at. Every method only prepares a
`Batch`; the engine writes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

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
from forebay.runtime.records import SEEN, DeadLetter, DeadlineRecord, OutboxEntry, ParkedMessage, SentEvent, WorkRecord
from forebay.runtime.stores.port import Delete, Store, WriteBatch

_Document = TypeVar("_Document", bound=Document)
LONGEST_CAUSE = 1_000
"""Characters of a cause that are kept: a letter stays small whatever a sender wrote."""


class Origin:
    """Why something was decided: the ids and the trace that its events inherit."""

    def __init__(
        self, causation: str | None, correlation: str | None, traceparent: str | None, *, seq: int | None = None
    ) -> None:
        self.causation = causation
        self.correlation = correlation
        self.traceparent = traceparent
        self.seq = seq
        """The sequence of the event that it follows from; None: of no event."""

    @classmethod
    def of(cls, cause: Recorded[EventBody] | None) -> Origin:
        """Of an event, or of a person's command when there is none."""
        if cause is None:
            return cls(None, None, telemetry.traceparent())
        event = cause.event
        trace = telemetry.traceparent() or event.traceparent
        return cls(cause.identity, event.correlation or cause.identity, trace, seq=cause.seq)

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
        self.parked: dict[int, str] = {}
        """Messages that nobody has dismissed yet: the project of each sequence."""
        self.newest_parked: ParkedMessage | None = None
        self.parked_work: dict[str, str] = {}
        """The same for pieces of work, by key."""
        self.letters = 0
        """Dead letters that are not in their stream yet; what the bus refuses for good is among them."""

    async def load(self) -> None:
        """Read what the store holds."""
        self.outbox = Outbox()
        self.outbox.restore(await self._entries())
        self.work = OpenWork(await self._open_work())
        self.deadlines = {record.key: record for record in await self._all(DeadlineRecord)}
        waiting = [record for record in await self._all(ParkedMessage) if not record.dismissed]
        self.parked = {record.seq: record.project for record in waiting}
        self.newest_parked = waiting[-1] if waiting else None
        given_up = await self.store.find(WorkRecord.kind, "state", "parked")
        records = (decode_document(WorkRecord, body) for _, body in given_up)
        self.parked_work = {record.key: record.last_error or "" for record in records}
        self.letters = await self.store.count(DeadLetter.kind)

    async def _entries(self) -> list[OutboxEntry]:
        """The outbox, without the dead letters that older versions kept in it: what they were about is parked."""
        found = await self._all(OutboxEntry)
        old = [entry for entry in found if entry.subject.startswith(f"{DEAD_ROOT}.")]
        if old:
            await self.store.write(WriteBatch(deletes=[Delete(OutboxEntry.kind, entry.key) for entry in old]))
        return [entry for entry in found if entry not in old]

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
                self._keep_deadline(batch, action, origin)
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
            decided_at=time.time(),
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
            seq=origin.seq or 0,
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

    def _keep_deadline(self, batch: Batch, deadline: Deadline, origin: Origin) -> None:
        record = DeadlineRecord(
            project=deadline.project,
            entity=deadline.entity,
            condition=deadline.condition,
            at=deadline.at,
            seq=origin.seq or 0,
        )
        self.deadlines[record.key] = record
        batch.put(record)

    def drop_deadline(self, batch: Batch, record: DeadlineRecord) -> None:
        self.deadlines.pop(record.key, None)
        batch.delete(DeadlineRecord, record.key)

    def seen_back(self, batch: Batch, identity: str, seq: int) -> None:
        """An own event is in the log: its outbox entry has done its duty."""
        entry = self.outbox.remove(identity)
        if entry is not None:
            batch.delete(OutboxEntry, entry.key)
            batch.put(SentEvent(seq=seq, entry=entry))
            batch.sent.append(seq)
        batch.stored.append(identity)

    def refuse(self, batch: Batch, entry: OutboxEntry, cause: str | None) -> None:
        """The bus will never take this event as it is (or, with None, it may be tried again)."""
        noted = msgspec.structs.replace(entry, refused=None if cause is None else cause[:LONGEST_CAUSE])
        if self.outbox.replace(noted):
            batch.put(noted)

    def park(self, batch: Batch, message: ParkedMessage) -> None:
        self.parked[message.seq] = message.project
        self.newest_parked = message
        batch.put(message)

    def unpark(self, batch: Batch, message: ParkedMessage) -> None:
        self.parked.pop(message.seq, None)
        batch.delete(ParkedMessage, message.key)

    def dismiss(self, batch: Batch, message: ParkedMessage, by: str) -> None:
        """Somebody has looked at it: it stays on record, and nobody is told of it any more."""
        self.parked.pop(message.seq, None)
        batch.put(msgspec.structs.replace(message, dismissed=by))

    def park_work(self, batch: Batch, record: WorkRecord) -> None:
        self.parked_work[record.key] = record.last_error or ""
        self.close_work(batch, msgspec.structs.replace(record, state="parked"))

    def dismiss_work(self, batch: Batch, record: WorkRecord, by: str) -> None:
        self.parked_work.pop(record.key, None)
        batch.put(
            msgspec.structs.replace(record, state="dismissed", last_error=f"{record.last_error} (dismissed by {by})")
        )

    def dead_letter(self, batch: Batch, letter: DeadLetter) -> None:
        """Tell FOREBAY_DEAD what was given up. Not through the outbox: no letter may delay an event."""
        self.letters += 1
        batch.put(letter)
