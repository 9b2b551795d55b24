"""The bus as a service uses it: FastStream's NatsBroker as broker, middleware and batch subscriber.

Streams and consumers are made beforehand (`forebay bus apply`); a service declares
nothing. The durable consumer wakes the reader; order comes from the reader's own
position (see `reader.py`).
"""

# FastStream resolves annotations at run time, so this module keeps them as objects.

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from faststream import AckPolicy, BaseMiddleware, Context
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.message import NatsBatchMessage, NatsMessage
from faststream.nats.response import NatsPublishCommand
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from opentelemetry.trace import SpanKind

from forebay.contracts.parts import Source
from forebay.contracts.permissions import inbox_prefix
from forebay.contracts.subjects import ASK_ROOT, DEAD_STREAM, EVENT_ROOT, STREAM, progress_subject
from forebay.runtime import telemetry
from forebay.runtime.connection import connect_options
from forebay.runtime.headers import speed_up
from forebay.runtime.log import LogMessage, delivered
from forebay.runtime.records import OutboxEntry

_log = logging.getLogger(__name__)

FETCH = 500
FETCH_WINDOW_S = 0.5
"""How long one pull waits on a quiet bus."""
PUBLISH_TIMEOUT_S = 5.0

OnBatch = Callable[[list[LogMessage], int], Awaitable[None]]
OnAsk = Callable[[str, str, bytes, str | None], Awaitable[dict[str, Any]]]


class _PublishSpan(BaseMiddleware):
    """A producer span for every publish, named by the event's template and never by its subject."""

    async def publish_scope(
        self,
        call_next: Callable[[NatsPublishCommand], Awaitable[Any]],
        cmd: NatsPublishCommand,  # type: ignore[override]
    ) -> Any:
        with telemetry.span(f"publish {telemetry.template(cmd.destination)}", kind=SpanKind.PRODUCER):
            return await call_next(cmd)


SHORTEST_FETCH_S = 0.001
"""nats-py asks the server for a negative time when less than a tenth of this is left."""


def hand_on_at_once(subscription: Any) -> None:
    """Make a fetch return with what there is, and make every end of its time nats-py's own TimeoutError.

    FastStream and nats-py both collect until a batch is full or its time is over, which
    costs a hop on a quiet bus that whole time. A message tells how many wait behind it:
    those are fetched with it, and nobody waits for one that has not been said yet.

    A busy process reaches the end of the time between nats-py's two requests; then it
    raises the built-in error, FastStream's loop starts anew, and the messages it had
    collected come back only after the consumer's ack wait.
    """
    fetch = subscription.fetch

    async def bounded(batch: int = 1, timeout: float | None = 5) -> Any:  # noqa: ASYNC109 nats-py's signature
        if batch < FETCH or (timeout is not None and timeout < SHORTEST_FETCH_S):
            raise NatsTimeout  # FastStream has some already, and goes on with those
        try:
            found = await fetch(batch=1, timeout=timeout)
        except NatsTimeout:
            raise
        except TimeoutError as error:
            raise NatsTimeout from error
        behind = min(found[-1].metadata.num_pending or 0, batch - 1)
        if behind:
            with contextlib.suppress(TimeoutError):  # nats-py's own is one, too
                found += await fetch(batch=behind, timeout=timeout)
        return found

    subscription.fetch = bounded


