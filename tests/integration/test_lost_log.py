"""A broker that lost messages, or came back with others: seen and said with a code, and no state is made of it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from forebay.contracts.codec import encode
from forebay.contracts.parts import Part, Source
from forebay.runtime.client import Client
from forebay.runtime.engine import Engine
from forebay.runtime.errors import LogMismatchError, Refused, Unreachable
from forebay.runtime.log import LogReader, LogState, lost
from forebay.runtime.log_check import check_log
from forebay.runtime.reader import Reader
from forebay.runtime.stores.sqlite import SqliteStore
from nats.errors import Error as NatsError

from runtime.tests import toy
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server
from tests.servers.toy_service import all_tagged, ask, client, tags, toy_service, upload

pytestmark = pytest.mark.real_bus
OPERATOR = Source(Part.OPERATOR)


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


async def caught_up(server: NatsServer, folder: Path, log: type[LogReader] = LogReader) -> int | None:
    """Compare and fold as a service does at its start; where it stands, or None when it has to fold again."""
    store = SqliteStore(folder / "state.sqlite", fold_version=toy.SERVICE.fold_version)
    assert await store.acquire("tester", ttl_s=30)
    try:
        reader = log(await server.connect(Part.INGEST))
        if await check_log(store, reader, where="the store") is not None:
            return None
        engine = Engine(toy.SERVICE, store)
        await engine.open()
        await Reader(engine, reader).catch_up()
        return engine.position
    finally:
        await store.release()
        await store.close()


def block(server: NatsServer) -> Path:
    """The file that holds the log's messages."""
    (found,) = (server.home.nats / "jetstream").rglob("FOREBAY/msgs/1.blk")
    return found


async def damaged(server: NatsServer, damage: Callable[[Path], None]) -> None:
    """Stop the server, damage its files, start it again."""
    await server.stop()
    damage(block(server))
    await server.start()


def flip(path: Path) -> None:
    """One bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Half of the block is gone."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_without_index(path: Path) -> None:
    """The server reads the block anew, and stops where it is broken."""
    flip(path)
    (path.parent / "index.db").unlink(missing_ok=True)


@pytest.mark.parametrize("more", [5, 30])
async def test_ev_05_the_broker_lost_its_store(tmp_path: Path, more: int) -> None:
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
        with pytest.raises(LogMismatchError, match="message 1 of the log is not the one that was folded") as refused:
            await caught_up(server, tmp_path)
        assert refused.value.code == "LogDiverged"
        assert "move the store away" in refused.value.next_action


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

    async def state(self) -> LogState:
        state = await super().state()
        return LogState(first=state.first + 3, last=state.last, messages=state.messages - 3, created=state.created)


async def test_the_beginning_is_gone(tmp_path: Path) -> None:
    """A log that has lost its beginning is refused: nothing can be rebuilt from it."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 6)
        with pytest.raises(LogMismatchError, match="LogTruncated: the log begins at 4"):
            await caught_up(server, tmp_path, Beheaded)


@pytest.mark.parametrize("folded", [0, 100])
@pytest.mark.parametrize(("damage", "missing"), [(flip, "51"), (cut, "51-100")])
async def test_damaged_files_leave_holes(
    tmp_path: Path, damage: Callable[[Path], None], missing: str, folded: int
) -> None:
    """A flipped bit and a block cut short: whoever has folded the lost messages, and whoever has not, stops and names them."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 100)
        if folded:
            assert await caught_up(server, tmp_path) == folded
        await damaged(server, damage)
        await publish(server, 100, 3)
        with pytest.raises(LogMismatchError, match=rf"message[s]? .*\b{missing}\b") as stopped:
            await caught_up(server, tmp_path)
        assert stopped.value.code == "LogHole"
        assert "FOREBAY_ACCEPTED_LOSS" in stopped.value.next_action


async def test_a_log_that_matches_up_to_its_end_has_lost_its_tail(tmp_path: Path) -> None:
    """The server drops everything after a broken message: the store is ahead and is folded again."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 100)
        assert await caught_up(server, tmp_path) == 100
        await damaged(server, flip_without_index)
        assert await caught_up(server, tmp_path) is None


