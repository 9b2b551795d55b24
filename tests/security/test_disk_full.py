"""Full disks, each filled for real: told with numbers, nothing lost, and everything goes on when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from forebay.contracts.parts import Part
from forebay.local.bus_probe import BusProbe, BusRevival
from forebay.local.children import Child
from forebay.local.disks import problems
from forebay.runtime.disk_room import DiskRoom, is_disk_full, says_disk_full
from forebay.runtime.engine import Engine
from forebay.runtime.errors import StoreNotFitError
from forebay.runtime.machine import Emit
from forebay.runtime.settings import ServiceSettings, environment
from forebay.runtime.stores.place import place_of
from forebay.runtime.stores.sqlite import SqliteStore
from forebay.runtime.stores.sqlite_errors import in_words
from forebay.runtime.work import WorkContext, WorkItem
from forebay.runtime.workshop import Workshop

from runtime.tests import toy
from sdk.tests.builders import Attempt, python
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server, stores
from tests.servers.small_disk import MIB, small_disk

PROJECT = "arm-lab"


# ------------------------------------------------------------------------ figures


def room(*, free: int, total: int = 100 * MIB, floor: int = 10**9) -> DiskRoom:
    return DiskRoom(what="pool", folder="/pool", free=free, total=total, floor=floor)


def test_the_floor_of_a_small_disk_is_a_tenth_of_it() -> None:
    """A floor made for large disks does not make a small one useless; the sentence has all numbers."""
    assert room(free=11 * MIB).problem == ""
    assert "has 9.4 MB of 104.9 MB free; 10.5 MB must stay free" in room(free=9 * MIB).problem
    assert "20.0 MB are needed and 10.5 MB must stay free" in room(free=11 * MIB).shortage(20_000_000)


def test_a_large_disk_warns_before_it_refuses() -> None:
    """Below a tenth there is a warning; only below the floor new work is refused."""
    low = room(free=8 * 10**9, total=10**11)
    assert (bool(low.warning), low.problem) == (True, "")
    assert room(free=10**8, total=10**11).problem
    assert not room(free=2 * 10**10, total=10**11).warning


def test_a_full_disk_is_known_behind_other_errors() -> None:
    """By number, by the words of other languages' libraries, and as the cause of another error; never by data."""
    full = OSError(28, "No space left on device")
    wrapped = RuntimeError("a worker failed")
    wrapped.__cause__ = full
    assert is_disk_full(full)
    assert is_disk_full(wrapped)
    assert is_disk_full(RuntimeError("LanceError(IO): No space left on device (os error 28)"))
    assert not is_disk_full(ValueError("the task 'No space left on device' is no task"))
    assert not is_disk_full(FileNotFoundError(2, "No such file"))
    assert says_disk_full("OSError: [Errno 28] No space left on device\n")


def test_problems_name_each_disk_once() -> None:
    """Home, pool and bus on one disk are one problem."""
    assert problems([room(free=1), room(free=1)]) == [room(free=1).problem]


# ---------------------------------------------------------------------------- bus


@contextlib.asynccontextmanager
async def supervised(server: NatsServer) -> AsyncIterator[tuple[Child, BusRevival]]:
    """The server as the supervisor runs it, instead of as the test does."""
    await server.stop()
    probe = BusProbe(server.url, server.home.key("admin"))
    probe.publishes = True
    child = Child(
        "nats-server",
        server.bus.command(),
        environment=dict(environment()),
        log=server.home.logs / "nats-server.log",
        probe=probe,
        changed=lambda: None,
    )
    child.start()
    try:
        await eventually(child.check, what="the server is healthy")
        yield child, BusRevival(probe, server.home.nats)
    finally:
        await probe.close()
        await child.stop()


async def test_a_bus_that_met_a_full_disk_stores_again_when_there_is_room(tmp_path: Path) -> None:
    """It greets as ever while it refuses; the probe sees that, and the server is restarted only once its disk takes writes."""
    with small_disk(tmp_path / "home") as disk:
        async with nats_server(disk.folder, PROJECT) as server, supervised(server) as (child, revival):
            client = await server.connect(Part.COLLECTOR, PROJECT)
            assert await stores(client)
            disk.fill()
            assert not await stores(client)
            for _ in range(3):
                assert not await child.check()
                await revival.look(child)
            assert "no space left on device" in child.record.note
            assert child.record.restarts == 0
            disk.clear()
            assert not await child.check(), "it would go on refusing for ever"

            async def revived() -> bool:
                await child.check()
                await revival.look(child)
                return child.record.state == "healthy" and child.record.restarts == 1

            await eventually(revived, what="the server is back")
            assert await eventually(lambda: stores(client), what="it stores events")


# -------------------------------------------------------------------------- store


