"""Reading the log by position: batched direct gets, no consumer, no acknowledgement.

Used to fill gaps, to rebuild, and by everyone who only looks. Services are woken
by their durable consumer, but what they fold is decided by their own position.

A direct get is answered by any replica, and a replica may be behind: that it lacks a
message proves nothing. Where the log ends, whether a message is missing, and what lies
under a sequence when it matters, is asked of the stream's leader (`STREAM.INFO`,
`STREAM.MSG.GET`).
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from forebay.contracts.body import EventBody
from forebay.contracts.codec import decode_recorded
from forebay.contracts.envelope import Recorded
from forebay.contracts.subjects import STREAM
from forebay.runtime.errors import LogMismatchError, Unreachable
from forebay.runtime.headers import parse_header_lines

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

BATCH = 500
_ANSWER_WITHIN_S = 5.0
_DIRECT_ANSWER_WITHIN_S = 2.0
"""A replica that was chosen for an answer may be gone; the leader is asked then."""
_SHORT_ACK = 9
_NO_MESSAGE = 10037
_HEADER_LINE = b"NATS/1.0"


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


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """What the stream's leader says of the stream."""

    first: int
    last: int
    messages: int
    created: str
    """When the stream was made: another time is another stream, whatever its sequences say."""

    @property
    def missing(self) -> int:
        """Messages that were stored between the ends and are there no more."""
        return self.last - self.first + 1 - self.messages if self.messages else 0


class LogReader:
    """Reads one stream by sequence over one connection. `gaps` are sequences that somebody has accepted as lost."""

    def __init__(self, nc: NatsClient, stream: str = STREAM, *, gaps: frozenset[int] = frozenset()) -> None:
        self._nc = nc
        self._stream = stream
        self.gaps = gaps

    async def read(self, after: int, *, until: int | None = None, limit: int = BATCH) -> list[LogMessage]:
        """Up to `limit` messages with a sequence greater than `after` (and at most `until`), without a hole.

        An empty list means that the log ends there. Raises `Unreachable` when the
        server does not answer in time, `LogMismatchError` when a message is missing.
        """
        if until is not None:
            limit = min(limit, until - after)
        if limit <= 0:
            return []
        found = await self._direct(after, until=until, limit=limit)
        unbroken = await self._without_holes(found, after)
        if unbroken:
            return unbroken
        # A replica that is behind knows nothing of what is there: where the log ends, its leader says.
        last = min((await self.state()).last, until if until is not None else 1 << 62)
        for seq in range(after + 1, min(last, after + limit) + 1):
            if seq in self.gaps:
                continue
            unbroken.append(await self._needed(seq))
        return unbroken

    async def _without_holes(self, found: Sequence[LogMessage], after: int) -> list[LogMessage]:
        """What was found up to the first message that its replica did not have; such a one is asked of the leader."""
        unbroken: list[LogMessage] = []
        expected = after + 1
        for message in found:
            while expected < message.seq:
                if expected not in self.gaps:
                    unbroken.append(await self._needed(expected))
                expected += 1
            unbroken.append(message)
            expected += 1
        return unbroken

    async def _needed(self, seq: int) -> LogMessage:
        message = await self.from_leader(seq)
        if message is None:
            code, text = "LogHole", f"the log has no message {seq}: it was lost or removed"
            raise LogMismatchError(code, text, RESTORE)
        return message

    async def one(self, seq: int) -> LogMessage | None:
        """The message at exactly `seq`, or None when the leader has none."""
        found = await self._direct(seq - 1, until=seq, limit=1)
        return found[0] if found else await self.from_leader(seq)

    async def from_leader(self, seq: int) -> LogMessage | None:
        """The message at exactly `seq` as the stream's leader has it."""
        request = json.dumps({"seq": seq}).encode()
        answer = await self._ask(f"$JS.API.STREAM.MSG.GET.{self._stream}", request)
        if "error" in answer:
            if answer["error"].get("err_code") == _NO_MESSAGE:
                return None
            msg = f"message {seq} of the stream {self._stream} cannot be read: {answer['error'].get('description')}"
            raise Unreachable(msg, "check that nats-server runs: forebay status")
        found = answer["message"]
        head = base64.b64decode(found.get("hdrs") or "")
        return LogMessage(
            seq=int(found["seq"]),
            subject=found["subject"],
            headers=parse_header_lines(head.removeprefix(_HEADER_LINE)),
            data=base64.b64decode(found.get("data") or ""),
            stored_at=stored_time(found["time"]),
        )

    async def _direct(self, after: int, *, until: int | None, limit: int) -> list[LogMessage]:
        found: list[LogMessage] = []
        try:
            async for message in self._batch(after + 1, limit):
                if until is not None and message.seq > until:
                    break
                found.append(message)
        except TimeoutError:  # the replica that was to answer is gone; what it lacks is asked of the leader
            pass
        return found

    async def _batch(self, first: int, limit: int) -> AsyncIterator[LogMessage]:
        inbox = self._nc.new_inbox()
        answers: asyncio.Queue[Msg] = asyncio.Queue()
        subscription = await self._nc.subscribe(inbox, cb=answers.put)
        request = json.dumps({"seq": first, "batch": limit}).encode()
        try:
            await self._nc.publish(f"$JS.API.DIRECT.GET.{self._stream}", request, reply=inbox)
            while True:
                answer = await _next(answers)
                headers: Mapping[str, str] = answer.headers or {}
                if "Status" in headers and "Nats-Sequence" not in headers:
                    if str(headers["Status"]).startswith("503"):  # a server that has just started: no end of the log
                        msg = f"nobody answers for the stream {self._stream}"
                        raise Unreachable(msg, "make it with: forebay bus apply")
                    return
                yield _message(headers, answer.data)
        finally:
            await subscription.unsubscribe()

    async def ends(self) -> tuple[int, int]:
        """First and last sequence of the stream."""
        state = await self.state()
        return state.first, state.last

    async def state(self) -> LogState:
        """What the leader says of the stream. Raises `Unreachable`."""
        info = await self._info()
        state = info["state"]
        return LogState(
            first=int(state["first_seq"]),
            last=int(state["last_seq"]),
            messages=int(state["messages"]),
            created=str(info["created"]),
        )

    async def missing(self) -> list[int]:
        """Sequences between the ends that hold no message any more, as the leader lists them."""
        state = (await self._info(deleted=True))["state"]
        return sorted(int(seq) for seq in state.get("deleted") or ())

    async def _info(self, *, deleted: bool = False) -> dict[str, Any]:
        request = json.dumps({"deleted_details": True}).encode() if deleted else b""
        info = await self._ask(f"$JS.API.STREAM.INFO.{self._stream}", request)
        if "error" in info:
            msg = f"the stream {self._stream} cannot be read: {info['error'].get('description')}"
            raise Unreachable(msg, "make it with: forebay bus apply")
        return info

    async def _ask(self, subject: str, request: bytes) -> dict[str, Any]:
        try:
            answer = await self._nc.request(subject, request, timeout=_ANSWER_WITHIN_S)
        except TimeoutError:  # nats-py's own is one
            msg = f"the stream {self._stream} did not answer within {_ANSWER_WITHIN_S:.0f} s"
            raise Unreachable(msg, "check that nats-server runs: forebay status") from None
        found: dict[str, Any] = json.loads(answer.data)
        return found


