"""What an acknowledgement is worth: the event is in the files of the bus, and the server was told to flush them first.

Copying files does not empty the page cache, so a copy alone would prove nothing about a
power cut; that each acknowledgement waits for fsync is the server's own setting, which it
is asked about. Together: what was acknowledged is on the disk, and what is on the disk
is enough to go on with.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from forebay.contracts.codec import encode
from forebay.contracts.parts import Part
from forebay.local.bus import Bus, acknowledged
from forebay.local.home import Home, free_port
from forebay.local.settings import LocalSettings
from forebay.runtime.errors import SettingsError
from forebay.runtime.log import LogReader, read_all
from forebay.runtime.settings import load_settings
from nats.aio.client import Client as NatsClient

from runtime.tests import toy
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus
PROJECT = "lab"
COPIES = 4


@contextlib.asynccontextmanager
async def publishing(client: NatsClient, acked: dict[int, str]) -> AsyncIterator[None]:
    """Publish with 20 in flight and note each acknowledgement, until the block ends."""

    async def one(worker: int) -> None:
        number = 0
        while True:
            number += 1
            message = encode(toy.started(f"up-{worker}-{number}"))
            answer = await client.request(message.subject, message.body, headers=dict(message.headers), timeout=30)
            acked[int(json.loads(answer.data)["seq"])] = message.headers["Nats-Msg-Id"]

    tasks = [asyncio.create_task(one(worker)) for worker in range(20)]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reached(acked: dict[int, str], enough: int) -> bool:
    return len(acked) >= enough


async def held(copy: Path) -> dict[int, str]:
    """Start a server on copied files; the ids of what it has, by place."""
    port = free_port()
    bus = Bus(Home(copy), LocalSettings(home=copy))
    bus.init((PROJECT,), port=port)
    server = NatsServer(home=Home(copy), port=port, bus=bus)
    await server.start()
    try:
        client = await server.connect(Part.INGEST)
        reader = LogReader(client)
        _, last = await reader.ends()
        found = [message async for batch in read_all(reader, after=0, until=last) for message in batch]
        return {message.seq: message.headers["Nats-Msg-Id"] for message in found}
    finally:
        for one in server.clients:
            await one.close()
        await server.stop()


async def test_whatever_was_acknowledged_is_in_files_copied_at_any_moment(tmp_path: Path) -> None:
    """Copied while events arrive, without stopping anything: each copy starts and has every event acknowledged before."""
    moment = random.Random(7)  # noqa: S311 no secret
    async with nats_server(tmp_path / "home", PROJECT) as server:
        acked: dict[int, str] = {}
        before: list[dict[int, str]] = []
        async with publishing(await server.connect(Part.COLLECTOR, PROJECT), acked):
            for number in range(COPIES):
                enough = len(acked) + moment.randrange(20, 120)
                await eventually(partial(reached, acked, enough), what="more events", every=0.005)
                before.append(dict(acked))
                await asyncio.to_thread(shutil.copytree, server.home.root, tmp_path / f"copy-{number}")
    for number, promised in enumerate(before):
        found = await held(tmp_path / f"copy-{number}")
        assert promised.items() <= found.items(), f"copy {number} lacks {len(promised.items() - found.items())} events"


async def test_the_server_flushes_before_it_acknowledges(tmp_path: Path) -> None:
    """By default; the running server says so itself, and people are told the same."""
    async with nats_server(tmp_path / "home", PROJECT) as server:
        assert acknowledged(server.home) == "an acknowledged event is on the disk (fsync)"
        await server.stop()
        port = free_port()
        command = [*server.bus.command(), "--http_port", str(port)]
        server.process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)

        def told() -> bool:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/jsz") as answer:
                return json.loads(answer.read())["config"]["sync_always"] is True
            return False

        await eventually(lambda: asyncio.to_thread(told), what="the server says sync_always")


async def test_an_interval_is_said_as_what_it_loses(tmp_path: Path) -> None:
    """Whoever trades safety for speed reads how much in `up` and `status`; nonsense is refused with advice."""
    home = Home(tmp_path)
    Bus(home, LocalSettings(home=tmp_path, sync_interval="2m")).init((PROJECT,), port=4222)
    assert acknowledged(home) == "a power cut loses up to 2m of acknowledged events (FOREBAY_SYNC_INTERVAL)"
    with pytest.raises(SettingsError, match="'always', or a time such as"):
        load_settings(LocalSettings, {"FOREBAY_SYNC_INTERVAL": "sometimes"})
