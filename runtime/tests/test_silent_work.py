"""Work that hangs harms itself only: it is abandoned, tried again, parked; everything else goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from forebay.runtime.bus import Bus
from forebay.runtime.engine import MAX_WORK_FAILURES, Engine
from forebay.runtime.errors import WorkerProcessError
from forebay.runtime.machine import Emit, Work
from forebay.runtime.open_work import Slots
from forebay.runtime.processes import Limits, Order, ProcessServer
from forebay.runtime.work import WorkContext, WorkItem
from forebay.runtime.workshop import Workshop

from runtime.tests import long_calls
from runtime.tests.test_engine import start
from tests.eventually import eventually

SILENT_S = 2.0
PARALLEL = 2


class Reader:
    """A worker that reads from storage; what lies at `hanging` never answers."""

    def __init__(self, folder: Path, *, threads: bool) -> None:
        self.folder = folder
        self.threads = threads
        self.answer = threading.Event()
        self.results: dict[str, Any] = {}

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        name = item.key
        if name.startswith("hanging"):
            if self.threads:
                await context.in_thread(self.answer.wait)
            else:
                await context.in_process(long_calls.hang, self.folder / name)
        elif name == "long":
            self.results[name] = await context.in_process(long_calls.beat, 2.5 * SILENT_S)
        else:
            self.results[name] = await context.in_thread(len, name)
        return ()


def read(item: str, project: str = "lab") -> Work:
    return Work(kind="read", key=item, project=project)


@asynccontextmanager
async def at_work(folder: Path, *, threads: bool) -> AsyncIterator[tuple[Engine, Reader]]:
    engine, store = await start(folder)
    reader = Reader(folder, threads=threads)
    bus = Bus("nats://127.0.0.1:1", engine.service.source, None)
    processes = ProcessServer(("runtime.tests.long_calls",))
    warm = Order(function=long_calls.double, arguments=(1,), limits=Limits())
    await processes.run(warm, lambda _: None)  # what it takes to load libraries is no silence
    shop = Workshop(
        engine, bus, {"read": reader}, {"read": Slots.unshared(PARALLEL)}, silent_s=SILENT_S, processes=processes
    )
    task = asyncio.create_task(shop.run())
    try:
        yield engine, reader
    finally:
        reader.answer.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


async def soon(engine: Engine) -> None:
    """Take the pause before the next try away."""
    for record in list(engine.work.values()):
        if record.not_before:
            await engine.work_again([record], at=0, reason=record.last_error or "", failed=False)


@pytest.mark.parametrize("threads", [True, False])
async def test_hanging_items_are_abandoned_and_others_of_their_kind_go_on(tmp_path: Path, *, threads: bool) -> None:
    """More items hang than there are slots; every other one is done, and the cause is on record."""
    async with at_work(tmp_path, threads=threads) as (engine, reader):
        await engine.say([read(f"hanging-{number}") for number in range(PARALLEL + 1)])
        await engine.say([read(f"good-{number}") for number in range(5)])
        await eventually(lambda: len(reader.results) == 5, what="the others are done", within=30)
        await eventually(
            lambda: all("NoProgressError" in (one.last_error or "") for one in engine.work.values()),
            what="the hanging ones are put off with their cause",
            within=30,
        )
        if not threads:
            started = [int(mark.read_text()) for mark in tmp_path.glob("hanging-*")]
            assert started
            await eventually(lambda: sum(map(psutil.pid_exists, started)) <= PARALLEL, what="abandoned ones are killed")


async def test_what_always_hangs_is_parked_and_holds_one_thread(tmp_path: Path) -> None:
    """After the usual number of tries; an item whose thread still hangs gets no second one."""
    before = threading.active_count()
    async with at_work(tmp_path, threads=True) as (engine, _):
        await engine.say([read("hanging")])
        await eventually(lambda: [one.failures for one in engine.work.values()] == [1], what="abandoned", within=30)
        assert [one.last_error for one in engine.work.values()] == [
            "NoProgressError: no progress for 2 s; see whether the storage that it reads answers"
        ]
        failures = 0

        def tried_again() -> bool:
            return not engine.work or next(iter(engine.work.values())).failures > failures

        while engine.work:
            failures = next(iter(engine.work.values())).failures
            await soon(engine)
            await eventually(tried_again, what="tried again")
        assert failures == MAX_WORK_FAILURES - 1
        hanging = [thread for thread in threading.enumerate() if thread.name == "work read/lab/hanging"]
        assert len(hanging) == 1
        assert threading.active_count() <= before + 8


async def test_long_work_that_reports_is_never_cut(tmp_path: Path) -> None:
    """It takes longer than any silence that is allowed."""
    async with at_work(tmp_path, threads=False) as (engine, reader):
        await engine.say([read("long")])
        await eventually(lambda: reader.results.get("long") == "done", what="it is done", within=30)
        await eventually(lambda: not engine.work, what="it is closed")


async def test_two_projects_may_name_their_work_alike(tmp_path: Path) -> None:
    """The item of one does not hide the item of the other."""
    async with at_work(tmp_path, threads=True) as (engine, reader):
        await engine.say([read("hanging", "a"), read("same", "a"), read("same", "b")])
        await eventually(lambda: "same" in reader.results and len(engine.work) == 1, what="both are done", within=30)
        kept = await engine.store.get("_work", ["read/a/same", "read/b/same"])
        assert len(kept) == 2


async def test_a_call_in_a_process_gives_its_value_or_its_error() -> None:
    """Values, reports and errors travel; a process that dies is an error too; nothing is left."""
    server = ProcessServer(("runtime.tests.long_calls",))
    heard: list[Any] = []
    try:

        async def call(function: Any, *arguments: Any) -> Any:
            return await server.run(Order(function=function, arguments=arguments, limits=Limits()), heard.append)

        assert await call(long_calls.double, 21) == 42
        assert heard == [{"stage": "doubling"}]
        with pytest.raises(FileNotFoundError) as caught:
            await call(long_calls.refuse)
        assert caught.value.filename == "/pool/x"
        assert "refuse" in caught.value.__notes__[0]
        with pytest.raises(WorkerProcessError, match="ended"):
            await call(long_calls.die)
    finally:
        server.stop()


async def test_a_call_that_is_cancelled_is_killed(tmp_path: Path) -> None:
    """Also while it blocks in the kernel."""
    server = ProcessServer(("runtime.tests.long_calls",))
    try:
        order = Order(function=long_calls.hang, arguments=(tmp_path / "pid",), limits=Limits())
        running = asyncio.ensure_future(server.run(order, lambda _: None))
        pid = int(
            await eventually(
                lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="it runs", within=30
            )
        )
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await eventually(lambda: not psutil.pid_exists(pid), what="it is gone")
    finally:
        server.stop()


_PARENT = """
import asyncio, sys
from pathlib import Path
from forebay.runtime.processes import Limits, Order, ProcessServer
from runtime.tests import long_calls
server = ProcessServer(("runtime.tests.long_calls",))
order = Order(function=long_calls.hang, arguments=(Path(sys.argv[1]),), limits=Limits())
asyncio.run(server.run(order, lambda _: None))
"""


async def test_processes_end_with_the_service_that_started_them(tmp_path: Path) -> None:
    """It is killed without a warning; what it started in processes does not go on beside its successor."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path / "pid")])  # noqa: ASYNC220 it lives longer than a call
    pid = int(
        await eventually(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="it runs", within=30
        )
    )
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    await eventually(lambda: not psutil.pid_exists(pid), what="its process is gone")
