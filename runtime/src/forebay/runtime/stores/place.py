"""Where a service's store lives, and how a rebuilt one takes its place. The only module that picks an adapter."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import uuid
from pathlib import Path
from typing import Protocol, cast

from forebay.runtime.errors import FencedError
from forebay.runtime.settings import ServiceSettings
from forebay.runtime.stores.port import Store
from forebay.runtime.stores.sqlite import CACHE_BYTES, SqliteStore
from forebay.runtime.stores.sqlite_errors import check, in_words, is_damaged, set_aside

LEASE_S = 10.0


class StorePlace(Protocol):
    """Opens the live store, makes an empty one beside it, and swaps them.

    Until `swap` has succeeded the live store is what the next process finds.
    """

    note: str
    """What people should hear about the store that was opened; "" when there is nothing to tell."""

    @property
    def where(self) -> str:
        """The store's name for people."""
        ...

    async def open(self) -> Store: ...

    async def shadow(self, live: Store) -> Store:
        """An empty store, held; what a killed rebuild left is removed. Only the active reader may ask."""
        ...

    async def swap(self, live: Store, shadow: Store) -> Store:
        """The shadow takes the place of the live store; returns what to go on with, held. Neither is of use afterwards."""
        ...

    async def discard(self, shadow: Store) -> None:
        """The shadow is not wanted after all."""
        ...


class SqlitePlace:
    """One file; the shadow is a file beside it, which is renamed over it."""

    def __init__(self, path: Path, *, fold_version: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._path = path
        self._cache_bytes = cache_bytes
        self._shadow = Path(f"{path}.shadow")
        self._fold_version = fold_version
        self.note = ""

    @property
    def where(self) -> str:
        return str(self._path)

    async def open(self) -> Store:
        """The live store. A damaged file is set aside and an empty one made, which folds the whole log."""
        try:
            await asyncio.to_thread(check, self._path)
            return self._open()
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise in_words(str(self._path), error) from error
            self.note = set_aside(self._path, error)
            return self._open()

    def _open(self) -> Store:
        return SqliteStore(self._path, fold_version=self._fold_version, cache_bytes=self._cache_bytes)

    async def shadow(self, live: Store) -> Store:  # noqa: ARG002 a file needs no connection of the live one
        self._remove()
        shadow = SqliteStore(self._shadow, fold_version=self._fold_version, scratch=True)
        await shadow.acquire("rebuild", ttl_s=LEASE_S)
        return shadow

    async def swap(self, live: Store, shadow: Store) -> Store:
        old = cast("SqliteStore", live)
        await shadow.release()
        await shadow.close()
        await asyncio.to_thread(_flush, self._shadow)
        old.write_out()
        await old.close()
        for suffix in ("-wal", "-shm"):  # empty after `write_out`; they must not meet the new file
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._shadow.replace(self._path)
        _flush(self._path.parent)
        new = SqliteStore(self._path, fold_version=self._fold_version, cache_bytes=self._cache_bytes)
        if not await new.acquire(uuid.uuid4().hex, ttl_s=LEASE_S):
            msg = f"another process took {self._path} while it was swapped"
            raise FencedError(msg)
        return new

    async def discard(self, shadow: Store) -> None:
        await shadow.close()
        self._remove()

    def _remove(self) -> None:
        for leftover in self._path.parent.glob(f"{self._shadow.name}*"):
            leftover.unlink()


def _flush(path: Path) -> None:
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


class MongoPlace:
    """One database; the shadow is a collection, and the head says which one counts."""

    def __init__(self, url: str, service: str, *, fold_version: int) -> None:
        self.note = ""
        self._url = url
        self._service = service
        self._fold_version = fold_version
        self._made = 0

    @property
    def where(self) -> str:
        return f"the collections {self._service.replace('-', '_')}_* of MongoDB"

    async def open(self) -> Store:
        from forebay.runtime.stores.mongo import open_mongo  # noqa: PLC0415 motor takes half a second to import

        return await open_mongo(self._url, self._service, fold_version=self._fold_version)

    async def shadow(self, live: Store) -> Store:
        from forebay.runtime.stores.mongo import MongoStore  # noqa: PLC0415 as above

        self._made += 1
        return await cast("MongoStore", live).shadow(self._made)

    async def swap(self, live: Store, shadow: Store) -> Store:
        from forebay.runtime.stores.mongo import MongoShadow, MongoStore  # noqa: PLC0415 as above

        await cast("MongoStore", live).take_over(cast("MongoShadow", shadow), self._fold_version)
        return live

    async def discard(self, shadow: Store) -> None:
        from forebay.runtime.stores.mongo import MongoShadow  # noqa: PLC0415 as above

        await cast("MongoShadow", shadow).discard()


def place_of(settings: ServiceSettings, service: str, *, fold_version: int) -> StorePlace:
    """The place that the settings name."""
    if settings.store_url:
        return MongoPlace(settings.store_url, service, fold_version=fold_version)
    return SqlitePlace(settings.store_path(service), fold_version=fold_version, cache_bytes=settings.store_cache_bytes)
