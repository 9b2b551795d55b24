"""Agent and collector on a real nats-server with the real permissions: what waited on disk arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from forebay.contracts.parts import Part, Source
from forebay.runtime.client import Client
from forebay.sdk.collector import Collector
from forebay.sdk.link import BusLink

from sdk.tests.builders import SAVE, Attempt, python
from tests.eventually import WITHIN_S
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus
OPERATOR = Source(Part.OPERATOR)
AGENT = Source(Part.AGENT, "lab")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "home", "lab") as running:
        yield running


async def names(server: NatsServer) -> list[str]:
    """Every event in the log, in order."""
    async with Client.connect(server.url, server.key(OPERATOR), OPERATOR) as client:
        return [message.decode().body.event async for batch in client.batches() for message in batch]


async def test_events_of_an_outage_arrive_with_the_next_attempt(server: NatsServer) -> None:
    """The first attempt runs with the server stopped; the second delivers for both, oldest first."""
    attempt = Attempt(home=server.home.root, url=server.url, nkey_file=server.key(AGENT))
    await server.stop()
    code, _ = await attempt.run(*python(SAVE + "save(1)"))
    assert code == 0
    assert len(attempt.waiting_events()) == 2
    await server.start()
    attempt.number = 2
    attempt.settings = {"FOREBAY_RESUME_DEADLINE_S": "0.1", "FOREBAY_BUS_DEADLINE_S": str(WITHIN_S)}
    await attempt.run(*python("pass"))
    assert await names(server) == ["PreflightReported", "CheckpointWritten", "PreflightReported"]
    assert attempt.waiting_events() == []


async def test_an_upload_reaches_the_log_once_however_often_it_is_said(server: NatsServer, recording: Path) -> None:
    """Delivered, said again and delivered again: the log holds each event once within the window."""
    collector = Collector(home=server.home.root, project="lab")
    async with BusLink(server.url, server.key(collector.source), collector.outbox) as link:
        for _ in range(2):
            await asyncio.to_thread(collector.upload, recording, "reach")
            assert await link.drain(WITHIN_S) == 0
    assert await names(server) == ["UploadStarted", *["EpisodeUploaded"] * 4, "UploadFinished"]


async def test_what_waits_is_delivered_when_the_server_comes_back(server: NatsServer, recording: Path) -> None:
    """The line to the bus goes on trying and needs nobody to tell it."""
    collector = Collector(home=server.home.root, project="lab")
    await server.stop()
    await asyncio.to_thread(collector.upload, recording, "reach")
    async with BusLink(server.url, server.key(collector.source), collector.outbox) as link:
        assert await link.drain(0.3) == 6
        delivery = asyncio.create_task(link.drain(WITHIN_S))
        await server.start()
        assert await delivery == 0
    assert len(await names(server)) == 6
