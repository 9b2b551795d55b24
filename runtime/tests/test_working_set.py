"""A working set over a store answers exactly as the whole state in memory would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, TypeVar

import pytest
from forebay.runtime.documents import Document, encode_document, index_values
from forebay.runtime.state import MemoryState, NotLoaded, State, WorkingSet
from forebay.runtime.stores.port import Delete, NotNow, Put, WriteBatch
from forebay.runtime.stores.sqlite import SqliteStore
from hypothesis import given, settings
from hypothesis import strategies as st

T = TypeVar("T")


class Thing(Document, frozen=True, kw_only=True):
    kind: ClassVar[str] = "thing"
    indexed: ClassVar[tuple[str, ...]] = ("colour", "tags")
    id: str
    colour: str | None
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.id


KEYS = st.sampled_from(["a", "b", "c", "d", "e", "f", "ab", "abc"])
COLOURS = st.sampled_from(["red", "blue"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.none() | COLOURS, st.lists(COLOURS, max_size=2).map(tuple)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("write")),
        st.tuples(st.just("lose")),
    ),
    max_size=30,
)


def view(state: State) -> object:
    """Everything that can be asked."""
    return (
        [state.get(Thing, key) for key in "abcdef"],
        [state.find(Thing, "colour", colour) for colour in ("red", "blue")],
        [state.find(Thing, "tags", tag) for tag in ("red", "blue")],
        state.all(Thing),
        state.all(Thing, after="b", limit=2),
    )


class WaitingStore(SqliteStore):
    """A store whose reads have to be awaited, as those over a network."""

    def get_now(self, kind: str, key: str) -> bytes | None:
        raise NotNow(kind, key)

    def find_now(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        raise NotNow(kind, field, value)

    def several_now(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        raise NotNow(kind, keys)

    def below_now(self, kind: str, prefixes: Sequence[str]) -> dict[str, list[str]]:
        raise NotNow(kind, prefixes)

    def page_now(self, kind: str, *, after: str, limit: int) -> list[tuple[str, bytes]]:
        raise NotNow(kind, after, limit)


PREFIXES = ("a", "b", "ab", "")


def at_once(working: WorkingSet) -> object:
    """What a working set answers with one look."""
    working.fetch(Thing, ["a", "c", "none"])
    return [working.get(Thing, key) for key in ("a", "c", "none")], working.below(Thing, PREFIXES)


def one_by_one(things: dict[str, Thing]) -> object:
    """The same, by looking at each key."""
    below = {one: [key for key in sorted(things) if key.startswith(one) and key > one] for one in PREFIXES}
    return [things.get(key) for key in ("a", "c", "none")], {one: keys for one, keys in below.items() if keys}


async def run(working: WorkingSet, pure: Callable[[], T]) -> T:
    while True:
        try:
            return pure()
        except NotLoaded as missing:
            await working.load(missing)


async def play(steps: list[tuple[object, ...]], folder: Path, kind_of_store: type[SqliteStore]) -> None:
    store = kind_of_store(folder / "s.sqlite", fold_version=1)
    await store.acquire("test", ttl_s=0)
    working = WorkingSet(store, cache_size=2)
    written: dict[str, Thing] = {}
    current: dict[str, Thing] = {}
    for step in steps:
        match step:
            case ("put", str(key), colour, tags):
                thing = Thing(id=key, colour=colour, tags=tags)  # type: ignore[arg-type]
                working.put(thing)
                working.keep()
                current[key] = thing
            case ("delete", str(key)):
                working.delete(Thing, key)
                working.keep()
                current.pop(key, None)
            case ("write",):
                batch = WriteBatch()
                for (kind, key), document in working.changes().items():
                    if document is None:
                        batch.deletes.append(Delete(kind.kind, key))
                    else:
                        body = encode_document(document)
                        batch.puts.append(Put(kind.kind, key, body, tuple(index_values(document)), indexed=True))
                await store.write(batch)
                working.settle()
                written = dict(current)
            case _:
                working.forget()
                current = dict(written)
        memory = MemoryState()
        for thing in current.values():
            memory.put(thing)
        assert await run(working, lambda: at_once(working)) == one_by_one(current)
        assert await run(working, lambda: view(working)) == view(memory)
    await store.close()


@settings(max_examples=60, deadline=None)
@given(STEPS)
@pytest.mark.parametrize("kind_of_store", [SqliteStore, WaitingStore])
def test_working_set_equals_memory(kind_of_store: type[SqliteStore], steps: list[tuple[object, ...]]) -> None:
    """After any mix of changes, writes and lost batches, every question has the same answer."""
    with TemporaryDirectory() as folder:
        asyncio.run(play(steps, Path(folder), kind_of_store))
