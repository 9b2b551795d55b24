"""The state as it was: what the log had said up to a sequence or a moment, without folding it again.

Every fact of a node has its place in the log beside it (`Arrival`), so the past is
a filter: a node is its facts up to then, an edge is there when its child names it,
a name's or channel's top is the highest one that was there. Called by questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from forebay.registry.domain.nodes import (
    ATTEMPT,
    CHECKPOINT,
    DATASET,
    EPISODE,
    JOB,
    Arrival,
    Channel,
    Edge,
    Facet,
    Fact,
    Name,
    Node,
    Seen,
    Skew,
    TagPointer,
    Withdrawn,
    local_id,
    release_id,
    type_of,
)
from forebay.registry.domain.relations import MOVES_TAG, NAMES_NUMBER, WRITES_FILES
from forebay.runtime.documents import D, Document
from forebay.runtime.state import State

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_LEAST, _PAGE = 8, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Up to and including a sequence of the log, or a time at which the stream stored an event."""

    seq: int | None = None
    time: datetime | None = None

    def holds(self, seen: Seen) -> bool:
        if self.seq is not None and seen.seq > self.seq:
            return False
        return self.time is None or seen.stored_us <= (self.time - _EPOCH) // _US

    def to_json(self) -> dict[str, object]:
        return {"seq": self.seq} if self.time is None else {"time": self.time.isoformat()}


class Past:
    """A `State` that answers as the live one did at a moment."""

    def __init__(self, now: State, moment: Moment) -> None:
        self._now = now
        self._moment = moment
        self._then: dict[type[Document], Callable[[Any], Document | None]] = {
            Node: self._node,
            Edge: lambda edge: edge if self._linked(edge) else None,
            Name: self._name,
            Channel: self._channel,
            TagPointer: self._tag,
            Arrival: self._arrival,
            Skew: self._skew,
            Withdrawn: self._withdrawn,
            Facet: self._facet,
        }

    def get(self, kind: type[D], key: str) -> D | None:
        found = self._now.get(kind, key)
        return None if found is None else cast("D | None", self._as_of(found))

    def find(self, kind: type[D], field: str, value: str) -> list[D]:
        kept = (self._as_of(one) for one in self._now.find(kind, field, value))
        return [cast("D", one) for one in kept if one is not None]

    def all(self, kind: type[D], *, after: str = "", limit: int = 100) -> list[D]:
        """As many as asked for, however many of those in between were not there yet."""
        found: list[D] = []
        size = min(_PAGE, max(_LEAST, limit))
        while len(found) < limit:
            page = self._now.all(kind, after=after, limit=size)
            for one in page:
                then = self._as_of(one)
                if then is not None:
                    found.append(cast("D", then))
                    if len(found) == limit:  # looking at more would cost reads for nothing
                        return found
            if len(page) < size:
                break
            after = page[-1].key
        return found

    def _as_of(self, document: Document) -> Document | None:
        then = self._then.get(type(document))
        return document if then is None else then(document)

    def _arrival(self, arrival: Arrival) -> Arrival | None:
        later = tuple(seen for seen in arrival.later if self._moment.holds(seen))
        return msgspec.structs.replace(arrival, later=later) if self._moment.holds(arrival.seen()[0]) else None

    def _skew(self, skew: Skew) -> Skew | None:
        stored_us = (skew.stored_at - _EPOCH) // _US
        return skew if self._moment.holds(Seen(skew.event, skew.seq, stored_us)) else None

    def _withdrawn(self, withdrawn: Withdrawn) -> Withdrawn | None:
        node = self.get(Node, f"{withdrawn.project}/{EPISODE}:{withdrawn.episode}")
        gone = node is not None and any(fact.name == "EpisodeWithdrawn" for fact in node.facts)
        return withdrawn if gone else None

    def _facet(self, facet: Facet) -> Facet | None:
        """A facet carries no event of its own: it is shown as soon as its dataset has a version."""
        return None if self.get(Name, f"{facet.project}/{DATASET}/{facet.dataset}") is None else facet

    def _held(self, project: str, node_id: str) -> dict[str, Seen]:
        arrival = self._now.get(Arrival, f"{project}/{node_id}")
        return {} if arrival is None else {seen.event: seen for seen in arrival.seen() if self._moment.holds(seen)}

    def _node(self, node: Node) -> Node | None:
        held = self._held(node.project, node.id)
        facts = tuple(fact for fact in node.facts if fact.event in held)
        return msgspec.structs.replace(node, facts=facts) if facts else None

    def _linked(self, edge: Edge) -> bool:
        child = self.get(Node, f"{edge.project}/{edge.child}")
        if type_of(edge.child) == ATTEMPT and type_of(edge.parent) == JOB:
            return child is not None or self._has_child(edge.project, edge.child)
        if child is None:
            return False
        if edge.parent.startswith("place:"):
            return any(fact.name in WRITES_FILES for fact in child.facts)
        return any(parent == edge.parent for fact in child.facts for _, parent in fact.parents)

    def _has_child(self, project: str, parent: str) -> bool:
        """Whether anything had named an attempt that no event has described."""
        return any(self._linked(edge) for edge in self._edges(project, parent))

    def _edges(self, project: str, parent: str) -> Iterator[Edge]:
        """Every edge of today below one parent, and no other."""
        prefix = f"{project}/{parent}>{CHECKPOINT}:"
        after = prefix
        while page := self._now.all(Edge, after=after, limit=_PAGE):
            for edge in page:
                if not edge.key.startswith(prefix):
                    return
                yield edge
            after = page[-1].key

    def _name(self, name: Name) -> Name | None:
        joint = "-" if name.type == JOB else "@v"
        for number in range(name.top, 0, -1):
            node = self.get(Node, f"{name.project}/{name.type}:{name.name}{joint}{number}")
            if node is not None and any(fact.name in NAMES_NUMBER for fact in node.facts):
                return msgspec.structs.replace(name, top=number)
        return None

    def _channel(self, channel: Channel) -> Channel | None:
        for move in range(channel.move, -1, -1):
            node = self.get(Node, f"{channel.project}/{release_id(channel.model, channel.channel, move)}")
            if node is not None:
                numbers = tuple(sorted({fact.values["number"] for fact in node.facts if "number" in fact.values}))
                return msgspec.structs.replace(channel, move=move, numbers=numbers)
        return None

    def _tag(self, tag: TagPointer) -> TagPointer | None:
        """The tag's last word up to then, from the history that its dataset's versions keep."""
        words = sorted(self._tag_words(tag), key=lambda word: word[0])
        number: int | None = None
        for _, named, fact in words:
            if fact.name == "DatasetTagged":
                number = named
            elif number == named:
                number = None
        return msgspec.structs.replace(tag, number=number, seq=words[-1][0]) if words else None

    def _tag_words(self, tag: TagPointer) -> list[tuple[int, int, Fact]]:
        prefix = f"{tag.project}/{DATASET}:{tag.dataset}@v"
        found: list[tuple[int, int, Fact]] = []
        after = prefix
        while True:
            page = self._now.all(Node, after=after, limit=_PAGE)
            for node in page:
                if not node.key.startswith(prefix):
                    return found
                held = self._held(node.project, node.id)
                number = int(local_id(node.id).rpartition("@v")[2])
                found += [
                    (held[fact.event].seq, number, fact)
                    for fact in node.facts
                    if fact.name in MOVES_TAG and fact.values.get("tag") == tag.tag and fact.event in held
                ]
            if len(page) < _PAGE:
                return found
            after = page[-1].key
