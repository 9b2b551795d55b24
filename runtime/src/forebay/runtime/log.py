"""Reading the log by position: batched direct gets, no consumer, no acknowledgement.

Used to fill gaps, to rebuild, and by everyone who only looks. Services are woken
by their durable consumer, but what they fold is decided by their own position.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.contracts.body import EventBody
from forebay.contracts.codec import decode_recorded
from forebay.contracts.envelope import Recorded
from forebay.contracts.subjects import STREAM
from forebay.runtime.errors import LogTruncatedError, Unreachable

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

BATCH = 500
_ANSWER_WITHIN_S = 5.0
_SHORT_ACK = 9


class LogMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored message as it lies in the stream."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    stored_at: datetime
    redelivered: bool = False

    def decode(self) -> Recorded[EventBody]:
        """Raises a `ContractError` when the message is no event of Forebay."""
        return decode_recorded(self.subject, self.headers, self.data, seq=self.seq, stored_at=self.stored_at)


def stored_time(text: str) -> datetime:
    """A stream's time stamp; Python keeps microseconds of its nanoseconds."""
    head, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{(fraction + '000000')[:6]}").replace(tzinfo=UTC)


def stored_nanoseconds(nanoseconds: int) -> datetime:
    """The same instant as `stored_time`, cut to microseconds in the same way.

    A service may fold an event from its consumer and a rebuild from the log itself;
    a float in between would round, and the two would differ by a microsecond.
    """
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def delivered(message: Msg) -> LogMessage:
    """What a consumer delivered; its place in the log stands in the acknowledgement subject.

    `$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.own sequence.nanoseconds.…`
    """
    tokens = message.reply.split(".")
    first = 4 if len(tokens) == _SHORT_ACK else 6
    deliveries, seq, _, nanoseconds = tokens[first : first + 4]
    return LogMessage(
        seq=int(seq),
        subject=message.subject,
        headers=message.headers or {},
        data=message.data,
        stored_at=stored_nanoseconds(int(nanoseconds)),
        redelivered=int(deliveries) > 1,
    )


class LogReader:
    """Reads one stream by sequence over one connection."""

    def __init__(self, nc: NatsClient, stream: str = STREAM) -> None:
        self._nc = nc
        self._stream = stream

    async def read(self, after: int, *, until: int | None = None, limit: int = BATCH) -> list[LogMessage]:
        """Up to `limit` messages with a sequence greater than `after` (and at most `until`).

        An empty list means that the log ends there. Raises `Unreachable` when the
        server does not answer in time.
        """
        if until is not None:
            limit = min(limit, until - after)
        if limit <= 0:
            return []
        found: list[LogMessage] = []
        async for message in self._batch(after + 1, limit):
            if until is not None and message.seq > until:
                break
            found.append(message)
        return found

    async def one(self, seq: int) -> LogMessage | None:
        """The message at exactly `seq`, or None."""
        found = await self.read(seq - 1, limit=1)
        return found[0] if found and found[0].seq == seq else None

    async def _batch(self, first: int, limit: int) -> AsyncIterator[LogMessage]:
        inbox = self._nc.new_inbox()
        answers: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await self._nc.subscribe(inbox, cb=answers.put)
        request = json.dumps({"seq": first, "batch": limit}).encode()
        try:
            await self._nc.publish(f"$JS.API.DIRECT.GET.{self._stream}", request, reply=inbox)
            while True:
                answer = await self._next(answers)
                headers: Mapping[str, str] = answer.headers or {}
                if "Status" in headers and "Nats-Sequence" not in headers:
                    if str(headers["Status"]).startswith("503"):  # a server that has just started: no end of the log
                        msg = f"nobody answers for the stream {self._stream}"
                        raise Unreachable(msg, "make it with: forebay bus apply")
                    return
                yield _message(headers, answer.data)
        finally:
            await subscription.unsubscribe()

    async def _next(self, answers: asyncio.Queue[Msg]) -> Msg:
        if not answers.empty():  # a timer for each message would cost more than the message
            return answers.get_nowait()
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                return await answers.get()
        except TimeoutError:
            msg = f"the stream {self._stream} did not answer within {_ANSWER_WITHIN_S:.0f} s"
            raise Unreachable(msg, "check that nats-server runs: forebay status") from None

    async def ends(self) -> tuple[int, int]:
        """First and last sequence of the stream."""
        state = (await self._info())["state"]
        return int(state["first_seq"]), int(state["last_seq"])

    async def created(self) -> str:
        """When the stream was made: another time is another stream, whatever its sequences say."""
        return str((await self._info())["created"])

    async def _info(self) -> dict[str, Any]:
        answer = await self._nc.request(f"$JS.API.STREAM.INFO.{self._stream}", b"", timeout=_ANSWER_WITHIN_S)
        info: dict[str, Any] = json.loads(answer.data)
        if "error" in info:
            msg = f"the stream {self._stream} cannot be read: {info['error'].get('description')}"
            raise Unreachable(msg, "make it with: forebay bus apply")
        return info


def _message(headers: Mapping[str, str], data: bytes) -> LogMessage:
    return LogMessage(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        headers=headers,
        data=data,
        stored_at=stored_time(headers["Nats-Time-Stamp"]),
    )


def lost(first: int, last: int, folded: int) -> list[tuple[str, str]]:
    """(code, sentence) of what a log's ends say about it, for somebody who has folded up to `folded`."""
    found: list[tuple[str, str]] = []
    if last < folded:
        said = f"the log ends at {last}, but {folded} was folded: the broker lost its store or was replaced"
        found.append(("STREAM_RESET", said))
    if first > 1:
        said = f"the log begins at {first}: what came before can be read no more, and no state can be rebuilt from it"
        found.append(("STREAM_TRUNCATED", said))
    return found


async def read_all(reader: LogReader, *, after: int, until: int) -> AsyncIterator[list[LogMessage]]:
    """Every message in `(after, until]`, in batches; raises `LogTruncatedError` when some are gone."""
    while after < until:
        batch = await reader.read(after, until=until)
        if not batch or batch[0].seq != after + 1:
            first = batch[0].seq if batch else None
            msg = f"the log has no message {after + 1} (next is {first}); it was truncated or replaced"
            raise LogTruncatedError(msg)
        yield batch
        after = batch[-1].seq
