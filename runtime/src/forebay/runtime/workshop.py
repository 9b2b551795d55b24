"""The workshop: runs open work with its workers and passes on deadlines that are due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime import telemetry
from forebay.runtime.bus import Bus
from forebay.runtime.disk_room import RETRY_S, is_disk_full
from forebay.runtime.documents import D
from forebay.runtime.engine import Engine
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.records import WorkRecord
from forebay.runtime.state import State
from forebay.runtime.work import T, Worker, WorkItem

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

    async def read(self, question: Callable[[State], T]) -> T:
        return await self._engine.read(question)


class Workshop:
    """Runs one engine's work, at most `concurrency[kind]` runs of a kind at once."""

    def __init__(self, engine: Engine, bus: Bus, workers: Mapping[str, Worker], concurrency: Mapping[str, int]) -> None:
        self._engine = engine
        self._bus = bus
        self._workers = workers
        self._concurrency = concurrency
        self._running: dict[str, dict[str, asyncio.Task[None]]] = {}
        """By kind and lane."""
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
            tasks = [task for running in self._running.values() for task in running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_due(self) -> None:
        """As many runs as there is room for, the longest wait first; with thousands open nobody looks farther than that."""
        for kind in self._engine.decisions.work.kinds():
            if kind not in self._workers:
                self._complain(kind)
                continue
            running = self._running.setdefault(kind, {})
            room = self._concurrency.get(kind, DEFAULT_CONCURRENCY) - len(running)
            if room > 0:
                due = self._engine.decisions.work.due(kind, time.time())
                free = ((lane, records) for lane, records in due if lane not in running)
                for lane, records in list(islice(free, room)):
                    self._start(kind, lane, records)

    def _complain(self, kind: str) -> None:
        if kind not in self._complained:
            self._complained.add(kind)
            _log.error("no worker does %r; its items stay open", kind)

    def _start(self, kind: str, lane: str, records: Sequence[WorkRecord]) -> None:
        task = asyncio.ensure_future(self._work(records))
        self._running[kind][lane] = task
        task.add_done_callback(lambda _: self._ended(kind, lane))

    def _ended(self, kind: str, lane: str) -> None:
        self._running[kind].pop(lane, None)
        self._engine.to_work.set()

    async def _work(self, records: Sequence[WorkRecord]) -> None:
        record = records[0]
        payload = {name: value for one in records for name, value in one.payload.items()}
        tries, failures = max(one.tries for one in records), max(one.failures for one in records)
        item = WorkItem(kind=record.work, key=record.item, project=record.project, payload=payload, tries=tries)
        started = time.monotonic()
        outcome = "done"
        try:
            with telemetry.span(f"work {record.work}", parent=record.traceparent):
                emits = await self._workers[record.work](item, _Context(self._engine, self._bus, record))
            await self._engine.work_done(records, emits)
        except RetryLater as later:
            outcome = "later"
            await self._again(records, later.delay_s, later.reason, failed=False)
        except Exception as error:  # noqa: BLE001 a worker's failure is retried, then parked
            outcome = "failed"
            reason = f"{type(error).__name__}: {error}"
            if is_disk_full(error):  # nothing is wrong with the work, and waiting helps
                outcome = "later"
                _log.warning("work %s waits for room: %s", record.key, reason)
                await self._again(records, RETRY_S, f"{Reason.DISK_FULL}: {reason}", failed=False)
            else:
                _log.exception("work %s failed (%d. time)", record.key, failures + 1)
                await self._again(records, min(2.0**failures, 60.0), reason, failed=True)
        finally:
            telemetry.WORKED.labels(self._engine.service.name, record.work, outcome).observe(time.monotonic() - started)

    async def _again(self, records: Sequence[WorkRecord], delay_s: float, reason: str, *, failed: bool) -> None:
        """Write down that it is to be done later; when that cannot be written either, it stays open as it was."""
        try:
            await self._engine.work_again(records, at=time.time() + delay_s, reason=reason, failed=failed)
        except Exception as error:
            if not is_disk_full(error):
                raise
            _log.warning("work %s: %s, and the store has no room to say so (%s)", records[0].key, reason, error)
            await asyncio.sleep(RETRY_S)

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
            try:
                await self._engine.emit_due(record, emit)
            except Exception as error:
                if not is_disk_full(error):
                    raise
                _log.warning("the deadline of %s is told later: %s", record.entity, error)
                await asyncio.sleep(RETRY_S)
                return
