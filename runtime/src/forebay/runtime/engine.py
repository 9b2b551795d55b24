"""The engine: folds batches of the log into a store and keeps what was decided.

One write per batch holds documents, outbox, work, deadlines, parked messages and,
last, the position. Everything here may be cut off by a kill at any line: what was
not written is read again, what was written is passed over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from opentelemetry.trace import SpanKind

from forebay.contracts.body import EventBody
from forebay.contracts.catalogue import events_of, spec_of
from forebay.contracts.envelope import Recorded
from forebay.contracts.errors import ContractError
from forebay.runtime import telemetry
from forebay.runtime.batch import Batch, put_of
from forebay.runtime.decisions import LONGEST_CAUSE, Decisions, Origin
from forebay.runtime.digest import store_digest
from forebay.runtime.documents import D, decode_document
from forebay.runtime.errors import Refused
from forebay.runtime.log import LogMessage, unbroken
from forebay.runtime.log_tail import FoldedTail
from forebay.runtime.machine import Action, Emit, Outcome, Request, Service
from forebay.runtime.outbox import Outbox, identity_key
from forebay.runtime.poison import FATAL_READS, SINGLE_AFTER, fatal, note_reading
from forebay.runtime.records import (
    READING,
    SEEN,
    CommandRecord,
    DeadLetter,
    DeadlineRecord,
    OutboxEntry,
    ParkedMessage,
    WorkRecord,
)
from forebay.runtime.state import NotLoaded, State, WorkingSet
from forebay.runtime.stores.port import Delete, Put, Store, WriteBatch

_log = logging.getLogger(__name__)
T = TypeVar("T")
MAX_WORK_FAILURES = 5


class _Defect(Exception):  # noqa: N818 wraps one; never leaves this module
    """A pure function failed: not the store, not the bus, so waiting does not help."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Engine:
    """One service over one store. Every method is safe to call concurrently; one runs at a time."""

    def __init__(self, service: Service, store: Store, *, decides: bool = True, tail_since: int = 0) -> None:
        self.service = service
        self.store = store
        self.position = 0
        self.lag = 0
        self.decisions = Decisions(service, store)
        self.to_publish = asyncio.Event()
        self.to_work = asyncio.Event()
        self.to_tell = asyncio.Event()
        """A dead letter waits."""
        self._decides = decides
        self._stale = False
        self._set = WorkingSet(store, cache_size=service.kept)
        self._tail = FoldedTail(store, since=tail_since)
        self._lock = asyncio.Lock()
        self._folding = asyncio.Lock()
        self.written: list[WriteBatch] | None = None
        """What was written besides documents, while a rebuilt store is about to take over."""
        self.poison: frozenset[int] = frozenset()
        """Sequences that are parked unread: processes died of them."""
        self.gaps: frozenset[int] = frozenset()
        """Sequences whose messages are lost, and somebody has accepted that."""
        self._waiting: dict[str, asyncio.Future[None]] = {}
        own = {spec.body for spec in events_of(service.part)} if decides else set()
        specs = [spec_of(body) for body in service.reads | own]
        self._places = {(spec.entity, spec.token) for spec in specs}

    @property
    def outbox(self) -> Outbox:
        return self.decisions.outbox

    @property
    def newest(self) -> tuple[int, bytes] | None:
        """Sequence and fingerprint of the message that was folded last."""
        return self._tail.newest

    @property
    def work(self) -> dict[str, WorkRecord]:
        """Open work by key."""
        return self.decisions.work.by_key

    @property
    def deadlines(self) -> dict[str, DeadlineRecord]:
        return self.decisions.deadlines

    @property
    def parked(self) -> set[int]:
        """Sequences of messages that could not be folded or decided on, and that nobody has dismissed."""
        return set(self.decisions.parked)

    async def open(self) -> None:
        """Read position and open decisions from the store."""
        self.position = (await self.store.head()).position
        await self.decisions.load()
        await self._tail.load()
        self._wake()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Batch]:
        """One exclusive turn with an empty batch.

        A turn that fails before its write leaves memory ahead of the store, so the
        next one starts again from the store.
        """
        async with self._lock:
            if self._stale:
                self._set.forget()
                await self.open()
                self._stale = False
            try:
                yield Batch()
            except Refused:
                self._set.drop()
                raise
            except BaseException:
                self._stale = True
                raise

    def _wake(self) -> None:
        self.to_publish.set()
        self.to_work.set()
        if self.decisions.letters:
            self.to_tell.set()

    # ------------------------------------------------------------------- fold

    async def fold(self, messages: Sequence[LogMessage]) -> None:
        """Fold messages in order of sequence, decide, and write once.

        Messages at or below the position are passed over. Raises what the store
        raises; nothing of the batch has happened then.
        """
        async with self._folding:
            await self._fold(messages)

    async def _fold(self, messages: Sequence[LogMessage]) -> None:
        async with self.turn() as batch:
            fresh = unbroken(messages, after=self.position, gaps=self.gaps)
            if not fresh:
                return
            decoded = [self._decode(message) for message in fresh]
            keys = [identity_key(one.identity) if isinstance(one, Recorded) else "" for one in decoded]
            known = await self.store.get(SEEN, [key for key in keys if key])
            batch.seen = {key: body.decode() for key, body in known.items()}
            for message, one, key in zip(fresh, decoded, keys, strict=True):
                await self._one(batch, message, one, key)
            self._tail.add(batch, fresh, batch.sent)
            await self.write(batch, fresh[-1].seq)
        telemetry.FOLDED.labels(self.service.name).inc(len(fresh))

    async def reread(self, messages: Sequence[LogMessage]) -> None:
        """Fold messages that another process may have died on; poison is parked in the end."""
        async with self._folding:
            await self._reread([message for message in messages if message.seq > self.position])

    async def _reread(self, fresh: Sequence[LogMessage]) -> None:
        while fresh:
            tries = await note_reading(self.store, fresh[0].seq)
            if tries > FATAL_READS:
                async with self.turn() as batch:
                    self._park(batch, fresh[0], "fatal", fatal())
                    self._tail.add(batch, fresh[:1], ())
                    await self.write(batch, fresh[0].seq)
                fresh = fresh[1:]
                continue
            now = fresh[:1] if tries > SINGLE_AFTER else fresh
            await self._fold(now)
            fresh = fresh[len(now) :]

    async def retry_parked(self, message: LogMessage) -> bool:
        """Fold one parked message again, from the stage where it failed; True when it is parked no longer."""
        async with self._folding, self.turn() as batch:
            key = f"{message.seq:020d}"
            body = (await self.store.get(ParkedMessage.kind, [key])).get(key)
            if body is None:
                raise Refused("not-parked", f"message {message.seq} is not parked in {self.service.name}")
            before = decode_document(ParkedMessage, body)
            self.decisions.unpark(batch, before)
            decoded = self._decode(message)
            if before.stage == "decide" and isinstance(decoded, Recorded):
                await self._decide(batch, message, decoded)
            elif before.stage == "evolve" and isinstance(decoded, Recorded):
                await self._evolve_and_decide(batch, message, decoded)
            else:
                key = identity_key(decoded.identity) if isinstance(decoded, Recorded) else ""
                seen = await self.store.get(SEEN, [key])
                batch.seen = {one: found.decode() for one, found in seen.items()}
                await self._one(batch, message, decoded, key)
            await self.write(batch, self.position)
            return message.seq not in self.parked

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
        self, batch: Batch, message: LogMessage, recorded: Recorded[EventBody] | ContractError | None, key: str
    ) -> None:
        """One message; `key` is that of the event's identity."""
        if recorded is None:
            return
        if message.seq in self.poison:
            self._park(batch, message, "fatal", fatal())
            return
        if isinstance(recorded, ContractError):
            self._park(batch, message, "decode", recorded)
            return
        if self._decides and recorded.event.source == self.service.source:
            self.decisions.seen_back(batch, recorded.identity, recorded.seq)
        if (first := batch.seen.get(key)) is not None:
            await self._repeated(batch, message, recorded, first)
            return
        batch.seen[key] = said = f"{recorded.seq}:{recorded.body_sha256}"
        batch.put_raw(Put(SEEN, key, said.encode()))
        if not self._decides:  # a rebuild causes nothing, so it leaves no trace
            if not self._evolved_at_once(recorded):
                await self._evolve_and_decide(batch, message, recorded)
            return
        with telemetry.span(
            f"process {telemetry.template(message.subject)}",
            parent=recorded.event.traceparent,
            kind=SpanKind.CONSUMER,
            seq=recorded.seq,
            id=recorded.event.id,
        ):
            await self._evolve_and_decide(batch, message, recorded)

    def _evolved_at_once(self, recorded: Recorded[EventBody]) -> bool:
        """Fold without a detour; False when something has to be loaded or goes wrong: then the long way, which says so."""
        try:
            self.service.evolve(self._set, recorded)
        except Exception:  # noqa: BLE001 pure, so it can be run again, and will meet it again
            self._set.drop()
            return False
        self._set.keep()
        return True

    async def _evolve_and_decide(self, batch: Batch, message: LogMessage, recorded: Recorded[EventBody]) -> None:
        try:
            await self._pure(lambda: self.service.evolve(self._set, recorded))
        except _Defect as defect:
            self._park(batch, message, "evolve", defect.error)
            return
        self._set.keep()
        if self._decides:
            await self._decide(batch, message, recorded)

    async def _decide(self, batch: Batch, message: LogMessage, recorded: Recorded[EventBody]) -> None:
        try:
            actions = await self._pure(lambda: tuple(self.service.decide(self._set, self.outbox, recorded)))
            await self.decisions.accept(batch, actions, Origin.of(recorded))
        except (_Defect, ContractError) as error:
            # The fold itself stands: state is what the log says, decided on or not.
            self._park(batch, message, "decide", error.error if isinstance(error, _Defect) else error)

    async def _pure(self, run: Callable[[], T]) -> T:
        """Run a pure function, loading what it asks for and starting it again."""
        while True:
            try:
                return run()
            except NotLoaded as missing:
                self._set.drop()
                wanted = missing
            except Refused:
                raise
            except Exception as error:
                self._set.drop()
                raise _Defect(error) from error
            await self._set.load(wanted)

    async def _repeated(self, batch: Batch, message: LogMessage, recorded: Recorded[EventBody], first: str) -> None:
        seq, _, digest = first.partition(":")
        if digest == recorded.body_sha256 or int(seq) == recorded.seq:
            return
        cause = ContractError(
            f"{recorded.body.event} {recorded.event.id} from {recorded.event.source}: the id was used before,"
            f" at sequence {seq}, with another body; the first one counts"
        )
        self._park(batch, message, "identity", cause)
        if self._decides:
            actions = self.service.on_conflict(recorded, int(seq))
            await self.decisions.accept(batch, actions, Origin.of(recorded))

    def _park(self, batch: Batch, message: LogMessage, stage: str, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"[:LONGEST_CAUSE]
        parked = ParkedMessage(
            seq=message.seq, subject=message.subject, stage=stage, cause=cause, at=message.stored_at.timestamp()
        )
        self.decisions.park(batch, parked)
        if not self._decides:
            return
        _log.warning("%s: parked message %s (%s, %r)", self.service.name, message.seq, stage, cause)
        telemetry.PARKED.labels(self.service.name, stage).inc()
        letter = DeadLetter(
            what="message",
            name=parked.key,
            cause=cause,
            at=time.time(),
            seq=message.seq,
            subject=message.subject,
            stage=stage,
        )
        self.decisions.dead_letter(batch, letter)

    # ------------------------------------------------------------------- work

    async def work_emits(self, record: WorkRecord, emits: Iterable[Emit]) -> None:
        """Events that a worker says before it is done."""
        async with self.turn() as batch:
            await self.decisions.accept(batch, emits, Origin.of_work(record))
            await self.write(batch, None)

    async def work_done(self, records: Sequence[WorkRecord], emits: Iterable[Emit]) -> None:
        """The result of one run and the end of the work that it did, in one write."""
        async with self.turn() as batch:
            await self.decisions.accept(batch, emits, Origin.of_work(records[0]))
            for record in records:
                done = msgspec.structs.replace(record, state="done", tries=record.tries + 1, last_error=None)
                self.decisions.close_work(batch, done)
            await self.write(batch, None)

    async def work_again(self, records: Sequence[WorkRecord], *, at: float, reason: str, failed: bool) -> None:
        """Do the work of one run later; what has failed too often is parked, with a dead letter."""
        async with self.turn() as batch:
            for record in records:
                failures = record.failures + (1 if failed else 0)
                later = msgspec.structs.replace(
                    record, tries=record.tries + 1, failures=failures, not_before=at, last_error=reason
                )
                if failures < MAX_WORK_FAILURES:
                    self.decisions.open_work(batch, later)
                else:
                    self._park_work(batch, later)
            await self.write(batch, None)

    def _park_work(self, batch: Batch, record: WorkRecord) -> None:
        self.decisions.park_work(batch, record)
        telemetry.PARKED.labels(self.service.name, "work").inc()
        cause = (record.last_error or "")[:LONGEST_CAUSE]
        self.decisions.dead_letter(batch, DeadLetter(what="work", name=record.key, cause=cause, at=time.time()))

    async def emit_due(self, record: DeadlineRecord, emit: Emit) -> None:
        """A deadline has passed: say so, and forget it in the same write."""
        async with self.turn() as batch:
            await self.decisions.accept(batch, [emit], Origin.of(None))
            self.decisions.drop_deadline(batch, record)
            await self.write(batch, None)

    async def refuse(self, entry: OutboxEntry, cause: str | None) -> None:
        """Note that the bus refuses a decided event for good (None: that it is to be tried again)."""
        async with self.turn() as batch:
            self.decisions.refuse(batch, entry, cause)
            await self.write(batch, None)

    # ----------------------------------------------------- commands, questions

    async def command(self, name: str, request: Request) -> tuple[dict[str, Any], list[asyncio.Future[None]]]:
        """Decide a command once; returns its result and what to wait for before answering."""
        async with self.turn() as batch:
            body = (await self.store.get(CommandRecord.kind, [request.id])).get(request.id)
            if body is not None:
                record = decode_document(CommandRecord, body)
                return record.result, self._futures(record.identities)
            decide = self.service.commands[name]
            outcome: Outcome = await self._pure(lambda: decide(self._set, self.outbox, request))
            identities = await self.decisions.accept(batch, outcome.actions, Origin.of(None))
            batch.put(CommandRecord(id=request.id, result=outcome.result, identities=tuple(identities)))
            await self.write(batch, None)
            return outcome.result, self._futures(identities)

    async def question(self, name: str, request: Request) -> dict[str, Any]:
        """Answer from the state as it is now."""
        async with self.turn():
            self._set.trim()
            return await self._pure(lambda: self.service.questions[name](self._set, request))

    async def document(self, kind: type[D], key: str) -> D | None:
        async with self.turn():
            return await self._pure(lambda: self._set.get(kind, key))

    async def read(self, question: Callable[[State], T]) -> T:
        """The answer of a pure function of the state as it is now."""
        async with self.turn():
            return await self._pure(lambda: question(self._set))

    async def say(self, actions: Iterable[Action]) -> list[asyncio.Future[None]]:
        """Events about the world outside the log, and work that follows; said once, whatever asks again.

        What is answered is done when its event is folded.
        """
        async with self.turn() as batch:
            identities = await self.decisions.accept(batch, actions, Origin.of(None))
            await self.write(batch, None)
            return self._futures(identities)

    def _futures(self, identities: Iterable[str]) -> list[asyncio.Future[None]]:
        loop = asyncio.get_running_loop()
        waiting = [identity for identity in identities if identity in self.outbox]
        return [self._waiting.setdefault(identity, loop.create_future()) for identity in waiting]

    async def digest(self) -> tuple[int, str, int]:
        """(position, digest, documents) of the state as it is now. Nothing is folded meanwhile; questions are answered."""
        async with self._folding:
            digest = await store_digest(self.store, self.service)
            return (await self.store.head()).position, digest.hexdigest(), digest.count

    def standing_still(self) -> asyncio.Lock:
        """Hold it, and documents stay as they are; questions, commands and work go on."""
        return self._folding

    async def move(self, swap: Callable[[], Awaitable[Store]]) -> None:
        """Go on over another store with the same state; `swap` runs while nothing else does."""
        async with self.turn():
            self.store = await swap()
            self._set = WorkingSet(self.store, cache_size=self.service.kept)
            self.decisions.store = self.store
            self._tail = FoldedTail(self.store)
            await self._tail.load()

    # ------------------------------------------------------------------ write

    async def write(self, batch: Batch, position: int | None) -> None:
        puts, deletes = batch.puts(), batch.deletes()
        for (kind, key), document in self._set.changes().items():
            if document is None:
                deletes.append(Delete(kind.kind, key))
            else:
                puts.append(put_of(document, key))
        if position is not None:
            deletes.append(Delete(READING, "now"))
        await self.store.write(WriteBatch(puts=puts, deletes=deletes, position=position))
        if self.written is not None:
            self.written.append(WriteBatch(puts=batch.puts(), deletes=batch.deletes()))
        self._set.settle()
        if position is not None:
            self.position = position
        for identity in batch.stored:
            future = self._waiting.pop(identity, None)
            if future is not None and not future.done():
                future.set_result(None)
        self._wake()
