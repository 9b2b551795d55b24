"""A rebuild takes over while the engine goes on: nothing is lost, and a kill leaves the old store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from forebay.runtime.digest import store_digest
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage, LogReader
from forebay.runtime.poison import FATAL_READS
from forebay.runtime.stores.place import MongoPlace, SqlitePlace, StorePlace
from forebay.runtime.stores.port import Store
from forebay.runtime.stores.sqlite import SqliteStore
from forebay.runtime.takeover import Takeover, refold_if_older

from runtime.tests import toy
from runtime.tests.test_engine import drain, request
from tests.servers.ferretdb import mongo_url

PlaceAt = Callable[[int], StorePlace]


class StoredLog(LogReader):
    """The reader's interface over a log in memory; `when_read` runs before each answer."""

    def __init__(self, log: toy.MemoryLog) -> None:
        self._log = log
        self.gaps = frozenset()
        self.when_read: Callable[[], object] | None = None

    async def read(self, after: int, *, until: int | None = None, limit: int = 500) -> list[LogMessage]:
        if self.when_read is not None:
            self.when_read()
        await asyncio.sleep(0)
        return self._log.messages[after : min(after + limit, until or 10**9)]


@pytest.fixture(params=["sqlite", "mongo"])
async def place_at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PlaceAt]:
    """Where a store of a given fold version lives, on either adapter."""
    if request.param == "sqlite":
        yield lambda version: SqlitePlace(tmp_path / "state.sqlite", fold_version=version)
        return
    async with mongo_url(tmp_path / "mongo") as url:
        yield lambda version: MongoPlace(url, "toy", fold_version=version)


async def running(place: StorePlace, log: toy.MemoryLog) -> Engine:
    store = await place.open()
    assert await store.acquire("test", ttl_s=0)
    engine = Engine(toy.SERVICE, store)
    await engine.open()
    await engine.fold(log.messages)
    return engine


def history() -> toy.MemoryLog:
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"), toy.started("u2", ref="tag-at-once"))
    log.store(toy.finished("u3", "breaks-decide"), toy.finished("u4", "breaks-evolve"), toy.finished("u5", "place"))
    return log


def internal(engine: Engine) -> object:
    return (
        [entry.identity for entry in engine.outbox.entries()],
        sorted(engine.work),
        sorted(engine.deadlines),
        sorted(engine.parked),
    )


async def test_takes_over_with_everything_that_is_still_to_be_done(place_at: PlaceAt) -> None:
    """Same documents, outbox, work, deadlines, parked messages; a command answered before is answered again."""
    log = history()
    place = place_at(1)
    engine = await running(place, log)
    first, _ = await engine.command("tag", request("c1", dataset="pick"))
    before, digest = internal(engine), await engine.digest()
    stored = StoredLog(log)
    takeover = Takeover(engine, place, stored)
    await takeover.run()
    assert takeover.progress.error == ""
    assert takeover.progress.state == "done"
    assert takeover.progress.rebuilt_digest == takeover.progress.live_digest == digest[1]
    assert await engine.digest() == digest
    assert (await engine.command("tag", request("c1", dataset="other")))[0] == first
    await engine.store.release()
    await engine.store.close()
    again = await running(place, log)
    assert internal(again) == before
    await drain(again, log)
    await again.store.close()


async def test_what_happens_meanwhile_is_kept(place_at: PlaceAt) -> None:
    """Events folded and commands decided while the rebuild runs are in the store that takes over."""
    log = history()
    place = place_at(1)
    engine = await running(place, log)
    stored = StoredLog(log)
    events = iter([toy.started("u7"), toy.started("u8")])
    tasks: list[asyncio.Task[object]] = []

    async def live() -> None:
        if (event := next(events, None)) is not None:
            log.store(event)
            await engine.command("tag", request(event.id, dataset="pick"))
            await engine.fold(log.messages)

    stored.when_read = lambda: tasks.append(asyncio.ensure_future(live()))
    await Takeover(engine, place, stored).run()
    await asyncio.gather(*tasks)
    await drain(engine, log)
    assert await engine.document(toy.Upload, "u8" if len(tasks) > 1 else "u7") is not None
    shadow = await place.shadow(engine.store)
    other = Engine(toy.SERVICE, shadow, decides=False)
    await other.fold(log.messages)
    assert (await store_digest(shadow, toy.SERVICE)).hexdigest() == (await engine.digest())[1]
    await place.discard(shadow)
    await engine.store.close()


async def test_a_kill_before_the_swap_leaves_the_old_store(place_at: PlaceAt) -> None:
    """Whatever a dead rebuild left lying about is removed by the next one."""
    log = history()
    place = place_at(1)
    engine = await running(place, log)
    digest = await engine.digest()
    for turns in (1, 2, 3, 5, 8, 13, 21):
        task = asyncio.ensure_future(Takeover(engine, place, StoredLog(log)).run())
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.store.close()
        engine = await running(place, log)
        assert await engine.digest() == digest
    await Takeover(engine, place, StoredLog(log)).run()
    assert await engine.digest() == digest
    await engine.store.close()


async def test_another_fold_version_is_folded_again_at_start(place_at: PlaceAt) -> None:
    """Same path: a shadow, everything carried over, a swap; the service then starts over the new store."""
    log = history()
    engine = await running(place_at(1), log)
    before = internal(engine)
    await engine.store.release()
    await engine.store.close()
    newer = replace(toy.SERVICE, fold_version=2)
    store = await place_at(2).open()
    assert await store.acquire("newer", ttl_s=0)
    store = await refold_if_older(newer, store, place_at(2), StoredLog(log))
    assert (await store.head()).fold_version == 2
    again = Engine(newer, store)
    await again.open()
    assert again.position == len(log.messages)
    assert internal(again) == before
    await store.close()


async def test_poison_is_not_folded_by_a_rebuild(tmp_path: Path) -> None:
    """A message that killed processes before stays parked; rebuilding does not die of it."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.started("u2"))

    def deadly(state: object, recorded: object) -> None:
        if recorded.body.upload == "u2":  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        toy.evolve(state, recorded)  # type: ignore[arg-type]

    place = SqlitePlace(tmp_path / "state.sqlite", fold_version=1)
    for _ in range(2 * FATAL_READS + 2):
        store = await place.open()
        assert await store.acquire("life", ttl_s=0)
        engine = Engine(replace(toy.SERVICE, evolve=deadly), store)
        await engine.open()
        try:
            await engine.reread(log.messages)
            break
        except KeyboardInterrupt:
            await store.close()
    takeover = Takeover(engine, place, StoredLog(log))
    await takeover.run()
    assert takeover.progress.rebuilt_digest == takeover.progress.live_digest != ""
    await engine.store.close()


async def test_a_process_that_stands_by_follows_a_swap(tmp_path: Path) -> None:
    """Its connection is to the file that was replaced; it must take over the new one."""
    log = history()
    place = SqlitePlace(tmp_path / "state.sqlite", fold_version=1)
    engine = await running(place, log)
    standby: Store = SqliteStore(tmp_path / "state.sqlite", fold_version=1)
    await Takeover(engine, place, StoredLog(log)).run()
    await engine.fold(log.store(toy.started("u9")) and log.messages)
    await engine.store.release()
    assert await standby.acquire("standby", ttl_s=60)
    assert (await standby.head()).position == len(log.messages)
    await standby.close()
    await engine.store.close()
