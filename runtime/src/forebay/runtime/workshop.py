"""The workshop: runs open work with its workers and passes on deadlines that are due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime import telemetry
from forebay.runtime.bus import Bus
from forebay.runtime.documents import D
from forebay.runtime.engine import Engine
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.records import WorkRecord
from forebay.runtime.work import Worker, WorkItem

_log = logging.getLogger(__name__)
TICK_S = 0.25
DEFAULT_CONCURRENCY = 2
_PROGRESS_EVERY_S = 0.2


class _Context:
    """`WorkContext` of one run."""

    def __init__(self, engine: Engine, bus: Bus, record: WorkRecord) -> None:
        self._engine = engine
        self._bus = bus
        self._record = record
        self._told = 0.0
        self._telling: set[asyncio.Task[None]] = set()

    async def emit(self, *emits: Emit) -> None:
        await self._engine.work_emits(self._record, emits)

    def progress(self, payload: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now - self._told < _PROGRESS_EVERY_S and not payload.get("done"):
            return
        self._told = now
        record = self._record
        body = {"work": record.work, "item": record.item, **payload}
        key = record.item.replace("/", "-")[:63].strip("-").lower() or "item"
        task = asyncio.ensure_future(self._tell(record.project, key, body))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, project: str, key: str, body: dict[str, Any]) -> None:
        with contextlib.suppress(Exception):  # progress is worth nothing when it is late
            await self._bus.progress(self._engine.service.name, project, key, body)

    async def get(self, kind: type[D], key: str) -> D | None:
        return await self._engine.document(kind, key)


class Workshop:
    """Runs one engine's work, at most `concurrency[kind]` items of a kind at once."""

    def __init__(self, engine: Engine, bus: Bus, workers: Mapping[str, Worker], concurrency: Mapping[str, int]) -> None:
        self._engine = engine
        self._bus = bus
        self._workers = workers
        self._concurrency = concurrency
        self._running: dict[str, asyncio.Task[None]] = {}
        self._complained: set[str] = set()

    async def run(self) -> None:
        """Start what is due until cancelled; running work is cancelled with it."""
        try:
            while True:
                self._engine.to_work.clear()
                await self._deadlines()
                self._start_due()
                with contextlib.suppress(TimeoutError):
                    # not wait_for: on Python 3.11 it can swallow a cancellation
                    async with asyncio.timeout(TICK_S):
                        await self._engine.to_work.wait()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start_due(self) -> None:
        """As many as there is room for, oldest first; with thousands open nobody looks farther than that."""
        busy = Counter(key.partition("/")[0] for key in self._running)
        free = {kind: self._concurrency.get(kind, DEFAULT_CONCURRENCY) - busy[kind] for kind in self._workers}
        now = time.time()
        for record in list(self._engine.work.values()):
            room = free.get(record.work)
            if room is None and record.work not in self._complained:
                self._complained.add(record.work)
                _log.error("no worker does %r; its items stay open", record.work)
            if room and record.not_before <= now and record.key not in self._running:
                free[record.work] = room - 1
                self._start(record)
            elif room == 0 and not any(free.values()):
                return

    def _start(self, record: WorkRecord) -> None:
        task = asyncio.ensure_future(self._work(record))
        self._running[record.key] = task
        task.add_done_callback(lambda _: self._ended(record.key))

    def _ended(self, key: str) -> None:
        self._running.pop(key, None)
        self._engine.to_work.set()

    async def _work(self, record: WorkRecord) -> None:
        item = WorkItem(
            kind=record.work, key=record.item, project=record.project, payload=record.payload, tries=record.tries
        )
        started = time.monotonic()
        outcome = "done"
        try:
            with telemetry.span(f"work {record.work}", parent=record.traceparent):
                emits = await self._workers[record.work](item, _Context(self._engine, self._bus, record))
            await self._engine.work_done(record, emits)
        except RetryLater as later:
            outcome = "later"
            await self._engine.work_again(record, at=time.time() + later.delay_s, reason=later.reason, failed=False)
        except Exception as error:  # noqa: BLE001 a worker's failure is retried, then parked
            outcome = "failed"
            reason = f"{type(error).__name__}: {error}"
            _log.exception("work %s failed (%d. time)", record.key, record.failures + 1)
            pause = min(2.0**record.failures, 60.0)
            await self._engine.work_again(record, at=time.time() + pause, reason=reason, failed=True)
        finally:
            telemetry.WORKED.labels(self._engine.service.name, record.work, outcome).observe(time.monotonic() - started)

    async def _deadlines(self) -> None:
        now = datetime.now(UTC)
        due = [record for record in self._engine.deadlines.values() if record.at <= now]
        for record in due:
            body = DeadlinePassed(
                part=self._engine.service.name, entity=record.entity, condition=record.condition, deadline=record.at
            )
            emit = Emit(
                project=record.project, body=body, dedupe=(record.entity, record.condition, record.at.isoformat())
            )
            await self._engine.emit_due(record, emit)
