"""Shuffles of one story, repeats and late parents included: one digest, in memory, on SQLite, on the Mongo wire.

A thousand in memory, fewer where files and round trips cost; by hand as many as wanted:
`python -m services.registry.tests.test_shuffles --sqlite 1000 --mongo 200`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event
from forebay.registry.app import definition
from forebay.runtime.digest import store_digest
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage
from forebay.runtime.rebuild import rebuild, rebuild_into
from forebay.runtime.stores.mongo import open_mongo
from forebay.runtime.stores.sqlite import SqliteStore

from services.registry.tests.histories import START, digest, event, history, uploaded
from tests.servers.ferretdb import mongo_url

SHUFFLES, ON_SQLITE, ON_MONGO = 1000, 200, 20
HISTORY = history()
EXPECTED = digest(HISTORY)


def disturbed(seed: int) -> list[Event[EventBody]]:
    """Shuffled; a third comes twice or more; a few, parents among them, come when all else is there."""
    random = Random(seed)  # noqa: S311 an order that can be had again
    events = HISTORY + random.choices(HISTORY, k=len(HISTORY) // 3)
    random.shuffle(events)
    late = {one.identity for one in random.sample(HISTORY, random.randint(0, 8))}
    return [one for one in events if one.identity not in late] + [one for one in events if one.identity in late]


def stored(events: Sequence[Event[EventBody]]) -> list[LogMessage]:
    """As the log would hold them."""
    found: list[LogMessage] = []
    for seq, one in enumerate(events, start=1):
        message = encode(one)
        at = START + timedelta(seconds=seq)
        found.append(
            LogMessage(seq=seq, subject=message.subject, headers=message.headers, data=message.body, stored_at=at)
        )
    return found


def batches(messages: Sequence[LogMessage], seed: int) -> Iterator[Sequence[LogMessage]]:
    """Cut at random places."""
    random = Random(seed)  # noqa: S311 as above
    start = 0
    while start < len(messages):
        size = random.randint(1, 25)
        yield messages[start : start + size]
        start += size


async def one_batch(messages: list[LogMessage]) -> AsyncIterator[list[LogMessage]]:
    yield messages


def test_in_memory() -> None:
    """A thousand orders, one digest."""
    assert {digest(disturbed(seed)) for seed in range(SHUFFLES)} == {EXPECTED}


async def test_rebuilt_on_sqlite(tmp_path: Path) -> None:
    """Through codec and engine into a file each."""
    assert await on_sqlite(tmp_path, ON_SQLITE) == {EXPECTED}


async def on_sqlite(folder: Path, shuffles: int) -> set[str]:
    """Digests of that many shuffles."""
    found: set[str] = set()
    for seed in range(shuffles):
        path = folder / "shuffled.sqlite"
        found.add((await rebuild(definition(), one_batch(stored(disturbed(seed))), path)).digest)
        path.unlink()
    return found


@pytest.mark.parametrize("seed", range(5))
async def test_followed_on_sqlite(tmp_path: Path, seed: int) -> None:
    """A live service that decides as well, batch by batch, has the digest of a rebuild of what it read."""
    messages = stored(disturbed(seed))
    store = SqliteStore(tmp_path / "live.sqlite", fold_version=definition().fold_version)
    await store.acquire("test", ttl_s=60)
    engine = Engine(definition(), store)
    await engine.open()
    for batch in batches(messages, seed):
        await engine.fold(batch)
    assert (await engine.digest())[1] == EXPECTED
    await store.close()


async def test_on_the_mongo_wire(tmp_path: Path) -> None:
    """Fewer there: every write is a round trip."""
    async with mongo_url(tmp_path) as url:
        assert await on_mongo(url, ON_MONGO) == {EXPECTED}


async def on_mongo(url: str, shuffles: int) -> set[str]:
    """Digests of that many shuffles, each in a database of its own."""
    base, _, name = url.partition("?")[0].rpartition("/")
    found: set[str] = set()
    for seed in range(shuffles):
        service = definition()
        store = await open_mongo(f"{base}/{name}_{seed}", "registry", fold_version=service.fold_version)
        await store.acquire("test", ttl_s=600)
        await rebuild_into(store, service, one_batch(stored(disturbed(seed))))
        found.add((await store_digest(store, service)).hexdigest())
        await store.close()
    return found


async def test_a_different_story_has_another_digest(tmp_path: Path) -> None:
    """The digest tells stories apart: one more episode, and it is another."""
    more = [*HISTORY, event(uploaded(99))]
    assert (await rebuild(definition(), one_batch(stored(more)), tmp_path / "more.sqlite")).digest != EXPECTED


async def by_hand(sqlite: int, mongo: int) -> int:
    """Say what came of it; 1 when a digest differs."""
    same = True
    with tempfile.TemporaryDirectory(prefix="forebay-shuffles-") as name:
        folder = Path(name)
        for what, count in (("sqlite", sqlite), ("mongo", mongo)):
            began = time.perf_counter()
            if what == "sqlite":
                found = await on_sqlite(folder, count)
            else:
                async with mongo_url(folder) as url:
                    found = await on_mongo(url, count)
            same = same and found <= {EXPECTED}
            said = "equal digests" if found <= {EXPECTED} else f"DIGESTS DIFFER: {sorted(found)}"
            sys.stdout.write(f"{what}: {count} shuffles, {said}, {time.perf_counter() - began:.0f} s\n")
    return 0 if same else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sqlite", type=int, default=1000, help="shuffles on SQLite")
    parser.add_argument("--mongo", type=int, default=200, help="shuffles on the Mongo wire")
    args = parser.parse_args()
    sys.exit(asyncio.run(by_hand(args.sqlite, args.mongo)))
