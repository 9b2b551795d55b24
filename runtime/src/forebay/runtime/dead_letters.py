"""Sends dead letters to FOREBAY_DEAD, beside the outbox and never before it.

A letter is a small reference: consumer, sequence or work, cause. The stream drops its
oldest letters when it is full; what was parked stays in the service's own store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec

from forebay.contracts.subjects import DEAD_ROOT
from forebay.runtime.bus import Bus
from forebay.runtime.engine import Engine
from forebay.runtime.parking import Parking
from forebay.runtime.records import DeadLetter
from forebay.runtime.refusals import refused_for_good

_log = logging.getLogger(__name__)
AT_ONCE = 50
_LONGEST_PAUSE_S = 30.0
_REFUSED_AGAIN_S = 600.0


class DeadLetterPublisher:
    """Publishes one engine's dead letters over one bus."""

    def __init__(self, engine: Engine, bus: Bus) -> None:
        self._engine = engine
        self._parking = Parking(engine)
        self._bus = bus
        self.trouble = ""
        """Why letters wait, for health."""

    async def run(self) -> None:
        """Publish until cancelled."""
        pause = 0.5
        while True:
            self._engine.to_tell.clear()
            done = await self._send_all()
            pause = 0.5 if done else min(pause * 2, _LONGEST_PAUSE_S)
            with contextlib.suppress(TimeoutError):
                # not wait_for: on Python 3.11 it can swallow a cancellation
                async with asyncio.timeout(_REFUSED_AGAIN_S if done else pause):
                    await (self._engine.to_tell.wait() if done else asyncio.sleep(pause))

    async def _send_all(self) -> bool:
        """Every letter once; False when one may be stored later."""
        after, failures = "", 0
        while letters := await self._parking.letters(after=after, limit=AT_ONCE):
            after = letters[-1].key
            results = await asyncio.gather(*(self._one(letter) for letter in letters), return_exceptions=True)
            stored, refused = [], []
            for letter, result in zip(letters, results, strict=True):
                if result is None:
                    stored.append(letter)
                elif not isinstance(result, Exception):
                    raise result
                elif (cause := refused_for_good(result)) is not None:
                    refused.append(msgspec.structs.replace(letter, refused=cause))
                else:
                    failures += 1
                    self.trouble = f"{type(result).__name__}: {result}"
            if stored or refused:
                await self._parking.letters_told(stored, refused)
            if failures and not stored:
                break
        if not failures:
            self.trouble = ""
        else:
            _log.warning("dead letters are not stored yet (%s); they stay in the service's store", self.trouble)
        return not failures

    async def _one(self, letter: DeadLetter) -> None:
        consumer = self._engine.service.name
        body = {"consumer": consumer, "what": letter.what, "at": letter.at, "cause": letter.cause}
        if letter.what == "message":
            body |= {"seq": letter.seq, "subject": letter.subject, "stage": letter.stage}
        else:
            body["work"] = letter.name
        subject = f"{DEAD_ROOT}.{consumer}.{letter.what}"
        await self._bus.tell_dead(subject, msgspec.json.encode(body), id=f"dead:{consumer}:{letter.key}:{letter.at}")
