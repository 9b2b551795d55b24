"""The registry killed while it rebuilds itself under live traffic, on both kinds of store."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.registry_kills import kill_and_compare
from tests.servers.ferretdb import mongo_url


async def test_kills_during_a_rebuild_change_nothing_on_sqlite(tmp_path: Path) -> None:
    """The live state, the one that took over, and a fold of the log are the same."""
    store = {"FOREBAY_STORE": str(tmp_path / "state.sqlite")}
    outcome = await kill_and_compare(tmp_path, store, kills=2, seed=1)
    assert outcome.rebuilt == (outcome.live, outcome.swapped)


async def test_kills_during_a_rebuild_change_nothing_on_the_mongo_wire(tmp_path: Path) -> None:
    """The same, on a store without transactions."""
    async with mongo_url(tmp_path / "mongo") as url:
        store = {"FOREBAY_STORE_URL": url}
        outcome = await kill_and_compare(tmp_path, store, kills=1, seed=2, first=60, pause_s=0.2)
    assert outcome.rebuilt == (outcome.live, outcome.swapped)
