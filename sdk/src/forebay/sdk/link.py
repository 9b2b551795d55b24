"""The agent's and collector's line to the bus: connects when it can, delivers the outbox, never blocks the job.

While the bus is down events stay on disk; the line says so once and goes on trying.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Self

from forebay.runtime.client import Answer, Client
from forebay.runtime.connection import Key
from forebay.runtime.errors import Unreachable
from forebay.sdk.outbox import Outbox

_log = logging.getLogger(__name__)
_SHORTEST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 2.0


class BusLink:
    """One identity's connection, made when it is first needed and kept."""

    def __init__(self, url: str, key: Key, outbox: Outbox) -> None:
        self._url = url
        self._key = key
        self.outbox = outbox
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self._wake = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def client(self) -> Client:
        """The connection; raises `Unreachable` while there is none."""
        async with self._connecting:
            if self._client is not None and self._client.closed:
                _log.info("what admitted this pod has ended; it connects anew")
                self._client = None
                await self._stack.aclose()
            if self._client is None:
                connection = Client.connect(self._url, self._key, self.outbox.source)
                self._client = await self._stack.enter_async_context(connection)
            return self._client

    async def ask(self, service: str, question: str, args: Mapping[str, Any], *, within_s: float = 10.0) -> Answer:
        """Ask one service in this identity's project. Raises `Unreachable` or `Refused`."""
        client = await self.client()
        return await client.ask(service, str(self.outbox.source.project), question, args, timeout=within_s)

    def wake(self) -> None:
        """Something new is in the outbox."""
        self._wake.set()

    async def deliver_for_ever(self) -> None:
        """Deliver whatever comes into the outbox, until cancelled."""
        pause, silent = _SHORTEST_PAUSE_S, False
        while True:
            self._wake.clear()
            try:
                await self.deliver_now()
            except (Unreachable, OSError) as error:  # no bus, or a disk that takes no lock file: both may pass
                if not silent:
                    _log.warning("%s; events wait in %s and are sent when it answers", error, self.outbox.folder)
                silent, pause = True, min(pause * 2, _LONGEST_PAUSE_S)
            else:
                if silent:
                    _log.warning("events are being delivered again")
                silent, pause = False, _SHORTEST_PAUSE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if silent else 1.0):
                    await self._wake.wait()

    async def deliver_now(self) -> int:
        """Deliver what waits. Raises `Unreachable`."""
        if not self.outbox.segments():
            return 0
        return await self.outbox.deliver(await self.client())

    async def drain(self, deadline_s: float) -> int:
        """Wait until the outbox is empty or the deadline is over; returns how many events remain."""
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        while self.outbox.segments() and loop.time() < end:
            with contextlib.suppress(Unreachable, OSError):
                async with asyncio.timeout(max(0.1, end - loop.time())):
                    await self.deliver_now()
            if self.outbox.segments():
                await asyncio.sleep(min(_SHORTEST_PAUSE_S, max(0.0, end - loop.time())))
        return self.outbox.pending()
