"""Rebuild: fold the log into a fresh store with `evolve` alone, and say what it digests to.

The digest at (sequence, fold version) equals that of the live store: state is
nothing but the fold of a prefix of the log.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forebay.runtime.digest import store_digest
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage
from forebay.runtime.log_tail import KEPT, NEVER
from forebay.runtime.machine import Service
from forebay.runtime.stores.port import Store
from forebay.runtime.stores.sqlite import SqliteStore

BATCH = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildResult:
    """What a rebuild came to."""

    seq: int
    digest: str
    documents: int
    events: int
    parked: int
    seconds: float


async def rebuild(
    service: Service,
    log: AsyncIterator[Sequence[LogMessage]],
    store_path: Path,
    *,
    progress: Callable[[int], None] | None = None,
) -> RebuildResult:
    """Fold batches of the log into a new SQLite store at `store_path` (it must not exist)."""
    if store_path.exists():
        msg = f"{store_path} exists; a rebuild starts from nothing"
        raise FileExistsError(msg)
    store = SqliteStore(store_path, fold_version=service.fold_version, scratch=True)
    try:
        await store.acquire("rebuild", ttl_s=3600)
        result = await rebuild_into(store, service, log, progress=progress)
        await store.release()
    except BaseException:
        await store.close()
        store_path.unlink()  # nothing of it may be trusted
        raise
    await store.close()
    with store_path.open("rb") as written:
        os.fsync(written.fileno())
    return result


async def rebuild_into(
    store: Store,
    service: Service,
    log: AsyncIterator[Sequence[LogMessage]],
    *,
    until: int | None = None,
    progress: Callable[[int], None] | None = None,
    poison: frozenset[int] = frozenset(),
    gaps: frozenset[int] = frozenset(),
) -> RebuildResult:
    """Fold batches of the log into an empty store that this process holds.

    A store that goes on living says with `until` how far the log is folded now: from its
    last messages on it knows later whether the log is still the same.
    """
    started = time.perf_counter()
    engine = Engine(service, store, decides=False, tail_since=NEVER if until is None else until - KEPT)
    engine.poison, engine.gaps = poison, gaps
    await engine.open()
    events = 0
    with _rarely_collected():
        async for batch in _gathered(log):
            await engine.fold(batch)
            events += len(batch)
            if progress is not None:
                progress(engine.position)
    digest = await store_digest(store, service)
    return RebuildResult(
        seq=engine.position,
        digest=digest.hexdigest(),
        documents=digest.count,
        events=events,
        parked=len(engine.parked),
        seconds=time.perf_counter() - started,
    )


async def _gathered(log: AsyncIterator[Sequence[LogMessage]]) -> AsyncIterator[list[LogMessage]]:
    """Larger batches than a live service would take: nobody waits for an answer meanwhile."""
    waiting: list[LogMessage] = []
    async for batch in log:
        waiting += batch
        if len(waiting) >= BATCH:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Let the cyclic collector run seldom: what a fold makes holds no cycles, and walking it takes a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
