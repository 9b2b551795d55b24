"""A broker that lost its store, or its beginning: seen and said with a code, and no state is made of it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from forebay.contracts.codec import encode
from forebay.contracts.parts import Part
from forebay.runtime.engine import Engine
from forebay.runtime.errors import LogTruncatedError
from forebay.runtime.log import LogReader, lost
from forebay.runtime.reader import Reader
from forebay.runtime.stores.sqlite import SqliteStore

from runtime.tests import toy
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus


@pytest.mark.parametrize(
    ("first", "last", "folded", "codes"),
    [
        (1, 10, 10, []),
        (1, 10, 4, []),
        (1, 0, 0, []),
        (1, 4, 10, ["STREAM_RESET"]),
        (5, 10, 10, ["STREAM_TRUNCATED"]),
        (5, 6, 10, ["STREAM_RESET", "STREAM_TRUNCATED"]),
    ],
)
def test_codes(first: int, last: int, folded: int, codes: list[str]) -> None:
    """What the ends of a log say, next to what was folded."""
    assert [code for code, _ in lost(first, last, folded)] == codes


async def publish(server: NatsServer, first: int, count: int) -> None:
    source = await server.connect(Part.COLLECTOR, "lab")
    for number in range(first, first + count):
        message = encode(toy.started(f"up-{number}"))
        await source.jetstream().publish(message.subject, message.body, headers=dict(message.headers))


async def caught_up(server: NatsServer, folder: Path, log: type[LogReader] = LogReader) -> int:
    """Fold what the log holds, as a service does at its start."""
    store = SqliteStore(folder / "state.sqlite", fold_version=toy.SERVICE.fold_version)
    assert await store.acquire("tester", ttl_s=30)
    try:
        engine = Engine(toy.SERVICE, store)
        await engine.open()
        client = await server.connect(Part.INGEST)
        await Reader(engine, log(client)).catch_up()
        return engine.position
    finally:
        await store.release()
        await store.close()


@pytest.mark.parametrize(
    ("more", "said"), [(5, "STREAM_RESET: the log ends at 5"), (30, "STREAM_RESET: the log was made at")]
)
async def test_ev_05_the_broker_lost_its_store(tmp_path: Path, more: int, said: str) -> None:
    """EV-05: 20 folded, the broker loses its files, others follow, few or many: refused, and the state stays."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 20)
        assert await caught_up(server, tmp_path) == 20
        assert await caught_up(server, tmp_path) == 20
        await server.stop()
        shutil.rmtree(server.home.nats / "jetstream")
        await server.start()
        await server.bus.apply(server.url)
        await publish(server, 20, more)
        with pytest.raises(LogTruncatedError, match=said):
            await caught_up(server, tmp_path)


async def test_a_restarted_broker_is_the_same_log(tmp_path: Path) -> None:
    """A broker that was killed and comes back with its files goes on as the same log."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 3)
        assert await caught_up(server, tmp_path) == 3
        await server.stop(signal.SIGKILL)
        await server.start()
        await publish(server, 3, 2)
        assert await caught_up(server, tmp_path) == 5


class Beheaded(LogReader):
    """A log without its first three messages; our own stream refuses to be purged, so nobody can make one here."""

    async def ends(self) -> tuple[int, int]:
        first, last = await super().ends()
        return first + 3, last


async def test_the_beginning_is_gone(tmp_path: Path) -> None:
    """Who still needs the beginning of a log that has lost it refuses with STREAM_TRUNCATED."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 6)
        with pytest.raises(LogTruncatedError, match="STREAM_TRUNCATED: the log begins at 4"):
            await caught_up(server, tmp_path, Beheaded)
