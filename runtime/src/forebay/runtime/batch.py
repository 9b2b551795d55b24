"""One write in the making: what a folded batch will change besides the service's documents."""

from __future__ import annotations

from forebay.runtime.documents import Document, encode_document, index_values
from forebay.runtime.stores.port import Delete, Put


class Batch:
    """Collects puts and deletes; the last word on a key counts."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        """Identity hash -> `<seq>:<body sha256>` of events folded before or in this batch."""
        self.stored: list[str] = []
        """Identities of own events that were seen back."""
        self.sent: list[int] = []
        """Sequences at which they are."""
        self._puts: dict[tuple[str, str], Put] = {}
        self._deletes: set[tuple[str, str]] = set()

    def put(self, document: Document) -> None:
        self.put_raw(put_of(document))

    def put_raw(self, put: Put) -> None:
        self._puts[(put.kind, put.key)] = put
        self._deletes.discard((put.kind, put.key))

    def delete(self, kind: type[Document], key: str) -> None:
        self.delete_raw(kind.kind, key)

    def delete_raw(self, kind: str, key: str) -> None:
        self._puts.pop((kind, key), None)
        self._deletes.add((kind, key))

    def puts(self) -> list[Put]:
        return list(self._puts.values())

    def deletes(self) -> list[Delete]:
        return [Delete(kind, key) for kind, key in self._deletes]


def put_of(document: Document, key: str = "") -> Put:
    """How a document is written; a caller who knows its key already may say it."""
    index = tuple(index_values(document)) if document.indexed else ()
    return Put(document.kind, key or document.key, encode_document(document), index, bool(document.indexed))
