"""SQLite passes the store suite."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from forebay.runtime.log import LogMessage
from forebay.runtime.rebuild import rebuild
from forebay.runtime.settings import ServiceSettings
from forebay.runtime.stores.place import place_of
from forebay.runtime.stores.port import Delete, Store, StoreHead, WriteBatch
from forebay.runtime.stores.sqlite import SqliteStore

from runtime.tests import toy
from runtime.tests.store_suite import OpenStore, StoreSuite, put


@pytest.fixture
async def reopen(tmp_path: Path) -> AsyncIterator[OpenStore]:
    opened: list[SqliteStore] = []

    async def again() -> Store:
        opened.append(SqliteStore(tmp_path / "state.sqlite", fold_version=1))
        return opened[-1]

    yield again
    for store in opened:
        await store.close()


class TestSqliteStore(StoreSuite):
    """One file, several handles."""

    async def test_finding_a_few_costs_no_more_among_many(self, reopen: OpenStore) -> None:
        """The index is asked first, however many documents of the kind there are."""
        store = await reopen()
        assert isinstance(store, SqliteStore)
        assert await store.acquire("a", ttl_s=0)

        async def steps() -> int:
            """Instructions of SQLite's machine that one look takes: time would depend on what else runs."""
            counted = itertools.count()
            store._db.set_progress_handler(lambda: next(counted) < 0, 1)
            try:
                assert len(await store.find("thing", "colour", "red")) == 2
            finally:
                store._db.set_progress_handler(None, 1)
            return next(counted)

        few = [put(f"red-{number}", colour="red") for number in range(2)]
        await store.write(WriteBatch(puts=[*few, put("other", colour="blue")]))
        among_few = await steps()
        await store.write(WriteBatch(puts=[put(f"{number}", colour=f"c{number // 2}") for number in range(20_000)]))
        assert await steps() < 2 * among_few


async def test_pages_in_memory_are_as_many_as_the_settings_say(tmp_path: Path) -> None:
    """A service with little memory may keep fewer."""
    settings = ServiceSettings(store=tmp_path / "state.sqlite", store_cache_bytes=1 << 20)
    store = await place_of(settings, "toy", fold_version=1).open()
    assert isinstance(store, SqliteStore)
    assert store._db.execute("PRAGMA cache_size").fetchone() == (-1024,)
    await store.close()


class TestScratch:
    """The store of a rebuild: fast, and of no use until it is released."""

    async def test_holds_what_was_written_and_nothing_else(self, tmp_path: Path) -> None:
        """Before and after its release: what is there is found, what is not there is not, changed and deleted included."""
        store = SqliteStore(tmp_path / "shadow.sqlite", fold_version=1, scratch=True)
        assert await store.acquire("a", ttl_s=60)
        keys = [f"key-{number}" for number in range(3000)]
        await store.write(WriteBatch(puts=[put(key, key.encode()) for key in keys], position=5))
        changes = WriteBatch(puts=[put("key-1", b"new")], deletes=[Delete("thing", "key-2")], position=6)
        await store.write(changes)
        expected = {key: key.encode() for key in keys} | {"key-1": b"new"}
        del expected["key-2"]
        absent = [f"none-{number}" for number in range(3000)]
        assert await store.get("thing", [*keys, *absent]) == expected
        assert [store.get_now("thing", key) for key in ("key-1", "key-2", "none-1")] == [b"new", None, None]
        await store.release()
        await store.close()
        kept = SqliteStore(tmp_path / "shadow.sqlite", fold_version=1)
        assert await kept.head() == StoreHead(6, 1)
        assert await kept.get("thing", [*keys, *absent]) == expected
        await kept.close()

    async def test_a_rebuild_that_fails_leaves_no_file(self, tmp_path: Path) -> None:
        """Nothing of a store without a journal may be taken for a whole one."""

        async def broken_log() -> AsyncIterator[list[LogMessage]]:
            yield toy.MemoryLog().store(toy.started("up-1"), toy.finished("up-1"))
            raise ConnectionError

        with pytest.raises(ConnectionError):
            await rebuild(toy.SERVICE, broken_log(), tmp_path / "shadow.sqlite")
        assert list(tmp_path.iterdir()) == []
