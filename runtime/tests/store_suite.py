"""What every store adapter must do; each adapter's tests inherit it with a `store` fixture."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from forebay.runtime.errors import FencedError
from forebay.runtime.stores.port import Delete, Put, Store, StoreHead, WriteBatch

OpenStore = Callable[[], Awaitable[Store]]


def put(key: str, body: bytes = b"{}", *, kind: str = "thing", **index: str) -> Put:
    return Put(kind, key, body, tuple(index.items()), indexed=True)


class StoreSuite:
    """Inherit, and give `reopen`: a function that opens the same store anew, as another process would."""

    async def test_reads_what_was_written(self, reopen: OpenStore) -> None:
        """Documents come back by key, by index and by page, in key order, also after opening anew."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=0)
        await store.write(WriteBatch(puts=[put("b", b"2", colour="red"), put("a", b"1", colour="red"), put("c", b"3")]))
        for again in (store, await reopen()):
            assert await again.get("thing", ["a", "c", "none"]) == {"a": b"1", "c": b"3"}
            assert await again.find("thing", "colour", "red") == [("a", b"1"), ("b", b"2")]
            assert await again.find("thing", "colour", "blue") == []
            assert await again.page("thing", after="a", limit=1) == [("b", b"2")]
            assert await again.page("other", after="", limit=9) == []
            assert await again.count("thing") == 3

    async def test_index_follows_the_document(self, reopen: OpenStore) -> None:
        """A changed or deleted document leaves no old index entry behind."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=0)
        await store.write(WriteBatch(puts=[put("a", colour="red"), put("b", colour="red")]))
        await store.write(WriteBatch(puts=[put("a", colour="blue")], deletes=[Delete("thing", "b")]))
        assert await store.find("thing", "colour", "red") == []
        assert await store.find("thing", "colour", "blue") == [("a", b"{}")]
        assert await store.count("thing") == 1

    async def test_position_moves_only_when_said(self, reopen: OpenStore) -> None:
        """Position and fold version are part of the store; a write without a position leaves it."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=0)
        await store.write(WriteBatch(puts=[put("a")], position=7))
        await store.write(WriteBatch(puts=[put("b")]))
        assert await (await reopen()).head() == StoreHead(7, 1)

    async def test_successor_fences_the_first(self, reopen: OpenStore) -> None:
        """After a take-over the old process writes nothing, not even a part."""
        first, second = await reopen(), await reopen()
        assert await first.acquire("first", ttl_s=0)
        assert await second.acquire("second", ttl_s=60)
        with pytest.raises(FencedError):
            await first.write(WriteBatch(puts=[put("a")], position=1))
        assert not await first.acquire("first", ttl_s=60)
        assert await second.head() == StoreHead(0, 1)
        assert await second.count("thing") == 0

    async def test_released_place_is_free_at_once(self, reopen: OpenStore) -> None:
        """A process that ends well leaves no lease to wait for."""
        first, second = await reopen(), await reopen()
        assert await first.acquire("first", ttl_s=60)
        assert not await second.acquire("second", ttl_s=60)
        await first.release()
        assert await second.acquire("second", ttl_s=60)

    async def test_many_keys_at_once(self, reopen: OpenStore) -> None:
        """A batch of thousands is read back whole."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=0)
        keys = [f"k{number:05d}" for number in range(3000)]
        await store.write(WriteBatch(puts=[put(key, key.encode()) for key in keys]))
        assert len(await store.get("thing", keys)) == 3000

    async def test_sixteen_writers_at_once_leave_one_document(self, reopen: OpenStore) -> None:
        """Concurrent writes of one document are all applied, one after the other, and none meets an error."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=60)
        await asyncio.gather(
            *(store.write(WriteBatch(puts=[put("cup-pick/4", str(number).encode())])) for number in range(16))
        )
        assert await store.count("thing") == 1
        assert await store.get("thing", ["cup-pick/4"]) == {"cup-pick/4": b"15"}

    async def test_sixteen_processes_at_once_make_one_store(self, reopen: OpenStore) -> None:
        """Opening a new store is safe for everyone; exactly one gets the place."""
        stores = await asyncio.gather(*(reopen() for _ in range(16)))
        won = await asyncio.gather(*(store.acquire(f"p{number}", ttl_s=60) for number, store in enumerate(stores)))
        assert sum(won) == 1

    async def test_a_place_once_lost_is_not_got_back(self, reopen: OpenStore) -> None:
        """What a handle's owner has in memory is stale after another process read on; it has to open anew."""
        first, second = await reopen(), await reopen()
        assert await first.acquire("first", ttl_s=0)
        assert await second.acquire("second", ttl_s=60)
        await second.write(WriteBatch(puts=[put("a")], position=5))
        await second.release()
        assert not await first.acquire("first", ttl_s=60)
        assert await (await reopen()).acquire("third", ttl_s=60)

    async def test_keys_and_values_are_taken_as_they_are(self, reopen: OpenStore) -> None:
        """Dots, dollars, slashes and any script in keys, values and bodies come back unchanged, in code point order."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=0)
        keys = sorted(["$set", "a.b", "a/b", "é", "箱", "\U0001f916", "A", "z~"])
        await store.write(WriteBatch(puts=[put(key, key.encode(), colour=f"{key}.$") for key in keys]))
        assert [key for key, _ in await store.page("thing", after="", limit=99)] == keys
        for key in keys:
            assert await store.find("thing", "colour", f"{key}.$") == [(key, key.encode())]

    async def test_kinds_do_not_mix(self, reopen: OpenStore) -> None:
        """Equal keys and fields of two kinds are two documents."""
        store = await reopen()
        assert await store.acquire("a", ttl_s=0)
        await store.write(WriteBatch(puts=[put("a", b"1", colour="red"), put("a", b"2", kind="things", colour="red")]))
        await store.write(WriteBatch(deletes=[Delete("things", "a")]))
        assert await store.find("thing", "colour", "red") == [("a", b"1")]
        assert await store.find("things", "colour", "red") == []
        assert await store.page("things", after="", limit=9) == []