class Bus:
    """One service's connection. `connected` and `on_lost` feed its health."""

    def __init__(self, url: str, source: Source, nkey_file: Path | None) -> None:
        self._source = source
        self._closing = False
        self.connected = False
        self.on_lost: list[Callable[[], None]] = []
        self.on_again: list[Callable[[], None]] = []
        """Called when the connection is lost, and when it is back."""

        async def up() -> None:
            self.connected = True
            _log.info("bus: connected again")
            for call in self.on_again:
                call()

        async def down() -> None:
            self.connected = False
            for call in self.on_lost:
                call()
            if not self._closing:
                _log.warning("bus: connection lost; decided events wait in the outbox until it is back")

        async def trouble(error: Exception) -> None:
            _log.warning("bus: %s: %s", type(error).__name__, error)

        self._broker = NatsBroker(
            url,
            reconnected_cb=up,
            disconnected_cb=down,
            error_cb=trouble,
            middlewares=(_PublishSpan,),
            logger=None,
            **connect_options(source, nkey_file),
        )

    @property
    def nc(self) -> NatsClient:
        found: NatsClient = self._broker.config.connection_state.connection
        return found

    async def connect(self) -> None:
        await self._broker.connect()
        speed_up(self.nc)
        self.connected = True

    async def close(self) -> None:
        """Leave. While the connection is lost nothing can be drained; what was decided is in the outbox."""
        self._closing = True
        with contextlib.suppress(NatsError, OSError):
            await self._broker.stop()

    async def read(self, durable: str, on_batch: OnBatch) -> None:
        """Hand every delivered batch to `on_batch` in one call; acknowledge when it returns."""

        async def raw(_: NatsBatchMessage) -> list[Any]:
            return []

        subscriber = self._broker.subscriber(
            f"{EVENT_ROOT}.>",
            stream=JStream(STREAM, declare=False),
            durable=durable,
            pull_sub=PullSub(batch_size=FETCH, timeout=FETCH_WINDOW_S, batch=True),
            ack_policy=AckPolicy.MANUAL,
            inbox_prefix=f"{inbox_prefix(self._source)}.".encode(),
            decoder=raw,
        )

        @subscriber
        async def handle(message: Annotated[NatsBatchMessage, Context("message")]) -> None:
            batch = [delivered(one) for one in message.raw_message]
            await on_batch(batch, message.raw_message[-1].metadata.num_pending or 0)
            await message.ack()

        await subscriber.start()
        hand_on_at_once(subscriber.subscription)

    async def answer(self, service: str, on_ask: OnAsk, *, at_once: int = 16) -> None:
        """Answer `ask.<service>.<project>.<question>[.<job>]`; who may ask only with a job asks about that job."""

        async def raw(message: NatsMessage) -> bytes:
            return message.body if isinstance(message.body, bytes) else b""

        async def handle(message: Annotated[NatsMessage, Context("message")]) -> bytes:
            _, _, project, question, *job = message.raw_message.subject.split(".")
            answer = await on_ask(project, question, message.raw_message.data, job[0] if job else None)
            return json.dumps(answer, default=str).encode()

        for questions in ("*.*", "*.*.*"):
            subscriber = self._broker.subscriber(f"{ASK_ROOT}.{service}.{questions}", max_workers=at_once, decoder=raw)
            subscriber(handle)
            await subscriber.start()

    async def publish(self, entry: OutboxEntry) -> tuple[int, bool]:
        """Store one outbox entry; returns (sequence, whether the server called it a duplicate)."""
        ack = await self._broker.publish(
            entry.body,
            subject=entry.subject,
            headers=dict(entry.headers),
            correlation_id=entry.headers.get("correlation_id"),
            stream=STREAM,
            timeout=PUBLISH_TIMEOUT_S,
        )
        return ack.seq, bool(ack.duplicate)

    async def tell_dead(self, subject: str, letter: bytes, *, id: str) -> None:  # noqa: A002 the field's name on the wire
        """Store one dead letter."""
        await self._broker.publish(
            letter, subject=subject, headers={"Nats-Msg-Id": id}, stream=DEAD_STREAM, timeout=PUBLISH_TIMEOUT_S
        )

    async def progress(self, service: str, project: str, key: str, payload: dict[str, Any]) -> None:
        """Say how far something is; lost when nobody listens."""
        await self._broker.publish(
            json.dumps(payload, default=str).encode(), subject=progress_subject(service, project, key)
        )
