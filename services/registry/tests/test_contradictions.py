"""Every contradiction code, made from events; what can't resolve itself is published once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import JobFailed, JobSucceeded
from forebay.contracts.v1.models import EvaluationRecorded, ModelReleased, ModelVersionRegistered
from forebay.registry.domain.decide import conflict
from msgspec.structs import replace

from services.registry.tests.histories import (
    START,
    Registry,
    committed,
    ended,
    event,
    leased,
    recorded,
    resumed,
    started,
    submitted,
    trained,
    uploaded,
    verified,
    written,
)

REF = FileRef(uri="/one.json", sha256="1" * 64, bytes=1)
DONE = JobSucceeded(job="reach-1", attempt=1, attempts=1)
FAILED = JobFailed(job="reach-1", reason=Reason.ATTEMPTS_EXHAUSTED, message="no attempt is left", attempts=1)
MODEL = ModelVersionRegistered(
    model="reach",
    number=1,
    job="reach-1",
    attempt=1,
    checkpoint="ck-1",
    step=100,
    uri="/c",
    artefact_sha256="c" * 64,
    by="t",
)
OTHER_EVALUATION = EvaluationRecorded(
    evaluation="ev-1", model="reach", number=1, artefact_sha256="d" * 64, metrics={"s": 1.0}, source="x", by="t"
)


def _release(number: int, move: int = 1, digest: str = "c" * 64) -> ModelReleased:
    return ModelReleased(model="reach", number=number, channel="production", artefact_sha256=digest, move=move, by="t")


LASTING: dict[str, tuple[str, list[EventBody]]] = {
    "a job that succeeded and failed": ("TERMINAL_TWICE", [DONE, FAILED]),
    "an attempt that ended with two codes": ("TERMINAL_TWICE", [ended(1, code=0), ended(1, code=1)]),
    "a third attempt of a job that ended after one": ("EVENT_AFTER_TERMINAL", [DONE, started(3)]),
    "a save of an attempt that never was": ("EVENT_AFTER_TERMINAL", [DONE, written(100, 2)]),
    "a save below the step it resumed from": ("STEP_REGRESSION", [resumed(2, 200), written(50, 2)]),
    "a save whose content changed in place": (
        "CHECKPOINT_CHECKSUM_CHANGED",
        [written(100, uri="/c"), written(100, uri="/c", content="x")],
    ),
    "a version with two manifests": (
        "DATASET_MUTATED",
        [committed(1, REF, 1), committed(1, REF, 1, manifest_sha256="f" * 64)],
    ),
    "a version with two episode lists": (
        "DATASET_MUTATED",
        [committed(1, REF, 1), committed(1, FileRef(uri="/two.json", sha256="2" * 64, bytes=1), 1)],
    ),
    "an evaluation of another artefact": ("EVAL_DIGEST_MISMATCH", [MODEL, OTHER_EVALUATION]),
    "a release of another artefact": ("RELEASE_DIGEST_MISMATCH", [MODEL, _release(1, digest="d" * 64)]),
    "a release without any evaluation": ("MODEL_WITHOUT_EVAL", [MODEL, _release(1)]),
    "one move of a channel to two versions": ("RELEASE_FORK", [_release(1), _release(2)]),
    "inputs pinned twice": ("INPUTS_REPINNED", [leased(number=1), leased(number=2)]),
    "a length that two events disagree on": (
        "FIELD_CONFLICT",
        [uploaded(1), uploaded(1).model_copy(update={"length": 12})],
    ),
}


class TestLasting:
    @pytest.mark.parametrize("what", LASTING)
    @pytest.mark.parametrize("backwards", [False, True])
    def test_found_and_published_once(self, what: str, *, backwards: bool) -> None:
        """Each is found in either order, with its events, and published exactly once however often it is heard."""
        code, bodies = LASTING[what]
        registry = Registry()
        for _ in range(2):
            registry.say(*(reversed(bodies) if backwards else bodies))
        found = [one for one in registry.published() if one.code == code]
        assert len(found) == 1
        assert found[0].events
        assert code in registry.codes()

    def test_same_contradiction_in_any_order(self) -> None:
        """The contradiction's id and values do not depend on which fact came first."""
        code, bodies = LASTING["a version with two manifests"]
        ids = []
        for order in (bodies, bodies[::-1]):
            registry = Registry()
            registry.say(*order, time=START)
            ids.append([(one.contradiction, one.values) for one in registry.published() if one.code == code])
        assert ids[0] == ids[1]

    def test_end_before_start(self) -> None:
        """An end that both the log and its writer place before the start is a contradiction, and neither time is changed."""
        registry = Registry()
        registry.say(ended(1), time=START)
        registry.say(started(1), time=START + timedelta(seconds=60))
        assert {one.code for one in registry.published()} == {"END_BEFORE_START"}

    def test_same_id_other_body(self) -> None:
        """One id with another body: published through the runtime's hook, and seen in the fold itself."""
        registry = Registry()
        first = event(started(1), id="same")
        registry.hear(first)
        other = replace(event(started(1).model_copy(update={"host": "elsewhere"})), id="same")
        for action in conflict(recorded(other, 9), 1):
            registry.act(action)
        assert [one.code for one in registry.published()] == ["DUP_ID_DIFF_BODY"]
        registry.service.evolve(registry.state, recorded(other, 9))
        assert "DUP_ID_DIFF_BODY" in registry.codes("attempt:reach-1/1")


class TestPassing:
    def test_model_without_checkpoint(self) -> None:
        """A model whose checkpoint nobody wrote is an answer, not an event: the checkpoint may still come."""
        registry = Registry()
        save = written(100, uri="/c")
        registry.say(MODEL.model_copy(update={"checkpoint": save.checkpoint, "artefact_sha256": save.digest}))
        assert "MODEL_WITHOUT_CHECKPOINT" in registry.codes()
        registry.say(save)
        assert "MODEL_WITHOUT_CHECKPOINT" not in registry.codes()
        assert registry.published() == []

    def test_missing_parent(self) -> None:
        """A parent that no event has described is a placeholder that resolves itself."""
        registry = Registry()
        registry.say(leased())
        assert "MISSING_PARENT" in registry.codes("job:reach-1")
        registry.say(committed(1, REF, 1))
        assert "MISSING_PARENT" not in registry.codes("job:reach-1")

    def test_restart_from_scratch(self) -> None:
        """CR-07: attempt 2 writes step 308 after 60071 and nobody decided so; a recorded cold start explains it."""
        registry = Registry()
        registry.say(submitted(), started(1), written(60071, 1), ended(1, code=None), started(2), written(308, 2))
        assert "STEP_REGRESSION" in registry.codes()
        registry.say(resumed(2, None))
        assert "STEP_REGRESSION" not in registry.codes()

    def test_clock_skew(self) -> None:
        """A clock a day ahead is said, with both times, and published as nothing."""
        registry = Registry()
        registry.say(written(100), time=START + timedelta(days=1))
        assert "CLOCK_SKEW" in registry.codes()
        assert registry.published() == []

    def test_a_clean_story_has_none(self) -> None:
        """A normal history with a kill and a resume contradicts nothing but its unseen upload."""
        registry = Registry()
        trained(registry)
        assert registry.codes() <= {"MISSING_PARENT"}
        assert registry.published() == []

    def test_second_judgement_is_no_conflict(self) -> None:
        """An episode that was held and then accepted, or verified saves, contradict nothing."""
        registry = Registry()
        save = written(100)
        registry.say(save, verified(save), resumed(2, 100), written(100, 2))
        assert registry.published() == []
