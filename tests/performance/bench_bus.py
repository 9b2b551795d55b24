"""What the bus costs: `make bench-bus`, one JSON line per figure.

The baseline is bare nats-py on a second server with the same stream, but without
accounts, identities, envelopes, models and spans, so all of those count against us.
Rounds alternate between baseline and ours, and the best of each counts, because
the machine is shared.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from forebay.contracts.codec import Message, encode
from forebay.contracts.envelope import Event
from forebay.contracts.parts import Part, Source
from forebay.contracts.streams import BATCH, consumers, streams
from forebay.contracts.subjects import STREAM
from forebay.contracts.v1.episodes import EpisodeUploaded, RowWindow
from forebay.contracts.v1.jobs import RuntimeFactRecorded
from forebay.local.bus import find_program
from forebay.local.home import free_port
from forebay.local.settings import ALWAYS
from forebay.runtime.bus import Bus
from forebay.runtime.client import Client
from forebay.runtime.log import LogMessage
from forebay.runtime.records import OutboxEntry
from nats.aio.client import Client as NatsClient

from tests.eventually import eventually
from tests.performance.figures import Figure
from tests.servers.nats import NatsServer, nats_server

EVENTS = 10_000
ROUNDS = 3
WINDOW = 200
PROJECT = "bench"
COLLECTOR = Source(Part.COLLECTOR, PROJECT)
BRIDGE = Source(Part.BRIDGE)
Measure = Callable[[], Awaitable[float]]


@asynccontextmanager
async def bare_server(folder: Path) -> AsyncIterator[NatsClient]:
    """A server with the same stream and consumer and nothing else."""
    port = free_port()
    config = folder / "bare.json"
    config.write_text(
        json.dumps(
            {"host": "127.0.0.1", "port": port, "jetstream": {"store_dir": str(folder), "sync_interval": ALWAYS}}
        )
    )
    process = await asyncio.create_subprocess_exec(
        find_program("nats-server"),
        "-c",
        str(config),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        client: NatsClient = await eventually(lambda: _connected(port), what="the bare server takes connections")
        log, wake = streams()[0], consumers()[0]
        await client.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(log.config).encode())
        request = {"stream_name": STREAM, "config": wake.config}
        await client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{wake.name}", json.dumps(request).encode())
        yield client
        await client.close()
    finally:
        process.terminate()
        await process.wait()


async def _connected(port: int) -> NatsClient | None:
    """The server is asked until it listens; that it does not yet is no news."""

    async def quiet(_: Exception) -> None:
        pass

    try:
        return await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=1, error_cb=quiet)
    except OSError:
        return None


def facts(round_: str) -> list[Event[RuntimeFactRecorded]]:
    """Events of a service, about the size of a usual one."""
    return [
        Event(
            id=f"{round_}-{number:06d}",
            source=BRIDGE,
            project=PROJECT,
            body=RuntimeFactRecorded(
                job=f"reach-{number % 50}",
                attempt=1,
                source="local-backend",
                object=f"process {48_000 + number}",
                reason="Exited",
                message="the training process was ended by a signal from outside, after 41 s, at step 400",
                exit_code=-9,
                data={"cgroup_oom_kills": 0, "host": "bench-1", "resident_bytes": 104_857_600},
            ),
            correlation="0123456789abcdef0123456789abcdef",
        )
        for number in range(EVENTS)
    ]


def episodes(round_: str) -> list[Event[EpisodeUploaded]]:
    """Events of a collector that delivers a large dataset."""
    return [
        Event(
            id=f"{round_}-{number:06d}",
            source=COLLECTOR,
            project=PROJECT,
            body=EpisodeUploaded(
                episode=f"ep-{number:06d}",
                upload="up-1",
                dataset="reach",
                source_index=number,
                length=80,
                tasks=("reach the target",),
                rows=RowWindow(file="data/chunk-000/file-000.parquet", start=80 * number, stop=80 * number + 80),
            ),
        )
        for number in range(EVENTS)
    ]


async def in_flight(calls: Sequence[Callable[[], Awaitable[object]]]) -> float:
    """Calls per second with at most 200 at once."""
    room = asyncio.Semaphore(WINDOW)

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        async with room:
            await call()

    began = time.perf_counter()
    await asyncio.gather(*(one(call) for call in calls))
    return len(calls) / (time.perf_counter() - began)


async def publish_bare(client: NatsClient, messages: Sequence[Message], round_: str) -> float:
    """Bare nats-py: the bytes of the body, no header, each acknowledgement awaited."""
    stream = client.jetstream()
    subjects = [f"fb.{PROJECT}.{round_}.{number % 50}.x" for number in range(len(messages))]
    return await in_flight(
        [lambda s=s, m=m: stream.publish(s, m.body, timeout=30) for s, m in zip(subjects, messages, strict=True)]  # type: ignore[misc]
    )


async def publish_service(bus: Bus, events: Sequence[Event[RuntimeFactRecorded]]) -> float:
    """A service's path: envelope, FastStream with middleware and span, acknowledgement."""

    def call(order: int, event: Event[RuntimeFactRecorded]) -> Callable[[], Awaitable[object]]:
        async def send() -> object:
            message = encode(event)
            entry = OutboxEntry(
                order=order,
                identity=event.identity,
                subject=message.subject,
                headers=message.headers,
                body=message.body,
            )
            return await bus.publish(entry)

        return send

    return await in_flight([call(order, event) for order, event in enumerate(events)])


