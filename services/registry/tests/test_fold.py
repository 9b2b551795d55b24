"""The fold: the same facts in any order, any number of times, however late, are the same state."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.catalogue import EVENTS
from forebay.contracts.envelope import Event
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.contracts.v1.models import ModelReleased
from forebay.registry.domain.evolve import evolve
from forebay.registry.domain.graph import attempts_of
from forebay.registry.domain.nodes import DOCUMENTS, Node, Skew, TagPointer
from forebay.registry.domain.statements import NOT_LINEAGE, STATEMENTS
from forebay.registry.domain.view import fields_of, state_of
from forebay.runtime.documents import decode_document, encode_document
from forebay.runtime.state import MemoryState
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.registry.tests.histories import (
    PROJECT,
    START,
    accepted,
    committed,
    digest,
    ended,
    episode_id,
    event,
    fold,
    history,
    leased,
    recorded,
    rejected,
    resumed,
    started,
    tagged,
    uploaded,
    verified,
    written,
)

HISTORY = history()
EXPECTED = digest(HISTORY)
SOME = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _disturbed(draw: st.DrawFn, events: list[Event[EventBody]]) -> list[Event[EventBody]]:
    """Shuffled; some delivered twice or three times; some parents at the very end."""
    order = draw(st.permutations(range(len(events))))
    again = draw(st.lists(st.sampled_from(range(len(events))), max_size=30))
    late = draw(st.sets(st.sampled_from(range(len(events))), max_size=10))
    places = [*order, *again]
    early = [place for place in places if place not in late]
    return [events[place] for place in (*early, *sorted(late, reverse=True))]


@st.composite
def disturbed(draw: st.DrawFn) -> list[Event[EventBody]]:
    return _disturbed(draw, HISTORY)


def _random_bodies() -> st.SearchStrategy[EventBody]:
    """Bodies over so few ids that they meet, agree and contradict each other."""
    few, attempts, steps = st.integers(1, 3), st.integers(1, 2), st.sampled_from([100, 200])
    content = st.sampled_from(["", "other"])
    saves = st.builds(written, steps, attempts, content=content)
    return st.one_of(
        st.builds(uploaded, few),
        st.builds(accepted, few, files_say=st.sampled_from([None, "fold", "wipe"])),
        st.builds(rejected, few),
        st.builds(committed, few, st.sampled_from(REFS), few, uploads=st.sampled_from([("up-1",), ("up-1", "up-2")])),
        st.builds(tagged, few),
        st.builds(leased, st.just("reach-1"), few),
        st.builds(started, attempts),
        st.builds(ended, attempts, code=st.sampled_from([0, 1])),
        st.builds(resumed, attempts, st.sampled_from([None, 100])),
        saves,
        st.builds(verified, saves, st.sampled_from(["complete", "corrupt"])),
        st.builds(_released, few, few),
    )


def _released(number: int, move: int) -> ModelReleased:
    return ModelReleased(
        model="reach", number=number, channel="production", artefact_sha256="a" * 64, move=move, by="tester"
    )


REFS = [FileRef(uri=f"/{name}", sha256=name * 64, bytes=1) for name in "ab"]


@st.composite
def two_orders(draw: st.DrawFn) -> tuple[list[Event[EventBody]], list[Event[EventBody]]]:
    """A random history with random clocks, and the same facts in another order with repeats."""
    bodies = draw(st.lists(_random_bodies(), min_size=1, max_size=40))
    clocks = draw(st.lists(st.integers(-100_000, 100_000), min_size=len(bodies), max_size=len(bodies)))
    events = [event(body, time=START + timedelta(seconds=clock)) for body, clock in zip(bodies, clocks, strict=True)]
    return events, _disturbed(draw, events)


class TestAnyOrder:
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(two_orders())
    def test_random_histories(self, orders: tuple[list[Event[EventBody]], list[Event[EventBody]]]) -> None:
        """Histories full of contradictions end in the same digest in any order, too."""
        one, other = orders
        assert digest(one) == digest(other)

    @SOME
    @given(disturbed())
    def test_shuffle_duplicate_delay(self, events: list[Event[EventBody]]) -> None:
        """Shuffled, repeated and delayed events end in the same digest."""
        assert digest(events) == EXPECTED

    def test_reversed(self) -> None:
        """Even the exact reverse, where every parent comes after its child."""
        assert digest(reversed(HISTORY)) == EXPECTED

    @SOME
    @given(disturbed(), st.integers(0, 200))
    def test_conflicting_bodies(self, events: list[Event[EventBody]], where: int) -> None:
        """One id with two bodies: both are kept, whichever came first."""
        other = event(uploaded(7), id=HISTORY[0].id)
        clash = replace(other, source=HISTORY[0].source)
        where %= len(events) + 1
        assert digest([*events[:where], clash, *events[where:]]) == digest([*HISTORY, clash])

    def test_permutations_of_an_attempt(self) -> None:
        """EV-01: start, end and success in all orders, repeated: SUCCEEDED, and attempt 1 stays failed."""
        attempt = [
            event(ended(1, code=1)),
            event(started(2)),
            event(ended(2)),
            event(JobSucceeded(job="reach-1", attempt=2, attempts=2)),
        ]
        states: set[tuple[str, str, str]] = set()
        for order in itertools.permutations(attempt):
            state = fold([*order, *order])
            nodes = [_node(state, name) for name in ("attempt:reach-1/1", "attempt:reach-1/2", "job:reach-1")]
            states.add((state_of(nodes[0]), state_of(nodes[1]), state_of(nodes[2])))
        assert states == {("FAILED", "SUCCEEDED", "SUCCEEDED")}

    def test_repeats_change_nothing(self) -> None:
        """A state folded twice over is equal, document by document."""
        once, twice = fold(HISTORY), fold([*HISTORY, *HISTORY])
        assert once.all(Node, limit=10_000) == twice.all(Node, limit=10_000)


def _node(state: MemoryState, node_id: str) -> Node:
    found = state.get(Node, f"{PROJECT}/{node_id}")
    assert found is not None
    return found


class TestDocuments:
    def test_stored_form(self) -> None:
        """Every document survives the store, so a fold continued after a restart sees equal facts."""
        state = fold(HISTORY)
        for kind in DOCUMENTS:
            for document in state.all(kind, limit=10_000):
                assert decode_document(kind, encode_document(document)) == document

    def test_restart_in_the_middle(self) -> None:
        """Folding half, going through the store, and folding everything again ends in the same digest."""
        half = fold(HISTORY[: len(HISTORY) // 2])
        after = MemoryState()
        for kind in DOCUMENTS:
            for document in half.all(kind, limit=10_000):
                after.put(decode_document(kind, encode_document(document)))
        _fold_into(after, HISTORY)
        assert after.digest(DOCUMENTS) == EXPECTED

    def test_every_event_has_a_place(self) -> None:
        """Each event of the catalogue is folded, or listed with the reason why not."""
        folded = {body.event for body in STATEMENTS}
        assert folded | set(NOT_LINEAGE) == {spec.name for spec in EVENTS}
        assert not folded & set(NOT_LINEAGE)

    def test_history_uses_most_events(self) -> None:
        """The property tests would mean little on a history without most kinds of events."""
        assert len({one.body.event for one in HISTORY}) >= 25

    def test_projects_are_apart(self) -> None:
        """The same ids in another project are other nodes."""
        theirs = event(started(9), project="other-lab")
        state = fold([event(started(1)), theirs])
        assert [number for number, _ in attempts_of(state, PROJECT, "reach-1")] == [1]
        assert [number for number, _ in attempts_of(state, "other-lab", "reach-1")] == [9]

    def test_fields_are_sets(self) -> None:
        """A field keeps every value with its event, and shows the owner's."""
        save = written(100)
        wrong = verified(save).model_copy(update={"step": 90})
        fields = fields_of(_node(fold([event(wrong), event(save)]), f"checkpoint:{save.checkpoint}"))
        assert [(claim.value, claim.name) for claim in fields["step"]] == [
            (100, "CheckpointWritten"),
            (90, "CheckpointVerified"),
        ]


