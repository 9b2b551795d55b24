"""Is the log whole, and is it the one that was folded? Asked before a service starts, and again and again while it runs.

A store that is ahead of a log with which it agrees up to the log's end has folded a
tail that the broker lost: it is folded again (`lost_tail.py`). Any other difference
stops the service: a hole or another history is nothing to guess about.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from forebay.runtime.engine import Engine
from forebay.runtime.errors import LogMismatchError
from forebay.runtime.log import RESTORE, LogReader, LogState, read_all
from forebay.runtime.log_tail import fingerprint, read_tail
from forebay.runtime.records import OF_THE_LOG
from forebay.runtime.sequences import parse_ranges, ranges
from forebay.runtime.stores.port import Put, Store, WriteBatch
from forebay.runtime.wording import counted

_log = logging.getLogger(__name__)
_CREATED, _GAPS = "created", "gaps"
_LOOK_EVERY_S = 5.0
_SOON_S = 0.5


async def check_log(store: Store, log: LogReader, *, where: str) -> int | None:
    """None when the log goes on where the store ends; else up to where the store has to be folded again.

    That is the end of a log that has lost its tail, or the store's own position when
    messages that it has folded were lost since, and somebody has accepted that. `where`
    names the store for people. Raises `LogMismatchError` with what to do when the log is
    not whole or not the one that was folded.
    """
    state = await log.state()
    await check_whole(log, state)
    position = (await store.head()).position
    agreed = await _check_tail(store, log, state, position, where) if position else False
    created = (await store.get(OF_THE_LOG, [_CREATED])).get(_CREATED)
    if created != state.created.encode():
        if created is not None and position and not agreed:
            text = (
                f"the log was made at {state.created}, but what was folded up to {position} is of the log made at"
                f" {created.decode()}: the broker lost its store or was replaced"
            )
            raise LogMismatchError("LogReplaced", text, _other_log(where))
        await store.write(WriteBatch(puts=[Put(OF_THE_LOG, _CREATED, state.created.encode())]))
    if state.last < position:
        return state.last
    if await accepted_gaps(store) == log.gaps:
        return None
    if not position:
        await store.write(WriteBatch(puts=[note_gaps(log.gaps)]))
    return position or None


async def accepted_gaps(store: Store) -> frozenset[int]:
    """The lost messages that were passed over when this store was folded."""
    body = (await store.get(OF_THE_LOG, [_GAPS])).get(_GAPS)
    return parse_ranges((body or b"").decode())


def note_gaps(gaps: frozenset[int]) -> Put:
    """How `accepted_gaps` is written down."""
    return Put(OF_THE_LOG, _GAPS, ranges(sorted(gaps), shown=None).encode())


async def check_whole(log: LogReader, state: LogState) -> None:
    """Raise `LogMismatchError` when a message between the first that ever was and the last is missing."""
    before_first = range(1, state.first if state.messages else state.last + 1)
    if any(seq not in log.gaps for seq in before_first):
        text = f"the log begins at {state.first}: what came before is lost, and no state can be rebuilt from it"
        raise LogMismatchError("LogTruncated", text, RESTORE)
    if not state.missing:
        return
    missing = [seq for seq in await log.missing() if seq not in log.gaps]
    if missing:
        text = f"the log lacks {counted(len(missing), 'message')} between {state.first} and {state.last}: {ranges(missing)}"
        raise LogMismatchError("LogHole", text, RESTORE)


async def _check_tail(store: Store, log: LogReader, state: LogState, position: int, where: str) -> bool:
    """Compare what was folded last with what the log has there; True when something was compared."""
    tail = await read_tail(store)
    shared = [seq for seq in tail if seq <= state.last]
    if state.last < position and not shared:
        text = f"the log ends at {state.last}, but {position} was folded: the broker lost its store or was replaced"
        raise LogMismatchError("LogReplaced", text, _other_log(where))
    if not shared:
        return False
    async for batch in read_all(log, after=shared[0] - 1, until=shared[-1]):
        for message in batch:
            if message.seq in tail and tail[message.seq] != fingerprint(message):
                text = f"message {message.seq} of the log is not the one that was folded (up to {position})"
                raise LogMismatchError("LogDiverged", text, _other_log(where))
    return True


def _other_log(where: str) -> str:
    return (
        "Restore the bus's files that belong to this installation, or accept the log as it is:"
        f" stop everything (forebay down), move {where} away and start again"
    )


class LogGuard:
    """Looks at the log while a service runs. `trusted` is clear from a lost connection until the log was checked again."""

    def __init__(self, engine: Engine, log: LogReader) -> None:
        self._engine = engine
        self._log = log
        self._again = asyncio.Event()
        self._created: str | None = None
        self.trusted = asyncio.Event()
        self.trusted.set()

    def disconnected(self) -> None:
        """Whatever answers next may hold another log."""
        self.trusted.clear()

    def reconnected(self) -> None:
        self._again.set()

    async def run(self) -> None:
        """Until cancelled; raises `LogMismatchError` when the log is not what was folded."""
        while True:
            pause = _LOOK_EVERY_S
            try:
                await self._check()
                self.trusted.set()
            except LogMismatchError:
                raise
            except Exception as error:  # noqa: BLE001 the bus is away or starts: nothing is known yet, so ask again
                _log.debug("the log cannot be checked yet: %s", error)
                pause = _SOON_S
            self._again.clear()
            with contextlib.suppress(TimeoutError):
                # not wait_for: on Python 3.11 it can swallow a cancellation
                async with asyncio.timeout(pause):
                    await self._again.wait()

    async def _check(self) -> None:
        folded = self._engine.newest
        state = await self._log.state()
        await check_whole(self._log, state)
        self._created = self._created or state.created
        if state.created != self._created:
            text = f"the log was made at {state.created}; the one that was read before at {self._created}"
            raise LogMismatchError("LogReplaced", text)
        if folded is None:
            return
        seq, expected = folded
        if state.last < seq:
            text = f"the log ends at {state.last}, but {seq} was folded"
            raise LogMismatchError("LogLostTail", text)
        message = await self._log.one(seq)
        if message is not None and fingerprint(message) != expected:
            raise LogMismatchError("LogDiverged", f"message {seq} of the log is not the one that was folded")
