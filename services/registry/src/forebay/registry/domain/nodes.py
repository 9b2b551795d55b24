"""The documents that lineage is made of, and how nodes are named.

A node is nothing but a set of facts: what one event says about it. Merging two
nodes is the union of their facts, so order and repetition cannot matter. A parent
that no event has described yet needs no document: it is a placeholder as soon as
a child names it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from forebay.contracts.identifiers import stable_id
from forebay.runtime.documents import Document

EPISODE = "episode"
UPLOAD = "upload"
DATASET = "dataset"
JOB = "job"
ATTEMPT = "attempt"
CHECKPOINT = "checkpoint"
MODEL = "model"
EVALUATION = "evaluation"
RELEASE = "release"
CONTRADICTION = "contradiction"
KINDS = (EPISODE, UPLOAD, DATASET, JOB, ATTEMPT, CHECKPOINT, MODEL, EVALUATION, RELEASE, CONTRADICTION)

Link = tuple[str, str]
"""(relation, id of the parent)."""


class Fact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one event says about one node. `values` holds JSON values only (lists, no tuples)."""

    event: str
    """Identity of the event: source and id."""
    name: str
    time: datetime
    values: dict[str, Any] = {}
    parents: tuple[Link, ...] = ()


class Node(Document, frozen=True, kw_only=True):
    """One thing in the lineage of a project: everything that any event said about it."""

    kind: ClassVar[str] = "node"
    project: str
    id: str
    facts: tuple[Fact, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.project}/{self.id}"

    @property
    def type(self) -> str:
        return self.id.partition(":")[0]


class Edge(Document, frozen=True, kw_only=True):
    """The way down from a parent to a child; the child's facts say which event made it."""

    kind: ClassVar[str] = "edge"
    project: str
    parent: str
    child: str

    @property
    def key(self) -> str:
        return f"{self.project}/{self.parent}>{self.child}"


class Name(Document, frozen=True, kw_only=True):
    """A name people use, with the highest number seen under it (version, model number, run)."""

    kind: ClassVar[str] = "name"
    project: str
    type: str
    name: str
    top: int

    @property
    def key(self) -> str:
        return f"{self.project}/{self.type}/{self.name}"


class Channel(Document, frozen=True, kw_only=True):
    """Where a channel of a model points: the highest move, and who said so.

    More than one number under one move is a fork.
    """

    kind: ClassVar[str] = "channel"
    project: str
    model: str
    channel: str
    move: int
    numbers: tuple[int, ...]

    @property
    def key(self) -> str:
        return f"{self.project}/{self.model}@{self.channel}"


class TagPointer(Document, frozen=True, kw_only=True):
    """Which version a dataset's tag names: the last word of ingest in the order of the log."""

    kind: ClassVar[str] = "tag"
    arrival: ClassVar[bool] = True
    project: str
    dataset: str
    tag: str
    number: int | None
    seq: int

    @property
    def key(self) -> str:
        return f"{self.project}/{self.dataset}@{self.tag}"


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where in the log an event stands, and when it was stored (microseconds since the epoch)."""

    event: str
    seq: int
    stored_us: int


class Arrival(Document, frozen=True, kw_only=True):
    """When the log said what about a node: its first word, and each later fact's place."""

    kind: ClassVar[str] = "arrival"
    arrival: ClassVar[bool] = True
    project: str
    id: str
    seq: int
    event: str
    stored_us: int
    later: tuple[Seen, ...] = ()
    """Of the facts after the first one; most nodes have few."""

    @property
    def key(self) -> str:
        return f"{self.project}/{self.id}"

    def seen(self) -> tuple[Seen, ...]:
        return (Seen(self.event, self.seq, self.stored_us), *self.later)


class Withdrawn(Document, frozen=True, kw_only=True):
    """An episode that was withdrawn, so that all of them are found without reading every episode."""

    kind: ClassVar[str] = "withdrawn"
    project: str
    episode: str

    @property
    def key(self) -> str:
        return f"{self.project}/{self.episode}"


class Heard(Document, frozen=True, kw_only=True):
    """Which source indices of an upload came as events, as closed ranges: a gap is seen without a million reads."""

    kind: ClassVar[str] = "heard"
    project: str
    upload: str
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> str:
        return f"{self.project}/{self.upload}"

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


class Facet(Document, frozen=True, kw_only=True):
    """A task or robot that some episode of a dataset has: few, however many episodes there are."""

    kind: ClassVar[str] = "facet"
    project: str
    facet: str
    value: str
    dataset: str

    @property
    def key(self) -> str:
        return f"{self.project}/{self.facet}/{self.value}/{self.dataset}"


class Skew(Document, frozen=True, kw_only=True):
    """An event whose sender's clock ran ahead of the stream's; kept as it is, and said."""

    kind: ClassVar[str] = "skew"
    arrival: ClassVar[bool] = True
    project: str
    event: str
    name: str
    nodes: tuple[str, ...]
    time: datetime
    stored_at: datetime
    ahead_s: float
    seq: int

    @property
    def key(self) -> str:
        return f"{self.project}/{self.seq:016d}"


DOCUMENTS: tuple[type[Document], ...] = (Node, Edge, Name, Channel, Withdrawn, Heard, Facet, TagPointer, Arrival, Skew)


def dataset_id(name: str, number: int) -> str:
    return f"{DATASET}:{name}@v{number}"


def model_id(name: str, number: int) -> str:
    return f"{MODEL}:{name}@v{number}"


def job_id(job: str) -> str:
    return f"{JOB}:{job}"


def attempt_id(job: str, attempt: int) -> str:
    return f"{ATTEMPT}:{job}/{attempt}"


def release_id(model: str, channel: str, move: int) -> str:
    return f"{RELEASE}:{model}@{channel}/{move}"


def gate_id(model: str | None, channel: str) -> str:
    """The release policy of a channel: of one model, or of every model of the project (`gate:*@production`)."""
    return f"gate:{model or '*'}@{channel}"


def place_id(uri: str) -> str:
    """The pseudo-node of a folder: its children are the saves that were written there."""
    return f"place:{stable_id(uri)}"


def type_of(node_id: str) -> str:
    return node_id.partition(":")[0]


def local_id(node_id: str) -> str:
    """`ck-12` for `checkpoint:ck-12`."""
    return node_id.partition(":")[2]


def name_and_number(node_id: str) -> tuple[str, int]:
    """(`reach`, 3) for `model:reach@v3`."""
    name, _, number = local_id(node_id).partition("@v")
    return name, int(number)
