"""Documents: the frozen values that a service's state is made of, and how they are stored.

A service declares its documents as subclasses; the store keeps them as JSON under
(kind, key) with the indexes that they name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar

import msgspec

_JSON = msgspec.json.Encoder(order="deterministic")
INTERNAL_PREFIX = "_"
"""Kinds of the runtime itself (outbox, work, …); never part of a digest."""


class Document(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A frozen value in a service's state, unique by `key` within its `kind`."""

    kind: ClassVar[str]
    indexed: ClassVar[tuple[str, ...]] = ()
    """Attributes that `find` can use: str, int, None (not indexed) or a tuple of str."""
    arrival: ClassVar[bool] = False
    """True for what depends on the order of arrival; it stays out of the digest."""

    @property
    def key(self) -> str:
        raise TypeError(f"{type(self).__name__} must name its key")


D = TypeVar("D", bound=Document)


def encode_document(document: Document) -> bytes:
    """The one byte string of a document: JSON with sorted keys."""
    return _JSON.encode(document)


@cache
def _decoder(kind: type[D]) -> msgspec.json.Decoder[D]:
    return msgspec.json.Decoder(kind)


def decode_document(kind: type[D], body: bytes) -> D:
    """Read a stored document; unknown fields are dropped."""
    found: D = _decoder(kind).decode(body)
    return found


def index_values(document: Document) -> Iterator[tuple[str, str]]:
    """(field, value) pairs under which `find` sees the document."""
    for field in document.indexed:
        value: Any = getattr(document, field)
        values: Iterable[Any] = value if isinstance(value, (tuple, list, frozenset)) else (value,)
        for one in values:
            if one is not None:
                yield field, str(one)


class Digest:
    """A digest over documents in (kind, key) order; equal states, equal digests."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.count = 0

    def add(self, kind: str, rows: Sequence[tuple[str, bytes]]) -> None:
        """Documents of one kind: (key, body), in order."""
        name = kind.encode()
        head = len(name).to_bytes(8, "big") + name
        parts: list[bytes] = []
        for text, body in rows:
            key = text.encode()
            parts += (head, len(key).to_bytes(8, "big"), key, len(body).to_bytes(8, "big"), body)
        self._hash.update(b"".join(parts))
        self.count += len(rows)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def digested(kinds: Iterable[type[Document]]) -> tuple[str, ...]:
    """The kinds that count for a service's digest, in digest order."""
    return tuple(sorted(kind.kind for kind in kinds if not kind.arrival))
