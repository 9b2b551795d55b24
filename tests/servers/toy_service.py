"""The toy service as a process would run it, on a real bus, and short questions to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from forebay.contracts.parts import Source
from forebay.runtime.app import run_service
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, RuntimeFailure, Unreachable
from forebay.runtime.settings import ServiceSettings

from runtime.tests import toy
from tests.servers.nats import NatsServer


@asynccontextmanager
async def toy_service(
    server: NatsServer, folder: Path, *, restart: bool = False, **settings: Any
) -> AsyncIterator[None]:
    """The service with its store in `folder`; with `restart` it is started again whenever it ends, as a supervisor does."""
    own = ServiceSettings(
        nats_url=server.url, nkey_file=server.key(toy.SERVICE.source), store=folder / "state.sqlite", **settings
    )

    async def run() -> None:
        while restart:
            with suppress(RuntimeFailure):
                await run_service(toy.SERVICE, own, {"tag": toy.tag})
            await asyncio.sleep(0.1)
        await run_service(toy.SERVICE, own, {"tag": toy.tag})

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def client(server: NatsServer, source: Source) -> AsyncIterator[Client]:
    """A connection that keeps trying while the bus is away."""
    async with Client.connect(server.url, server.key(source), source, retry=True) as connected:
        yield connected


async def ask(operator: Client, question: str, **args: object) -> dict[str, Any]:
    """One answer of the service; empty while it does not answer. Raises `Refused`."""
    try:
        return (await operator.ask("ingest", "lab", question, args, timeout=2)).result
    except Unreachable:
        return {}


async def tags(operator: Client) -> dict[str, int]:
    """Tags per upload as the service knows them; empty while it does not answer."""
    try:
        return {upload["id"]: upload["tags"] for upload in (await ask(operator, "uploads"))["uploads"]}
    except (Refused, KeyError):
        return {}


async def all_tagged(operator: Client, expected: set[str]) -> bool:
    """Whether the service knows these uploads, no others, and has tagged them all."""
    found = await tags(operator)
    return set(found) == expected and all(found.values())


async def upload(collector: Client, name: str) -> None:
    """One upload of a dataset of its own."""
    for event in (toy.started(name, name), toy.finished(name, name)):
        await collector.publish(event)
