"""The store port: what every adapter promises and the machine relies on.

Documents live under (kind, key) with index entries. A write is one batch with the
new position last, refused when another process has taken the store over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write one document, with its index entries."""

    kind: str
    key: str
    body: bytes
    index: tuple[tuple[str, str], ...] = ()
    indexed: bool = False
    """Whether documents of this kind have indexes at all (old entries must go)."""


@dataclass(frozen=True, slots=True)
class Delete:
    kind: str
    key: str


@dataclass(slots=True)
class WriteBatch:
    """One atomic write. `position` None leaves the position where it is."""

    puts: list[Put] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    position: int | None = None

    def empty(self) -> bool:
        return not self.puts and not self.deletes and self.position is None


@dataclass(frozen=True, slots=True)
class StoreHead:
    """Where a store stands: last folded sequence, and by which fold."""

    position: int
    fold_version: int


class Store(Protocol):
    """Get by key, find by an indexed field, write a batch."""

    async def head(self) -> StoreHead: ...

    async def acquire(self, owner: str, *, ttl_s: float) -> bool:
        """Become the active reader; False while another live process is. Repeat to renew."""
        ...

    async def release(self) -> None:
        """Give the place up, so that a successor need not wait."""
        ...

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]: ...

    async def find(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        """(key, body) ordered by key."""
        ...

    async def page(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        """(key, body) ordered by key, from the first key greater than `after`."""
        ...

    async def count(self, kind: str) -> int: ...

    async def write(self, batch: WriteBatch) -> None:
        """All or nothing for one-file stores; position last where a store has no transactions.

        Raises `FencedError` when this process is not the active reader any more.
        """
        ...

    async def close(self) -> None: ...


class NotNow(Exception):  # noqa: N818 an instruction to the reader
    """An immediate read failed: read again with `await`, where trouble of the store is reported."""


@runtime_checkable
class ImmediateReads(Protocol):
    """What a store may offer besides: reads that return at once, because it is embedded.

    A working set over it need not stop a pure function and start it again. Every
    method raises `NotNow` and nothing else.
    """

    def get_now(self, kind: str, key: str) -> bytes | None: ...

    def find_now(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]: ...

    def several_now(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]: ...

    def below_now(self, kind: str, prefixes: Sequence[str]) -> dict[str, list[str]]:
        """The keys that go on from each prefix, in order; prefixes without any are left out."""
        ...

    def page_now(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]: ...
