"""The documents of a store under construction: the newest in memory, the others in sorted runs, merged once.

Keys come in no order, so a B-tree that has outgrown its cache pays a page for each
of them, and the more the larger it grows. Runs are only ever written in key order,
which costs the same at any size. They lie in a file of their own beside the store
and are gone when it is done. Used by `SqliteStore` while a rebuild fills it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice
from mmap import mmap
from pathlib import Path

from forebay.runtime.stores.port import WriteBatch

_RUN = 128_000
"""Documents of the smallest run: some 100 MB while they are in memory."""
_FAN = 64
"""So many runs of one size become one: a document is written once more when there are 64 times as many."""
_ROWS = 100
"""Of one statement: each costs as much to start as two rows to write."""
_BEGIN = """
PRAGMA runs.page_size=16384; PRAGMA runs.journal_mode=OFF; PRAGMA runs.synchronous=OFF; PRAGMA runs.cache_size=-32768;
"""
_TABLE = (
    "CREATE TABLE {} (kind TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
)
_NEWEST = "ON CONFLICT DO UPDATE SET body = excluded.body"
_FILTER_BITS = 28
"""32 MiB: with fifteen million documents one in a hundred reads of an absent one still looks into the file."""
_LINE = 511
"""Bits of a cache line."""


class SortedRuns:
    """A log-structured merge into the table `documents` of `db`; what is not there yet is known without looking."""

    def __init__(self, db: sqlite3.Connection, path: Path, *, run: int = _RUN, fan: int = _FAN) -> None:
        self._db = db
        self._run = run
        self._fan = fan
        self._path = path
        self._recent: dict[str, dict[str, bytes]] = {}
        """By kind and key."""
        self._held = 0
        """Documents in `_recent`, give or take those that were written twice."""
        self._gone: set[tuple[str, str]] = set()
        """Deleted, though some run may still hold it."""
        self._runs: list[tuple[str, int]] = []
        """(table, size class), oldest first; sizes never grow towards the newer ones."""
        self._numbers = count()
        self._filter = _Filter(_FILTER_BITS)
        path.unlink(missing_ok=True)  # what a process left that was killed
        db.execute("ATTACH ? AS runs", (str(path),))
        db.executescript(_BEGIN)

    @property
    def settled(self) -> bool:
        """Everything stands in `documents`."""
        return not (self._recent or self._runs or self._gone)

    @property
    def full(self) -> bool:
        """`spill` is due."""
        return self._held >= self._run

    def change(self, batch: WriteBatch) -> None:
        for gone in batch.deletes:
            if self._filter.may_hold(gone.kind, gone.key):
                self._recent.get(gone.kind, {}).pop(gone.key, None)
                self._gone.add((gone.kind, gone.key))
        if self._gone:
            self._gone.difference_update((put.kind, put.key) for put in batch.puts)
        changed: dict[str, dict[str, bytes]] = {}
        for put in batch.puts:
            changed.setdefault(put.kind, {})[put.key] = put.body
        for kind, bodies in changed.items():
            self._recent.setdefault(kind, {}).update(bodies)
            self._filter.add(kind, bodies)
        self._held += len(batch.puts)

    def one(self, kind: str, key: str) -> bytes | None:
        return self.get(kind, (key,)).get(key) if self._filter.may_hold(kind, key) else None

    def get(self, kind: str, keys: Iterable[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        recent = self._recent.get(kind, {})
        wanted = []
        for key in keys:
            if not self._filter.may_hold(kind, key):
                continue
            if key in recent:
                found[key] = recent[key]
            elif (kind, key) not in self._gone:
                wanted.append(key)
        for table in (*(table for table, _ in reversed(self._runs)), "main.documents"):
            if not wanted:
                break
            older = self._in_table(table, kind, wanted)
            found |= older
            wanted = [key for key in wanted if key not in older]
        return found

    def _in_table(self, table: str, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        look = f"SELECT body FROM {table} WHERE kind = ? AND key = ?"  # noqa: S608 a name of ours
        rows = ((key, self._db.execute(look, (kind, key)).fetchone()) for key in keys)
        return {key: bytes(row[0]) for key, row in rows if row is not None}

    def spill(self) -> None:
        """Write what is in memory as a run; on another thread only while nothing else is called."""
        self._new_run()
        while len(same := [table for table, size in self._runs if size == self._runs[-1][1]]) == self._fan:
            table, size = self._new_table(), self._runs[-1][1] + 1
            self._merge(same, table)
            self._runs[-self._fan :] = [(table, size)]

    def settle(self) -> None:
        """Move everything into `documents`, in one pass in key order."""
        if self._runs:
            self._new_run()
            self._merge([table for table, _ in self._runs], "main.documents")
            self._runs.clear()
        else:
            self._write_recent("main.documents")
        self._db.executemany("DELETE FROM main.documents WHERE kind = ? AND key = ?", list(self._gone))
        self._gone.clear()

    def remove(self) -> None:
        """The runs' file is not needed any more."""
        self._path.unlink(missing_ok=True)

    def _new_table(self) -> str:
        table = f"runs.run_{next(self._numbers)}"
        self._db.execute(_TABLE.format(table))
        return table

    def _new_run(self) -> None:
        table = self._new_table()
        self._write_recent(table)
        self._runs.append((table, 0))

    def _write_recent(self, table: str) -> None:
        rows = self._sorted()
        each = f"INSERT INTO {table} VALUES (?, ?, ?)"  # noqa: S608 a name of ours
        many = each + ", (?, ?, ?)" * (_ROWS - 1)
        while some := list(islice(rows, _ROWS)):
            if len(some) == _ROWS:
                self._db.execute(f"{many} {_NEWEST}", list(chain.from_iterable(some)))
            else:
                self._db.executemany(f"{each} {_NEWEST}", some)
        self._recent.clear()
        self._held = 0

    def _sorted(self) -> Iterator[tuple[str, str, bytes]]:
        for kind in sorted(self._recent):
            bodies = self._recent[kind]
            for key in sorted(bodies):
                yield kind, key, bodies[key]

    def _merge(self, tables: Sequence[str], into: str) -> None:
        """The newest body of a key comes last and stays."""
        some = " UNION ALL ".join(f"SELECT kind, key, body, {age} AS age FROM {one}" for age, one in enumerate(tables))  # noqa: S608
        rows = f"SELECT kind, key, body FROM ({some} ORDER BY kind, key, age) WHERE true"  # noqa: S608
        self._db.execute(f"INSERT INTO {into} {rows} {_NEWEST}")
        for one in tables:
            self._db.execute(f"DROP TABLE {one}")


class _Filter:
    """A Bloom filter over (kind, key): what it does not know was never written. Both bits of a key share a cache line."""

    def __init__(self, bits: int) -> None:
        self._bits = mmap(-1, 1 << bits - 3)  # zeroes that cost nothing before they are touched
        self._mask = (1 << bits) - 1
        self._shift = bits

    def add(self, kind: str, keys: Iterable[str]) -> None:
        bits, mask, shift, salt = self._bits, self._mask, self._shift, hash(kind)
        for key in keys:
            number = hash(key) ^ salt
            one = number & mask
            two = one ^ number >> shift & _LINE
            bits[one >> 3] |= 1 << (one & 7)
            bits[two >> 3] |= 1 << (two & 7)

    def may_hold(self, kind: str, key: str) -> bool:
        number = hash(key) ^ hash(kind)
        one = number & self._mask
        if not self._bits[one >> 3] >> (one & 7) & 1:
            return False
        two = one ^ number >> self._shift & _LINE
        return bool(self._bits[two >> 3] >> (two & 7) & 1)
