"""Order, durations and contradictions come from the log's clock; a writer's is shown beside it, and its skew is named once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from forebay.contracts.v1.models import ModelReleased, ModelVersionRegistered

from services.registry.tests.histories import START, Registry, ended, leased, started, submitted, written

HOUR = timedelta(hours=1)


def skews(registry: Registry) -> list[dict[str, Any]]:
    return [one for one in registry.ask("audit")["findings"] if one["code"] == "CLOCK_SKEW"]


def attempt(registry: Registry, number: int = 1) -> dict[str, Any]:
    fields: dict[str, Any] = registry.ask("lineage", id=f"reach-1/{number}")["tree"]["fields"]
    return fields


def test_a_clock_that_steps_back() -> None:
    """An attempt whose end has an earlier time than its start has a positive duration, and contradicts nothing."""
    registry = Registry()
    registry.say(submitted(), leased())
    registry.say(started(1), time=START + HOUR)
    registry.say(ended(1), time=START)
    fields = attempt(registry)
    took = datetime.fromisoformat(fields["ended_at"]) - datetime.fromisoformat(fields["started_at"])
    assert took == timedelta(seconds=1)
    assert fields["started_at_writer"] == (START + HOUR).isoformat()
    assert "ended_at_writer" not in fields
    assert registry.published() == []


def test_attempts_follow_each_other_in_the_log() -> None:
    """The second attempt started after the first ended, whatever their clocks say; and the other way round."""
    registry = Registry()
    registry.say(submitted(), leased(), started(1))
    registry.say(ended(1, code=1), time=START + HOUR)
    registry.say(started(2), time=START)
    assert registry.published() == []
    other = Registry()
    other.say(submitted(), leased(), started(1))
    other.say(started(2), time=START + HOUR)
    other.say(ended(1, code=1), time=START)
    (found,) = other.published()
    assert found.code == "ATTEMPT_OVERLAP_SAME_JOB_SLOT"
    assert "started 1 s before" in found.message


def test_a_start_that_comes_late() -> None:
    """A start that was delivered after the end is late, and no contradiction."""
    registry = Registry()
    registry.say(submitted(), leased())
    registry.say(ended(1), time=START + HOUR)
    registry.say(started(1), time=START)
    assert registry.published() == []


def test_a_save_that_comes_late() -> None:
    """A save written before the takeover and delivered after it was not written by a ghost."""
    registry = Registry()
    registry.say(submitted(), leased(), started(1), ended(1, code=1), started(2), time=START)
    registry.say(written(300, 1), time=START - HOUR)
    assert "WRITE_AFTER_TAKEOVER" not in registry.codes()


def test_a_clock_ahead_is_named_once() -> None:
    """Ten events of one writer an hour ahead are one finding, with the writer, the amount and the number of events."""
    registry = Registry()
    registry.say(submitted(), leased(), started(1))
    for step in range(100, 1100, 100):
        registry.say(written(step), time=START + HOUR)
    (found,) = skews(registry)
    assert found["subject"] == "writer:/forebay/agent/arm-lab"
    assert "s ahead of the log's (10 events show it)" in found["message"]


def test_a_clock_behind_is_named_once() -> None:
    """A writer whose every event is late by more than the limit is named; one late event says nothing about a clock."""
    registry = Registry()
    registry.say(submitted(), leased(), started(1))
    registry.say(written(50), time=START - HOUR)
    registry.say(written(60))
    assert skews(registry) == []
    other = Registry()
    other.say(submitted(), leased(), started(1))
    for step in (100, 200, 300):
        other.say(written(step), time=START - HOUR)
    (found,) = skews(other)
    assert "is 3604 s behind the log's (3 events show it)" in found["message"]


def test_moves_of_a_channel() -> None:
    """When a version was live is said by the log's clock; the writer's is beside it where it is far off."""
    registry = Registry()
    registry.say(submitted(), leased(), started(1), written(100))
    save = written(100)
    about = {"model": "reach", "number": 1, "artefact_sha256": save.digest, "by": "ada"}
    registry.say(
        ModelVersionRegistered(job="reach-1", attempt=1, checkpoint=save.checkpoint, step=100, uri=save.uri, **about)
    )
    registry.say(ModelReleased(channel="canary", move=1, forced_reason="x", **about), time=START + 2 * HOUR)
    registry.say(ModelReleased(channel="canary", move=2, forced_reason="x", **about))
    first, second = registry.ask("history", model="reach")["moves"]
    assert first["until"] == second["at"]
    assert first["at"] < second["at"]
    assert first["at_writer"] == (START + 2 * HOUR).isoformat()
    assert "at_writer" not in second