async def _next(answers: asyncio.Queue[Msg]) -> Msg:
    """The next answer; raises `TimeoutError` when none comes."""
    if not answers.empty():  # a timer for each message would cost more than the message
        return answers.get_nowait()
    async with asyncio.timeout(_DIRECT_ANSWER_WITHIN_S):
        return await answers.get()


def _message(headers: Mapping[str, str], data: bytes) -> LogMessage:
    return LogMessage(
        seq=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        headers=headers,
        data=data,
        stored_at=stored_time(headers["Nats-Time-Stamp"]),
    )


RESTORE = (
    "Restore the bus's files from a copy that is whole, or accept the loss: name the lost sequences in"
    " FOREBAY_ACCEPTED_LOSS (for example 123-130) and start again"
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


def unbroken(messages: Sequence[LogMessage], *, after: int, gaps: frozenset[int] = frozenset()) -> list[LogMessage]:
    """Messages greater than `after`, in the order in which they come.

    Raises `LogMismatchError` when one between `after` and the last is missing that is not among `gaps`.
    """
    fresh = [message for message in messages if message.seq > after]
    if not fresh or (fresh[0].seq == after + 1 and fresh[-1].seq - after == len(fresh)):
        return fresh
    expected = after + 1
    for message in fresh:
        while expected < message.seq and expected in gaps:
            expected += 1
        if message.seq != expected:
            code, text = "LogHole", f"message {expected} is missing before message {message.seq}"
            raise LogMismatchError(code, text, RESTORE)
        expected += 1
    return fresh


async def read_all(reader: LogReader, *, after: int, until: int) -> AsyncIterator[list[LogMessage]]:
    """Every message in `(after, until]`, in batches; raises `LogMismatchError` when some are gone."""
    while after < until:
        batch = await reader.read(after, until=until)
        if not batch:
            if all(seq in reader.gaps for seq in range(after + 1, until + 1)):
                return
            code, text = "LogTruncated", f"the log ends before message {after + 1}, but goes up to {until}"
            raise LogMismatchError(code, text, RESTORE)
        yield unbroken(batch, after=after, gaps=reader.gaps)
        after = batch[-1].seq
