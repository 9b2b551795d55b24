"""The publisher: sends the outbox, oldest first, again and again until each entry is seen back.

An entry that cannot be stored never holds up what was decided after it: one that the
bus refuses for good is set aside and told, one that keeps failing is tried less and less
often. While the bus as a whole does not answer, everything waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass

import msgspec

from forebay.runtime import telemetry
from forebay.runtime.bus import Bus
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogReader
from forebay.runtime.records import OutboxEntry
from forebay.runtime.refusals import refused_for_good
from forebay.runtime.wording import counted

_log = logging.getLogger(__name__)
WINDOW = 200
RESEND_AFTER_S = 10.0
"""An entry that the server took but that did not come back within this time is sent again."""
_LONGEST_BACKOFF_S = 30.0
_REFUSED_AGAIN_S = 300.0
_LATE_S = 30.0
"""Decided events that wait longer than this are told."""


@dataclass(slots=True)
class _Attempts:
    """What was tried with one entry."""

    not_before: float = 0.0
    failures: int = 0
    salt: int = 0
    """Somebody has taken its message id this often."""


class Publisher:
    """Publishes one engine's outbox over one bus."""

    def __init__(self, engine: Engine, bus: Bus, log: LogReader) -> None:
        self._engine = engine
        self._bus = bus
        self._log = log
        self._attempts: dict[str, _Attempts] = {}
        self._trouble = ""

    def problem(self) -> str:
        """One sentence for health; empty when the outbox is as it should be."""
        outbox = self._engine.outbox
        said = []
        oldest = outbox.oldest()
        if oldest is not None and (age := time.time() - oldest) > _LATE_S:
            cause = self._trouble or "the bus has not shown them in the log yet"
            said.append(
                f"{counted(len(outbox), 'decided event')} not stored yet, the oldest after {age:.0f} s: {cause}"
            )
        if refused := outbox.refused():
            names = ", ".join(f"{entry.subject} ({entry.refused})" for entry in refused[:3])
            said.append(f"the bus refuses {counted(len(refused), 'decided event')} permanently: {names}")
        return "; ".join(said)

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

    def reconnected(self) -> None:
        """The bus is back: what failed because of it is due at once."""
        for attempts in self._attempts.values():
            attempts.failures, attempts.not_before = 0, 0.0
        self._engine.to_publish.set()

    def _due(self) -> list[OutboxEntry]:
        now = time.monotonic()
        entries = self._engine.outbox.entries()
        telemetry.OUTBOX.labels(self._engine.service.name).set(len(entries))
        identities = {entry.identity for entry in entries}
        self._attempts = {one: attempts for one, attempts in self._attempts.items() if one in identities}
        return [
            entry
            for entry in entries
            if (tried := self._attempts.get(entry.identity)) is None or tried.not_before <= now
        ]

    async def _send(self, entries: list[OutboxEntry]) -> bool:
        """Send one window, oldest first; False when nothing of it was stored and trying again may help."""
        results = await asyncio.gather(*(self._one(entry) for entry in entries), return_exceptions=True)
        failed: dict[str, Exception] = {}
        for entry, result in zip(entries, results, strict=True):
            attempts = self._attempts.setdefault(entry.identity, _Attempts())
            if result is None:
                attempts.not_before, attempts.failures = time.monotonic() + RESEND_AFTER_S, 0
                if entry.refused is not None:
                    await self._engine.refuse(entry, None)
            elif not isinstance(result, Exception):
                raise result
            elif (cause := refused_for_good(result)) is not None:
                _log.error("the bus refuses %s %s for good: %s", entry.subject, entry.identity, cause)
                attempts.not_before = time.monotonic() + _REFUSED_AGAIN_S
                await self._engine.refuse(entry, cause)
            else:
                attempts.failures += 1
                attempts.not_before = time.monotonic() + min(0.1 * 2.0**attempts.failures, _LONGEST_BACKOFF_S)
                failed[entry.identity] = result
        if failed:
            error = next(iter(failed.values()))
            self._trouble = f"{type(error).__name__}: {error}".rstrip(": ")
            _log.warning(
                "%d of %d events not stored (%s); they stay in the outbox", len(failed), len(entries), self._trouble
            )
        else:
            self._trouble = ""
        return len(failed) < len(entries)

    async def _one(self, entry: OutboxEntry) -> None:
        salt = self._attempts[entry.identity].salt if entry.identity in self._attempts else 0
        if salt:
            headers = entry.headers | {"Nats-Msg-Id": f"{entry.headers['Nats-Msg-Id']}~{salt}"}
            entry = msgspec.structs.replace(entry, headers=headers)
        seq, duplicate = await self._bus.publish(entry)
        if duplicate and not await self._is_ours(entry, seq):
            # Somebody used our message id for something else; the server would
            # swallow ours for the whole duplicate window.
            _log.warning("message id of %s was taken by message %s; sending it under another one", entry.subject, seq)
            self._attempts.setdefault(entry.identity, _Attempts()).salt = salt + 1
            msg = f"message id of {entry.identity} is taken by message {seq}"
            raise ConnectionError(msg)
        telemetry.PUBLISHED.labels(self._engine.service.name, entry.subject.rsplit(".", 1)[-1]).inc()

    async def _is_ours(self, entry: OutboxEntry, seq: int) -> bool:
        stored = await self._log.one(seq)
        return stored is not None and stored.subject == entry.subject and stored.data == entry.body
