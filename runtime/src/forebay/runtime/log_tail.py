"""The end of what was folded: fingerprints of the newest messages, to tell whether the log is still the same.

A broker that was put back to an older copy, or that lost or changed messages, hands out
other messages under sequences that were folded before. A store that knows what it has
folded sees that; see `log_check.py` for what follows from it.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

from forebay.runtime.batch import Batch
from forebay.runtime.log import LogMessage
from forebay.runtime.records import SentEvent
from forebay.runtime.stores.port import Put, Store

KEPT = 10_000
"""Messages whose fingerprints are kept."""
NEVER = 1 << 62
"""No fingerprints: of a store that nobody folds on."""
_SIZE = 8
_PAGE = 1000
TAIL = "_tail"
"""Raw rows, one per written batch: last sequence -> first sequence (8 bytes), then a fingerprint per message."""


def fingerprint(message: LogMessage) -> bytes:
    """Eight bytes of a message as it is stored: its place, its time, its subject, its id and its body."""
    said = f"{message.seq} {message.stored_at.timestamp():.6f} {message.subject} {message.headers.get('ce-id', '')}\n"
    return hashlib.blake2b(said.encode() + message.data, digest_size=_SIZE).digest()


class FoldedTail:
    """Keeps the fingerprints of one store's newest messages, and what was sent among them."""

    def __init__(self, store: Store, *, since: int = 0) -> None:
        self._store = store
        self._since = since
        self._rows: deque[int] = deque()
        self._sent: deque[int] = deque()
        self.newest: tuple[int, bytes] | None = None
        """Sequence and fingerprint of what was folded last."""

    async def load(self) -> None:
        """Read what the store has of it."""
        rows = await _all(self._store, TAIL)
        self._rows = deque([int(key) for key, _ in rows])
        self.newest = (int(rows[-1][0]), rows[-1][1][-_SIZE:]) if rows else None
        self._sent = deque([int(key) for key, _ in await _all(self._store, SentEvent.kind)])

    def add(self, batch: Batch, messages: Sequence[LogMessage], sent: Sequence[int]) -> None:
        """Note folded messages, in unbroken order, in the write that folds them; `sent` are those that were our own."""
        kept = [message for message in messages if message.seq > self._since]
        if not kept:
            return
        last = kept[-1].seq
        prints = [fingerprint(message) for message in kept]
        body = kept[0].seq.to_bytes(8, "big") + b"".join(prints)
        batch.put_raw(Put(TAIL, f"{last:020d}", body))
        self._rows.append(last)
        self.newest = last, prints[-1]
        self._sent.extend(sent)
        for kind, held in ((TAIL, self._rows), (SentEvent.kind, self._sent)):
            while held and held[0] <= last - KEPT:
                batch.delete_raw(kind, f"{held.popleft():020d}")


async def read_tail(store: Store) -> dict[int, bytes]:
    """Fingerprints by sequence, in order, of what a store has folded last."""
    found: dict[int, bytes] = {}
    for _, body in await _all(store, TAIL):
        first = int.from_bytes(body[:8], "big")
        for index, start in enumerate(range(8, len(body), _SIZE)):
            found[first + index] = body[start : start + _SIZE]
    return found


async def _all(store: Store, kind: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    while rows := await store.page(kind, after=found[-1][0] if found else "", limit=_PAGE):
        found += rows
    return found
