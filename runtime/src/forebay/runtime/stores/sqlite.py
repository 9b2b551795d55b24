"""The embedded store: one SQLite file, written by one process at a time.

Calls are short (one batch, one transaction) and run on the event loop's thread:
handing each to a thread costs more than the call itself. `synchronous=NORMAL` in
WAL mode survives the death of the process; after a power cut the newest batches
may be gone, position and outbox with them, and are folded again from the log.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from forebay.runtime.errors import FencedError
from forebay.runtime.stores.owner import may_live, owner_record
from forebay.runtime.stores.port import NotNow, StoreHead, WriteBatch
from forebay.runtime.stores.runs import SortedRuns
from forebay.runtime.stores.sqlite_errors import worded

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
  kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
  kind TEXT NOT NULL, field TEXT NOT NULL, value TEXT NOT NULL, key TEXT NOT NULL,
  PRIMARY KEY (kind, field, value, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_key ON entries (kind, key);
CREATE TABLE IF NOT EXISTS head (
  only INTEGER PRIMARY KEY CHECK (only = 1), position INTEGER NOT NULL, fold_version INTEGER NOT NULL,
  epoch INTEGER NOT NULL, owner TEXT NOT NULL, expires REAL NOT NULL
);
"""
_BELOW = """
SELECT asked.value, documents.key FROM json_each(?) asked CROSS JOIN documents
WHERE documents.kind = ? AND documents.key > asked.value AND documents.key < asked.value || char(1114111)
ORDER BY asked.id, documents.key
"""
_FIND = """
SELECT d.key, d.body FROM entries e CROSS JOIN documents d ON d.kind = e.kind AND d.key = e.key
WHERE e.kind = ? AND e.field = ? AND e.value = ? ORDER BY e.key
"""
"""CROSS JOIN keeps SQLite from walking through every document of the kind and asking the index about each."""
_SCRATCH = "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN IMMEDIATE;"
CACHE_BYTES = 32 << 20
"""Room for the inner pages of a store of a million nodes, so that a look costs one read."""


