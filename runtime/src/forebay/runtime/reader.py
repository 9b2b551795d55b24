"""The reader: turns what the consumer delivers into an unbroken, ordered read of the log.

A consumer may deliver late, twice, or skip over what a dead process still holds.
The stream has no holes, so the next message is always position + 1; whatever is
missing is fetched from the log itself instead of waiting for a redelivery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from forebay.runtime import telemetry
from forebay.runtime.engine import Engine
from forebay.runtime.errors import FencedError, LogMismatchError
from forebay.runtime.log import LogMessage, LogReader, read_all

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S = 10.0
_LOOK_EVERY_S = 1.0


class Reader:
    """Feeds one engine. `failed` is set when the service must not go on."""

    def __init__(self, engine: Engine, log: LogReader, trusted: asyncio.Event | None = None) -> None:
        self._engine = engine
        self._log = log
        self._trusted = trusted or asyncio.Event()
        """Set while the log is known to be the one that was folded; nothing is folded while it is not."""
        if trusted is None:
            self._trusted.set()
        self.trouble: str | None = None
        """Why reading stands still just now, for health."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def catch_up(self) -> None:
        """Fold everything that is in the log now. Raises `LogMismatchError` when some of it is missing."""
        last = (await self._log.state()).last
        again = True
        async for batch in read_all(self._log, after=self._engine.position, until=last):
            self._engine.lag = last - self._engine.position
            await (self._engine.reread(batch) if again else self._engine.fold(batch))
            again = False
        self._engine.lag = 0

    async def take(self, delivered: Sequence[LogMessage], pending: int) -> None:
        """Fold one delivered batch; a failure that may pass is retried here, and later messages wait."""
        pause = 0.1
        while not self.failed.done():
            try:
                await self._trusted.wait()
                await self._take(sorted(delivered, key=lambda message: message.seq))
            except (FencedError, LogMismatchError) as error:
                self.failed.set_exception(error)
                raise
            except Exception as error:  # noqa: BLE001 the store or the bus is down: wait, say so, try again
                self.trouble = f"{type(error).__name__}: {error}"
                _log.warning("reading stands still (%s); next try in %.1f s", self.trouble, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                self.trouble = None
                self._engine.lag = pending
                telemetry.LAG.labels(self._engine.service.name).set(pending)
                telemetry.POSITION.labels(self._engine.service.name).set(self._engine.position)
                return

    async def look_again(self) -> None:
        """Fold what is in the log but was not delivered, until cancelled.

        A pull that ends while a message is under way loses it until its redelivery
        (30 s); when nothing comes after it, nobody would notice the gap before.
        """
        while not self.failed.done():
            before = self._engine.position
            await asyncio.sleep(_LOOK_EVERY_S)
            if self.trouble is not None or self._engine.position != before or not self._trusted.is_set():
                continue
            try:
                await self._engine.fold(await self._log.read(before))
            except (FencedError, LogMismatchError) as error:
                if not self.failed.done():
                    self.failed.set_exception(error)
            except Exception as error:  # noqa: BLE001 whatever it is, the next delivery meets it and says so
                _log.debug("looking into the log: %s", error)

    async def _take(self, delivered: Sequence[LogMessage]) -> None:
        run: list[LogMessage] = []
        for message in delivered:
            expected = (run[-1].seq if run else self._engine.position) + 1
            if message.seq < expected:
                continue
            if message.seq > expected:
                await self._fold(run)
                run = []
                await self._fill(message.seq - 1)
            run.append(message)
        await self._fold(run)

    async def _fold(self, run: Sequence[LogMessage]) -> None:
        if any(message.redelivered for message in run):
            await self._engine.reread(run)
        else:
            await self._engine.fold(run)

    async def _fill(self, until: int) -> None:
        async for batch in read_all(self._log, after=self._engine.position, until=until):
            await self._engine.reread(batch)
