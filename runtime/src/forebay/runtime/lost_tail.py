"""After the broker lost messages that were folded: fold what it still has, and say again what was our own among them.

State is the fold of the log, so what followed from lost messages is gone with them. Own
events that were lost are published again when what caused them is still in the log:
whatever was decided about events that everybody still knows stays decided.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec

from forebay.contracts.codec import decode
from forebay.runtime.batch import Batch, put_of
from forebay.runtime.documents import Document, decode_document
from forebay.runtime.log import LogReader, read_all
from forebay.runtime.log_check import note_gaps
from forebay.runtime.machine import Service
from forebay.runtime.outbox import identity_key
from forebay.runtime.rebuild import rebuild_into
from forebay.runtime.records import (
    LOST,
    SEEN,
    CommandRecord,
    DeadLetter,
    DeadlineRecord,
    OutboxEntry,
    ParkedMessage,
    SentEvent,
    WorkRecord,
)
from forebay.runtime.stores.place import StorePlace
from forebay.runtime.stores.port import Put, Store, WriteBatch
from forebay.runtime.takeover import poison_of
from forebay.runtime.wording import counted

_log = logging.getLogger(__name__)
D = TypeVar("D", bound=Document)
NEWEST = "newest"
_PAGE = 500


class LostTail(msgspec.Struct, frozen=True, kw_only=True):
    """What a service knows of a tail that the broker lost."""

    messages: int
    after: int
    at: float
    again: int
    """Own events of the lost tail that are published again."""

    def describe(self, service: str) -> str:
        """What happened, and what to do."""
        return (
            f"LogLostTail {self.messages}: the bus lost {counted(self.messages, 'message')} after {self.after} that"
            f" {service} had already processed; {counted(self.again, 'event')} of its own will be published again."
            f" Repeat uploads and submissions made since then, then run: forebay dead dismiss {service}/lost-tail"
        )


async def fold_without_lost(service: Service, store: Store, place: StorePlace, log: LogReader, *, last: int) -> Store:
    """A store that has folded what the log has up to `last`, in the place of one that has folded more.

    Only before a service starts.
    """
    position = (await store.head()).position
    _log.error("%s: the bus lost messages that were folded; folding the log again up to %d", service.name, last)
    shadow = await place.shadow(store)
    poison = await poison_of(store)
    await rebuild_into(shadow, service, read_all(log, after=0, until=last), until=last, poison=poison, gaps=log.gaps)
    again = await _carry_over(store, shadow, lambda seq: seq <= last and seq not in log.gaps)
    puts = [note_gaps(log.gaps)]
    if position > last:
        lost = LostTail(messages=position - last, after=last, at=time.time(), again=again)
        puts.append(Put(LOST, NEWEST, msgspec.json.encode(lost)))
    await shadow.write(WriteBatch(puts=puts))
    return await place.swap(store, shadow)


async def lost_tail(store: Store) -> LostTail | None:
    """The last tail that was lost and that nobody has dismissed."""
    body = (await store.get(LOST, [NEWEST])).get(NEWEST)
    return None if body is None else msgspec.json.decode(body, type=LostTail)


async def _carry_over(old: Store, new: Store, there: Callable[[int], bool]) -> int:
    """Copy what the log does not say and what does not follow from lost messages; returns how much is said again."""
    await _copy(old, new, SentEvent, lambda sent: there(sent.seq))
    await _copy(old, new, WorkRecord, lambda work: there(work.seq))
    await _copy(old, new, DeadlineRecord, lambda deadline: there(deadline.seq))
    await _copy(old, new, ParkedMessage, lambda parked: there(parked.seq) and parked.stage == "decide")
    await _copy(old, new, CommandRecord, lambda _: True)
    await _copy(old, new, DeadLetter, lambda _: True)
    return await _say_again(old, new, there)


async def _copy(old: Store, new: Store, kind: type[D], wanted: Callable[[D], bool]) -> None:
    puts = [put_of(one) async for one in _documents(old, kind) if wanted(one)]
    for start in range(0, len(puts), _PAGE):
        await new.write(WriteBatch(puts=puts[start : start + _PAGE]))


async def _say_again(old: Store, new: Store, there: Callable[[int], bool]) -> int:
    """Put back into the outbox what was said and lost or still waits, unless its cause was lost, too."""
    lost = [sent.entry async for sent in _documents(old, SentEvent) if not there(sent.seq)]
    waiting = [entry async for entry in _documents(old, OutboxEntry)]
    restored: set[str] = set()
    batch = Batch()
    for order, entry in enumerate([*lost, *waiting], start=1):
        cause = decode(entry.subject, entry.headers, entry.body).causation
        keys = [identity_key(one) for one in (cause, entry.identity) if one]
        known = await new.get(SEEN, keys)
        if identity_key(entry.identity) in known:
            continue
        if cause is None or identity_key(cause) in known or cause in restored:
            restored.add(entry.identity)
            batch.put(msgspec.structs.replace(entry, order=order, decided_at=time.time()))
    await new.write(WriteBatch(puts=batch.puts()))
    return len(restored)


async def _documents(store: Store, kind: type[D]) -> AsyncIterator[D]:
    after = ""
    while rows := await store.page(kind.kind, after=after, limit=_PAGE):
        for _, body in rows:
            yield decode_document(kind, body)
        after = rows[-1][0]
        await asyncio.sleep(0)
