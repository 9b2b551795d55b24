"""The main loop of a service: from settings to a running reader, publisher, workers and answers.

A service's own `app.py` builds its `Service` and workers and calls `run_service`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from nats.errors import NoRespondersError

from forebay.runtime import health_server, telemetry
from forebay.runtime.allocator import return_freed_memory, use_few_arenas
from forebay.runtime.answers import Answers
from forebay.runtime.bus import Bus
from forebay.runtime.collector import collect_seldom
from forebay.runtime.companion import Companion, Company
from forebay.runtime.dead_letters import DeadLetterPublisher
from forebay.runtime.disk_room import disk_problem
from forebay.runtime.engine import Engine
from forebay.runtime.errors import (
    FencedError,
    LogMismatchError,
    Refused,
    RuntimeFailure,
    StoreNotFitError,
    Unreachable,
)
from forebay.runtime.health import Health
from forebay.runtime.log import LogReader
from forebay.runtime.log_check import LogGuard, check_log
from forebay.runtime.log_lines import log_to_stderr
from forebay.runtime.lost_tail import fold_without_lost, lost_tail
from forebay.runtime.machine import Service
from forebay.runtime.open_work import Slots
from forebay.runtime.parking import Parking
from forebay.runtime.processes import ProcessServer
from forebay.runtime.publisher import Publisher
from forebay.runtime.reader import Reader
from forebay.runtime.sequences import parse_ranges
from forebay.runtime.settings import ServiceSettings
from forebay.runtime.stores.place import LEASE_S, StorePlace, place_of
from forebay.runtime.stores.port import Store
from forebay.runtime.takeover import refold_if_older
from forebay.runtime.terminal import print_line
from forebay.runtime.work import Worker
from forebay.runtime.workshop import Workshop

_log = logging.getLogger(__name__)
T = TypeVar("T")
_DEFAULT_SLOTS: Mapping[str, Slots] = {}


async def run_service(
    service: Service,
    settings: ServiceSettings,
    workers: Mapping[str, Worker],
    *,
    slots: Mapping[str, Slots] = _DEFAULT_SLOTS,
    processes: ProcessServer | None = None,
    companions: Sequence[Companion] = (),
) -> None:
    """Run until cancelled. Raises when the service must not go on; its supervisor starts it again.

    `companions` run beside the reader from the moment the log is folded: they watch the
    world and say what they see. One that ends, ends the service. `processes` is where
    work that needs a process of its own gets it from.
    """
    os.umask(int(settings.umask, 8))
    log_to_stderr(settings.log_level, "%(asctime)s %(levelname)s %(name)s %(message)s")
    telemetry.set_up(service.name, settings.otlp_endpoint)
    if settings.cached_documents is not None:
        service = dataclasses.replace(service, kept=settings.cached_documents)
    health = Health(service.name)
    _watch_disks(health, service.name, settings)
    async with contextlib.AsyncExitStack() as stack:
        if settings.health_port:
            stack.callback(health_server.serve(health, settings.health_address, settings.health_port))
        bus = Bus(settings.nats_url, service.source, settings.nkey_file)
        await _patiently(bus.connect, "waiting for the bus", health)
        stack.push_async_callback(bus.close)
        log = LogReader(bus.nc, gaps=parse_ranges(settings.accepted_loss))
        await _patiently(lambda: _ends(log), "waiting for the stream", health)
        place = place_of(settings, service.name, fold_version=service.fold_version)
        store = await _patiently(place.open, "waiting for the store", health)
        if place.note:
            health.probe("store", lambda: place.note)
        holding = Holding(store)
        stack.push_async_callback(holding.let_go)
        await _become_reader(store, health)
        lease = asyncio.create_task(holding.keep(), name="lease")
        stack.callback(lease.cancel)
        stack.callback(asyncio.create_task(return_freed_memory(), name="allocator").cancel)
        try:
            holding.store = await _fit_for_log(service, store, place, log, health)
        except LogMismatchError as error:
            await _stand_still(error, service, bus, health)
        engine = Engine(service, holding.store)
        engine.gaps = log.gaps
        holding.engine = engine
        answers = Answers(engine, log, health, place)
        stack.push_async_callback(answers.close)
        await _serve(
            engine,
            bus=bus,
            log=log,
            health=health,
            answers=answers,
            lease=lease,
            workshop=Workshop(engine, bus, workers, slots, silent_s=settings.work_silent_s, processes=processes),
            companions=companions,
        )


def _watch_disks(health: Health, service: str, settings: ServiceSettings) -> None:
    """Red with numbers while the disk of the store or the pool is too full for new work."""
    places = {"pool": settings.pool_disk, "store": None if settings.store_url else settings.store_path(service).parent}
    for what, folder in places.items():
        if folder is not None:
            health.problem(f"disk-{what}", partial(disk_problem, what, folder, settings.disk_floor_bytes))


async def _serve(
    engine: Engine,
    *,
    bus: Bus,
    log: LogReader,
    health: Health,
    answers: Answers,
    lease: asyncio.Task[None],
    workshop: Workshop,
    companions: Sequence[Companion],
) -> None:
    name = engine.service.name
    await engine.open()
    guard = LogGuard(engine, log)
    reader = Reader(engine, log, guard.trusted)
    publisher, letters = Publisher(engine, bus, log), DeadLetterPublisher(engine, bus)
    bus.on_lost.append(guard.disconnected)
    bus.on_again += [guard.reconnected, publisher.reconnected]
    lost = await lost_tail(engine.store)
    health.phase = "reading the log"
    health.probe("position", lambda: engine.position)
    health.probe("lag", lambda: engine.lag)
    health.probe("outbox", lambda: len(engine.outbox))
    health.probe("work", lambda: len(engine.work))
    health.probe("parked", lambda: len(engine.parked))
    health.probe("trouble", lambda: reader.trouble)
    health.probe("connected", lambda: bus.connected)
    health.problem("outbox", publisher.problem)
    health.problem("parked", Parking(engine).summary)
    health.problem("dead letters", lambda: letters.trouble and f"dead letters are not stored: {letters.trouble}")
    health.problem("lost tail", lambda: "" if lost is None else lost.describe(name))
    await bus.answer(name, answers.ask)
    await reader.catch_up()
    await bus.read(name, reader.take)
    health.caught_up = True
    health.phase = "running"
    _log.info("%s runs from sequence %d", name, engine.position)
    endless = [
        asyncio.create_task(publisher.run(), name="publisher"),
        asyncio.create_task(letters.run(), name="dead letters"),
        asyncio.create_task(guard.run(), name="log guard"),
        asyncio.create_task(workshop.run(), name="workshop"),
        lease,
        asyncio.create_task(reader.look_again(), name="look again"),
        asyncio.ensure_future(_raise(reader.failed)),
        asyncio.ensure_future(_raise(answers.broken)),
        *(asyncio.ensure_future(companion(Company(engine, health))) for companion in companions),
    ]
    try:
        done, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)


async def _fit_for_log(service: Service, store: Store, place: StorePlace, log: LogReader, health: Health) -> Store:
    """A store that has folded what the log holds, and nothing else. Raises `LogMismatchError` when there can be none."""
    health.phase = "comparing the log with what was folded"
    last = await check_log(store, log, where=place.where)
    if last is not None:
        health.phase = "folding the log again: the bus has lost messages"
        return await fold_without_lost(service, store, place, log, last=last)
    health.phase = "folding the log again: the code has another fold version"
    return await refold_if_older(service, store, place, log)


async def _stand_still(error: LogMismatchError, service: Service, bus: Bus, health: Health) -> NoReturn:
    """Say what is wrong with the log and answer nothing as complete, until somebody has put it right and starts us again."""
    health.phase = "stopped"
    health.problem("log", lambda: str(error))
    _log.error("%s has stopped: %s", service.name, error)

    async def refuse(_project: str, question: str, _data: bytes, _job: str | None = None) -> dict[str, Any]:
        as_of = {"as_of_seq": 0, "lag": 0}
        if question == "health":
            return {"ok": True, "result": health.report(), **as_of}
        refused = Refused(error.code, f"{service.name} has stopped: {error.message}", error.next_action)
        return {"ok": False, "error": refused.to_json(), **as_of}

    await bus.answer(service.name, refuse)
    again = asyncio.Event()
    bus.on_again.append(again.set)
    await again.wait()  # files of a bus are only exchanged while it is down
    msg = "the bus was started again: starting again to look whether its log fits now"
    raise RuntimeFailure(msg)


async def _ends(log: LogReader) -> tuple[int, int]:
    try:
        return await log.ends()
    except NoRespondersError as error:
        msg = "the bus has no JetStream, so there is no log"
        raise Unreachable(msg, "start nats-server with jetstream in its configuration (forebay up does)") from error


async def _raise(failed: asyncio.Future[None]) -> None:
    await asyncio.shield(failed)


async def _patiently(attempt: Callable[[], Awaitable[T]], what: str, health: Health) -> T:
    """Try until it works: the bus may start after us."""
    health.phase = what
    pause = 0.2
    while True:
        try:
            return await attempt()
        except (OSError, TimeoutError, Unreachable, StoreNotFitError) as error:
            advice = error.next_action if isinstance(error, Unreachable) else ""
            cause = f"{error}; {advice}" if advice else str(error)
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in {"nats", "pymongo"}:
                raise
            cause = f"{type(error).__name__}: {error}"
        health.phase = f"{what}: {cause}"
        _log.warning("%s: %s", what, cause)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 3.0)


async def _become_reader(store: Store, health: Health) -> None:
    owner = uuid.uuid4().hex
    while not await _patiently(lambda: store.acquire(owner, ttl_s=LEASE_S), "taking the store", health):
        health.phase = "standing by: another process reads"
        await asyncio.sleep(0.5)  # the other process may end at any time and cannot tell us


class Holding:
    """The store that this process holds, which a rebuild may replace."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.engine: Engine | None = None

    def current(self) -> Store:
        return self.store if self.engine is None else self.engine.store

    async def keep(self) -> None:
        """Renew the lease until it is lost. A store that is away for a moment is no loss: writes are fenced anyway."""
        owner = uuid.uuid4().hex
        while True:
            await asyncio.sleep(LEASE_S / 4)
            store = self.current()
            try:
                held = await store.acquire(owner, ttl_s=LEASE_S)
            except Exception as error:  # noqa: BLE001 whatever it is, the next write meets it too and says so
                _log.warning("the lease of the store was not renewed: %s: %s", type(error).__name__, error)
                continue
            if not held and store is self.current():
                msg = "another process has taken over this store"
                raise FencedError(msg)

    async def let_go(self) -> None:
        store = self.current()
        try:
            await store.release()
        finally:
            await store.close()


async def until_told(run: Callable[[], Awaitable[None]], *, again_s: float = 5.0) -> None:
    """Run until SIGTERM or SIGINT. A cancellation that a library has swallowed is repeated."""
    task = asyncio.ensure_future(run())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # asyncio.wait_for of Python 3.11 loses one that comes in the moment in which its answer comes.
        if task.cancel():
            loop.call_later(again_s, stop)

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main(run: Callable[[], Awaitable[None]]) -> None:
    """Run a service until SIGTERM or SIGINT; exit 1 with one sentence when it cannot go on."""
    use_few_arenas()
    collect_seldom()
    try:
        asyncio.run(until_told(run))
    except RuntimeFailure as error:
        print_line(f"{type(error).__name__}: {error}", stderr=True)
        sys.exit(1)
