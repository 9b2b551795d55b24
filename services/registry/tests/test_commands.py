"""Models: registered only from what exists, evaluated by digest, released on evidence, rolled back by look-up."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import B
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.contracts.v1.models import EvaluationRecorded, ModelReleased, ModelVersionRegistered
from forebay.runtime.errors import Refused

from services.registry.tests.histories import (
    PROJECT,
    Registry,
    leased,
    request,
    run,
    started,
    submitted,
    trained,
    verified,
    written,
)


@pytest.fixture
def registry() -> Registry:
    found = Registry()
    trained(found)
    return found


def refused(registry: Registry, command: str, **args: Any) -> Refused:
    before = len(registry.said)
    with pytest.raises(Refused) as caught:
        registry.command(command, **args)
    assert len(registry.said) == before
    assert caught.value.message
    return caught.value


DONE = JobSucceeded(job="reach-1", attempt=1, attempts=1)


class Waiting:
    """One own event that is decided but not yet seen back in the log."""

    def __init__(self, body: EventBody) -> None:
        self._body = body

    def of(self, body_type: type[B], project: str | None = None) -> list[B]:
        assert project == PROJECT
        return [self._body] if isinstance(self._body, body_type) else []


class TestRegister:
    def test_latest_complete(self, registry: Registry) -> None:
        """By default the job's latest complete checkpoint, with identities copied from what is pinned."""
        found = registry.command("model-register", model="reach", job="reach-1")
        assert (found["id"], found["step"]) == ("model:reach@v1", 300)
        body = registry.said[-1].body
        assert isinstance(body, ModelVersionRegistered)
        assert body.datasets == ("dataset:pick@v1",)
        assert body.artefact_sha256 == written(300, 2).digest

    def test_job_by_name(self, registry: Registry) -> None:
        """`reach` means its latest run."""
        assert registry.command("model-register", model="reach", job="reach")["job"] == "reach-1"

    def test_same_save_twice(self, registry: Registry) -> None:
        """The same save of the same model is the same version; another save gets the next number."""
        registry.command("model-register", model="reach", job="reach-1")
        again = registry.command("model-register", model="reach", job="reach-1")
        assert (again["number"], again["already"]) == (1, True)
        other = registry.command("model-register", model="reach", job="reach-1", checkpoint="200")
        assert (other["number"], other["step"]) == (2, 200)

    def test_numbers_count_what_is_pending(self, registry: Registry) -> None:
        """A version that is decided but not yet in the log keeps its number."""

        registry.command("model-register", model="reach", job="reach-1")
        body = registry.said[-1].body
        assert isinstance(body, ModelVersionRegistered)
        waiting = body.model_copy(update={"number": 2, "checkpoint": "ck-other"})
        ask = request({"model": "reach", "job": "reach-1", "checkpoint": "100"})
        outcome = registry.service.commands["model-register"](registry.state, Waiting(waiting), ask)
        assert outcome.result["number"] == 3

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            ({"job": "reach-1", "checkpoint": "9999"}, "unknown-checkpoint"),
            ({"job": "reach-1", "checkpoint": "ck-none"}, "unknown-checkpoint"),
            ({"job": "rech-1"}, "unknown-id"),
            ({"job": "empty-1"}, "no-checkpoint"),
            ({"job": "running-1"}, "verification-pending"),
            ({"job": "reach-1", "model": "Reach!"}, "bad-name"),
            ({"job": "reach-1", "model": "v3"}, "bad-name"),
            ({"model": "reach"}, "bad-request"),
        ],
    )
    def test_refusals(self, registry: Registry, args: dict[str, Any], code: str) -> None:
        """LI-01: what does not exist, or is no name, is refused with what to do, and nothing is recorded."""
        registry.say(submitted("empty-1"), JobSucceeded(job="empty-1", attempt=1, attempts=1), submitted("running-1"))
        assert refused(registry, "model-register", **({"model": "reach"} | args)).code == code

    def test_close_matches(self, registry: Registry) -> None:
        """An unknown job is answered with what it may have been."""
        assert "reach-1" in refused(registry, "model-register", model="reach", job="rech-1").next_action

    def test_foreign_checkpoint(self, registry: Registry) -> None:
        """LI-01: a checkpoint of another job is refused, naming its job."""
        registry.say(submitted("other-1"), started(1, "other-1"), written(50, 1, "other-1"))
        error = refused(registry, "model-register", model="m", job="other-1", checkpoint=written(300, 2).checkpoint)
        assert error.code == "foreign-checkpoint"
        assert "reach-1" in error.message

    @pytest.mark.parametrize("status", ["corrupt", "missing", "incomplete"])
    def test_unusable(self, registry: Registry, status: str) -> None:
        """A checkpoint that is not whole is never a model."""
        save = written(400, 2)
        registry.say(save, verified(save, status, "why"))
        error = refused(registry, "model-register", model="reach", job="reach-1", checkpoint=save.checkpoint)
        assert error.code == "unusable-checkpoint"

    def test_unverified(self, registry: Registry) -> None:
        """While the newest save is unchecked nothing older is registered in its place."""
        registry.say(written(400, 2))
        assert refused(registry, "model-register", model="reach", job="reach-1").code == "verification-pending"

    def test_weights_only(self) -> None:
        """Weights alone make a model, though not a resume."""
        registry = Registry()
        save = written(100)
        registry.say(submitted(), leased(), started(1), save, verified(save, "weights-only"), DONE)
        assert registry.command("model-register", model="reach", job="reach-1")["status"] == "weights-only"

    def test_overwritten(self) -> None:
        """LI-03: a save whose folder now holds another content is refused."""
        registry = Registry()
        first, second = written(100, uri="/c"), written(100, uri="/c", content="x")
        registry.say(submitted(), started(1), first, verified(first), second, verified(second))
        error = refused(registry, "model-register", model="reach", job="reach-1", checkpoint=first.checkpoint)
        assert error.code == "overwritten"


