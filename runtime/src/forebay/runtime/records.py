"""The runtime's own documents, kept beside a service's: outbox, work, deadlines, parked, commands.

Their kinds start with `_`, so no digest counts them: they hold what is still to be
done, not what the log says.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any, ClassVar

import msgspec

from forebay.runtime.documents import Document

SEEN = "_seen"
"""Raw rows: identity hash -> `<seq>:<body sha256>` of every event that was folded."""


class OutboxEntry(Document, frozen=True, kw_only=True):
    """An event that is decided; it stays until it is seen back in the log."""

    kind: ClassVar[str] = "_outbox"
    order: int
    identity: str
    subject: str
    headers: dict[str, str]
    body: bytes
    decided_at: float = 0.0
    """Seconds since the epoch; how long it waits is told, and decides nothing."""
    refused: str | None = None
    """Why the bus will never take it as it is; it is set aside, so that what was decided later is not delayed."""

    @property
    def key(self) -> str:
        return f"{self.order:016d}"


class SentEvent(Document, frozen=True, kw_only=True):
    """An own event that is in the log. Kept for as long as the log's tail is checked: a lost tail is published again."""

    kind: ClassVar[str] = "_sent"
    seq: int
    entry: OutboxEntry

    @property
    def key(self) -> str:
        return f"{self.seq:020d}"


class DeadLetter(Document, frozen=True, kw_only=True):
    """A reference to what was given up, not yet in FOREBAY_DEAD: what and why, never the message itself."""

    kind: ClassVar[str] = "_dead"
    what: str
    """`message` or `work`."""
    name: str
    """Its sequence with leading zeros, or the key of the work."""
    cause: str
    at: float
    seq: int | None = None
    subject: str | None = None
    stage: str | None = None
    refused: str | None = None
    """Why the bus does not take the letter; it is set aside."""

    @property
    def key(self) -> str:
        return f"{self.what}/{self.name}"


class WorkRecord(Document, frozen=True, kw_only=True):
    """One piece of long work and how far it is: open, done or parked."""

    kind: ClassVar[str] = "_work"
    indexed: ClassVar[tuple[str, ...]] = ("state",)
    work: str
    item: str
    project: str
    payload: dict[str, Any]
    state: str = "open"
    tries: int = 0
    failures: int = 0
    not_before: float = 0.0
    """Seconds since the epoch; pauses are no decisions, so the wall clock will do."""
    seq: int = 0
    """How far the log was folded when it was asked for."""
    asked_at: float = 0.0
    """Oldest first, also after a crash: else what has a late name would never have its turn."""
    group: str | None = None
    last_error: str | None = None
    causation: str | None = None
    correlation: str | None = None
    traceparent: str | None = None

    @property
    def key(self) -> str:
        """Items are named by their projects, which know nothing of each other's names."""
        return f"{self.work}/{self.project}/{self.item}"

    @property
    def lane(self) -> str:
        """What runs one at a time: its group, or itself alone."""
        return self.group or self.item


class DeadlineRecord(Document, frozen=True, kw_only=True):
    kind: ClassVar[str] = "_deadline"
    project: str
    entity: str
    condition: str
    at: datetime
    seq: int = 0
    """How far the log was folded when it was set."""

    @property
    def key(self) -> str:
        return f"{self.entity}/{self.condition}/{self.at.isoformat()}"


class ParkedMessage(Document, frozen=True, kw_only=True):
    """A message that this service cannot fold or decide on; kept with its cause until it is retried."""

    kind: ClassVar[str] = "_parked"
    seq: int
    subject: str
    stage: str
    cause: str
    at: float = 0.0
    dismissed: str | None = None
    """Who has looked at it and wants to hear no more of it; it stays on record."""

    @property
    def key(self) -> str:
        return f"{self.seq:020d}"

    @property
    def project(self) -> str:
        """Whose subject it came on; NATS has checked that."""
        parts = self.subject.split(".", 2)
        return sys.intern(parts[1]) if len(parts) > 1 else ""


class CommandRecord(Document, frozen=True, kw_only=True):
    """The answer to a command, so that a repeat of the same request gets the same one."""

    kind: ClassVar[str] = "_command"
    id: str
    result: dict[str, Any]
    identities: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.id


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was being folded, noted before a re-read, so that poison that kills the process is seen."""

    seq: int
    tries: int


READING = "_reading"
OF_THE_LOG = "_stream"
"""Raw rows: which log the folded sequences are of, and which of its messages are accepted as lost."""
LOST = "_lost"
"""Raw row: the last tail that the broker lost, until somebody has dismissed it."""
INTERNAL: tuple[type[Document], ...] = (
    OutboxEntry,
    SentEvent,
    DeadLetter,
    WorkRecord,
    DeadlineRecord,
    ParkedMessage,
    CommandRecord,
)
