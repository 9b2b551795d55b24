"""The outbox in memory: what is decided and not yet seen back in the log.

The store holds the same entries; this copy answers `Pending` and feeds the publisher.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from forebay.contracts.body import EventBody
from forebay.contracts.codec import decode
from forebay.contracts.envelope import B
from forebay.contracts.subjects import parse_subject
from forebay.runtime.records import OutboxEntry


def identity_key(identity: str) -> str:
    """Key of an event identity in the store."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


class Outbox:
    """Entries by order, with their bodies decoded for `Pending`."""

    def __init__(self) -> None:
        self._entries: dict[str, OutboxEntry] = {}
        self._bodies: dict[type[EventBody], dict[str, tuple[str, EventBody]]] = defaultdict(dict)
        """By type, then by identity: the project and the body."""
        self._next = 1

    def restore(self, entries: Iterable[OutboxEntry]) -> None:
        for entry in entries:
            self.add(entry, decode(entry.subject, entry.headers, entry.body).body)
            self._next = max(self._next, entry.order + 1)

    def next_order(self) -> int:
        self._next += 1
        return self._next - 1

    def add(self, entry: OutboxEntry, body: EventBody) -> None:
        self._entries[entry.identity] = entry
        self._bodies[type(body)][entry.identity] = parse_subject(entry.subject).project, body

    def replace(self, entry: OutboxEntry) -> bool:
        """The same event with another note on it; False when it has left the outbox."""
        if entry.identity not in self._entries:
            return False
        self._entries[entry.identity] = entry
        return True

    def remove(self, identity: str) -> OutboxEntry | None:
        for bodies in self._bodies.values():
            bodies.pop(identity, None)
        return self._entries.pop(identity, None)

    def __contains__(self, identity: str) -> bool:
        return identity in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[OutboxEntry]:
        """In the order of decision."""
        return sorted(self._entries.values(), key=lambda entry: entry.order)

    def refused(self) -> list[OutboxEntry]:
        """What the bus will never take as it is."""
        return [entry for entry in self._entries.values() if entry.refused is not None]

    def oldest(self) -> float | None:
        """When the event that has waited longest was decided (seconds since the epoch); refused ones do not wait."""
        return min((entry.decided_at for entry in self._entries.values() if entry.refused is None), default=None)

    def of(self, body_type: type[B], project: str | None = None) -> list[B]:
        found = self._bodies.get(body_type, {}).values()
        return [cast("B", body) for of, body in found if project in {None, of}]
