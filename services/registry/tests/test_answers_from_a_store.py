"""What the registry answers from a store is what it answers from a state in memory, however it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import EventBody
from forebay.registry.app import definition
from forebay.registry.questions.impact import DRAWN
from forebay.runtime.engine import Engine
from forebay.runtime.rebuild import rebuild_into
from forebay.runtime.stores.mongo import open_mongo
from forebay.runtime.stores.port import Store
from forebay.runtime.stores.sqlite import SqliteStore

from services.registry.tests.histories import (
    Registry,
    admitted,
    committed,
    episode_id,
    event,
    leased,
    request,
    resumed,
    submitted,
    trained,
    uploaded,
    written,
)
from services.registry.tests.test_shuffles import one_batch, stored
from tests.servers.ferretdb import mongo_url

ATTEMPTS, IN_A_STORE = 700, 12


@pytest.fixture(scope="module")
def registry() -> Registry:
    """A story with a model that is live, and a job that was resumed again and again."""
    registry = Registry()
    trained(registry)
    registry.command("model-register", model="reach", job="reach-1")
    registry.command("model-evaluate", model="reach", metrics={"success": 0.9}, source="eval.json")
    registry.command("model-release", model="reach", channel="production")
    registry.say(*restarted(IN_A_STORE))
    return registry


def restarted(attempts: int) -> list[EventBody]:
    """A job of many attempts, each resumed from the only save of the one before."""
    said: list[EventBody] = [submitted("long-1"), leased("long-1", 1)]
    for attempt in range(1, attempts + 1):
        before = resumed(attempt, attempt - 1 or None, "long-1", of=attempt - 1)
        said += [admitted(attempt, "long-1"), before, written(attempt, attempt, "long-1")]
    return said


@pytest.fixture(scope="module", params=["sqlite", "mongo"])
async def engine(
    request: pytest.FixtureRequest, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    folder = tmp_path_factory.mktemp("store")
    service = definition(registry.lists)
    async with mongo_url(folder) as url:
        store: Store
        if request.param == "sqlite":
            store = SqliteStore(folder / "state.sqlite", fold_version=service.fold_version)
        else:
            store = await open_mongo(url, "registry", fold_version=service.fold_version)
        await store.acquire("test", ttl_s=600)
        await rebuild_into(store, service, one_batch(stored(registry.said)))
        engine = Engine(service, store)
        await engine.open()
        yield engine
        await store.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("question", "args"),
    [
        ("impact", {"id": episode_id(0)}),
        ("impact", {"id": "pick@v1"}),
        ("impact", {"id": "pick@v1", "nodes": 40}),
        ("lineage", {"id": "reach@v1"}),
        ("audit", {"id": "reach@v1"}),
        ("search", {"dataset": "pick"}),
        ("resume-preview", {"job": "long-1", "attempt": 2}),
    ],
)
async def test_same_answer(registry: Registry, engine: Engine, question: str, args: dict[str, Any]) -> None:
    """Read one by one in memory, many at once from a file, or over the wire: the same answer."""
    assert await engine.question(question, request(args)) == registry.ask(question, **args)


def _depth(tree: dict[str, Any]) -> int:
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in node["children"]]
    return deepest


async def test_long_chain(tmp_path: Path) -> None:
    """Hundreds of attempts, each resumed from the one before: all are counted, each drawn below its job."""
    service = definition()
    store = SqliteStore(tmp_path / "state.sqlite", fold_version=service.fold_version)
    await store.acquire("test", ttl_s=600)
    await rebuild_into(store, service, one_batch(stored([event(body) for body in restarted(ATTEMPTS)])))
    engine = Engine(service, store)
    await engine.open()
    answer = await engine.question("impact", request({"id": "long-1", "listed": 2000}))
    await store.close()
    assert answer["complete"] is True
    assert answer["counts"] == {"attempt": ATTEMPTS, "checkpoint": ATTEMPTS}
    assert len(answer["reached"]["attempt"]) == ATTEMPTS
    assert _depth(answer["tree"]) <= 5
    drawn = [one for one in answer["tree"]["children"] if one["kind"] != "summary"]
    hidden = sum(one["count"] for one in answer["tree"]["children"] if one["id"].endswith(">more"))
    assert len(drawn) == DRAWN
    assert len(drawn) + hidden == ATTEMPTS


async def test_version_nobody_lists(registry: Registry) -> None:
    """An episode of an upload whose versions left it out reaches none of them."""
    registry.say(uploaded(50), committed(3, registry.lists.add([episode_id(0)]), 1))
    assert registry.ask("impact", id=episode_id(50))["counts"] == {}