class TestArrival:
    def test_clock_a_day_ahead(self) -> None:
        """A clock a day ahead is accepted, kept as it is, said, and changes no order and no digest."""
        ahead = replace(event(written(100)), time=START + timedelta(days=1))
        state = fold([ahead, event(written(200))])
        skews = state.all(Skew)
        assert [(skew.name, round(skew.ahead_s / 3600)) for skew in skews] == [("CheckpointWritten", 24)]
        assert state.digest(DOCUMENTS) == digest([event(written(200)), ahead])
        fact = _node(state, f"checkpoint:{written(100).checkpoint}").facts[0]
        assert fact.time == START + timedelta(days=1)

    def test_a_tag_is_the_last_word(self) -> None:
        """A tag names what ingest said last in the log, and stays outside the digest."""
        state = fold([event(tagged(2)), event(tagged(1))])
        pointer = state.get(TagPointer, f"{PROJECT}/pick@train-ready")
        assert pointer is not None
        assert pointer.number == 1
        assert digest([event(tagged(2)), event(tagged(1))]) == digest([event(tagged(1)), event(tagged(2))])

    def test_withdrawal_wins(self) -> None:
        """A withdrawn episode is withdrawn, even when its acceptance comes later."""
        episode: Any = f"episode:{episode_id(2)}"
        withdrawn = [one for one in HISTORY if one.body.event in {"EpisodeWithdrawn", "EpisodeAccepted"}]
        assert state_of(_node(fold(reversed(withdrawn)), episode)) == "withdrawn"


def _fold_into(state: MemoryState, events: list[Event[EventBody]]) -> None:

    for seq, one in enumerate(events, 1):
        evolve(state, recorded(one, seq))
