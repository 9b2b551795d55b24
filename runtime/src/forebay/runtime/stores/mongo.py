"""The store on MongoDB, through motor. No other module imports motor.

No transactions and no aggregation, so that a standalone server and whatever else
speaks the protocol will do. Per service there are four collections: `<service>_claims`
(the lease; its latest `_id` is the epoch), `<service>_head` (one document: position and
pointers), `<service>_journal`, and `<service>_documents_<epoch>` with `_id` = kind, unit
separator, key.

A batch is atomic all the same: it is written to the journal, one update of the head
commits it, then it is applied and the position moves. Whoever finds a committed batch
applies it again before reading anything; applying twice is the same as once.

A process that lost its place may still have a write under way. Its successor first
renames the documents, so that such a write lands in a collection that nobody reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from bson import Binary
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorCollection, AsyncIOMotorDatabase
from pymongo.errors import CollectionInvalid, DuplicateKeyError, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from forebay.runtime.errors import FencedError, StoreNotFitError
from forebay.runtime.stores.owner import may_live, owner_record
from forebay.runtime.stores.port import Put, StoreHead, WriteBatch

Row = dict[str, Any]
Database = AsyncIOMotorDatabase[Row]
SEPARATOR = "\x1f"
_AFTER = "\x20"
"""The character after the separator: a kind's keys are the ids between the two."""
INDEX = "index"
_HEAD = {"_id": "head"}
_CHUNK_BYTES = 4 << 20
_MOST_BYTES = 12 << 20
"""MongoDB takes 16 MiB per document; a journal entry needs room around it."""
_AT_ONCE = 1000
_DEFAULTS = {"serverSelectionTimeoutMS": 5_000, "socketTimeoutMS": 60_000}
"""Unless the address says otherwise."""
_NAMESPACE_EXISTS = 48


class _Chunk(msgspec.Struct, array_like=True):
    """A part of a batch as it lies in the journal."""

    puts: list[tuple[str, bytes, list[str]]]
    gone: list[str]