class TestEvaluate:
    def test_bound_to_the_digest(self, registry: Registry) -> None:
        """An evaluation names the artefact of the version, and the same one again is the same event."""
        registry.command("model-register", model="reach", job="reach-1")
        for _ in range(2):
            registry.command("model-evaluate", model="reach", metrics={"success": 0.9}, source="eval.json")
        found = [one.body for one in registry.said if isinstance(one.body, EvaluationRecorded)]
        assert [one.artefact_sha256 for one in found] == [written(300, 2).digest]

    def test_other_artefact(self, registry: Registry) -> None:
        """Metrics of another artefact are refused."""
        registry.command("model-register", model="reach", job="reach-1")
        args = {"model": "reach", "metrics": {"s": 1}, "source": "x", "artefact_sha256": "0" * 64}
        assert refused(registry, "model-evaluate", **args).code == "digest-mismatch"

    @pytest.mark.parametrize("metrics", [None, {}, {"a": "high"}, {"a": float("nan")}, {"a": True}, [1]])
    def test_bad_metrics(self, registry: Registry, metrics: Any) -> None:
        """Only finite numbers are metrics."""
        registry.command("model-register", model="reach", job="reach-1")
        error = refused(registry, "model-evaluate", model="reach", metrics=metrics, source="x")
        assert error.code in {"bad-request", "bad-metric"}

    def test_unknown_model(self, registry: Registry) -> None:
        """No metrics for what is not registered."""
        assert refused(registry, "model-evaluate", model="reach", metrics={"s": 1}, source="x").code == "unknown-id"


@pytest.fixture
def two(registry: Registry) -> Registry:
    """Two registered, evaluated versions."""
    registry.command("model-register", model="reach", job="reach-1", checkpoint="200")
    registry.command("model-register", model="reach", job="reach-1")
    for number in (1, 2):
        registry.command("model-evaluate", model="reach", number=number, metrics={"s": 0.5}, source="x")
    return registry


