"""The main loop of a service: from settings to a running reader, publisher, workers and answers.

A service's own `app.py` builds its `Service` and workers and calls `run_service`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from forebay.runtime import health as health_module
from forebay.runtime import telemetry
from forebay.runtime.answers import Answers
from forebay.runtime.bus import Bus
from forebay.runtime.engine import Engine
from forebay.runtime.errors import FencedError, RuntimeFailure, Unreachable
from forebay.runtime.health import Health
from forebay.runtime.log import LogReader, read_all
from forebay.runtime.machine import Service
from forebay.runtime.publisher import Publisher
from forebay.runtime.reader import Reader
from forebay.runtime.rebuild import rebuild
from forebay.runtime.records import INTERNAL
from forebay.runtime.settings import ServiceSettings
from forebay.runtime.stores.port import Put, Store, WriteBatch
from forebay.runtime.stores.sqlite import SqliteStore
from forebay.runtime.work import Worker
from forebay.runtime.workshop import Workshop

_log = logging.getLogger(__name__)
LEASE_S = 10.0
_NO_CONCURRENCY: Mapping[str, int] = {}


async def run_service(
    service: Service,
    settings: ServiceSettings,
    workers: Mapping[str, Worker],
    *,
    concurrency: Mapping[str, int] = _NO_CONCURRENCY,
) -> None:
    """Run until cancelled. Raises when the service must not go on; its supervisor starts it again."""
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    telemetry.set_up(service.name, settings.otlp_endpoint)
    health = Health(service.name)
    async with contextlib.AsyncExitStack() as stack:
        if settings.health_port:
            stack.callback(health_module.serve(health, settings.health_port))
        bus = Bus(settings.nats_url, service.source, settings.nkey_file)
        await _patiently(bus.connect, "waiting for the bus", health)
        stack.push_async_callback(bus.close)
        log = LogReader(bus.nc)
        await _patiently(log.ends, "waiting for the stream", health)
        path = settings.store_path(service.name)
        await _refold_if_older(service, path, log)
        store = SqliteStore(path, fold_version=service.fold_version)
        stack.push_async_callback(store.close)
        await _become_reader(store, health)
        stack.push_async_callback(store.release)
        await _serve(service, store=store, bus=bus, log=log, health=health, workers=workers, concurrency=concurrency)


async def _serve(
    service: Service,
    *,
    store: Store,
    bus: Bus,
    log: LogReader,
    health: Health,
    workers: Mapping[str, Worker],
    concurrency: Mapping[str, int],
) -> None:
    engine = Engine(service, store)
    await engine.open()
    reader = Reader(engine, log)
    health.phase = "reading the log"
    health.probe("position", lambda: engine.position)
    health.probe("lag", lambda: engine.lag)
    health.probe("outbox", lambda: len(engine.outbox))
    health.probe("work", lambda: len(engine.work))
    health.probe("parked", lambda: len(engine.parked))
    health.probe("trouble", lambda: reader.trouble)
    health.probe("connected", lambda: bus.connected)
    await bus.answer(service.name, Answers(engine, log, health).ask)
    await reader.catch_up()
    await bus.read(service.name, reader.take)
    health.caught_up = True
    health.phase = "running"
    _log.info("%s runs from sequence %d", service.name, engine.position)
    endless = [
        asyncio.create_task(Publisher(engine, bus, log).run(), name="publisher"),
        asyncio.create_task(Workshop(engine, bus, workers, concurrency).run(), name="workshop"),
        asyncio.create_task(_keep_lease(store), name="lease"),
        asyncio.create_task(reader.look_again(), name="look again"),
        asyncio.ensure_future(_raise(reader.failed)),
    ]
    try:
        done, _ = await asyncio.wait(endless, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)


async def _raise(failed: asyncio.Future[None]) -> None:
    await asyncio.shield(failed)


async def _patiently(attempt: Callable[[], Awaitable[object]], what: str, health: Health) -> None:
    """Try until it works: the bus may start after us."""
    health.phase = what
    pause = 0.2
    while True:
        try:
            await attempt()
        except (OSError, TimeoutError, Unreachable) as error:
            _log.warning("%s: %s", what, error)
        except Exception as error:
            if "nats" not in type(error).__module__:
                raise
            _log.warning("%s: %s: %s", what, type(error).__name__, error)
        else:
            return
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 3.0)


async def _become_reader(store: Store, health: Health) -> None:
    health.phase = "standing by: another process reads"
    owner = uuid.uuid4().hex
    while not await store.acquire(owner, ttl_s=LEASE_S):
        await asyncio.sleep(0.5)  # the other process may end at any time and cannot tell us


async def _keep_lease(store: Store) -> None:
    owner = uuid.uuid4().hex
    while True:
        await asyncio.sleep(LEASE_S / 4)
        if not await store.acquire(owner, ttl_s=LEASE_S):
            msg = "another process has taken over this store"
            raise FencedError(msg)


async def _refold_if_older(service: Service, path: Path, log: LogReader) -> None:
    """A store of another fold version is folded again beside the old one, then swapped in.

    What is still to be done (outbox, work, …) is carried over as it is.
    """
    if not path.exists():
        return
    old = SqliteStore(path, fold_version=service.fold_version)
    try:
        head = await old.head()
        if head.fold_version == service.fold_version:
            return
        _log.info("%s: fold version %d -> %d, folding again", service.name, head.fold_version, service.fold_version)
        shadow = path.with_suffix(".shadow")
        for leftover in path.parent.glob(f"{shadow.name}*"):
            leftover.unlink()
        await rebuild(service, read_all(log, after=0, until=head.position), shadow)
        new = SqliteStore(shadow, fold_version=service.fold_version)
        await new.acquire("swap", ttl_s=LEASE_S)
        await _carry_over(old, new)
        await new.release()
        await new.close()
    finally:
        await old.close()
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shadow.replace(path)


async def _carry_over(old: Store, new: Store) -> None:
    for kind in INTERNAL:
        if kind.kind == "_parked":
            continue  # the new fold has judged them again
        after = ""
        while rows := await old.page(kind.kind, after=after, limit=500):
            puts = []
            for key, body in rows:
                index = (("state", _state(body)),) if kind.indexed else ()
                puts.append(Put(kind.kind, key, body, index, bool(kind.indexed)))
            await new.write(WriteBatch(puts=puts))
            after = rows[-1][0]


def _state(body: bytes) -> str:
    from forebay.runtime.documents import decode_document  # noqa: PLC0415 only on the rare path
    from forebay.runtime.records import WorkRecord  # noqa: PLC0415

    return decode_document(WorkRecord, body).state


def main(run: Callable[[], Awaitable[None]]) -> None:
    """Run a service until SIGTERM or SIGINT; exit 1 with one sentence when it cannot go on."""

    async def until_told() -> None:
        task = asyncio.ensure_future(run())
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(until_told())
    except RuntimeFailure as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.exit(1)
