"""The workshop: runs open work with its workers and passes on deadlines that are due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime import telemetry
from forebay.runtime.bus import Bus
from forebay.runtime.disk_room import RETRY_S, is_disk_full
from forebay.runtime.documents import D
from forebay.runtime.engine import Engine
from forebay.runtime.errors import NoProgressError, ProcessesUnavailableError, RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.open_work import Slots
from forebay.runtime.processes import Limits, Order, ProcessServer
from forebay.runtime.records import WorkRecord
from forebay.runtime.state import State
from forebay.runtime.threads import ThreadPerKey
from forebay.runtime.work import T, Worker, WorkItem

_log = logging.getLogger(__name__)
TICK_S = 0.25
SILENT_S = 300.0
DEFAULT_SLOTS = Slots.shared(3)
_CANCEL_WITHIN_S = 5.0
_NO_ROOM_S = 5.0
_PROGRESS_EVERY_S = 0.2


class _Context:
    """`WorkContext` of one run."""

    def __init__(self, engine: Engine, bus: Bus, record: WorkRecord, means: _Means) -> None:
        self._engine = engine
        self._bus = bus
        self._record = record
        self._means = means
        self._told = 0.0
        self._telling: set[asyncio.Task[None]] = set()
        self.heard = time.monotonic()
        """When the run last gave a sign of progress."""

    def alive(self) -> None:
        self.heard = time.monotonic()

    async def emit(self, *emits: Emit) -> None:
        self.alive()
        await self._engine.work_emits(self._record, emits)

    def progress(self, payload: Mapping[str, Any]) -> None:
        self.alive()
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
        self.alive()
        return await self._engine.document(kind, key)

    async def read(self, question: Callable[[State], T]) -> T:
        self.alive()
        return await self._engine.read(question)

    async def in_process(self, function: Callable[..., T], *arguments: Any) -> T:
        limits = Limits(memory_bytes=None, cpu_s=None, silent_s=math.ceil(self._means.silent_s) + 1)
        order = Order(function=function, arguments=arguments, limits=limits)
        result: T = await self._means.processes.run(order, self._reported)
        self.alive()
        return result

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        result = await self._means.threads.run(self._record.key, function, *arguments)
        self.alive()
        return result

    def _reported(self, payload: Mapping[str, Any] | None) -> None:
        if payload:
            self.progress(payload)
        else:
            self.alive()


@dataclass(frozen=True, slots=True)
class _Means:
    """What runs of work share."""

    processes: ProcessServer
    silent_s: float
    threads: ThreadPerKey = field(default_factory=ThreadPerKey)


_Running = dict[tuple[str, str], asyncio.Task[None]]
"""By project and lane."""


class Workshop:
    """Runs one engine's work, at most `slots[kind]` runs of a kind at once, and shares them between projects.

    A run that gives no sign of progress for `silent_s` seconds is abandoned and counts as a failure.
    """

    def __init__(
        self,
        engine: Engine,
        bus: Bus,
        workers: Mapping[str, Worker],
        slots: Mapping[str, Slots],
        *,
        silent_s: float = SILENT_S,
        processes: ProcessServer | None = None,
    ) -> None:
        self._engine = engine
        self._bus = bus
        self._workers = workers
        self._slots = slots
        self._means = _Means(processes or ProcessServer(), silent_s)
        self._running: dict[str, _Running] = {}
        """By kind."""
        self._complained: set[str] = set()

    async def run(self) -> None:
        """Start what is due until cancelled; running work is cancelled with it."""
        self._means.processes.warm_up()
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
            self._means.processes.stop()

    def _start_due(self) -> None:
        """As many runs as there is room for; with thousands open nobody looks farther than that."""
        for kind in self._engine.decisions.work.kinds():
            if kind not in self._workers:
                self._complain(kind)
                continue
            running = self._running.setdefault(kind, {})
            slots = self._slots.get(kind, DEFAULT_SLOTS)
            now = time.time()
            while (due := self._engine.decisions.work.next_due(kind, now, running, slots)) is not None:
                self._start(kind, *due)

    def _complain(self, kind: str) -> None:
        if kind not in self._complained:
            self._complained.add(kind)
            _log.error("no worker does %r; its items stay open", kind)

    def _start(self, kind: str, project: str, lane: str, records: Sequence[WorkRecord]) -> None:
        task = asyncio.ensure_future(self._work(records))
        self._running[kind][project, lane] = task
        task.add_done_callback(lambda _: self._ended(kind, project, lane))

    def _ended(self, kind: str, project: str, lane: str) -> None:
        self._running[kind].pop((project, lane), None)
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
                context = _Context(self._engine, self._bus, record, self._means)
                emits = await self._while_alive(self._workers[record.work], item, context)
            await self._engine.work_done(records, emits)
        except RetryLater as later:
            outcome = "later"
            await self._again(records, later.delay_s, later.reason, failed=False)
        except ProcessesUnavailableError as error:
            outcome = "later"
            await self._again(records, _NO_ROOM_S, str(error), failed=False)
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

    async def _while_alive(self, worker: Worker, item: WorkItem, context: _Context) -> Iterable[Emit]:
        """What the worker returns. One that gives no sign of progress for too long is cancelled, and left where it hangs."""
        silent_s = self._means.silent_s
        task = asyncio.ensure_future(worker(item, context))
        try:
            while (left := context.heard + silent_s - time.monotonic()) > 0:
                if (await asyncio.wait({task}, timeout=left))[0]:
                    return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_WITHIN_S)
        msg = f"no progress for {silent_s:g} s; see whether the storage that it reads answers"
        raise NoProgressError(msg)

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