class TestRelease:
    def test_needs_an_evaluation(self, registry: Registry) -> None:
        """Without an evaluation a release is refused; a reason forces it, and is on record."""
        registry.command("model-register", model="reach", job="reach-1")
        error = refused(registry, "model-release", model="reach", channel="production")
        assert error.code == "not-evaluated"
        registry.command("model-release", model="reach", channel="production", forced_reason="the robot waits")
        body = registry.said[-1].body
        assert isinstance(body, ModelReleased)
        assert (body.forced_reason, body.evaluation) == ("the robot waits", None)

    def test_an_empty_reason_is_none(self, registry: Registry) -> None:
        """A forced release needs words."""
        registry.command("model-register", model="reach", job="reach-1")
        args = {"model": "reach", "channel": "production", "forced_reason": "  "}
        assert refused(registry, "model-release", **args).code == "bad-request"

    def test_channels(self, two: Registry) -> None:
        """A version goes candidate, canary, production; each move names its evaluation and what was there before."""
        for channel in ("candidate", "canary", "production"):
            two.command("model-release", model="reach", number=1, channel=channel)
        found = two.command("model-release", model="reach", channel="production")
        assert (found["number"], found["previous"], found["move"]) == (2, 1, 2)
        assert found["evaluation"]
        assert two.ask("models")["models"][0]["channels"] == {"candidate": 1, "canary": 1, "production": 2}

    def test_repeat(self, two: Registry) -> None:
        """Releasing what is released changes nothing."""
        two.command("model-release", model="reach", channel="production")
        assert two.command("model-release", model="reach", channel="production")["already"] is True
        assert [one.body.event for one in two.said].count("ModelReleased") == 1

    def test_compare_and_set(self, two: Registry) -> None:
        """Who saw something else is refused, with what is there."""
        two.command("model-release", model="reach", number=1, channel="production", previous=None)
        error = refused(two, "model-release", model="reach", channel="production", previous=None)
        assert (error.code, error.details) == ("moved-meanwhile", {"current": 1})
        two.command("model-release", model="reach", channel="production", previous=1)

    def test_two_at_once(self, two: Registry) -> None:
        """While a move is on its way into the log, another one waits."""
        moving = ModelReleased(model="reach", number=1, channel="production", artefact_sha256="a" * 64, move=1, by="x")

        ask = request({"model": "reach", "channel": "production"})
        with pytest.raises(Refused, match="is being moved"):
            two.service.commands["model-release"](two.state, Waiting(moving), ask)

    def test_changed_artefact(self, two: Registry) -> None:
        """LI-03: the folder of version 2 now holds other bytes: not even a reason releases it."""
        save = written(300, 2, content="other")
        two.say(save, verified(save))
        error = refused(two, "model-release", model="reach", channel="production", forced_reason="now")
        assert error.code == "artefact-changed"
        assert two.command("model-register", model="reach", job="reach-1", checkpoint="200")["number"] == 1

    def test_retire(self, two: Registry) -> None:
        """What is live cannot be retired unnoticed, and what is retired does not come back by itself."""
        two.command("model-release", model="reach", number=1, channel="production")
        assert refused(two, "model-release", model="reach", number=1, channel="retired").code == "still-released"
        two.command("model-release", model="reach", number=2, channel="production")
        two.command("model-release", model="reach", number=1, channel="retired")
        assert refused(two, "model-release", model="reach", number=1, channel="canary").code == "retired"

    @pytest.mark.parametrize(("args", "code"), [({"channel": "prod"}, "bad-channel"), ({"number": 9}, "unknown-id")])
    def test_refusals(self, two: Registry, args: dict[str, Any], code: str) -> None:
        """Unknown channels and versions are refused."""
        assert refused(two, "model-release", **({"model": "reach", "channel": "canary"} | args)).code == code


class TestRollback:
    def test_back_and_no_further(self, two: Registry) -> None:
        """A rollback goes to what was named before, twice does not toggle, and history keeps every move."""
        two.command("model-release", model="reach", number=1, channel="production")
        two.command("model-release", model="reach", number=2, channel="production")
        found = two.command("model-release", model="reach", channel="production", rollback=True, reason="worse")
        assert (found["number"], found["previous"], found["move"]) == (1, 2, 3)
        error = refused(two, "model-release", model="reach", channel="production", rollback=True, reason="again")
        assert error.code == "nothing-before"
        releases = two.ask("model", model="reach")["releases"]
        assert [(one["fields"]["action"], one["fields"]["number"]) for one in releases] == [
            ("release", 1),
            ("release", 2),
            ("rollback", 1),
        ]

    def test_needs_a_reason_and_a_past(self, two: Registry) -> None:
        """No rollback without a reason, and none to a version that was never there."""
        two.command("model-release", model="reach", number=2, channel="production")
        args: dict[str, Any] = {"model": "reach", "channel": "production", "rollback": True}
        assert refused(two, "model-release", **args).code == "bad-request"
        assert refused(two, "model-release", **args, reason="r").code == "nothing-before"
        assert refused(two, "model-release", **args, reason="r", number=1).code == "never-released"


def test_two_jobs_one_model(registry: Registry) -> None:
    """Versions of one model may come from different jobs; numbers go on."""
    registry.command("model-register", model="reach", job="reach-1")
    registry.say(submitted("again-1"), leased("again-1"))
    run(registry, "again-1")
    assert registry.command("model-register", model="reach", job="again-1")["number"] == 2
