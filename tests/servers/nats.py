"""A real nats-server with the generated identities, permissions, streams and durables."""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event
from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import identity_of
from forebay.contracts.v1.episodes import UploadStarted
from forebay.local.bus import Bus
from forebay.local.home import Home, ProcessId, free_port, process_id
from forebay.local.settings import ALWAYS, LocalSettings
from forebay.runtime.connection import connect
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError

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


async def stores(client: NatsClient, project: str = "arm-lab") -> bool:
    """Whether the log takes an event now, one that is larger than what is left of a disk's last block."""
    body = UploadStarted(
        upload=f"up-{uuid.uuid4().hex[:12]}",
        dataset="pick",
        source_ref="folder",
        source_format="unknown",
        landing_uri="/landing",
        expected_episodes=1,
        expected_files=1,
        expected_bytes=1,
        collection_request=json.dumps({"note": "x" * 16_000}),
    )
    source = Source(Part.COLLECTOR, project)
    message = encode(Event(id=body.upload, source=source, project=project, body=body))
    try:
        answer = await client.request(message.subject, message.body, timeout=1, headers=dict(message.headers))
    except (NatsError, TimeoutError):
        return False
    return "seq" in json.loads(answer.data)


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