async def test_another_history_is_not_folded_over(tmp_path: Path) -> None:
    """An older copy of the log that has passed the old end with other messages: refused, with the first that differs."""
    async with nats_server(tmp_path / "home", "lab") as server:
        await publish(server, 0, 20)
        copy = await copied(server, tmp_path)
        await publish(server, 20, 5)
        assert await caught_up(server, tmp_path) == 25
        await put_back(server, copy)
        await publish(server, 90, 10)
        with pytest.raises(LogMismatchError, match="LogDiverged: message 21"):
            await caught_up(server, tmp_path)


# ------------------------------------------------------------- a whole service


async def state(operator: Client) -> LogState | None:
    try:
        return await operator.log_reader.state()
    except (NatsError, Unreachable):
        return None


async def copied(server: NatsServer, folder: Path) -> Path:
    """A copy of the broker's files, made while it is down."""
    await server.stop()
    shutil.copytree(server.home.nats, folder / "copy")
    await server.start()
    return folder / "copy"


async def put_back(server: NatsServer, copy: Path) -> None:
    await server.stop()
    shutil.rmtree(server.home.nats)
    shutil.copytree(copy, server.home.nats)
    await server.start()


async def test_a_service_folds_again_when_the_broker_lost_its_tail(tmp_path: Path) -> None:
    """An older copy comes back under a running service: its own lost events are said again, new uploads are judged, and it says so."""
    async with (
        nats_server(tmp_path / "home", "lab") as server,
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        async with toy_service(server, tmp_path, restart=True):
            await upload(collector, "u-1")
            await eventually(lambda: all_tagged(me, {"u-1"}), what="the first upload is tagged")
        copy = await copied(server, tmp_path)
        await eventually(lambda: state(me), what="the bus is back")
        async with toy_service(server, tmp_path, restart=True):
            await eventually(lambda: tags(me), what="the service is back")
            # decided before the loss about an upload that survives it, and about one that does not
            await me.ask("ingest", "lab", "tag", {"dataset": "u-1"}, id="once-more")
            await upload(collector, "u-2")
            await eventually(lambda: all_tagged(me, {"u-1", "u-2"}), what="both are tagged")
            assert (await tags(me))["u-1"] == 2
            await put_back(server, copy)
            await eventually(lambda: all_tagged(me, {"u-1"}), what="only the first is known")
            await eventually(lambda: said_again(me), what="the tag is said again")
            await upload(collector, "u-3")
            await eventually(lambda: all_tagged(me, {"u-1", "u-3"}), what="a new upload is judged")
            report = await ask(me, "health")
            assert report["ready"] is True
            assert report["healthy"] is False
            assert "LogLostTail 5" in report["problems"][0]
            await ask(me, "dead-dismiss", lost_tail=True)
            assert (await ask(me, "health"))["healthy"] is True


async def said_again(operator: Client) -> bool:
    """The command's tag of u-1 is in the log once more."""
    return (await tags(operator)).get("u-1") == 2


async def test_a_service_stands_still_over_a_hole_until_it_is_accepted(tmp_path: Path) -> None:
    """It says in health what to do and answers nothing; with the loss accepted it goes on without the lost messages, and says so."""
    async with (
        nats_server(tmp_path / "home", "lab") as server,
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        for number in range(1, 30):
            await collector.publish(toy.started(f"u-{number}", f"u-{number}"))
        async with toy_service(server, tmp_path, restart=True):
            await eventually(lambda: tags(me), what="all is folded")
        await damaged(server, flip)
        await eventually(lambda: state(me), what="the bus is back")
        async with toy_service(server, tmp_path, restart=True):
            report = await eventually(lambda: ask(me, "health"), what="health is told")
            assert (report["phase"], report["ready"]) == ("stopped", False)
            assert report["problems"][0].startswith("LogHole: the log has no message 15")
            with pytest.raises(Refused, match="ingest has stopped") as refused:
                await me.ask("ingest", "lab", "uploads")
            assert (refused.value.code, "FOREBAY_ACCEPTED_LOSS" in refused.value.next_action) == ("LogHole", True)
        async with toy_service(server, tmp_path, restart=True, accepted_loss="15"):
            found = await eventually(lambda: tags(me), what="it goes on")
            assert set(found) == {f"u-{number}" for number in range(1, 30)} - {"u-15"}
            answer = (await me.ask("ingest", "lab", "uploads")).result
            assert answer["complete"] is False
            assert answer["missing"] == [{"id": "log", "reason": "the log lost 1 message: 15"}]
