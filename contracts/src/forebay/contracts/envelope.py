"""An event with its envelope, before and after the stream has stored it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec

from forebay.contracts.body import EventBody
from forebay.contracts.parts import Source

B = TypeVar("B", bound=EventBody, covariant=True)  # noqa: PLC0105 one letter reads best in signatures


def utc_now() -> datetime:
    """The wall clock; only for `time` and `recorded`, never for decisions."""
    return datetime.now(UTC)


class Event(msgspec.Struct, Generic[B], frozen=True, kw_only=True, gc=False):
    """One CloudEvent of Forebay.

    `time` is when it happened, `recorded` when the sender wrote it down; the third
    clock, when the stream stored it, belongs to `Recorded`.
    """

    id: str
    source: Source
    project: str
    body: B
    time: datetime = msgspec.field(default_factory=utc_now)
    recorded: datetime = msgspec.field(default_factory=utc_now)
    correlation: str | None = None
    causation: str | None = None
    traceparent: str | None = None

    @property
    def identity(self) -> str:
        """Source and id: what makes an event itself, also the message id on the bus."""
        return f"{self.source.text}#{self.id}"


class Recorded(msgspec.Struct, Generic[B], frozen=True, kw_only=True, gc=False):
    """An event as the log holds it: its place in the order and when it was stored."""

    event: Event[B]
    seq: int
    stored_at: datetime
    body_sha256: str = ""

    @property
    def body(self) -> B:
        return self.event.body

    @property
    def project(self) -> str:
        return self.event.project

    @property
    def identity(self) -> str:
        return self.event.identity
