"""Tags under contention: real nats-server, the real ingest service, a kill between decision and publication."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import FileRef
from forebay.contracts.v1.datasets import MANIFEST_FILE, DatasetTagged, DatasetVersionCommitted
from forebay.ingest.app import definition, workers
from forebay.ingest.settings import IngestSettings
from forebay.runtime.app import run_service
from forebay.runtime.client import Client
from forebay.runtime.engine import Engine
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.machine import Request
from forebay.runtime.stores.sqlite import SqliteStore

from services.registry.tests.histories import PROJECT, START
from services.registry.tests.test_service_on_nats import OPERATOR, say
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus
DATASET = "reach"
SAME_MOMENT = 50


@asynccontextmanager
async def ingest(server: NatsServer, folder: Path) -> AsyncIterator[Client]:
    """The running service, and somebody who asks it."""
    service = definition()
    key, store = server.key(service.source), folder / "state.sqlite"
    settings = IngestSettings(home=folder, nats_url=server.url, nkey_file=key, store=store)
    task = asyncio.create_task(run_service(service, settings, workers(settings)))
    try:
        async with Client.connect(server.url, server.key(OPERATOR), OPERATOR) as client:
            yield client
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def version(folder: Path, number: int) -> DatasetVersionCommitted:
    """A version whose root holds one file."""
    root = folder / "pool" / "datasets" / PROJECT / DATASET / f"v{number}"
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text("{}")
    manifest = json.dumps({"files": [{"path": "meta/info.json", "sha256": sha256(b"{}").hexdigest(), "bytes": 2}]})
    (root / MANIFEST_FILE).write_text(manifest)
    digest = sha256(manifest.encode()).hexdigest()
    ref = FileRef(uri=(root / MANIFEST_FILE).as_uri(), sha256=digest, bytes=len(manifest))
    return DatasetVersionCommitted(
        dataset=DATASET, number=number, root=str(root), access_plan="C", format="lance", episodes=ref, checksums=ref,
        episode_count=0, frame_count=0, bytes=2, manifest_sha256=digest, rules_version="1", derivation=f"dv-{number}",
    )  # fmt: skip


async def opened(client: Client, number: int) -> str:
    """The id of a check that found the version whole."""
    check = ""

    async def whole() -> bool:
        nonlocal check
        with suppress(Refused, Unreachable):  # it is still catching up
            check = (
                check
                or (await client.ask("ingest", PROJECT, "check", {"dataset": f"{DATASET}@v{number}"})).result["check"]
            )
            return bool((await client.ask("ingest", PROJECT, "checked", {"check": check})).result["whole"])
        return False

    await eventually(whole, what=f"v{number} is opened")
    return check


async def tag(client: Client, check: str, number: int, by: str, **more: Any) -> dict[str, Any] | Refused:
    args = {"dataset": DATASET, "tag": "golden", "number": number, "check": check, "reason": f"{by} says so", **more}
    try:
        return dict((await client.ask("ingest", PROJECT, "move-tag" if more else "tag", args, by=by)).result)
    except Refused as refused:
        return refused


async def tags_in_the_log(client: Client) -> list[DatasetTagged]:
    bodies = [message.decode().body async for batch in client.batches() for message in batch]
    return [body for body in bodies if isinstance(body, DatasetTagged)]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "home", PROJECT) as running:
        yield running


async def test_of_fifty_who_set_a_tag_at_once_one_wins(server: NatsServer, tmp_path: Path) -> None:
    """Each loser is told who won, with which version; for creations and for moves, and the log has one event each."""
    await say(server, version(tmp_path, 1), version(tmp_path, 2))
    async with ingest(server, tmp_path) as client:
        checks = {number: await opened(client, number) for number in (1, 2)}
        for moving in (False, True):
            before = await tags_in_the_log(client)
            more = {"expect": before[-1].number} if moving else {}
            numbers = [3 - before[-1].number if moving else 1 + turn % 2 for turn in range(SAME_MOMENT)]
            answers = await asyncio.gather(
                *(tag(client, checks[n], n, f"person-{turn}", **more) for turn, n in enumerate(numbers))
            )
            (winner,) = (turn for turn, answer in enumerate(answers) if isinstance(answer, dict))
            losers = [answer for answer in answers if isinstance(answer, Refused)]
            assert len(losers) == SAME_MOMENT - 1
            assert {refused.code for refused in losers} <= {"tag-moved" if moving else "tag-exists", "tag-moved"}
            assert {refused.details["by"] for refused in losers} == {f"person-{winner}"}
            assert {refused.details["number"] for refused in losers} == {numbers[winner]}
            assert len(await tags_in_the_log(client)) == len(before) + 1


async def test_a_decision_that_was_killed_before_its_event_wins(server: NatsServer, tmp_path: Path) -> None:
    """The process dies after the write and before the publication: the next one publishes it, and names it to others."""
    await say(server, version(tmp_path, 1), version(tmp_path, 2))
    async with ingest(server, tmp_path) as client:
        checks = {number: await opened(client, number) for number in (1, 2)}
    service = definition()
    store = SqliteStore(tmp_path / "state.sqlite", fold_version=service.fold_version)
    assert await store.acquire("test", ttl_s=0)
    engine = Engine(service, store)
    await engine.open()
    args = {"dataset": DATASET, "tag": "golden", "number": 1, "check": checks[1], "reason": "first"}
    asked = Request(id="command-1", project=PROJECT, by="robin", args=args, now=START)
    decided, waiting = await engine.command("tag", asked)
    assert (decided["changed"], len(waiting)) == (True, 1)
    await store.close()  # nobody published it
    async with ingest(server, tmp_path) as client:
        await opened(client, 2)  # it has caught up
        refused = await tag(client, checks[2], 2, "kim")
        assert isinstance(refused, Refused)
        assert (refused.details["by"], refused.details["number"]) == ("robin", 1)
        again = await client.ask("ingest", PROJECT, "tag", args, id="command-1", by="robin")
        assert again.result == decided
        assert [(body.number, body.by) for body in await tags_in_the_log(client)] == [(1, "robin")]