async def publish_bulk(client: Client, events: Sequence[Event[EpisodeUploaded]]) -> float:
    """The collector's path: envelope, nats-py, duplicates read back."""
    began = time.perf_counter()
    await client.publish_many(events)
    return len(events) / (time.perf_counter() - began)


async def consume_bare(client: NatsClient, count: int) -> float:
    """Bare pull: fetch, look at nothing, acknowledge."""
    pull = await client.jetstream().pull_subscribe_bind(consumers()[0].name, STREAM)
    taken = 0
    began = time.perf_counter()
    while taken < count:
        for message in await pull.fetch(BATCH, timeout=5):
            await message.ack()
            taken += 1
    await client.flush()
    return taken / (time.perf_counter() - began)


class Consumer:
    """A service's path: FastStream batch subscriber, every envelope checked, every body a model."""

    def __init__(self) -> None:
        self.taken = 0
        self.grown = asyncio.Event()

    async def take(self, batch: list[LogMessage], _: int) -> None:
        for message in batch:
            message.decode()
        self.taken += len(batch)
        self.grown.set()

    async def until(self, count: int) -> None:
        while self.taken < count:
            self.grown.clear()
            await self.grown.wait()


async def consume_service(server: NatsServer, count: int) -> float:
    source = Source(Part.REGISTRY)
    bus = Bus(server.url, source, server.key(source))
    await bus.connect()
    consumer = Consumer()
    began = time.perf_counter()
    try:
        await bus.read(str(source.part), consumer.take)
        await consumer.until(count)
        return count / (time.perf_counter() - began)
    finally:
        await bus.close()


async def measure(folder: Path) -> list[Figure]:
    """All figures, best of the rounds."""
    async with bare_server(folder / "bare") as bare, nats_server(folder / "home", PROJECT) as server:
        bus = Bus(server.url, BRIDGE, server.key(BRIDGE))
        await bus.connect()
        found: dict[str, list[float]] = defaultdict(list)
        async with Client.connect(server.url, server.key(COLLECTOR), COLLECTOR) as collector:
            for number in range(ROUNDS):
                said, delivered = facts(f"r{number}"), episodes(f"r{number}")
                found["bare-service"].append(await publish_bare(bare, [encode(event) for event in said], f"s{number}"))
                found["service"].append(await publish_service(bus, said))
                found["bare-bulk"].append(
                    await publish_bare(bare, [encode(event) for event in delivered], f"b{number}")
                )
                found["bulk"].append(await publish_bulk(collector, delivered))
                found["bare-taken"].append(await consume_bare(bare, 2 * EVENTS))
                found["taken"].append(await consume_service(server, 2 * EVENTS))
        await bus.close()
    best = {name: max(rates) for name, rates in found.items()}
    bare_publish = "nats-py, 200 in flight, no accounts, no headers"
    return [
        _rate("publish-service", best["service"], bare_publish, best["bare-service"]),
        _rate("publish-bulk", best["bulk"], bare_publish, best["bare-bulk"]),
        _rate("consume", best["taken"], "nats-py pull, fetch(500) and ack, body not read", best["bare-taken"]),
    ]


def _rate(name: str, value: float, baseline: str, baseline_value: float) -> Figure:
    return Figure(name=name, value=value, unit="events/s", baseline=baseline, baseline_value=baseline_value)


async def main() -> int:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        (Path(folder) / "bare").mkdir()
        for figure in await measure(Path(folder)):
            figure.print()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
