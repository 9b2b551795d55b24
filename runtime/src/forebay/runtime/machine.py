"""The evolve/decide interface: what a service is, in pure functions and values.

`engine.py` runs it against a log and a store. A new service needs nothing but
these functions, its workers and one `app.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import B, Event, Recorded
from forebay.contracts.identifiers import stable_id
from forebay.contracts.parts import Part, Source
from forebay.runtime.documents import Document
from forebay.runtime.state import Fold, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Publish an event. `dedupe` names the fact: emitting the same fact again changes nothing, for ever."""

    project: str
    body: EventBody
    dedupe: tuple[object, ...]
    time: datetime | None = None
    """When it happened; None: now."""

    @property
    def event_id(self) -> str:
        return stable_id(self.body.event, self.project, *self.dedupe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Long work for a worker. (kind, key) is its identity; an open or finished one is not queued twice."""

    kind: str
    key: str
    project: str
    payload: dict[str, Any] = field(default_factory=dict)
    again: bool = False
    """Run it once more even though it has finished before."""
    not_before: datetime | None = None
    """What is not urgent may wait for what else is to come."""
    group: str | None = None
    """Items of a kind and group run one at a time, and when one is due its run does all of them that are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Publish DeadlinePassed(entity, condition, at) once that moment has come."""

    project: str
    entity: str
    condition: str
    at: datetime


Action = Emit | Work | Deadline


class Pending(Protocol):
    """Own events that are decided but not yet seen back in the log."""

    def of(self, body_type: type[B], project: str | None = None) -> list[B]:
        """Bodies of one type, oldest first; of one project only when it is named."""
        ...


class NothingPending:
    """`Pending` for tests and rebuilds."""

    def of(self, body_type: type[B], project: str | None = None) -> list[B]:  # noqa: ARG002 the port's signature
        return []


READ_UP_TO = "read_up_to"
"""Argument of any command: the answer is `catching-up` until the service has read the log so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question or command as the service sees it. `id` is the client's, so that a repeat is known."""

    id: str
    project: str
    by: str
    args: Mapping[str, Any]
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command decided. The answer goes out when every emitted event is stored and folded."""

    result: dict[str, Any]
    actions: tuple[Action, ...] = ()


Evolve = Callable[[Fold, Recorded[EventBody]], None]
Decide = Callable[[State, Pending, Recorded[EventBody]], Iterable[Action]]
Command = Callable[[State, Pending, Request], Outcome]
Question = Callable[[State, Request], dict[str, Any]]
OnConflict = Callable[[Recorded[EventBody], int], Iterable[Action]]


def no_actions(*_: object) -> Iterable[Action]:
    """The default for what a service does not decide on."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service: who it is, its fold, its decisions, and what it answers."""

    part: Part
    fold_version: int
    """Raise it when `evolve` or a document changes meaning: the store is rebuilt from the log."""
    documents: tuple[type[Document], ...]
    reads: frozenset[type[EventBody]]
    """Events it folds; others are passed over before they are decoded."""
    evolve: Evolve
    decide: Decide
    commands: Mapping[str, Command] = field(default_factory=dict)
    questions: Mapping[str, Question] = field(default_factory=dict)
    on_conflict: OnConflict = no_actions
    """A message with a known id but another body arrived (its first sequence is given)."""
    kept: int = 50_000
    """Documents that stay in memory between two events."""

    @property
    def name(self) -> str:
        return self.part.value

    @property
    def source(self) -> Source:
        return Source(self.part)


def event_of(service: Service, emit: Emit, *, causation: str | None, correlation: str | None) -> Event[EventBody]:
    """The event that an `Emit` stands for."""
    extra: dict[str, Any] = {} if emit.time is None else {"time": emit.time}
    return Event(
        id=emit.event_id,
        source=service.source,
        project=emit.project,
        body=emit.body,
        causation=causation,
        correlation=correlation,
        **extra,
    )
