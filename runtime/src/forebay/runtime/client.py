"""The bus for everyone who is no service: command line, collector, in-pod agent, tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.contracts.body import EventBody
from forebay.contracts.codec import Message, encode
from forebay.contracts.envelope import Event
from forebay.contracts.parts import PROJECT_PARTS, Source
from forebay.contracts.subjects import EVENT_ROOT, PROGRESS_ROOT, STREAM, ask_subject
from forebay.runtime.connection import Key, PodToken, connect
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.log import LogMessage, LogReader, read_all

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg

IN_FLIGHT = 200
_STORED_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a service answered, and up to where it is true."""

    result: dict[str, Any]
    as_of_seq: int
    lag: int


class DuplicateIdError(Exception):
    """The server called a publish a duplicate, but what it holds under that id is not ours."""


class Client:
    """One connection with one identity. Use `async with Client.connect(...)`."""

    def __init__(self, nc: NatsClient, source: Source, *, job: str | None = None) -> None:
        self.nc = nc
        self.source = source
        self._job = job
        """The one job that it may ask about."""
        self.log_reader = LogReader(nc)

    @staticmethod
    @asynccontextmanager
    async def connect(url: str, key: Key, source: Source, *, retry: bool = False) -> AsyncIterator[Client]:
        """Connect or raise `Unreachable`. `retry` keeps trying, for processes that outlive the server."""
        nc = await connect(url, source, key, retry=retry)
        try:
            yield Client(nc, source, job=key.job if isinstance(key, PodToken) else None)
        finally:
            with contextlib.suppress(OSError):  # the server went first
                await nc.close()

    @property
    def closed(self) -> bool:
        """It will not come back by itself: what admitted it has ended."""
        return bool(self.nc.is_closed)

    # questions

    async def ask(
        self,
        service: str,
        project: str,
        question: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float = 20.0,  # noqa: ASYNC109 the server side has the same limit
        id: str | None = None,  # noqa: A002 the field's name on the wire
        by: str | None = None,
    ) -> Answer:
        """Ask one service. Raises `Refused` when the answer is no, `Unreachable` when nobody answers."""
        from nats.errors import Error as NatsError  # noqa: PLC0415
        from nats.errors import NoRespondersError  # noqa: PLC0415 the CLI's help must not pay for it

        body = {"id": id or uuid.uuid4().hex, "by": by or str(self.source), "args": dict(args or {})}
        subject = ask_subject(service, project, question, self._job)
        try:
            reply = await self.nc.request(subject, json.dumps(body, default=str).encode(), timeout=timeout)
        except NoRespondersError:
            raise Unreachable(f"the service {service} does not answer", "see what runs with: forebay status") from None
        except (NatsError, TimeoutError):
            raise Unreachable(
                f"the service {service} did not answer {question!r} within {timeout:.0f} s",
                "see what runs with: forebay status",
            ) from None
        answer = json.loads(reply.data)
        if not answer.get("ok"):
            error = answer.get("error", {})
            raise Refused(
                str(error.get("code", "internal")),
                str(error.get("message", "no reason was given")),
                str(error.get("next_action", "")),
                dict(error.get("details") or {}),
            )
        return Answer(result=answer["result"], as_of_seq=int(answer["as_of_seq"]), lag=int(answer["lag"]))

    # events

    async def publish(self, event: Event[EventBody]) -> int:
        """Store one event and return its sequence. Raises `Unreachable` when it is not certain."""
        with _lost():
            return await self.publish_message(encode(event))

    async def publish_many(self, events: Sequence[Event[EventBody]]) -> list[int]:
        """Store events in order, at most 200 in flight. Raises `Unreachable` when one is not certain."""
        messages = [encode(event) for event in events]
        with _lost():
            acks = await self._store_many(messages)
            return [
                int(ack["seq"]) if "seq" in ack and not ack.get("duplicate") else await self.publish_message(message)
                for ack, message in zip(acks, messages, strict=True)
            ]

    async def _store_many(self, messages: Sequence[Message]) -> list[Mapping[str, Any]]:
        """Send all and collect what the server said, over one inbox: a request each would cost twice as much."""
        acks: list[Mapping[str, Any]] = [{}] * len(messages)
        room = asyncio.Semaphore(IN_FLIGHT)

        async def heard(reply: Msg) -> None:
            acks[int(reply.subject.rpartition(".")[2])] = json.loads(reply.data or b"{}")
            room.release()

        inbox = self.nc.new_inbox()
        subscription = await self.nc.subscribe(f"{inbox}.*", cb=heard)
        try:
            for index, message in enumerate(messages):
                await _take(room)
                headers = message.headers | {"Nats-Expected-Stream": STREAM}
                await self.nc.publish(message.subject, message.body, reply=f"{inbox}.{index}", headers=headers)
            for _ in range(IN_FLIGHT):  # all of it is back when everything is confirmed
                await _take(room)
        finally:
            await subscription.unsubscribe()
        return acks

    async def publish_message(self, message: Message) -> int:
        """Store an encoded event; a `duplicate` counts only after reading back that it is ours."""
        headers = dict(message.headers)
        for attempt in range(5):
            if attempt:
                headers["Nats-Msg-Id"] = f"{message.headers['Nats-Msg-Id']}~{attempt}"
            ack = await self._store(message.subject, headers, message.body)
            if not ack.get("duplicate") or await self._stored_as(message, int(ack["seq"])):
                return int(ack["seq"])
        msg = f"the message ids of {message.subject} are taken by messages that are not ours"
        raise DuplicateIdError(msg)

    async def _store(self, subject: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        from nats.errors import Error as NatsError  # noqa: PLC0415
        from nats.errors import NoRespondersError  # noqa: PLC0415

        headers["Nats-Expected-Stream"] = STREAM
        try:
            reply = await self.nc.request(subject, body, timeout=_STORED_WITHIN_S, headers=headers)
        except NoRespondersError:
            raise Unreachable("the bus has no stream for events", "make it with: forebay bus apply") from None
        except (NatsError, TimeoutError):
            raise Unreachable(
                f"the bus did not confirm {subject} within {_STORED_WITHIN_S:.0f} s",
                "it is kept and sent again; or this identity may not publish there",
            ) from None
        ack: dict[str, Any] = json.loads(reply.data)
        if "error" in ack:
            raise Unreachable(f"the bus did not store {subject}: {ack['error'].get('description')}", "forebay status")
        return ack

    async def _stored_as(self, message: Message, seq: int) -> bool:
        """Whether the stored message is ours.

        Collectors and agents may read only their own subjects, so they look at the
        last message on the event's own subject: enough, since an id of ours that
        another subject holds is exactly the case to find out.
        """
        if self.source.part not in PROJECT_PARTS:
            stored = await self.log_reader.one(seq)
            return stored is not None and stored.subject == message.subject and stored.data == message.body
        reply = await self.nc.request(f"$JS.API.DIRECT.GET.{STREAM}.{message.subject}", b"", timeout=_STORED_WITHIN_S)
        headers = reply.headers or {}
        if "Nats-Sequence" not in headers:
            return False
        if int(headers["Nats-Sequence"]) == seq:
            return bool(reply.data == message.body)
        return bool(headers.get("Nats-Msg-Id") == message.headers["Nats-Msg-Id"])

    # looking

    async def batches(self, *, after: int = 0, until: int | None = None) -> AsyncIterator[list[LogMessage]]:
        """The log in `(after, until]`, in batches; until None: its end at this moment."""
        last = (await self.log_reader.ends())[1] if until is None else until
        async for batch in read_all(self.log_reader, after=after, until=last):
            yield batch

    async def follow(self, *, after: int | None = None, subject: str = f"{EVENT_ROOT}.>") -> AsyncGenerator[LogMessage]:
        """Events from `after` (None: from now) on, for ever, within a moment of being stored.

        Asks the log again and again: what is published across account borders is not
        heard by core subscriptions, and this way each event comes with its sequence.
        """
        position = (await self.log_reader.ends())[1] if after is None else after
        while True:
            batch = await self.log_reader.read(position)
            for message in batch:
                position = message.seq
                if _matches(subject, message.subject):
                    yield message
            if not batch:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def on_progress(self, tell: Callable[[str, dict[str, Any]], None], *, service: str = "*") -> None:
        """Call `tell(subject, payload)` for live progress until the connection closes."""

        async def heard(message: Msg) -> None:
            tell(message.subject, json.loads(message.data))

        await self.nc.subscribe(f"{PROGRESS_ROOT}.{service}.>", cb=heard)


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """The connection went while something was under way."""
    from nats.errors import Error as NatsError  # noqa: PLC0415 the CLI's help must not pay for it

    try:
        yield
    except NatsError as error:
        msg = f"the connection to the bus was lost ({error or type(error).__name__})"
        raise Unreachable(msg, "it is kept and sent again") from error


async def _take(room: asyncio.Semaphore) -> None:
    """Wait for an acknowledgement, if need be; raises `Unreachable` when none comes."""
    if not room.locked():
        await room.acquire()
        return
    try:
        async with asyncio.timeout(_STORED_WITHIN_S):
            await room.acquire()
    except TimeoutError:
        msg = f"the bus confirmed nothing for {_STORED_WITHIN_S:.0f} s"
        raise Unreachable(msg, "see what runs with: forebay status") from None


def _matches(pattern: str, subject: str) -> bool:
    """NATS's wildcards: `*` for one token, `>` at the end for the rest."""
    wanted, found = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        found = found[: len(wanted)]
    return len(wanted) == len(found) and all(w in {"*", f} for w, f in zip(wanted, found, strict=True))


__all__ = ["Answer", "Client", "DuplicateIdError"]
