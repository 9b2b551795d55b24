"""Three real nats-servers with one replicated log, without accounts: for what replicas do, not for who may do what."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from forebay.contracts.streams import streams
from forebay.contracts.subjects import STREAM
from forebay.local.bus import find_program
from forebay.local.home import free_port
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError

from tests.eventually import eventually

NODES = 3


@dataclass(slots=True)
class Node:
    """One server of the cluster."""

    name: str
    port: int
    config: Path
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.config.with_suffix(".log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                find_program("nats-server"), "-c", str(self.config), stdout=log, stderr=log
            )

    def send(self, sig: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(sig)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass(slots=True)
class Cluster:
    """The nodes, and connections that end with them."""

    nodes: list[Node]
    clients: list[NatsClient] = field(default_factory=list)

    async def connect(self, node: Node) -> NatsClient:
        """A connection to this very node."""

        async def attempt() -> NatsClient | None:
            try:
                return await nats.connect(
                    f"nats://127.0.0.1:{node.port}", allow_reconnect=False, connect_timeout=1, error_cb=_ignore
                )
            except (NatsError, OSError, TimeoutError):
                return None

        client: NatsClient = await eventually(attempt, what=f"{node.name} takes connections")
        self.clients.append(client)
        return client

    async def leader(self, client: NatsClient) -> Node:
        """The leader of the log."""

        async def named() -> str | None:
            answer = await _request(client, f"STREAM.INFO.{STREAM}", {})
            leader: str | None = answer.get("cluster", {}).get("leader")
            return leader

        name = await eventually(named, what="the log has a leader")
        return next(node for node in self.nodes if node.name == name)


async def _ignore(_: Exception) -> None:
    """Connections to nodes that are stopped on purpose."""


async def _request(client: NatsClient, name: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = await client.request(f"$JS.API.{name}", json.dumps(body).encode(), timeout=3)
    except (NatsError, TimeoutError):
        return {}
    found: dict[str, Any] = json.loads(answer.data)
    return found


@asynccontextmanager
async def nats_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """Start three nodes and make the log with three replicas; end everything afterwards."""
    ports = [free_port() for _ in range(2 * NODES)]
    routes = [f"nats://127.0.0.1:{port}" for port in ports[NODES:]]
    nodes: list[Node] = []
    for index in range(NODES):
        config = {
            "server_name": f"n{index}",
            "host": "127.0.0.1",
            "port": ports[index],
            "jetstream": {"store_dir": str(folder / f"n{index}")},
            "cluster": {"name": "three", "host": "127.0.0.1", "port": ports[NODES + index], "routes": routes},
        }
        path = folder / f"n{index}.conf"
        path.write_text(json.dumps(config), encoding="utf-8")
        nodes.append(Node(name=f"n{index}", port=ports[index], config=path))
    cluster = Cluster(nodes)
    async with AsyncExitStack() as stack:
        for node in nodes:
            stack.push_async_callback(node.kill)
            await node.start()
        client = await cluster.connect(nodes[0])
        log = streams(replicas=NODES, max_bytes=64 << 20)[0]

        async def made() -> bool:
            answer = await _request(client, f"STREAM.CREATE.{log.name}", log.config)
            return "config" in answer

        await eventually(made, what="the log is made on three nodes", every=0.5)
        try:
            yield cluster
        finally:
            for one in cluster.clients:
                await one.close()
