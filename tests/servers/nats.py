"""A real nats-server with the generated identities, permissions, streams and durables."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import identity_of
from forebay.local.bus import Bus
from forebay.local.home import Home, ProcessId, free_port, process_id
from forebay.local.settings import ALWAYS, LocalSettings
from forebay.runtime.connection import connect
from nats.aio.client import Client as NatsClient

from tests.eventually import eventually


@dataclass(slots=True)
class NatsServer:
    """One running server; `stop` and `start` keep its store and its port."""

    home: Home
    port: int
    bus: Bus
    process: asyncio.subprocess.Process | None = None
    clients: list[NatsClient] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def key(self, source: Source) -> Path:
        return self.home.key(identity_of(source))

    def process_id(self) -> ProcessId:
        assert self.process is not None
        return process_id(self.process.pid)

    async def connect(self, part: Part, project: str | None = None) -> NatsClient:
        """A connection of one identity, closed with the server."""
        source = Source(part, project)
        client = await connect(self.url, source, self.key(source))
        self.clients.append(client)
        return client

    async def start(self) -> None:
        with (self.home.logs / "nats-server.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.bus.command(), stdout=log, stderr=log)
        await eventually(self._answers, what="nats-server takes connections")

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self, sig: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(sig)
            await self.process.wait()


@asynccontextmanager
async def nats_server(
    folder: Path, *projects: str, pods: bool = False, sync_interval: str = ALWAYS
) -> AsyncIterator[NatsServer]:
    """Start a server with everything `forebay up` would give it; stop it and close its clients at the end.

    `pods`: it admits pods, about which it asks the bridge.
    """
    home = Home(folder)
    port = free_port()
    bus = Bus(home, LocalSettings(home=folder, bus_pods=pods, sync_interval=sync_interval))
    bus.init(projects or ("arm-lab",), port=port)
    server = NatsServer(home=home, port=port, bus=bus)
    await server.start()
    try:
        await bus.apply(server.url)
        yield server
    finally:
        for client in server.clients:
            if not client.is_closed:
                await client.close()
        await server.stop()
