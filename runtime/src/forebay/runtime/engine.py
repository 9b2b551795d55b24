"""The engine: folds batches of the log into a store and keeps what was decided.

One write per batch holds documents, outbox, work, deadlines, parked messages and,
last, the position. Everything here may be cut off by a kill at any line: what was
not written is read again, what was written is passed over.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from opentelemetry.trace import SpanKind

from forebay.contracts.body import EventBody
from forebay.contracts.catalogue import BY_NAME, event_type, events_of
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Recorded
from forebay.contracts.errors import ContractError
from forebay.contracts.subjects import DEAD_ROOT
from forebay.runtime import telemetry
from forebay.runtime.documents import Digest, Document, decode_document, digested, encode_document, index_values
from forebay.runtime.errors import Refused
from forebay.runtime.log import LogMessage
from forebay.runtime.machine import Action, Deadline, Emit, Outcome, Request, Service, Work, event_of
from forebay.runtime.outbox import Outbox, identity_key
from forebay.runtime.records import (
    READING,
    SEEN,
    CommandRecord,
    DeadlineRecord,
    OutboxEntry,
    ParkedMessage,
    Reading,
    WorkRecord,
)
from forebay.runtime.state import NotLoaded, WorkingSet
from forebay.runtime.stores.port import Delete, Put, Store, WriteBatch

_log = logging.getLogger(__name__)
T = TypeVar("T")
MAX_WORK_FAILURES = 5
FATAL_READS = 6
"""How many processes may die while folding one message before it is parked as poison."""
SINGLE_AFTER = 3
"""From this many deaths on, messages are folded one by one, so that the deadly one stands alone."""


class _Batch:
    """What one write will hold besides the documents of the service."""

    def __init__(self) -> None:
        self.puts: dict[tuple[str, str], Put] = {}
        self.deletes: set[tuple[str, str]] = set()
        self.seen: dict[str, str] = {}
        self.stored: list[str] = []

    def put(self, document: Document) -> None:
        self.puts[(document.kind, document.key)] = _put(document)
        self.deletes.discard((document.kind, document.key))

    def delete(self, kind: type[Document], key: str) -> None:
        self.puts.pop((kind.kind, key), None)
        self.deletes.add((kind.kind, key))


def _put(document: Document) -> Put:
    index = tuple(index_values(document)) if document.indexed else ()
    return Put(document.kind, document.key, encode_document(document), index, bool(document.indexed))


class Engine:
    """One service over one store. Every method is safe to call concurrently; one runs at a time."""

    def __init__(self, service: Service, store: Store, *, decides: bool = True) -> None:
        self.service = service
        self.store = store
        self.position = 0
        self.lag = 0
        self.outbox = Outbox()
        self.work: dict[str, WorkRecord] = {}
        self.deadlines: dict[str, DeadlineRecord] = {}
        self.parked: set[int] = set()
        self.to_publish = asyncio.Event()
        self.to_work = asyncio.Event()
        self._decides = decides
        self._set = WorkingSet(store)
        self._lock = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        own = {spec.body for spec in events_of(service.part)} if decides else set()
        self._reads = {event_type(body) for body in service.reads | own}
        self._places = {(BY_NAME[body.event].entity, BY_NAME[body.event].token) for body in service.reads | own}

    # ------------------------------------------------------------------ start

    async def open(self) -> None:
        """Read position and open obligations from the store."""
        self.position = (await self.store.head()).position
        self.outbox.restore(await self._load(OutboxEntry))
        self.work = {
            record.key: record
            for _, body in await self.store.find(WorkRecord.kind, "state", "open")
            for record in [decode_document(WorkRecord, body)]
        }
        self.deadlines = {record.key: record for record in await self._load(DeadlineRecord)}
        self.parked = {record.seq for record in await self._load(ParkedMessage)}
        self._wake()

    def _wake(self) -> None:
        self.to_publish.set()
        self.to_work.set()

    async def _load(self, kind: type[T_Document]) -> list[T_Document]:
        found: list[T_Document] = []
        after = ""
        while rows := await self.store.page(kind.kind, after=after, limit=1000):
            found += [decode_document(kind, body) for _, body in rows]
            after = rows[-1][0]
        return found

    # ------------------------------------------------------------------- fold

    async def fold(self, messages: Sequence[LogMessage]) -> None:
        """Fold messages in order of sequence, decide, and write once.

        Messages at or below the position are passed over. Raises what the store
        raises; nothing of the batch has happened then.
        """
        async with self._lock:
            fresh = [message for message in messages if message.seq > self.position]
            if fresh:
                await self._fold(fresh)

    async def reread(self, messages: Sequence[LogMessage]) -> None:
        """Fold messages that another process may have died on; poison is parked in the end."""
        fresh = [message for message in messages if message.seq > self.position]
        if not fresh:
            return
        body = (await self.store.get(READING, ["now"])).get("now")
        before = msgspec.json.decode(body, type=Reading) if body else None
        tries = before.tries + 1 if before is not None and before.seq == fresh[0].seq else 1
        if tries > FATAL_READS:
            async with self._lock:
                await self._park_unfolded(fresh[0], f"{FATAL_READS} processes died while folding it")
            await self.reread(fresh[1:])
            return
        note = Put(READING, "now", msgspec.json.encode(Reading(seq=fresh[0].seq, tries=tries)))
        await self.store.write(WriteBatch(puts=[note]))
        if tries > SINGLE_AFTER:
            await self.fold(fresh[:1])
            await self.reread(fresh[1:])
        else:
            await self.fold(fresh)

    async def retry_parked(self, message: LogMessage) -> bool:
        """Fold one parked message again; True when it is no longer parked."""
        async with self._lock:
            if message.seq not in self.parked:
                raise Refused("not-parked", f"message {message.seq} is not parked in {self.service.name}")
            batch = _Batch()
            self.parked.discard(message.seq)
            batch.delete(ParkedMessage, f"{message.seq:020d}")
            await self._one(message, batch)
            await self._write(batch, self.position)
            return message.seq not in self.parked

    async def _fold(self, messages: Sequence[LogMessage]) -> None:
        batch = _Batch()
        decoded = [self._decode(message) for message in messages]
        keys = [identity_key(one.identity) for one in decoded if isinstance(one, Recorded)]
        known = await self.store.get(SEEN, keys) if keys else {}
        batch.seen = {key: body.decode() for key, body in known.items()}
        for message, one in zip(messages, decoded, strict=True):
            await self._one(message, batch, one)
        await self._write(batch, messages[-1].seq)
        telemetry.FOLDED.labels(self.service.name).inc(len(messages))

    def _decode(self, message: LogMessage) -> Recorded[EventBody] | ContractError | None:
        """The event, or why it is none, or None for an event that this service does not read."""
        parts = message.subject.split(".")
        if len(parts) == 5 and (parts[2], parts[4]) not in self._places:
            return None
        try:
            return message.decode()
        except ContractError as error:
            return error

    async def _one(
        self,
        message: LogMessage,
        batch: _Batch,
        decoded: Recorded[EventBody] | ContractError | None = None,
    ) -> None:
        recorded = decoded if decoded is not None else self._decode(message)
        if recorded is None:
            return
        if isinstance(recorded, ContractError):
            self._park(batch, message, "decode", recorded)
            return
        key = identity_key(recorded.identity)
        if recorded.event.source == self.service.source:
            self._stored(batch, recorded.identity)
        if (first := batch.seen.get(key)) is not None:
            await self._repeated(batch, message, recorded, first)
            return
        batch.seen[key] = f"{recorded.seq}:{recorded.body_sha256}"
        batch.puts[(SEEN, key)] = Put(SEEN, key, batch.seen[key].encode())
        with telemetry.span(
            f"process {telemetry.template(message.subject)}",
            parent=recorded.event.traceparent,
            kind=SpanKind.CONSUMER,
            seq=recorded.seq,
            id=recorded.event.id,
        ):
            await self._evolve_and_decide(batch, message, recorded)

    async def _evolve_and_decide(self, batch: _Batch, message: LogMessage, recorded: Recorded[EventBody]) -> None:
        try:
            await self._pure(lambda: self.service.evolve(self._set, recorded))
        except Exception as error:  # noqa: BLE001 a defect in one fold must not stop the log; it is parked with its cause
            self._set.drop()
            self._park(batch, message, "evolve", error)
            return
        self._set.keep()
        if not self._decides:
            return
        try:
            actions = await self._pure(lambda: tuple(self.service.decide(self._set, self.outbox, recorded)))
            await self._accept(batch, actions, cause=recorded)
        except Exception as error:  # noqa: BLE001 as above; the fold itself stands
            self._set.drop()
            self._park(batch, message, "decide", error)

    async def _pure(self, run: Callable[[], T]) -> T:
        """Run a pure function, loading what it asks for and starting it again."""
        while True:
            try:
                return run()
            except NotLoaded as missing:
                self._set.drop()
                await self._set.load(missing)

    async def _repeated(self, batch: _Batch, message: LogMessage, recorded: Recorded[EventBody], first: str) -> None:
        seq, _, digest = first.partition(":")
        if digest == recorded.body_sha256 or int(seq) == recorded.seq:
            return
        cause = ContractError(
            f"{recorded.body.event} {recorded.event.id} from {recorded.event.source}: the id was used before,"
            f" at sequence {seq}, with another body; the first one counts"
        )
        self._park(batch, message, "identity", cause)
        if self._decides:
            await self._accept(batch, self.service.on_conflict(recorded, int(seq)), cause=recorded)

    # --------------------------------------------------------------- deciding

    async def _accept(
        self, batch: _Batch, actions: Iterable[Action], *, cause: Recorded[EventBody] | None = None
    ) -> list[str]:
        """Put actions into the batch; returns the identities of the events among them."""
        identities: list[str] = []
        causation = cause.identity if cause else None
        correlation = (cause.event.correlation or cause.identity) if cause else None
        traceparent = telemetry.traceparent() or (cause.event.traceparent if cause else None)
        for action in actions:
            if isinstance(action, Emit):
                identities.append(await self._emit(batch, action, causation, correlation, traceparent))
            elif isinstance(action, Work):
                await self._queue(batch, action, causation, correlation, traceparent)
            else:
                self._set_deadline(batch, action)
        return identities

    async def _emit(
        self, batch: _Batch, emit: Emit, causation: str | None, correlation: str | None, traceparent: str | None
    ) -> str:
        event = event_of(self.service, emit, causation=causation, correlation=correlation)
        identity = event.identity
        key = identity_key(identity)
        if identity in self.outbox or key in batch.seen or await self.store.get(SEEN, [key]):
            return identity
        if traceparent:
            event = replace(event, traceparent=traceparent)
        message = encode(event)
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

    async def _queue(
        self, batch: _Batch, work: Work, causation: str | None, correlation: str | None, traceparent: str | None
    ) -> None:
        record = WorkRecord(
            work=work.kind,
            item=work.key,
            project=work.project,
            payload=work.payload,
            causation=causation,
            correlation=correlation,
            traceparent=traceparent,
        )
        if record.key in self.work:
            return
        if not work.again and (await self.store.get(WorkRecord.kind, [record.key])):
            return
        self.work[record.key] = record
        batch.put(record)

    def _set_deadline(self, batch: _Batch, deadline: Deadline) -> None:
        record = DeadlineRecord(
            project=deadline.project, entity=deadline.entity, condition=deadline.condition, at=deadline.at
        )
        self.deadlines[record.key] = record
        batch.put(record)

    def _stored(self, batch: _Batch, identity: str) -> None:
        """An own event is in the log: its outbox entry has done its duty."""
        entry = self.outbox.remove(identity)
        if entry is not None:
            batch.delete(OutboxEntry, entry.key)
        batch.stored.append(identity)

    # ---------------------------------------------------------------- parking

    def _park(self, batch: _Batch, message: LogMessage, stage: str, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        _log.warning("%s: parked message %s (%s, %s)", self.service.name, message.seq, stage, cause)
        batch.put(ParkedMessage(seq=message.seq, subject=message.subject, stage=stage, cause=cause))
        self.parked.add(message.seq)
        if self._decides:
            telemetry.PARKED.labels(self.service.name, stage).inc()
            self._dead_letter(
                batch,
                name=f"{message.seq}",
                letter={
                    "what": "message",
                    "seq": message.seq,
                    "subject": message.subject,
                    "stage": stage,
                    "cause": cause,
                    "headers": dict(message.headers),
                    "body_base64": base64.b64encode(message.data).decode(),
                },
            )

    async def _park_unfolded(self, message: LogMessage, cause: str) -> None:
        batch = _Batch()
        self._park(batch, message, "fatal", RuntimeError(cause))
        await self._write(batch, message.seq)

    def _dead_letter(self, batch: _Batch, *, name: str, letter: dict[str, Any]) -> None:
        order = self.outbox.next_order()
        identity = f"dead:{self.service.name}:{name}:{order}"
        entry = OutboxEntry(
            order=order,
            identity=identity,
            subject=f"{DEAD_ROOT}.{self.service.name}.{letter['what']}",
            headers={"Nats-Msg-Id": identity},
            body=json.dumps({"consumer": self.service.name, **letter}, default=str).encode(),
            dead=True,
        )
        self.outbox.add(entry, None)
        batch.put(entry)

    async def dead_letter_stored(self, entry: OutboxEntry) -> None:
        """A dead letter reached its stream."""
        async with self._lock:
            self.outbox.remove(entry.identity)
            await self.store.write(WriteBatch(deletes=[Delete(OutboxEntry.kind, entry.key)]))

    # ------------------------------------------------------------------- work

    async def work_emits(self, record: WorkRecord, emits: Iterable[Emit]) -> None:
        """Events that a worker says before it is done."""
        async with self._lock:
            batch = _Batch()
            await self._accept_from_work(batch, record, emits)
            await self._write(batch, None)

    async def work_done(self, record: WorkRecord, emits: Iterable[Emit]) -> None:
        """The result of a piece of work and its end, in one write."""
        async with self._lock:
            batch = _Batch()
            await self._accept_from_work(batch, record, emits)
            batch.put(msgspec.structs.replace(record, state="done", tries=record.tries + 1, last_error=None))
            self.work.pop(record.key, None)
            await self._write(batch, None)

    async def work_again(self, record: WorkRecord, *, at: float, reason: str, failed: bool) -> None:
        """Run a piece of work later; after too many failures it is parked, with a dead letter."""
        failures = record.failures + (1 if failed else 0)
        parked = failures >= MAX_WORK_FAILURES
        async with self._lock:
            batch = _Batch()
            later = msgspec.structs.replace(
                record,
                tries=record.tries + 1,
                failures=failures,
                not_before=at,
                last_error=reason,
                state="parked" if parked else "open",
            )
            if parked:
                self.work.pop(record.key, None)
                telemetry.PARKED.labels(self.service.name, "work").inc()
                letter = {"what": "work", "work": record.key, "cause": reason, "payload": record.payload}
                self._dead_letter(batch, name=record.key, letter=letter)
            else:
                self.work[record.key] = later
            batch.put(later)
            await self._write(batch, None)

    async def retry_work(self, key: str) -> None:
        """Open a parked piece of work again."""
        async with self._lock:
            body = (await self.store.get(WorkRecord.kind, [key])).get(key)
            record = decode_document(WorkRecord, body) if body else None
            if record is None or record.state != "parked":
                raise Refused("not-parked", f"work {key!r} is not parked in {self.service.name}")
            batch = _Batch()
            self.work[key] = msgspec.structs.replace(record, state="open", failures=0, not_before=0.0)
            batch.put(self.work[key])
            await self._write(batch, None)

    async def _accept_from_work(self, batch: _Batch, record: WorkRecord, emits: Iterable[Emit]) -> None:
        for emit in emits:
            await self._emit(batch, emit, record.causation, record.correlation, record.traceparent)

    async def emit_due(self, record: DeadlineRecord, emit: Emit) -> None:
        """A deadline has passed: say so, and forget it in the same write."""
        async with self._lock:
            batch = _Batch()
            await self._emit(batch, emit, None, None, None)
            self.deadlines.pop(record.key, None)
            batch.delete(DeadlineRecord, record.key)
            await self._write(batch, None)

    # ----------------------------------------------------- commands, questions

    async def command(self, name: str, request: Request) -> tuple[dict[str, Any], list[asyncio.Future[None]]]:
        """Decide a command once; returns its result and what to wait for before answering."""
        async with self._lock:
            body = (await self.store.get(CommandRecord.kind, [request.id])).get(request.id)
            if body is not None:
                record = decode_document(CommandRecord, body)
                return record.result, await self._futures(record.identities)
            decide = self.service.commands[name]
            outcome: Outcome = await self._pure(lambda: decide(self._set, self.outbox, request))
            self._set.drop()
            batch = _Batch()
            identities = await self._accept(batch, outcome.actions)
            batch.put(CommandRecord(id=request.id, result=outcome.result, identities=tuple(identities)))
            await self._write(batch, None)
            return outcome.result, await self._futures(identities)

    async def question(self, name: str, request: Request) -> dict[str, Any]:
        async with self._lock:
            answer = self.service.questions[name]
            return await self._pure(lambda: answer(self._set, request))

    async def document(self, kind: type[T_Document], key: str) -> T_Document | None:
        async with self._lock:
            return await self._pure(lambda: self._set.get(kind, key))

    async def exclusively(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run something while no batch is being folded."""
        async with self._lock:
            return await run()

    async def _futures(self, identities: Iterable[str]) -> list[asyncio.Future[None]]:
        waiting: list[asyncio.Future[None]] = []
        for identity in identities:
            if identity in self.outbox:
                loop = asyncio.get_running_loop()
                waiting.append(self._waiting.setdefault(identity, loop.create_future()))
        return waiting

    async def digest(self) -> tuple[int, str, int]:
        """(position, digest, documents) of the state as it is now."""
        async with self._lock:
            digest = await store_digest(self.store, self.service)
            return self.position, digest.hexdigest(), digest.count

    # ------------------------------------------------------------------ write

    async def _write(self, batch: _Batch, position: int | None) -> None:
        puts = list(batch.puts.values())
        deletes = [Delete(kind, key) for kind, key in batch.deletes]
        for (kind, key), document in self._set.changes().items():
            if document is None:
                deletes.append(Delete(kind.kind, key))
            else:
                puts.append(_put(document))
        if position is not None:
            deletes.append(Delete(READING, "now"))
        try:
            await self.store.write(WriteBatch(puts=puts, deletes=deletes, position=position))
        except BaseException:
            # What memory believes is ahead of the store now: start again from the store.
            self._set.forget()
            self.outbox = Outbox()
            await self.open()
            raise
        self._set.settle()
        if position is not None:
            self.position = position
        for identity in batch.stored:
            future = self._waiting.pop(identity, None)
            if future is not None and not future.done():
                future.set_result(None)
        self._wake()


T_Document = TypeVar("T_Document", bound=Document)


async def store_digest(store: Store, service: Service) -> Digest:
    """The digest over every document of a service that counts."""
    digest = Digest()
    for kind in digested(service.documents):
        after = ""
        while rows := await store.page(kind, after=after, limit=2000):
            for key, body in rows:
                digest.add(kind, key, body)
            after = rows[-1][0]
    return digest


def request_of(data: dict[str, Any], *, project: str, now: datetime) -> Request:
    """Read a question's JSON; raises `Refused` when it is not one."""
    args = data.get("args", {})
    if not isinstance(args, dict) or not isinstance(data.get("id", ""), str):
        raise Refused("bad-request", "a question is JSON: {'id', 'by', 'args': {…}}")
    return Request(
        id=str(data.get("id") or ""), project=project, by=str(data.get("by") or "unknown"), args=args, now=now
    )
