"""Kill the registry again and again while it rebuilds itself under live traffic; in the end all digests are equal.

`python -m tests.chaos.registry_kills --kills 200` by hand; a few kills run with `make test`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.contracts.body import EventBody
from forebay.contracts.catalogue import spec_of
from forebay.contracts.codec import encode
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.registry.app import definition
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.rebuild import rebuild
from forebay.runtime.settings import environment
from nats.aio.client import Client as NatsClient

from tests.eventually import eventually
from tests.performance.registry_history import PROJECT, History, Size, event_of
from tests.servers.ferretdb import mongo_url
from tests.servers.nats import NatsServer, nats_server

OPERATOR = Source(Part.OPERATOR)
_LONGEST_LIFE_S = 1.2
_START_S = 180
"""A process starts in two seconds; on a machine that is busy with other things it may take many times that."""
_CATCH_UP_S = 600


@dataclass(slots=True)
class Outcome:
    """What the last, undisturbed life came to, and the fold of the log beside it."""

    kills: int
    rebuilding: int
    """Kills that met a rebuild under way."""
    swaps: int
    live: tuple[int, str] = (0, "")
    """Position and digest before the last rebuild took over, and after."""
    swapped: tuple[int, str] = (0, "")
    rebuilt: tuple[tuple[int, str], ...] = ()
    """The same two positions of the log, folded from nothing."""

    def equal(self) -> bool:
        return self.rebuilt == (self.live, self.swapped)


class Traffic:
    """Publishes a history, each event by its owner."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._server = server
        self._events: Iterator[tuple[int, EventBody]] = enumerate(History(Size(0.05), folder).bodies())
        self._clients: dict[Part, NatsClient] = {}

    async def publish(self, count: int) -> None:
        for number, body in itertools.islice(self._events, count):
            part = spec_of(body).owners[0]
            if part not in self._clients:
                project = PROJECT if part in PROJECT_PARTS else None
                self._clients[part] = await self._server.connect(part, project)
            message = encode(event_of(number, body))
            await self._clients[part].publish(message.subject, message.body, headers=message.headers)
        await asyncio.gather(*(client.flush() for client in self._clients.values()))

    async def flow(self, pause_s: float) -> None:
        while True:
            await self.publish(2)
            await asyncio.sleep(pause_s)


@asynccontextmanager
async def life(server: NatsServer, folder: Path, store: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """One process of the registry, killed at the end."""
    inherited = {name: value for name, value in environment().items() if not name.startswith("FOREBAY_")}
    added = {
        "FOREBAY_HOME": str(folder / "home"),
        "FOREBAY_NATS_URL": server.url,
        "FOREBAY_NKEY_FILE": str(server.key(Source(Part.REGISTRY))),
        **store,
    }
    with (folder / "registry.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "forebay.registry", env=inherited | added, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ask(client: Client, question: str, within: float = 10, **args: object) -> dict[str, Any] | None:
    try:
        return (await client.ask("registry", PROJECT, question, args, timeout=within)).result
    except (Unreachable, Refused):
        return None


async def start_rebuild(client: Client) -> None:
    async def started() -> bool:
        return await ask(client, "rebuild", start=True) is not None

    await eventually(started, what="the registry starts a rebuild", within=_START_S)


async def kill_and_compare(
    folder: Path, store: Mapping[str, str], *, kills: int, seed: int, first: int = 500, pause_s: float = 0.02
) -> Outcome:
    """The whole run on a server of its own: `first` events, then two more after each pause while processes die."""
    chosen = random.Random(seed)  # noqa: S311 a chosen order, no secret
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(kills, 0, 0)
    async with (
        nats_server(folder / "bus", PROJECT) as server,
        Client.connect(server.url, server.key(OPERATOR), OPERATOR, retry=True) as client,
    ):
        traffic = Traffic(server, folder / "lists")
        await traffic.publish(first)
        flowing = asyncio.create_task(traffic.flow(pause_s))
        for number in range(kills):
            if number and number % 20 == 0:
                sys.stderr.write(f"{number} kills, {outcome.rebuilding} of them in a rebuild\n")
            async with life(server, folder, store):
                await start_rebuild(client)
                until = time.monotonic() + chosen.uniform(0, _LONGEST_LIFE_S)
                seen: dict[str, Any] | None = None
                while time.monotonic() < until:
                    seen = await ask(client, "rebuild") or seen
                outcome.rebuilding += seen is not None and seen["state"] == "running"
                outcome.swaps += seen is not None and seen["state"] == "done"
            assert not flowing.done(), "the traffic ended early"
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)
        async with life(server, folder, store):
            outcome.live = await _settled(client)
            await start_rebuild(client)

            async def done() -> bool:
                return (await ask(client, "rebuild") or {}).get("state") == "done"

            await eventually(done, what="the last rebuild takes over", within=_CATCH_UP_S, every=0.5)
            outcome.swapped = await _settled(client)
        for position, _ in (outcome.live, outcome.swapped):
            again = await rebuild(definition(), client.batches(until=position), folder / f"again-{position}.sqlite")
            outcome.rebuilt += ((again.seq, again.digest),)
            (folder / f"again-{position}.sqlite").unlink()
    return outcome


async def _settled(client: Client) -> tuple[int, str]:
    """Position and digest once nothing more is to be read.

    Lives of a second fold little: after 200 of them tens of thousands of events are left to read, and as many documents
    go into the digest, which is therefore asked for last.
    """

    async def caught_up() -> bool:
        _, last = await client.log_reader.ends()
        return int((await ask(client, "health") or {"position": -1})["position"]) >= last

    await eventually(caught_up, what="the registry has caught up", within=_CATCH_UP_S, every=0.5)
    digest = await ask(client, "digest", within=_CATCH_UP_S)
    assert digest is not None, "the registry tells no digest"
    return digest["position"], digest["digest"]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mongo", action="store_true", help="keep the store on the Mongo wire")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-kills-") as name:
        folder = Path(name)
        if options.mongo:
            async with mongo_url(folder / "mongo") as url:
                outcome = await kill_and_compare(
                    folder, {"FOREBAY_STORE_URL": url}, kills=options.kills, seed=options.seed, first=60, pause_s=1.0
                )
        else:
            store = {"FOREBAY_STORE": str(folder / "state.sqlite")}
            outcome = await kill_and_compare(folder, store, kills=options.kills, seed=options.seed)
    sys.stdout.write(f"{outcome}\n")
    return 0 if outcome.equal() else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