class _Documents:
    """The documents of one generation, in one collection."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        self._rows: AsyncIOMotorCollection[Row] = database[name]

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        ids = [_id(kind, key) for key in keys]
        if len(ids) == 1:  # a point read: FerretDB looks only this up by index
            row = await self._rows.find_one({"_id": ids[0]})
            return {} if row is None else {keys[0]: bytes(row["body"])}
        found: dict[str, bytes] = {}
        for some in _sliced(ids):
            async for row in self._rows.find({"_id": {"$in": some}}, {"body": 1}):
                found[_key(row)] = bytes(row["body"])
        return found

    async def find(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        rows = self._rows.find({INDEX: _entry(kind, field, value)}, {"body": 1}).sort("_id", 1)
        return [(_key(row), bytes(row["body"])) async for row in rows]

    async def page(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        within = {"_id": {"$gt": _id(kind, after), "$lt": kind + _AFTER}}
        rows = self._rows.find(within, {"body": 1}).sort("_id", 1).limit(limit)
        return [(_key(row), bytes(row["body"])) async for row in rows]

    async def count(self, kind: str) -> int:
        return await self._rows.count_documents({"_id": {"$gt": kind + SEPARATOR, "$lt": kind + _AFTER}})

    async def apply(self, chunk: _Chunk) -> None:
        """Delete what is replaced, then insert. Updates in bulk are what some servers of the protocol cannot do."""
        for some in _sliced([*chunk.gone, *(one for one, _, _ in chunk.puts)]):
            await self._rows.delete_many({"_id": {"$in": some}})
        rows = [{"_id": one, "body": Binary(body), INDEX: index} for one, body, index in chunk.puts]
        for some_rows in _sliced(rows):
            await self._rows.insert_many(some_rows, ordered=False)


class MongoStore:
    """`Store` of one service in one database. Made by `open_mongo`."""

    def __init__(self, client: AsyncIOMotorClient[Row], database: Database, service: str, *, where: str) -> None:
        self._client = client
        self._database = database
        self._where = where
        self._prefix = service.replace("-", "_")
        self._heads: AsyncIOMotorCollection[Row] = database[f"{self._prefix}_head"]
        self._claims: AsyncIOMotorCollection[Row] = database[f"{self._prefix}_claims"]
        self._journal: AsyncIOMotorCollection[Row] = database[f"{self._prefix}_journal"]
        self._documents = _Documents(database, self._generation(0))
        self._epoch: int | None = None
        self._lost = False
        self._batch = 0
        self._unsettled = False
        self._writing = asyncio.Lock()

    # ------------------------------------------------------------------ start

    async def prepare(self, fold_version: int) -> None:
        """Make what a new store needs. What an old one lacks is found when its place is taken."""
        hello = await self._database.client.admin.command("hello")
        if not hello.get("isWritablePrimary", False):
            msg = f"the MongoDB server {self._where} takes no writes: it is not the primary"
            raise StoreNotFitError(
                msg, "name the whole replica set in FOREBAY_STORE_URL: mongodb://a,b,c/?replicaSet=…"
            )
        head = await self._heads.find_one(_HEAD)
        if head is None:
            first = self._generation(0)
            await self._make(first)
            fresh = {
                "position": 0,
                "fold_version": fold_version,
                "epoch": 0,
                "documents": first,
                "moving": None,
                "staged": None,
            }
            with contextlib.suppress(DuplicateKeyError):  # another process was faster; its head counts
                await self._heads.insert_one(_HEAD | fresh)
            head = await self._look()
        self._documents = _Documents(self._database, head["documents"])

    async def _make(self, name: str) -> None:
        try:
            await self._database.create_collection(name)
        except (CollectionInvalid, OperationFailure) as error:
            if isinstance(error, OperationFailure) and error.code != _NAMESPACE_EXISTS:
                raise
        await self._database[name].create_index(INDEX, name=INDEX)

    async def _check(self, name: str) -> None:
        indexes = await self._database[name].index_information()
        keys = [tuple(field for field, _ in index["key"]) for index in indexes.values()]
        missing = [field for field in ("_id", INDEX) if (field,) not in keys]
        if missing:
            msg = f"the collection {name} of {self._where} has no index on {', '.join(missing)}"
            fix = f"in mongosh: db.{name}.createIndex({{{INDEX}: 1}}, {{name: '{INDEX}'}})"
            raise StoreNotFitError(msg, fix)

    def _generation(self, epoch: int) -> str:
        return f"{self._prefix}_documents_{epoch}"

    # ------------------------------------------------------------------ lease

    async def head(self) -> StoreHead:
        await self._settle()
        head = await self._look()
        self._documents = _Documents(self._database, head["documents"])
        return StoreHead(int(head["position"]), int(head["fold_version"]))

    async def _look(self) -> Row:
        head = await self._heads.find_one(_HEAD)
        if head is None:
            msg = f"the store of {self._prefix} in {self._where} has no head: it was dropped while it was in use"
            raise StoreNotFitError(msg, "start the service again; it folds the log into a new store")
        return head

    async def acquire(self, owner: str, *, ttl_s: float) -> bool:
        lease = {"owner": owner_record(owner), "expires": time.time() + ttl_s}
        latest = await self._claims.find_one(sort=[("_id", -1)]) or {"_id": 0, "owner": "", "expires": 0.0}
        if self._epoch is not None:
            self._lost = self._lost or latest["_id"] != self._epoch
        if self._lost:
            return False
        if self._epoch is not None:
            await self._claims.update_one({"_id": self._epoch}, {"$set": lease})
            return True
        holder = str(latest["owner"])
        if holder and latest["expires"] > time.time() and may_live(holder):
            return False
        return await self._take(int(latest["_id"]) + 1, lease, after_death=bool(holder))

    async def _take(self, epoch: int, lease: Mapping[str, Any], *, after_death: bool) -> bool:
        """Insert the claim of an epoch, which only one process can, and make the store ours."""
        try:
            await self._claims.insert_one({"_id": epoch} | dict(lease))
        except DuplicateKeyError:
            return False
        head = await self._look()
        # After a clean release nothing can be under way, so the documents stay where they are.
        moving = head["moving"] or (self._generation(epoch) if after_death else None)
        change = {"$set": {"epoch": epoch, "moving": moving}}
        if not (await self._heads.update_one(_HEAD | {"epoch": {"$lt": epoch}}, change)).matched_count:
            return False
        self._epoch = epoch
        try:
            await self._recover()
            await self._tidy()
        except BaseException:
            self._epoch = None
            raise
        return True

    async def release(self) -> None:
        async with self._writing:
            if self._epoch is not None and not self._unsettled:
                await self._claims.update_one({"_id": self._epoch}, {"$set": {"owner": "", "expires": 0.0}})
            self._epoch = None

    async def _set(self, change: Mapping[str, Any]) -> None:
        """Change the head, if it is still ours."""
        changed = await self._heads.update_one(_HEAD | {"epoch": self._epoch}, {"$set": dict(change)})
        if not changed.matched_count:
            self._lost = True
            msg = f"another process reads this store now (our epoch was {self._epoch})"
            raise FencedError(msg)

    # --------------------------------------------------------------- recovery

    async def _settle(self) -> None:
        """After a write that failed half-way: find out what became of it before anything is read."""
        if not self._unsettled:
            return
        async with self._writing:
            if self._unsettled:
                await self._recover()

    async def _recover(self) -> None:
        """Bring the store to where its head says it is."""
        head = await self._look()
        if head["epoch"] != self._epoch:
            self._lost = True
            msg = f"another process reads this store now (epoch {head['epoch']}, ours was {self._epoch})"
            raise FencedError(msg)
        name = str(head["documents"])
        if moving := head["moving"]:
            name = await self._move(name, str(moving))
        self._documents = _Documents(self._database, name)
        await self._check(name)
        if staged := head["staged"]:
            for number in range(staged["chunks"]):
                part = await self._journal.find_one({"_id": f"{staged['epoch']}-{number}"})
                if part is None or part["batch"] != staged["batch"]:
                    msg = f"part {number} of the committed batch {staged['batch']} is missing in {self._journal.name}"
                    raise StoreNotFitError(msg, f"drop {self._heads.name}; the service folds the log into a new store")
                await self._documents.apply(msgspec.msgpack.decode(part["ops"], type=_Chunk))
            await self._finish(staged["position"])
        self._unsettled = False

    async def _move(self, name: str, target: str) -> str:
        """Rename the documents; a predecessor may have died before or after doing so."""
        target_exists = target in await self._database.list_collection_names()
        if not target_exists:
            await self._database[name].rename(target)
        await self._set({"documents": target, "moving": None})
        return target

    async def _tidy(self) -> None:
        """Drop what earlier holders left: replaced documents, shadows, journals."""
        generations = self._generation(0)[:-1]
        for name in await self._database.list_collection_names():
            if name.startswith(generations) and name != self._documents.name:
                await self._database.drop_collection(name)
        await self._journal.delete_many({"epoch": {"$ne": self._epoch}})
        await self._claims.delete_many({"_id": {"$lt": self._epoch}})

    # ------------------------------------------------------------------ reads

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        await self._settle()
        return await self._documents.get(kind, keys)

    async def find(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        await self._settle()
        return await self._documents.find(kind, field, value)

    async def page(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        await self._settle()
        return await self._documents.page(kind, after=after, limit=limit)

    async def count(self, kind: str) -> int:
        await self._settle()
        return await self._documents.count(kind)

    # ----------------------------------------------------------------- writes

    async def write(self, batch: WriteBatch) -> None:
        await self._settle()
        chunks = list(chunked(batch))
        async with self._writing:
            if self._epoch is None or self._lost:
                msg = "this process does not hold the store"
                raise FencedError(msg)
            self._unsettled = True
            await self._commit(chunks, batch.position)
            for chunk in chunks:
                await self._documents.apply(chunk)
            await self._finish(batch.position)
            self._unsettled = False

    async def _commit(self, chunks: Sequence[_Chunk], position: int | None) -> None:
        self._batch += 1
        for number, chunk in enumerate(chunks):
            row = {
                "_id": f"{self._epoch}-{number}",
                "epoch": self._epoch,
                "batch": self._batch,
                "ops": Binary(msgspec.msgpack.encode(chunk)),
            }
            await self._journal.replace_one({"_id": row["_id"]}, row, upsert=True)
        staged = {"epoch": self._epoch, "batch": self._batch, "chunks": len(chunks), "position": position}
        await self._set({"staged": staged})

    async def _finish(self, position: int | None) -> None:
        await self._set({"staged": None} | ({} if position is None else {"position": position}))

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)  # it says goodbye to the server, and waits for that

    # ----------------------------------------------------------------- shadow

    async def shadow(self, number: int) -> MongoShadow:
        """An empty collection beside the current one. Only the active reader may ask for it."""
        name = f"{self._generation(self._epoch or 0)}_{number}"
        await self._database.drop_collection(name)
        await self._make(name)
        return MongoShadow(self._database, name)

    async def take_over(self, shadow: MongoShadow, fold_version: int) -> None:
        """Let a shadow's documents be ours, in one update of the head."""
        await self._settle()
        async with self._writing:
            self._unsettled = True
            await self._set({"documents": shadow.name, "position": shadow.position, "fold_version": fold_version})
            replaced = self._documents.name
            await self._recover()
        await self._database.drop_collection(replaced)