async def test_a_service_whose_store_is_full_waits_and_goes_on(tmp_path: Path) -> None:
    """Nothing is half-written, the error says what to do, and the same store takes the same messages later."""
    with small_disk(tmp_path / "store", 8 * MIB) as disk:
        store = SqliteStore(disk.folder / "state.sqlite", fold_version=1)
        assert await store.acquire("tester", ttl_s=60)
        engine = Engine(toy.SERVICE, store)
        await engine.open()
        log = toy.MemoryLog()
        await engine.fold(log.store(toy.started("u-0")))
        disk.fill()
        messages = log.store(*[toy.started(f"u-{number}") for number in range(1, 2000)])
        with pytest.raises(StoreNotFitError, match="free space on its disk") as caught:
            await engine.fold(messages)
        assert is_disk_full(caught.value)
        assert engine.parked == set()
        disk.clear()
        await engine.fold(messages)
        assert engine.position == 2000
        assert engine.parked == set()
        await store.close()


async def test_work_that_meets_a_full_disk_is_done_later_and_did_not_fail(tmp_path: Path) -> None:
    """However often: it costs none of its tries, also when the store cannot even say that it waits."""
    tried = 0

    async def work(item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        nonlocal tried
        tried += 1
        raise OSError(28, "No space left on device", "/pool/x")

    store = SqliteStore(tmp_path / "state.sqlite", fold_version=1)
    assert await store.acquire("tester", ttl_s=60)
    engine = Engine(toy.SERVICE, store)
    await engine.open()
    log = toy.MemoryLog()
    await engine.fold(log.store(toy.started("u-7"), toy.finished("u-7")))
    (record,) = engine.work.values()
    workshop = Workshop(engine, None, {record.work: work}, {})  # type: ignore[arg-type]  # nothing is told to watchers
    running = asyncio.create_task(workshop.run())
    try:
        await eventually(lambda: next(iter(engine.work.values())).tries == 1, what="it was tried")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    (after,) = engine.work.values()
    assert (after.failures, tried) == (0, 1)
    assert after.last_error is not None
    assert after.last_error.startswith("DiskFull: ")
    assert "/pool/x" in after.last_error
    await store.close()


async def test_a_damaged_store_is_set_aside_and_said(tmp_path: Path) -> None:
    """A file that is no database any more, and one with a broken page: both are kept, and the log is folded anew."""
    path = tmp_path / "state.sqlite"
    for damage in ("header", "page"):
        engine_store = await place_of(ServiceSettings(store=path), "toy", fold_version=1).open()
        assert await engine_store.acquire("tester", ttl_s=60)
        engine = Engine(toy.SERVICE, engine_store)
        await engine.open()
        log = toy.MemoryLog()
        await engine.fold(log.store(*[toy.started(f"u-{number}") for number in range(500)]))
        await engine_store.release()
        await engine_store.close()
        with path.open("r+b") as file:
            file.seek(0 if damage == "header" else 8192)
            file.write(b"\xff" * (100 if damage == "header" else 4096))
        place = place_of(ServiceSettings(store=path), "toy", fold_version=1)
        store = await place.open()
        assert (await store.head()).position == 0, damage
        assert "state.sqlite.corrupt-" in place.note
        await store.close()
        for left in tmp_path.glob("state.sqlite*"):
            if ".corrupt-" not in left.name:
                left.unlink()
    assert list(tmp_path.glob("state.sqlite.corrupt-*"))


def test_a_store_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    """The file, SQLite's own words, and advice."""
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path / "none" / "x").execute("SELECT 1")
    said = str(in_words("/home/x/state.sqlite", caught.value))
    assert "/home/x/state.sqlite cannot be used: unable to open database file. make its folder exist" in said


# ------------------------------------------------------------------------ attempts


async def test_a_command_that_dies_of_a_full_disk_is_told_apart_from_a_failed_one(tmp_path: Path) -> None:
    """The agent outlives it, waits for room to say so, and then tells the reason with numbers."""
    with small_disk(tmp_path / "disk", 96 * MIB) as disk:
        attempt = Attempt(home=disk.folder)
        eater = "import os\nwith open(os.environ['FOREBAY_OUTPUT'] + '/big', 'wb', 0) as f:\n while f.write(bytes(1 << 16)): pass"
        process = await attempt.start(*python(eater))
        assert process.stdout is not None
        async with asyncio.timeout(30):
            while b"waiting for room" not in (line := await process.stdout.readline()):
                assert line, "the agent ended although it cannot say how"
            (attempt.output / "big").unlink()
            assert await process.wait() == 1
        ended = attempt.exit()
        assert (ended["reason"], ended["ran"], ended["exit_code"]) == ("DiskFull", True, 1)
        assert "of 100.7 MB free" in ended["message"]
