"""MongoDB passes the store suite, and a batch is whole wherever its process is cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest
from forebay.runtime.documents import Document, decode_document, encode_document
from forebay.runtime.engine import Engine
from forebay.runtime.errors import FencedError, StoreNotFitError
from forebay.runtime.rebuild import rebuild
from forebay.runtime.state import NotLoaded, WorkingSet
from forebay.runtime.stores.mongo import MongoStore, chunked, open_mongo
from forebay.runtime.stores.port import Delete, Put, Store, StoreHead, WriteBatch
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo.errors import PyMongoError

from runtime.tests import toy
from runtime.tests.store_suite import OpenStore, StoreSuite, put
from runtime.tests.test_engine import batches, drain
from tests.servers.cut_wire import CutWire, cut_wire
from tests.servers.ferretdb import mongo_url


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with mongo_url(tmp_path_factory.mktemp("mongo")) as address:
        yield address


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """A database of this test's own."""
    base, _, name = server.partition("?")[0].rpartition("/")
    return f"{base}/{name}_{abs(hash(request.node.name)) % 10**8}?serverSelectionTimeoutMS=200"


@pytest.fixture
async def reopen(url: str) -> AsyncIterator[OpenStore]:
    opened: list[MongoStore] = []

    async def again() -> Store:
        opened.append(await open_mongo(url, "toy", fold_version=1))
        return opened[-1]

    yield again
    for store in opened:
        await store.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestMongoStore(StoreSuite):
    """One database, several connections."""


@asynccontextmanager
async def opened(url: str, owner: str = "test") -> AsyncIterator[MongoStore]:
    store = await open_mongo(url, "toy", fold_version=1)
    try:
        assert await store.acquire(owner, ttl_s=0)
        yield store
    finally:
        await store.close()


BEFORE = WriteBatch(puts=[put("kept", b"0", colour="red"), put("gone", b"0", colour="red")], position=1)
CHANGE = WriteBatch(
    puts=[put("kept", b"1", colour="blue"), put("new", b"1", colour="red")],
    deletes=[Delete("thing", "gone")],
    position=2,
)
OLD = (StoreHead(1, 1), [("gone", b"0"), ("kept", b"0")], ["gone", "kept"])
NEW = (StoreHead(2, 1), [("kept", b"1"), ("new", b"1")], ["new"])


async def view(store: Store) -> object:
    red = [key for key, _ in await store.find("thing", "colour", "red")]
    return await store.head(), await store.page("thing", after="", limit=9), red


@pytest.mark.parametrize("answered", [True, False])
async def test_a_batch_cut_off_anywhere_is_whole_or_not_there(url: str, *, answered: bool) -> None:
    """Whatever command is the last one that arrives, a successor finds the batch entirely or not at all."""
    async with cut_wire(url, "toy_") as (wire, through):
        seen: list[object] = []
        for left in range(1, 20):
            async with opened(url) as store:
                await store.write(BEFORE)
                await store.write(WriteBatch(deletes=[Delete("thing", "new")]))
            async with opened(through) as dying:
                before = wire.seen
                wire.arm(left, answered=answered)
                try:
                    await dying.write(CHANGE)
                    died = False
                except PyMongoError:
                    died = True
                wire.arm(10**9, answered=True)
            async with opened(url, "successor") as store:
                found = await view(store)
                assert found in (OLD, NEW)
                seen.append(found)
            if not died and wire.seen - before < left:
                break
        assert not died
        assert seen[0] == OLD
        assert seen[-1] == NEW
        assert len(seen) > 4


@pytest.mark.parametrize("answered", [True, False])
async def test_the_same_process_goes_on_after_a_cut(url: str, *, answered: bool) -> None:
    """When the server comes back, the first read finds the batch entirely or not at all, and writing goes on."""
    patient = url.replace("TimeoutMS=200", "TimeoutMS=5000")  # the driver looks for a lost server every half second
    async with cut_wire(patient, "toy_") as (wire, through), opened(through) as store:
        for left in range(1, 8):
            await store.write(BEFORE)
            await store.write(WriteBatch(deletes=[Delete("thing", "new")]))
            wire.arm(left, answered=answered)
            try:
                await store.write(CHANGE)
            except PyMongoError:
                pass
            finally:
                wire.arm(10**9, answered=True)
            assert await view(store) in (OLD, NEW)


async def test_a_write_that_comes_too_late_changes_nothing(url: str) -> None:
    """A process that stops for long in the middle of a batch finds its place taken, and its documents moved away."""
    async with opened(url) as paused, opened(url, "successor") as store:
        await store.write(WriteBatch(puts=[put("a", b"new")], position=3))
        (late,) = chunked(WriteBatch(puts=[put("a", b"old"), put("zombie")]))
        await paused._documents.apply(late)
        with pytest.raises(FencedError):
            await paused._finish(9)
        with pytest.raises(FencedError):
            await paused.write(WriteBatch(puts=[put("a", b"old")]))
        assert await store.page("thing", after="", limit=9) == [("a", b"new")]
        assert (await store.head()).position == 3
    async with opened(url, "third") as store:
        assert await store.get("thing", ["a", "zombie"]) == {"a": b"new"}