class MongoShadow:
    """`Store` for a rebuild: documents without head and journal, because it is thrown away when its process dies."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        self.position = 0
        self._database = database
        self._documents = _Documents(database, name)
        self.get = self._documents.get
        self.find = self._documents.find
        self.page = self._documents.page
        self.count = self._documents.count

    async def head(self) -> StoreHead:
        return StoreHead(self.position, 0)

    async def acquire(self, owner: str, *, ttl_s: float) -> bool:  # noqa: ARG002 nobody else knows of it
        return True

    async def release(self) -> None:
        """Nobody waits for it."""

    async def write(self, batch: WriteBatch) -> None:
        for chunk in chunked(batch):
            await self._documents.apply(chunk)
        if batch.position is not None:
            self.position = batch.position

    async def close(self) -> None:
        """The live store owns the connection."""

    async def discard(self) -> None:
        await self._database.drop_collection(self.name)


def chunked(batch: WriteBatch) -> Iterator[_Chunk]:
    """A batch in parts that fit into a document each; raises `StoreNotFitError` when one put alone does not."""
    puts: list[tuple[str, bytes, list[str]]] = []
    size = 0
    gone = [_id(one.kind, one.key) for one in batch.deletes]
    for put in batch.puts:
        row = _row(put)
        if len(put.body) > _MOST_BYTES:
            msg = f"the {put.kind} {put.key!r} has {len(put.body):,} bytes; MongoDB takes {_MOST_BYTES:,} here"
            raise StoreNotFitError(msg, "keep this service's store in SQLite: unset FOREBAY_STORE_URL")
        if size + len(put.body) > _CHUNK_BYTES and puts:
            yield _Chunk(puts, [])
            puts, size = [], 0
        puts.append(row)
        size += len(put.body) + len(row[0]) + sum(map(len, row[2]))
    for some in _sliced(gone, 20_000):
        yield _Chunk([], some)
    if puts:
        yield _Chunk(puts, [])


def _row(put: Put) -> tuple[str, bytes, list[str]]:
    return _id(put.kind, put.key), put.body, [_entry(put.kind, field, value) for field, value in put.index]


def _id(kind: str, key: str) -> str:
    return f"{kind}{SEPARATOR}{key}"


def _key(row: Row) -> str:
    return str(row["_id"]).partition(SEPARATOR)[2]


def _entry(kind: str, field: str, value: str) -> str:
    return f"{kind}{SEPARATOR}{field}{SEPARATOR}{value}"


def _sliced(found: list[Any], size: int = _AT_ONCE) -> Iterator[list[Any]]:
    for start in range(0, len(found), size):
        yield found[start : start + size]


async def open_mongo(url: str, service: str, *, fold_version: int) -> MongoStore:
    """Connect and prepare. Raises `StoreNotFitError` when the server cannot be used as it is, or cannot be reached."""
    try:
        parsed = parse_uri(url)
        name = parsed["database"] or "forebay"
        given = {option.lower() for option in parsed["options"]}
        defaults: dict[str, Any] = {option: value for option, value in _DEFAULTS.items() if option.lower() not in given}
        client: AsyncIOMotorClient[Row] = AsyncIOMotorClient(
            url, tz_aware=True, appname=f"forebay-{service}", w="majority", **defaults
        )
    except (PyMongoError, ValueError) as error:
        msg = f"FOREBAY_STORE_URL is no MongoDB address: {error}"
        raise StoreNotFitError(msg, "write it like mongodb://user:password@host:27017/forebay") from error
    where = ", ".join(f"{host}:{port}" for host, port in parsed["nodelist"]) + f"/{name}"
    store = MongoStore(client, client[name], service, where=where)
    try:
        await store.prepare(fold_version)
    except BaseException:
        await store.close()
        raise
    return store
