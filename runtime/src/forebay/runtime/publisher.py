"""The publisher: sends the outbox, in order, again and again until each entry is seen back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec

from forebay.runtime import telemetry
from forebay.runtime.bus import Bus
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogReader
from forebay.runtime.records import OutboxEntry

_log = logging.getLogger(__name__)
WINDOW = 200
RESEND_AFTER_S = 10.0
"""An entry that the server took but that did not come back within this time is sent again."""


class Publisher:
    """Publishes one engine's outbox over one bus."""

    def __init__(self, engine: Engine, bus: Bus, log: LogReader) -> None:
        self._engine = engine
        self._bus = bus
        self._log = log
        self._sent: dict[str, float] = {}
        self._salt: dict[str, int] = {}

    async def run(self) -> None:
        """Publish until cancelled."""
        pause = 0.1
        while True:
            self._engine.to_publish.clear()
            due = self._due()
            if due and not await self._send(due[:WINDOW]):
                await asyncio.sleep(pause)
                pause = min(pause * 2, 5.0)
                continue
            pause = 0.1
            if len(due) <= WINDOW:
                with contextlib.suppress(TimeoutError):
                    # not wait_for: on Python 3.11 it can swallow a cancellation
                    async with asyncio.timeout(1.0):
                        await self._engine.to_publish.wait()

    def _due(self) -> list[OutboxEntry]:
        now = time.monotonic()
        entries = self._engine.outbox.entries()
        telemetry.OUTBOX.labels(self._engine.service.name).set(len(entries))
        identities = {entry.identity for entry in entries}
        self._sent = {identity: at for identity, at in self._sent.items() if identity in identities}
        return [entry for entry in entries if now - self._sent.get(entry.identity, -RESEND_AFTER_S) >= RESEND_AFTER_S]

    async def _send(self, entries: list[OutboxEntry]) -> bool:
        """Send one window, oldest first; False when something was not stored."""
        results = await asyncio.gather(*(self._one(entry) for entry in entries), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, Exception):
                raise failure
        if failures:
            _log.warning(
                "%d of %d events not stored (%s); they stay in the outbox", len(failures), len(entries), failures[0]
            )
        return not failures

    async def _one(self, entry: OutboxEntry) -> None:
        salt = self._salt.get(entry.identity, 0)
        if salt:
            headers = entry.headers | {"Nats-Msg-Id": f"{entry.headers['Nats-Msg-Id']}~{salt}"}
            entry = msgspec.structs.replace(entry, headers=headers)
        seq, duplicate = await self._bus.publish(entry)
        if entry.dead:
            await self._engine.dead_letter_stored(entry)
            return
        if duplicate and not await self._is_ours(entry, seq):
            # Somebody used our message id for something else; the server would
            # swallow ours for the whole duplicate window.
            _log.warning("message id of %s was taken by message %s; sending it under another one", entry.subject, seq)
            self._salt[entry.identity] = salt + 1
            msg = f"message id of {entry.identity} is taken by message {seq}"
            raise ConnectionError(msg)
        self._sent[entry.identity] = time.monotonic()
        telemetry.PUBLISHED.labels(self._engine.service.name, entry.subject.rsplit(".", 1)[-1]).inc()

    async def _is_ours(self, entry: OutboxEntry, seq: int) -> bool:
        stored = await self._log.one(seq)
        return stored is not None and stored.subject == entry.subject and stored.data == entry.body
