"""`make bench-registry`: the registry on a realistic history, one JSON line per figure.

Beside each figure, measured in the same run on the same history, what a plain
implementation does: a table of edges in SQLite and recursive queries (`plain_lineage`).
It answers with bare ids; ours with states, events behind each edge, and what is missing. Where MLflow
answers the same question (`models_of_dataset`), it is asked too, in an environment of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil
from forebay.contracts.catalogue import spec_of
from forebay.contracts.codec import encode
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.contracts.streams import consumers
from forebay.contracts.subjects import STREAM
from forebay.registry.app import definition
from forebay.runtime.bus import Bus
from forebay.runtime.collector import collect_seldom
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage, LogReader
from forebay.runtime.machine import Request
from forebay.runtime.reader import Reader
from forebay.runtime.rebuild import rebuild
from forebay.runtime.stores.sqlite import SqliteStore
from nats.aio.client import Client as NatsClient

from tests.performance.figures import Figure
from tests.performance.models_of_dataset import models_of_dataset
from tests.performance.plain_lineage import PlainLineage
from tests.performance.progress import Progress, say_peak
from tests.performance.registry_history import PROJECT, History, Made, Size, batches, event_of
from tests.servers.nats import NatsServer, nats_server

ASKED = 200
LIVE_PER_S, LIVE_S = 200, 8
CTE = "edges in one SQLite table, recursive queries"
Ask = Callable[[str], Awaitable[object]]


def figure(name: str, value: float, unit: str, baseline: str, baseline_value: float) -> None:
    Figure(name=name, value=value, unit=unit, baseline=baseline, baseline_value=baseline_value).print()


async def folds(spool: Path, folder: Path, messages: int) -> tuple[PlainLineage, Path]:
    """Events per second from the same file of messages, ours and the plain one, by wall and by processor."""
    plain = PlainLineage(folder / "plain.sqlite")
    began, cpu = time.perf_counter(), time.process_time()
    assert await plain.fold(batches(spool), Progress("baseline", messages)) == messages
    plain_wall, plain_cpu = time.perf_counter() - began, time.process_time() - cpu
    resident = psutil.Process().memory_info().rss
    path = folder / "registry.sqlite"
    cpu = time.process_time()
    result = await rebuild(definition(), batches(spool), path, progress=Progress("rebuilding", messages))
    assert (result.events, result.parked) == (messages, 0), result
    ours_cpu = time.process_time() - cpu
    figure("rebuild-sqlite", messages / result.seconds, "events/s", CTE, messages / plain_wall)
    figure("rebuild-sqlite-per-core", messages / ours_cpu, "events/cpu-s", CTE, messages / plain_cpu)
    grown = psutil.Process().memory_info().rss - resident
    figure("rss", grown / 1e6, "MB more after the rebuild", "bytes of the store's file", path.stat().st_size / 1e6)
    return plain, path


async def timed(ask: Ask, ids: Sequence[str]) -> tuple[list[float], list[float]]:
    """Milliseconds of each question, by wall and by processor."""
    wall, cpu = [], []
    for one in ids:
        began, busy = time.perf_counter(), time.process_time()
        await ask(one)
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - busy))
    return wall, cpu


async def questions(engine: Engine, plain: PlainLineage, made: Made) -> None:
    """Each question on the same random ids; the first answers come from a cold store."""
    collect_seldom()  # as the service's process does
    chosen = random.Random(11)  # noqa: S311 a chosen order, no secret
    episodes = [chosen.choice(made.episodes) for _ in range(ASKED)]
    models = [chosen.choice(made.models) for _ in range(ASKED)]

    def ask(question: str) -> Ask:
        async def one(node: str) -> object:
            args = {"id": node} if node else {}
            request = Request(id="", project=PROJECT, by="bench", args=args, now=datetime.now(UTC))
            return await engine.question(question, request)

        return one

    async def plain_impact(node: str) -> object:
        return plain.impact(node)

    async def plain_lineage(node: str) -> object:
        return plain.lineage(node)

    async def plain_audit(_: str) -> object:
        return plain.unevaluated()

    pairs = (("lineage", models, plain_lineage), ("impact", episodes, plain_impact), ("audit", [""] * 5, plain_audit))
    for question, ids, other in pairs:
        (ours, ours_cpu), (theirs, theirs_cpu) = await timed(ask(question), ids), await timed(other, ids)
        figure(f"{question}-p50", statistics.median(ours), "ms", CTE, statistics.median(theirs))
        figure(f"{question}-p99", _p99(ours), "ms", CTE, _p99(theirs))
        figure(f"{question}-p99-cpu", _p99(ours_cpu), "cpu-ms", CTE, _p99(theirs_cpu))


def _p99(found: Sequence[float]) -> float:
    return sorted(found)[int(0.99 * (len(found) - 1))]


# ------------------------------------------------------------------------ live


class Live:
    """When each sequence was folded."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.at: dict[int, float] = {}

    async def take(self, batch: list[LogMessage], pending: int) -> None:
        await self._reader.take(batch, pending)
        now = time.perf_counter()
        self.at.update({message.seq: now for message in batch})