class SqliteStore:
    """`Store` on one file. `fold_version` is written when the file is made.

    `scratch` is for a new file that nobody needs after a crash or a failed write (a
    rebuild under way): one transaction until it is released, no journal, nothing
    flushed, documents in sorted runs until somebody asks for a page of them.
    """

    def __init__(self, path: Path, *, fold_version: int, scratch: bool = False, cache_bytes: int = CACHE_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._fold_version = fold_version
        self._scratch = scratch
        self._cache_bytes = cache_bytes
        self._runs: SortedRuns | None = None
        self._epoch: int | None = None
        self._lost = False
        self.place = str(path)
        self._connect()

    def _connect(self) -> None:
        self._db = sqlite3.connect(self._path, timeout=10, isolation_level=None, check_same_thread=False)
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=10000;")
        self._db.execute(f"PRAGMA cache_size=-{self._cache_bytes >> 10}")
        self._db.executescript(_SCHEMA)
        self._db.execute("INSERT OR IGNORE INTO head VALUES (1, 0, ?, 0, '', 0)", (self._fold_version,))
        self._inode = self._path.stat().st_ino
        if self._scratch:
            self._runs = SortedRuns(self._db, Path(f"{self._path}.runs"))
            self._db.executescript(_SCRATCH)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._db.cursor()
        if self._scratch:
            yield cursor
            return
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
            cursor.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk may have ended it already
                cursor.execute("ROLLBACK")
            raise

    @worded
    async def head(self) -> StoreHead:
        position, fold_version = self._db.execute("SELECT position, fold_version FROM head").fetchone()
        return StoreHead(position, fold_version)

    @worded
    async def acquire(self, owner: str, *, ttl_s: float) -> bool:
        now = time.time()
        if self._epoch is None and self._path.stat().st_ino != self._inode:
            self._db.close()  # a rebuilt file has taken the place of the one that we opened
            self._connect()
        with self._transaction() as cursor:
            epoch, holder, expires = cursor.execute("SELECT epoch, owner, expires FROM head").fetchone()
            ours = epoch == self._epoch
            self._lost = self._lost or (self._epoch is not None and not ours)
            if self._lost:
                return False
            if not ours and holder and expires > now and may_live(holder):
                return False
            self._epoch = epoch if ours else epoch + 1
            cursor.execute(
                "UPDATE head SET epoch = ?, owner = ?, expires = ?", (self._epoch, owner_record(owner), now + ttl_s)
            )
        return True

    @worded
    async def release(self) -> None:
        self._db.execute("UPDATE head SET owner = '', expires = 0 WHERE epoch = ?", (self._epoch,))
        self._epoch = None
        if self._scratch and self._db.in_transaction:
            await self._settle()
            self._db.execute("COMMIT")

    @worded
    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        return self._several(kind, keys)

    def several_now(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        try:
            return self._several(kind, keys)
        except sqlite3.Error as error:
            raise NotNow from error

    def below_now(self, kind: str, prefixes: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        self._only_settled()
        try:
            for prefix, key in self._db.execute(_BELOW, (msgspec.json.encode(prefixes).decode(), kind)):
                found.setdefault(prefix, []).append(key)
        except sqlite3.Error as error:
            raise NotNow from error
        return found

    def _several(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        if self._runs is not None:
            return self._runs.get(kind, keys)
        found: dict[str, bytes] = {}
        for start in range(0, len(keys), 500):
            some = keys[start : start + 500]
            marks = ",".join("?" * len(some))
            rows = self._db.execute(
                f"SELECT key, body FROM documents WHERE kind = ? AND key IN ({marks})",  # noqa: S608 only marks
                (kind, *some),
            )
            found.update(rows)
        return found

    def get_now(self, kind: str, key: str) -> bytes | None:
        try:
            if self._runs is not None:
                return self._runs.one(kind, key)
            row = self._db.execute("SELECT body FROM documents WHERE kind = ? AND key = ?", (kind, key)).fetchone()
        except sqlite3.Error as error:
            raise NotNow from error
        return None if row is None else bytes(row[0])

    @worded
    async def find(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        return self._find(kind, field, value)

    def find_now(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        try:
            return self._find(kind, field, value)
        except sqlite3.Error as error:
            raise NotNow from error

    def _find(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        if self._runs is not None:
            look = "SELECT key FROM entries WHERE kind = ? AND field = ? AND value = ? ORDER BY key"
            keys = [key for (key,) in self._db.execute(look, (kind, field, value))]
            found = self._runs.get(kind, keys)
            return [(key, found[key]) for key in keys if key in found]
        return self._db.execute(_FIND, (kind, field, value)).fetchall()

    @worded
    async def page(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        await self._settle()
        return self._page(kind, after=after, limit=limit)

    def page_now(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        self._only_settled()
        try:
            return self._page(kind, after=after, limit=limit)
        except sqlite3.Error as error:
            raise NotNow from error

    def _page(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        return self._db.execute(
            "SELECT key, body FROM documents WHERE kind = ? AND key > ? ORDER BY key LIMIT ?", (kind, after, limit)
        ).fetchall()

    async def _settle(self) -> None:
        """Everything into the table, on a thread: meanwhile the live store answers."""
        if self._runs is not None and not self._runs.settled:
            await asyncio.to_thread(self._runs.settle)

    def _only_settled(self) -> None:
        if self._runs is not None and not self._runs.settled:
            raise NotNow

    @worded
    async def count(self, kind: str) -> int:
        await self._settle()
        return int(self._db.execute("SELECT count(*) FROM documents WHERE kind = ?", (kind,)).fetchone()[0])

    @worded
    async def write(self, batch: WriteBatch) -> None:
        with self._transaction() as cursor:
            (epoch,) = cursor.execute("SELECT epoch FROM head").fetchone()
            if epoch != self._epoch:
                msg = f"another process reads this store now (epoch {epoch}, ours was {self._epoch})"
                raise FencedError(msg)
            stale = [(put.kind, put.key) for put in batch.puts if put.indexed]
            stale += [(gone.kind, gone.key) for gone in batch.deletes]
            cursor.executemany("DELETE FROM entries WHERE kind = ? AND key = ?", stale)
            if self._runs is not None:
                self._runs.change(batch)
            else:
                _change(cursor, batch)
            cursor.executemany(
                "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)",
                [(put.kind, field, value, put.key) for put in batch.puts for field, value in put.index],
            )
            if batch.position is not None:
                cursor.execute("UPDATE head SET position = ?", (batch.position,))
        if self._runs is not None and self._runs.full:
            await asyncio.to_thread(self._runs.spill)

    def write_out(self) -> None:
        """Move everything from the write-ahead log into the file itself, which may then be replaced or kept alone."""
        busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            msg = f"{self._path} is being read by another program"
            raise sqlite3.OperationalError(msg)

    async def close(self) -> None:
        self._db.close()
        if self._runs is not None:
            self._runs.remove()


def _change(cursor: sqlite3.Cursor, batch: WriteBatch) -> None:
    cursor.executemany(
        "DELETE FROM documents WHERE kind = ? AND key = ?", [(gone.kind, gone.key) for gone in batch.deletes]
    )
    # In key order neighbours share pages, which is a fifth faster in a large file.
    rows = sorted([(put.kind, put.key, put.body) for put in batch.puts])
    cursor.executemany("INSERT INTO documents VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body", rows)
