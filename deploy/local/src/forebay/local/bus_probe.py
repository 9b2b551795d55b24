"""Whether the bus really stores what it acknowledges, asked of the running server.

A stream whose write failed once (disk full, input/output error) refuses everything from
then on, also when there is room again, until the server is restarted; it answers
publishers with silence and greets newcomers as ever. The server knows and tells when it
is asked about its health. Besides that one message is published and its acknowledgement
awaited, into a stream of its own that keeps only the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import BUS_HEALTH, BUS_PROBE
from forebay.local.children import Child
from forebay.runtime.connection import connect
from forebay.runtime.errors import Unreachable

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient

_log = logging.getLogger(__name__)
_ANSWERS_WITHIN_S = 2.0
_REFUSALS = 2
"""Probes in a row that must fail before anything is restarted."""
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
"""Between two restarts that did not help."""
_PROBE_BYTES = 1 << 20
ADMIN = Source(Part.ADMIN)


class BusProbe:
    """One server's probe. `publishes` once its stream exists."""

    def __init__(self, url: str, admin_key: Path) -> None:
        self._url = url
        self._key = admin_key
        self._client: NatsClient | None = None
        self.publishes = False
        self.refuses = False
        """It answered, and does not store."""

    async def __call__(self) -> str:
        """What is wrong, or ""."""
        from nats.errors import Error as NatsError  # noqa: PLC0415 the CLI's help must not pay for it

        self.refuses = False
        try:
            if self._client is None or self._client.is_closed:
                self._client = await connect(self._url, ADMIN, self._key)
            client = self._client
        except Unreachable as error:
            return f"takes no connections ({error.message})"
        try:
            problem = await self._health(client)
        except (NatsError, TimeoutError, ValueError) as error:
            await self.close()
            return f"does not answer ({type(error).__name__})"
        if not problem and self.publishes:
            try:
                problem = await self._publish(client)
            except (NatsError, TimeoutError, ValueError) as error:
                problem = f"a message is not acknowledged within {_ANSWERS_WITHIN_S:.0f} s ({type(error).__name__})"
        self.refuses = bool(problem)
        return f"stores nothing: {problem}" if problem else ""

    async def _health(self, client: NatsClient) -> str:
        answer = await client.request(BUS_HEALTH, b"", timeout=_ANSWERS_WITHIN_S)
        data: dict[str, Any] = json.loads(answer.data).get("data") or {}
        return "" if data.get("status") == "ok" else str(data.get("error") or "it does not say why")

    async def _publish(self, client: NatsClient) -> str:
        answer: dict[str, Any] = json.loads((await client.request(BUS_PROBE, b"", timeout=_ANSWERS_WITHIN_S)).data)
        problem = answer.get("error")
        return str(problem.get("description") or problem) if problem else ""

    async def close(self) -> None:
        """Let go of the connection; the next probe makes another."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # whatever state it is in, it is not used again
                await client.close()


class BusRevival:
    """Restarts a server that goes on refusing although its disk takes writes again."""

    def __init__(self, probe: BusProbe, store: Path) -> None:
        self._probe = probe
        self._store = store
        self._refusals = 0
        self._pause = _FIRST_PAUSE_S
        self._not_before = 0.0
        self._asking: asyncio.Task[bool] | None = None
        """One question to the disk at a time: a file system that hangs must not collect threads."""

    async def look(self, server: Child) -> None:
        """After each probe. Never longer than a write takes, and the end of the server."""
        if not self._probe.refuses:
            if server.record.state == "healthy":
                self._refusals, self._pause = 0, _FIRST_PAUSE_S
            return
        self._refusals += 1
        now = time.monotonic()
        if self._refusals < _REFUSALS or now < self._not_before or not await self._disk_takes_writes():
            return
        _log.warning("%s %s, but its disk takes writes: restarting it", server.record.name, server.record.note)
        self._not_before = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
        self._refusals = 0
        await self._probe.close()
        await server.restart()

    async def _disk_takes_writes(self) -> bool:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(takes_writes, self._store))
        done, _ = await asyncio.wait([self._asking], timeout=_ANSWERS_WITHIN_S)
        return bool(done) and self._asking.result()


def takes_writes(folder: Path) -> bool:
    """Whether a file of 1 MiB reaches the disk in this folder now."""
    probe = folder / ".forebay-probe"
    try:
        with probe.open("wb") as file:
            file.write(b"\0" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    return True
