"""The past: every question about a moment answers as the registry did when it had read that far."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.registry.domain.nodes import Channel, Edge, Name, Node, TagPointer, Withdrawn
from forebay.registry.domain.past import Moment, Past
from forebay.runtime.documents import Document
from forebay.runtime.errors import Refused
from forebay.runtime.state import MemoryState, State
from hypothesis import given, settings
from hypothesis import strategies as st

from services.registry.tests.histories import (
    START,
    KnownLists,
    Registry,
    episode_id,
    fold,
    history,
    leased,
    request,
    submitted,
    tagged,
    trained,
)

HISTORY = history()
NOW = fold(HISTORY)
KINDS: tuple[type[Document], ...] = (Node, Edge, Name, Channel, Withdrawn)


def everything(state: State) -> dict[str, list[Document]]:
    return {kind.kind: list(state.all(kind, limit=10_000)) for kind in KINDS}


class TestFilter:
    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, len(HISTORY)))
    def test_equals_the_fold_of_a_prefix(self, seq: int) -> None:
        """Nodes, edges, names, channels and withdrawals as of a sequence are those of a fold up to it."""
        assert everything(Past(NOW, Moment(seq=seq))) == everything(fold(HISTORY[:seq]))

    @pytest.mark.parametrize("seed", range(20))
    def test_in_any_order(self, seed: int) -> None:
        """That holds when children came before their parents, too."""
        shuffled: list[Event[EventBody]] = list(HISTORY)
        random = Random(seed)  # noqa: S311 a shuffle that can be repeated
        random.shuffle(shuffled)
        seq = random.randint(0, len(shuffled))
        assert everything(Past(fold(shuffled), Moment(seq=seq))) == everything(fold(shuffled[:seq]))

    @pytest.mark.parametrize("seq", range(0, len(HISTORY), 7))
    def test_tags(self, seq: int) -> None:
        """A tag names what it named then."""
        past, then = Past(NOW, Moment(seq=seq)), fold(HISTORY[:seq])
        assert past.all(TagPointer) == then.all(TagPointer)

    def test_a_moment_is_the_time_of_storing(self) -> None:
        """A time means: what the stream had stored by then, whatever the senders' clocks said."""
        seq = 20
        by_time = Past(NOW, Moment(time=START + timedelta(seconds=seq)))
        assert everything(by_time) == everything(fold(HISTORY[:seq]))

    def test_pages(self) -> None:
        """Pages of the past are full while there is more, however much of the present lies between."""
        past = Past(NOW, Moment(seq=25))
        found: list[Document] = []
        after = ""
        while page := past.all(Node, after=after, limit=3):
            found += page
            after = page[-1].key
        assert found == list(fold(HISTORY[:25]).all(Node, limit=1000))


@pytest.fixture
def registry() -> Registry:
    """One job with one model in production, then a second version after it."""
    found = Registry()
    trained(found)
    found.command("model-register", model="reach", job="reach-1", checkpoint="200")
    found.command("model-evaluate", model="reach", metrics={"s": 0.5}, source="x")
    found.command("model-release", model="reach", channel="production")
    return found


class TestQuestions:
    def test_lineage_then_and_now(self, registry: Registry) -> None:
        """`reach@production` as of then is version 1 with its lineage; now it is version 2."""
        then = len(registry.said)
        before = registry.ask("lineage", id="reach@production")
        registry.command("model-register", model="reach", job="reach-1")
        registry.command("model-evaluate", model="reach", metrics={"s": 0.9}, source="x")
        registry.command("model-release", model="reach", channel="production")
        assert registry.ask("lineage", id="reach@production")["tree"]["fields"]["number"] == 2
        found = registry.ask("lineage", id="reach@production", as_of=then)
        assert found["as_of"] == {"seq": then}
        assert {**found, "as_of": None} == before

    def test_impact_then(self, registry: Registry) -> None:
        """What an episode had reached then does not hold what came later."""
        early = registry.ask("impact", id=episode_id(0), as_of=8)
        assert set(early["counts"]) == {"dataset"}
        assert "model" in registry.ask("impact", id=episode_id(0))["counts"]

    def test_not_there_yet(self, registry: Registry) -> None:
        """What did not exist then is refused, not answered from today."""
        with pytest.raises(Refused) as caught:
            registry.ask("lineage", id="reach", as_of=3)
        assert caught.value.code == "unknown-id"

    def test_what_was_live_on_a_date(self, registry: Registry) -> None:
        """`history` as of a day says what each channel named at its end."""
        day = START.date().isoformat()
        assert registry.ask("history", model="reach", as_of=day)["channels"] == {"production": 1}
        with pytest.raises(Refused):
            registry.ask("history", model="reach", as_of="2020-01-01")

    @pytest.mark.parametrize("as_of", ["yesterday", "2026-13-01", "", True, 1.5, -1])
    def test_no_moment(self, registry: Registry, as_of: Any) -> None:
        """What is neither a sequence nor a time is refused."""
        with pytest.raises(Refused) as caught:
            registry.ask("lineage", id="reach", as_of=as_of)
        assert caught.value.code == "bad-request"


def test_version_1_stays_version_1() -> None:
    """A run that read version 1 is linked to it, however many versions and tags come later."""
    registry = Registry()
    trained(registry)
    before = registry.ask("lineage", id="reach-1")["tree"]["parents"]
    registry.say(tagged(2), tagged(3), tagged(9))
    after = registry.ask("lineage", id="reach-1")["tree"]["parents"]
    assert [one["id"] for one in before] == ["dataset:pick@v1"]
    assert [one["id"] for one in after] == ["dataset:pick@v1"]


def test_without_a_version_it_is_unknown() -> None:
    """A job that no event has pinned has UNKNOWN inputs, never the latest version."""
    registry = Registry()
    trained(registry)
    registry.say(submitted("blind-1"))
    found = registry.ask("lineage", id="blind-1")
    assert not found["complete"]
    assert not found["tree"]["parents"]
    assert any("UNKNOWN" in one["reason"] for one in found["missing"])
    registry.say(leased("blind-1", 1))
    assert registry.ask("lineage", id="blind-1")["complete"]


def test_memory_state_serves_questions() -> None:
    """The filter is a `State`, so every question works on it unchanged."""
    past = Past(NOW, Moment(seq=len(HISTORY)))
    answer = Registry(lists=KnownLists()).service.questions["models"](past, request({}))
    assert answer == Registry(lists=KnownLists()).service.questions["models"](NOW, request({}))
    assert isinstance(NOW, MemoryState)
