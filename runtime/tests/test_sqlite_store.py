"""SQLite passes the store suite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from forebay.runtime.stores.port import Store
from forebay.runtime.stores.sqlite import SqliteStore

from runtime.tests.store_suite import OpenStore, StoreSuite


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
