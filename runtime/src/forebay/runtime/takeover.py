"""Rebuild while live: fold the log into a shadow store, catch up, and take over in one turn of the engine.

The live store keeps answering. A process that dies at any moment before the swap
leaves it as it was. What the log does not say (outbox, work, deadlines, answers to
commands, messages parked in `decide`) is carried over as it stands.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forebay.runtime.batch import put_of
from forebay.runtime.digest import store_digest
from forebay.runtime.documents import decode_document
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage, LogReader, read_all
from forebay.runtime.log_tail import KEPT
from forebay.runtime.machine import Service
from forebay.runtime.rebuild import rebuild_into
from forebay.runtime.records import INTERNAL, LOST, OF_THE_LOG, ParkedMessage
from forebay.runtime.stores.place import StorePlace
from forebay.runtime.stores.port import Put, Store, WriteBatch

_log = logging.getLogger(__name__)
_SLICE = 250
"""Messages folded in one go: questions wait that long at most."""
_CLOSE = 1000
"""With fewer messages missing, the live store stands still for the rest."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a rebuild is; `state` is running, done or failed."""

    state: str = "running"
    phase: str = "folding"
    position: int = 0
    target: int = 0
    events: int = 0
    documents: int = 0
    rebuilt_digest: str = ""
    live_digest: str = ""
    seconds: float = 0.0
    stood_still_s: float = 0.0
    swap_s: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Takeover:
    """One rebuild of one running engine."""

    def __init__(self, engine: Engine, place: StorePlace, log: LogReader) -> None:
        self._engine = engine
        self._place = place
        self._log = log
        self._swapping = False
        self.progress = Progress(target=engine.position)

    async def run(self) -> None:
        """Rebuild and swap. Raises only when the swap itself broke off: the process must then start again."""
        started = time.monotonic()
        shadow: Store | None = None
        try:
            shadow = await self._place.shadow(self._engine.store)
            await self._rebuild(shadow)
            self.progress.state = "done"
        except Exception as error:
            _log.exception("rebuild of %s", self._engine.service.name)
            self.progress.state = "failed"
            self.progress.error = f"{type(error).__name__}: {error}"
            if self._swapping:
                raise
            if shadow is not None:
                await self._place.discard(shadow)
        finally:
            self.progress.seconds = time.monotonic() - started
            self._engine.written = None

    async def _rebuild(self, shadow: Store) -> None:
        live, progress = self._engine, self.progress
        engine = Engine(live.service, shadow, decides=False, tail_since=live.position - KEPT)
        engine.poison, engine.gaps = await poison_of(live.store), live.gaps
        await engine.open()
        while live.position - engine.position > _CLOSE:
            await self._fold(engine, live.position)
        async with live.standing_still():
            still = time.monotonic()
            await self._fold(engine, live.position)
            progress.phase = "comparing"
            rebuilt, kept = await store_digest(shadow, live.service), await store_digest(live.store, live.service)
            progress.rebuilt_digest, progress.live_digest = rebuilt.hexdigest(), kept.hexdigest()
            progress.documents = rebuilt.count
            progress.phase = "taking over"
            live.written = []
            await carry_over(live.store, shadow)
            await live.move(lambda: self._swap(shadow))
            progress.stood_still_s = time.monotonic() - still
        progress.phase = "done"

    async def _fold(self, engine: Engine, until: int) -> None:
        self.progress.target = until
        async for batch in _slices(read_all(self._log, after=engine.position, until=until)):
            await engine.fold(batch)
            self.progress.position = engine.position
            self.progress.events += len(batch)
            await asyncio.sleep(0)

    async def _swap(self, shadow: Store) -> Store:
        began = time.monotonic()
        live = self._engine.store
        for batch in self._engine.written or ():
            await shadow.write(_internal(batch))
        self._swapping = True
        new = await self._place.swap(live, shadow)
        self._swapping = False
        self.progress.swap_s = time.monotonic() - began
        return new


async def _slices(log: AsyncIterator[Sequence[LogMessage]]) -> AsyncIterator[Sequence[LogMessage]]:
    async for batch in log:
        for start in range(0, len(batch), _SLICE):
            yield batch[start : start + _SLICE]


def _internal(batch: WriteBatch) -> WriteBatch:
    kinds = {kind.kind for kind in INTERNAL}
    return WriteBatch(
        puts=[put for put in batch.puts if put.kind in kinds],
        deletes=[gone for gone in batch.deletes if gone.kind in kinds],
    )


async def carry_over(old: Store, new: Store) -> None:
    """Copy what the log does not say. Of parked messages only those parked in `decide`: the fold judges the others."""
    for kind in INTERNAL:
        after = ""
        while rows := await old.page(kind.kind, after=after, limit=500):
            documents = [decode_document(kind, body) for _, body in rows]
            puts: list[Put] = [
                put_of(one) for one in documents if not isinstance(one, ParkedMessage) or one.stage == "decide"
            ]
            await new.write(WriteBatch(puts=puts))
            after = rows[-1][0]
            await asyncio.sleep(0)
    for raw in (OF_THE_LOG, LOST):
        rows = await old.page(raw, after="", limit=500)
        await new.write(WriteBatch(puts=[Put(raw, key, body) for key, body in rows]))


async def poison_of(store: Store) -> frozenset[int]:
    """What killed processes before; a rebuild does not fold it either."""
    rows = await store.page(ParkedMessage.kind, after="", limit=100_000)
    parked = (decode_document(ParkedMessage, body) for _, body in rows)
    return frozenset(message.seq for message in parked if message.stage == "fatal")


async def refold_if_older(service: Service, store: Store, place: StorePlace, log: LogReader) -> Store:
    """A store of another fold version is folded again beside the old one and replaced, before the service starts."""
    head = await store.head()
    if head.fold_version == service.fold_version:
        return store
    _log.info("%s: fold version %d -> %d, folding again", service.name, head.fold_version, service.fold_version)
    shadow = await place.shadow(store)
    poison = await poison_of(store)
    messages = read_all(log, after=0, until=head.position)
    await rebuild_into(shadow, service, messages, until=head.position, poison=poison, gaps=log.gaps)
    await carry_over(store, shadow)
    return await place.swap(store, shadow)
