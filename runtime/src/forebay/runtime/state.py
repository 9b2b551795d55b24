"""State as `evolve` and `decide` see it: documents, read and changed synchronously.

`WorkingSet` lets a pure function read from an asynchronous store: a read of
something that is not loaded yet raises `NotLoaded`, the machine loads it and runs
the function again. That is allowed exactly because the function is pure.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast

from forebay.runtime.documents import (
    D,
    Digest,
    Document,
    decode_document,
    digested,
    encode_document,
    index_values,
)
from forebay.runtime.stores.port import ImmediateReads, NotNow, Store


class State(Protocol):
    """Read-only documents."""

    def get(self, kind: type[D], key: str) -> D | None: ...

    def find(self, kind: type[D], field: str, value: str) -> list[D]:
        """Documents whose indexed `field` has `value`, ordered by key."""
        ...

    def all(self, kind: type[D], *, after: str = "", limit: int = 100) -> list[D]:
        """Documents of a kind by key, from the first key greater than `after`."""
        ...


class Fold(State, Protocol):
    """Documents that an event may change."""

    def put(self, document: Document) -> None: ...

    def delete(self, kind: type[Document], key: str) -> None: ...


class ManyAtOnce(ABC):
    """What a state may offer besides: one look into the store for many documents."""

    @abstractmethod
    def fetch(self, kind: type[Document], keys: Sequence[str]) -> None:
        """Have these documents at hand, so that `get` finds them without a look each."""

    @abstractmethod
    def below(self, kind: type[Document], prefixes: Sequence[str]) -> dict[str, list[str]]:
        """The keys that go on from each prefix, in order; prefixes without any are left out."""


_READS_AT_ONCE, _FEW, _MANY = 16, 8, 500


def _with_changes(
    found: Mapping[str, list[str]], prefixes: Sequence[str], changes: Sequence[tuple[str, bool]]
) -> dict[str, list[str]]:
    """What was found, with keys that were put or deleted and are not written yet."""
    merged: dict[str, list[str]] = {}
    for prefix in prefixes:
        here = {key: there for key, there in changes if key.startswith(prefix) and key > prefix}
        keys = {key for key in found.get(prefix, ()) if here.get(key, True)} | {key for key in here if here[key]}
        if keys:
            merged[prefix] = sorted(keys)
    return merged


def _matches(document: Document, field: str, value: str) -> bool:
    return (field, value) in index_values(document)


def _check_indexed(kind: type[Document], field: str) -> None:
    if field not in kind.indexed:
        msg = f"{kind.__name__}.{field} is not indexed; indexed are {kind.indexed}"
        raise LookupError(msg)


class MemoryState:
    """A whole state in memory: for tests, and for folding without a store."""

    def __init__(self) -> None:
        self._documents: dict[str, dict[str, Document]] = {}

    def get(self, kind: type[D], key: str) -> D | None:
        return cast("D | None", self._documents.get(kind.kind, {}).get(key))

    def find(self, kind: type[D], field: str, value: str) -> list[D]:
        _check_indexed(kind, field)
        return [found for found in self._sorted(kind) if _matches(found, field, value)]

    def all(self, kind: type[D], *, after: str = "", limit: int = 100) -> list[D]:
        return [found for found in self._sorted(kind) if found.key > after][:limit]

    def put(self, document: Document) -> None:
        self._documents.setdefault(document.kind, {})[document.key] = document

    def delete(self, kind: type[Document], key: str) -> None:
        self._documents.get(kind.kind, {}).pop(key, None)

    def digest(self, kinds: Sequence[type[Document]]) -> str:
        """The same digest that a store with these documents has."""
        digest = Digest()
        for name in digested(kinds):
            found = sorted(self._documents.get(name, {}).items())
            digest.add(name, [(key, encode_document(document)) for key, document in found])
        return digest.hexdigest()

    def _sorted(self, kind: type[D]) -> list[D]:
        return cast("list[D]", [document for _, document in sorted(self._documents.get(kind.kind, {}).items())])


class NotLoaded(Exception):  # noqa: N818 control flow between a pure function and the machine
    """A pure function asked for something the working set has to load first."""

    def __init__(self, kind: type[Document], *, key: str | None = None, query: tuple[str, str] | None = None) -> None:
        super().__init__(kind.kind, key, query)
        self.kind = kind
        self.key = key
        self.query = query


class ManyLoad(NotLoaded):
    """Several documents of a kind have to be loaded."""

    def __init__(self, kind: type[Document], keys: Sequence[str]) -> None:
        super().__init__(kind)
        self.keys = keys


class BelowLoad(NotLoaded):
    """The keys that go on from some prefixes have to be loaded."""

    def __init__(self, kind: type[Document], prefixes: Sequence[str]) -> None:
        super().__init__(kind)
        self.prefixes = prefixes


class PagedLoad(NotLoaded):
    """A page of a kind has to be loaded."""

    def __init__(self, kind: type[Document], after: str, limit: int) -> None:
        super().__init__(kind)
        self.after = after
        self.limit = limit


type_and_key = tuple[type[Document], str]


class WorkingSet(ManyAtOnce):
    """Documents of one store: loaded ones, plus what the current batch has changed.

    Only valid while this process is the store's single writer. `transaction`
    groups the changes of one event, so that a run that stops at `NotLoaded`
    leaves nothing behind.
    """

    def __init__(self, store: Store, *, cache_size: int = 50_000) -> None:
        self._store = store
        self._immediate = store if isinstance(store, ImmediateReads) else None
        self._cache_size = cache_size
        self._loaded: OrderedDict[type_and_key, Document | None] = OrderedDict()
        self._queries: dict[tuple[type[Document], str, str], frozenset[str]] = {}
        self._pages: dict[tuple[type[Document], str, int], list[str]] = {}
        self._below: dict[type_and_key, list[str]] = {}
        self._changed: dict[type_and_key, Document | None] = {}
        self._scratch: dict[type_and_key, Document | None] = {}

    # reading

    def get(self, kind: type[D], key: str) -> D | None:
        place = (kind, key)
        if place in self._scratch:
            return cast("D | None", self._scratch[place])
        if place in self._changed:
            return cast("D | None", self._changed[place])
        if place in self._loaded:
            self._loaded.move_to_end(place)
        else:
            self._load_now(kind, key=key)
        return cast("D | None", self._loaded[place])

    def find(self, kind: type[D], field: str, value: str) -> list[D]:
        _check_indexed(kind, field)
        query = (kind, field, value)
        if query not in self._queries:
            self._load_now(kind, query=(field, value))
        keys = set(self._queries[query])
        keys.update(key for changed, key in self._overlay() if changed is kind)
        found = (self.get(kind, key) for key in sorted(keys))
        return [document for document in found if document is not None and _matches(document, field, value)]

    def all(self, kind: type[D], *, after: str = "", limit: int = 100) -> list[D]:
        # A stored document may be deleted in the overlay, so as many more are read.
        wanted = limit + sum(1 for changed, _ in self._overlay() if changed is kind)
        if (kind, after, wanted) not in self._pages:
            self._load_now(kind, page=(after, wanted))
        stored = self._pages[(kind, after, wanted)]
        if not self._changed and not self._scratch:
            return self._held(kind, stored)
        horizon = stored[-1] if len(stored) == wanted else None
        keys = set(stored)
        for changed, key in self._overlay():
            if changed is kind and key > after and (horizon is None or key <= horizon):
                keys.add(key)
        found = (self.get(kind, key) for key in sorted(keys))
        return [document for document in found if document is not None][:limit]

    def _held(self, kind: type[D], keys: Sequence[str]) -> list[D]:
        """Of what a page named: nothing is evicted before the next write, so it is all here."""
        found = (self._loaded[(kind, key)] for key in keys)
        return [cast("D", document) for document in found if document is not None]

    def fetch(self, kind: type[Document], keys: Sequence[str]) -> None:
        wanted = [key for key in keys if (kind, key) not in self._loaded]
        if not wanted:
            return
        if self._immediate is None:
            raise ManyLoad(kind, wanted)
        try:
            self._keep_documents(kind, wanted, self._immediate.several_now(kind.kind, wanted))
        except NotNow:
            raise ManyLoad(kind, wanted) from None

    def below(self, kind: type[Document], prefixes: Sequence[str]) -> dict[str, list[str]]:
        found = self._below_now(kind, prefixes)
        if found is None:
            held = self._below
            wanted = [one for one in prefixes if (kind, one) not in held]
            if wanted:
                raise BelowLoad(kind, wanted)
            found = {one: keys for one in prefixes if (keys := held[(kind, one)])}
        changes = [(key, self.get(kind, key) is not None) for changed, key in self._overlay() if changed is kind]
        return _with_changes(found, prefixes, changes) if changes else found

    def _below_now(self, kind: type[Document], prefixes: Sequence[str]) -> dict[str, list[str]] | None:
        if self._immediate is not None:
            try:
                return self._immediate.below_now(kind.kind, prefixes)
            except NotNow:
                pass
        return None

    def _overlay(self) -> Iterator[type_and_key]:
        yield from self._changed
        yield from self._scratch

    # changing

    def put(self, document: Document) -> None:
        self._scratch[(type(document), document.key)] = document

    def delete(self, kind: type[Document], key: str) -> None:
        self._scratch[(kind, key)] = None

    def keep(self) -> None:
        """The current event is folded: its changes belong to the batch now."""
        if self._changed:
            self._changed.update(self._scratch)
            self._scratch.clear()
        else:
            self._changed, self._scratch = self._scratch, self._changed

    def drop(self) -> None:
        """Forget the changes of the current event."""
        self._scratch.clear()

    def changes(self) -> dict[type_and_key, Document | None]:
        """What the batch has changed so far, against what was loaded."""
        loaded = self._loaded
        return {
            place: document
            for place, document in self._changed.items()
            if place not in loaded or loaded[place] != document
        }

    def settle(self) -> None:
        """The batch is written: its changes are the loaded state now."""
        loaded = self._loaded
        for place, document in self._changed.items():
            loaded.pop(place, None)
            loaded[place] = document
        self._changed.clear()
        for found in (self._queries, self._pages, self._below):
            found.clear()
        self.trim()

    def trim(self) -> None:
        """Between two turns: keep what was used last, so that questions alone don't fill the memory either."""
        if len(self._loaded) <= self._cache_size:
            return
        for found in (self._queries, self._pages, self._below):
            found.clear()
        while len(self._loaded) > self._cache_size:
            self._loaded.popitem(last=False)

    def forget(self) -> None:
        """The batch was not written: start again from the store."""
        for layer in (self._loaded, self._changed, self._scratch, self._queries, self._pages, self._below):
            layer.clear()

    # loading

    async def load(self, missing: NotLoaded) -> None:
        """Fetch what a pure function asked for."""
        kind = missing.kind
        if isinstance(missing, PagedLoad):
            rows = await self._store.page(kind.kind, after=missing.after, limit=missing.limit)
            self._keep_page(kind, missing.after, missing.limit, rows)
        elif isinstance(missing, BelowLoad):
            for start in range(0, len(missing.prefixes), _READS_AT_ONCE):
                some = missing.prefixes[start : start + _READS_AT_ONCE]
                found = await asyncio.gather(*(self._keys_below(kind, prefix) for prefix in some))
                self._below.update({(kind, prefix): keys for prefix, keys in zip(some, found, strict=True)})
        elif isinstance(missing, ManyLoad):
            self._keep_documents(kind, missing.keys, await self._store.get(kind.kind, missing.keys))
        elif missing.query is not None:
            field, value = missing.query
            self._keep_query(kind, field, value, await self._store.find(kind.kind, field, value))
        elif missing.key is not None:
            self._keep_document(kind, missing.key, (await self._store.get(kind.kind, [missing.key])).get(missing.key))

    async def _keys_below(self, kind: type[Document], prefix: str) -> list[str]:
        keys: list[str] = []
        limit = _FEW
        while True:
            rows = await self._store.page(kind.kind, after=keys[-1] if keys else prefix, limit=limit)
            more = [key for key, _ in rows if key.startswith(prefix)]
            keys += more
            if len(more) < limit:
                return keys
            limit = _MANY

    def _load_now(
        self,
        kind: type[Document],
        *,
        key: str | None = None,
        query: tuple[str, str] | None = None,
        page: tuple[str, int] | None = None,
    ) -> None:
        """Fetch it at once where the store can; else, or when that fails, stop the pure function."""
        store = self._immediate
        if store is not None:
            try:
                if key is not None:
                    self._keep_document(kind, key, store.get_now(kind.kind, key))
                elif query is not None:
                    self._keep_query(kind, *query, store.find_now(kind.kind, *query))
                elif page is not None:
                    self._keep_page(kind, *page, store.page_now(kind.kind, after=page[0], limit=page[1]))
            except NotNow:
                pass
            else:
                return
        raise NotLoaded(kind, key=key, query=query) if page is None else PagedLoad(kind, *page)

    def _keep_document(self, kind: type[Document], key: str, body: bytes | None) -> None:
        self._loaded[(kind, key)] = None if body is None else decode_document(kind, body)

    def _keep_documents(self, kind: type[Document], keys: Sequence[str], bodies: Mapping[str, bytes]) -> None:
        for key in keys:
            self._keep_document(kind, key, bodies.get(key))

    def _keep_query(self, kind: type[Document], field: str, value: str, rows: Sequence[tuple[str, bytes]]) -> None:
        self._queries[(kind, field, value)] = frozenset(key for key, _ in rows)
        self._remember(kind, rows)

    def _keep_page(self, kind: type[Document], after: str, limit: int, rows: Sequence[tuple[str, bytes]]) -> None:
        self._pages[(kind, after, limit)] = [key for key, _ in rows]
        self._remember(kind, rows)

    def _remember(self, kind: type[Document], rows: Sequence[tuple[str, bytes]]) -> None:
        for key, body in rows:
            if (kind, key) not in self._loaded:
                self._loaded[(kind, key)] = decode_document(kind, body)