async def publish_steadily(server: NatsServer, folder: Path) -> dict[int, float]:
    """Events at a steady pace; returns when each was stored."""
    clients: dict[Part, NatsClient] = {}
    stored: dict[int, float] = {}
    began = time.perf_counter()
    for number, body in enumerate(History(Size(0.1), folder).bodies()):
        if number == LIVE_PER_S * LIVE_S:
            break
        part = spec_of(body).owners[0]
        if part not in clients:
            clients[part] = await server.connect(part, PROJECT if part in PROJECT_PARTS else None)
        message = encode(event_of(number, body))
        await asyncio.sleep(max(0.0, began + number / LIVE_PER_S - time.perf_counter()))
        ack = await clients[part].jetstream().publish(message.subject, message.body, headers=message.headers)
        stored[ack.seq] = time.perf_counter()
    return stored


async def bare_reader(client: NatsClient, durable: str, seen: dict[int, float]) -> None:
    """What nats-py alone takes: fetch, note the time, acknowledge."""
    pull = await client.jetstream().pull_subscribe_bind(durable, STREAM)
    while True:
        for message in await pull.fetch(500, timeout=30):
            seen[message.metadata.sequence.stream] = time.perf_counter()
            await message.ack()


async def live_lag(folder: Path) -> None:
    """From the acknowledgement of an event to its fold being stored, at a steady pace."""
    async with nats_server(folder / "home", PROJECT) as server:
        source = Source(Part.REGISTRY)
        bus = Bus(server.url, source, server.key(source))
        await bus.connect()
        store = SqliteStore(folder / "live.sqlite", fold_version=definition().fold_version)
        await store.acquire("bench", ttl_s=600)
        engine = Engine(definition(), store)
        await engine.open()
        live = Live(Reader(engine, LogReader(bus.nc)))
        await bus.read("registry", live.take)
        seen: dict[int, float] = {}
        other = next(one.name for one in consumers() if one.name == "cache")
        bare = asyncio.create_task(bare_reader(await server.connect(Part.CACHE), other, seen))
        stored = await publish_steadily(server, folder)
        async with asyncio.timeout(30):
            while engine.position < max(stored) or max(seen, default=0) < max(stored):
                await asyncio.sleep(0.05)
        bare.cancel()
        await asyncio.gather(bare, return_exceptions=True)
        await bus.close()
        await store.close()
    ours = [1000 * max(0.0, live.at[seq] - at) for seq, at in stored.items() if seq in live.at]
    theirs = [1000 * max(0.0, seen[seq] - at) for seq, at in stored.items()]
    what = "nats-py fetch and ack beside it, nothing folded"
    figure("live-lag-p50", statistics.median(ours), f"ms at {LIVE_PER_S} events/s", what, statistics.median(theirs))
    figure("live-lag-p99", _p99(ours), f"ms at {LIVE_PER_S} events/s", what, _p99(theirs))


async def bench(scale: float) -> None:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
        folder = Path(name)
        for sub in ("lists", "live"):
            (folder / sub).mkdir()
        made = History(Size(scale), folder / "lists").spool(folder / "log")
        sys.stderr.write(
            f"{made.messages:,} events: {len(made.episodes):,} episodes, {Size(scale).versions:,} versions,"
            f" {Size(scale).jobs:,} jobs, {len(made.models):,} models\n"
        )
        plain, path = await folds(folder / "log", folder, made.messages)
        store = SqliteStore(path, fold_version=definition().fold_version)
        await store.acquire("bench", ttl_s=3600)
        engine = Engine(definition(), store)
        await engine.open()
        await questions(engine, plain, made)
        await store.close()
        plain.close()
        await models_of_dataset(folder / "small")
        await live_lag(folder / "live")
        say_peak()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--scale",
        type=float,
        default=0.1,
        help="1: 100,000 episodes and 200,000 checkpoints; 10 takes some 20 GB of disk",
    )
    asyncio.run(bench(parser.parse_args().scale))


if __name__ == "__main__":
    main()
