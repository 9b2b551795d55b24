"""What a dependency lacks is said by health at start, with the fix, and not found at the first use (DP-02)."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from forebay.local.bus import find_program
from forebay.local.home import free_port
from forebay.runtime.app import run_service
from forebay.runtime.settings import ServiceSettings

from runtime.tests import toy
from tests.eventually import eventually
from tests.servers.nats import nats_server

pytestmark = pytest.mark.real_bus


@asynccontextmanager
async def service(settings: ServiceSettings) -> AsyncIterator[int]:
    """The toy service with a health port."""
    port = free_port()
    task = asyncio.create_task(
        run_service(toy.SERVICE, settings.model_copy(update={"health_port": port}), {"tag": toy.tag})
    )
    try:
        yield port
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def health(port: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, str(json.loads(answer.read())["phase"])
    finally:
        connection.close()


async def says(port: int, *words: str) -> None:
    async def said() -> bool:
        try:
            status, phase = await asyncio.to_thread(health, port)
        except OSError:  # the health server is not up yet
            return False
        return status == http.HTTPStatus.SERVICE_UNAVAILABLE and all(word in phase for word in words)

    await eventually(said, what=f"health is red and says {words}")


async def test_a_bus_without_jetstream_is_named(tmp_path: Path) -> None:
    """Red, with what to change in nats-server's configuration."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        find_program("nats-server"),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        settings = ServiceSettings(nats_url=f"nats://127.0.0.1:{port}", store=tmp_path / "state.sqlite")
        async with service(settings) as health_port:
            await says(health_port, "the bus has no JetStream", "start nats-server with jetstream")
    finally:
        process.kill()
        await process.wait()


async def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    """Red while it is away, with its address; no password in it."""
    url = f"mongodb://me:secret@127.0.0.1:{free_port()}/forebay?serverSelectionTimeoutMS=300"
    async with nats_server(tmp_path / "home", "lab") as server:
        settings = ServiceSettings(nats_url=server.url, nkey_file=server.key(toy.SERVICE.source), store_url=url)
        async with service(settings) as port:
            await says(port, "waiting for the store", "127.0.0.1")
            assert "secret" not in (await asyncio.to_thread(health, port))[1]