async def test_large_batches_go_through_the_journal_in_parts(url: str) -> None:
    """A batch that one journal document cannot hold is still one batch."""
    async with opened(url) as store:
        await store.write(WriteBatch(puts=[put(f"k{number}", b"x" * (1 << 20)) for number in range(9)], position=1))
        assert await store.count("thing") == 9


async def test_a_document_that_mongodb_cannot_take_is_named(url: str) -> None:
    """Nothing of the batch is written, and the sentence says which document and what to do."""
    async with opened(url) as store:
        with pytest.raises(StoreNotFitError, match=r"the thing 'big' has 13,000,000 bytes.*unset FOREBAY_STORE_URL"):
            await store.write(WriteBatch(puts=[put("small"), put("big", b"x" * 13_000_000)]))
        assert await store.count("thing") == 0


async def test_a_missing_index_is_found_at_start(url: str) -> None:
    """Without its index every `find` would scan; the service does not start and says how to make it."""
    async with opened(url) as store:
        name = store._documents.name
    client: AsyncIOMotorClient[dict[str, object]] = AsyncIOMotorClient(url)
    await client.get_default_database()[name].drop_index("index")
    client.close()
    again = await open_mongo(url, "toy", fold_version=1)
    with pytest.raises(StoreNotFitError, match=r"no index on index\. in mongosh: db\.toy_documents_\d+\.createIndex"):
        await again.acquire("test", ttl_s=0)
    await again.close()


async def test_an_address_that_is_none_is_refused() -> None:
    """The setting is named, with an example of a right one."""
    with pytest.raises(StoreNotFitError, match=r"FOREBAY_STORE_URL is no MongoDB address.*mongodb://user"):
        await open_mongo("mongodb://:x:y", "toy", fold_version=1)


class Poll(Document, frozen=True, kw_only=True):
    kind: ClassVar[str] = "poll"
    id: str
    at: datetime

    @property
    def key(self) -> str:
        return self.id


async def test_times_come_back_as_they_were_and_unchanged_objects_cause_no_write(url: str) -> None:
    """UTC and aware, microseconds kept; the same instant in another zone is no change, polled ten times."""
    same = [datetime.fromisoformat(text) for text in ("2026-01-10T08:00:00Z", "2026-01-10T16:00:00+08:00")]
    finer = datetime.fromisoformat("2026-01-10T08:00:00.123456Z")
    async with opened(url) as store:
        for number, at in enumerate([same[0], finer]):
            document = Poll(id=f"p{number}", at=at)
            await store.write(WriteBatch(puts=[Put("poll", document.key, encode_document(document))]))
        found = [decode_document(Poll, body).at for _, body in await store.page("poll", after="", limit=9)]
        assert found == [same[0], finer]
        assert all(at.tzinfo is not None and at.utcoffset() == UTC.utcoffset(None) for at in found)
        working = WorkingSet(store)
        await working.load(NotLoaded(Poll, key="p0"))
        for number in range(10):
            working.put(Poll(id="p0", at=same[number % 2]))
            working.keep()
            assert working.changes() == {}


async def story(engine: Engine, log: toy.MemoryLog) -> None:
    await engine.fold(log.messages[:2])
    await drain(engine, log)
    await engine.fold(log.messages)
    await drain(engine, log)


@pytest.mark.parametrize("left", [3, 9, 14, 21, 27, 34, 40, 52])
async def test_a_service_cut_off_anywhere_ends_where_an_undisturbed_one_does(
    url: str, tmp_path: Path, left: int
) -> None:
    """The story of the engine's own tests on the Mongo wire: no event twice, the digest of a rebuild on SQLite."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"), toy.started("u2", ref="tag-at-once"), toy.finished("u3", "place"))
    async with cut_wire(url, "toy_") as (wire, through), opened(through) as dying:
        engine = Engine(toy.SERVICE, dying)
        await engine.open()
        await _until_cut(engine, log, wire, left)
    async with opened(url, "successor") as store:
        again = Engine(toy.SERVICE, store)
        await again.open()
        await story(again, log)
        identities = [message.headers["Nats-Msg-Id"] for message in log.messages]
        assert len(identities) == len(set(identities)) == 7
        rebuilt = await rebuild(toy.SERVICE, batches(log.messages), tmp_path / "shadow.sqlite")
        assert (await again.digest())[1] == rebuilt.digest


async def _until_cut(engine: Engine, log: toy.MemoryLog, wire: CutWire, left: int) -> None:
    wire.arm(left, answered=bool(left % 2))
    try:
        await story(engine, log)
    except PyMongoError:
        wire.cut()
