"""When the log stored what it says about a node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from forebay.registry.domain.nodes import Arrival, Fact, Node
from forebay.runtime.state import State

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stored_times(state: State, node: Node) -> dict[str, datetime]:
    """The time of storing of each event that says something about a node."""
    arrival = state.get(Arrival, node.key)
    seen = () if arrival is None else arrival.seen()
    return {one.event: _EPOCH + timedelta(microseconds=one.stored_us) for one in seen}


def stored_at(state: State, node: Node, fact: Fact) -> datetime:
    """When the log stored one fact; its writer's time where the log's is not known."""
    return stored_times(state, node).get(fact.event, fact.time)
