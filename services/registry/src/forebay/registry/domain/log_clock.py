"""When things happened by the log's clock, and which writers' clocks disagree with it.

The stream stamps every message as it stores it, with one clock. Order and durations come
from that. A writer's own time is kept and shown beside it; it orders nothing, because the
clock of a pod or a laptop may be wrong by hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from forebay.registry.domain.contradictions import Contradiction
from forebay.registry.domain.evolve import SKEW_LIMIT
from forebay.registry.domain.log_times import stored_times
from forebay.registry.domain.nodes import Node, Skew
from forebay.runtime.state import State

_SCAN, _MAX_EVENTS = 1000, 8
_ENOUGH = 3
"""Fewer late events of one writer say nothing about its clock."""


def writer_of(event: str) -> str:
    """`/forebay/agent/arm-lab` of an event's identity."""
    return event.rpartition("#")[0]


def skewed_writers(state: State, project: str, nodes: Iterable[Node], *, everywhere: bool) -> list[Contradiction]:
    """Each writer whose clock is off, once, with by how much and how many events show it.

    Ahead is certain: an event cannot be stored before it happened. Behind is said only when every event
    of the writer on these nodes is late, because one late event may have waited for its delivery.
    """
    looked = list(nodes)
    only = None if everywhere else {node.id for node in looked}
    return [*_ahead(state, project, only), *_behind(state, looked)]


def _ahead(state: State, project: str, only: set[str] | None) -> Iterator[Contradiction]:
    prefix = f"{project}/"
    found: dict[str, list[Skew]] = {}
    for skew in state.all(Skew, after=prefix, limit=_SCAN):
        if skew.key.startswith(prefix) and (only is None or only.intersection(skew.nodes)):
            found.setdefault(writer_of(skew.event), []).append(skew)
    for writer, skews in sorted(found.items()):
        worst = max(skews, key=lambda skew: skew.ahead_s)
        values = (worst.time.isoformat(), worst.stored_at.isoformat())
        yield _skew(writer, "ahead of", worst.ahead_s, values, [skew.event for skew in skews])


def _behind(state: State, nodes: Iterable[Node]) -> Iterator[Contradiction]:
    found: dict[str, dict[str, tuple[timedelta, datetime, datetime]]] = {}
    for node in nodes:
        times = stored_times(state, node)
        for fact in node.facts:
            if (stored := times.get(fact.event)) is not None:
                lags = found.setdefault(writer_of(fact.event), {})
                lags[fact.event] = (stored - fact.time, fact.time, stored)
    for writer, lags in sorted(found.items()):
        lag, time, stored = min(lags.values())
        if len(lags) >= _ENOUGH and lag > SKEW_LIMIT:
            values = (time.isoformat(), stored.isoformat())
            yield _skew(writer, "behind", lag.total_seconds(), values, sorted(lags))


def _skew(writer: str, how: str, by_s: float, values: tuple[str, str], events: list[str]) -> Contradiction:
    counted = "1 event shows" if len(events) == 1 else f"{len(events)} events show"
    return Contradiction(
        code="CLOCK_SKEW",
        subject=f"writer:{writer}",
        message=f"the clock of {writer} is {by_s:.0f} s {how} the log's ({counted} it); the log's clock orders and"
        " measures, the writer's time is only shown",
        values=values,
        events=tuple(events[:_MAX_EVENTS]),
        settled=False,
    )


def times_json(state: State, node: Node, wanted: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Fields such as `started_at` by the log's clock; `started_at_writer` where the writer's differs by much."""
    times = stored_times(state, node)
    found: dict[str, Any] = {}
    for field, event in wanted:
        facts = [(times[fact.event], fact.time) for fact in node.facts if fact.name == event and fact.event in times]
        if facts:
            stored, said = min(facts)
            found[field] = stored.isoformat()
            found |= writers_time(f"{field}_writer", stored, said)
    return found


def writers_time(field: str, stored: datetime, said: datetime) -> dict[str, str]:
    """The writer's own time, where it is far from the log's."""
    return {field: said.astimezone(UTC).isoformat()} if abs(stored - said) > SKEW_LIMIT else {}
