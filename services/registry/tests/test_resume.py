"""The resume point: a pure function with its reasons, over every kind of checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.models import Compatibility
from forebay.registry.domain.resume import Save, Wanted, decide_resume, unverified_ahead
from forebay.runtime.errors import Refused
from hypothesis import given
from hypothesis import strategies as st

from services.registry.tests.histories import Registry, admitted, ended, resumed, started, submitted, verified, written

MADE = Compatibility(datasets=("dataset:cup-pick@v4",), code_revision="0123abc", parameters_sha256="1" * 64)


def save(step: int, status: str | None = "complete", attempt: int = 1, **more: Any) -> Save:
    values: dict[str, Any] = {
        "id": f"ck-{attempt}-{step}",
        "uri": f"/c/{attempt}/{step}",
        "digest": f"{attempt}-{step}",
        "compatibility": MADE,
    }
    return Save(step=step, attempt=attempt, status=status, **(values | more))


def wanted(attempt: int = 2, *, cold: bool = False, compatibility: Compatibility = MADE) -> Wanted:
    return Wanted(attempt=attempt, allow_cold_start=cold, compatibility=compatibility, skip_unverified=True)


class TestChoice:
    def test_incomplete_newest(self) -> None:
        """CR-01: the newest is incomplete, so the one before is used, and the answer says so."""
        point = decide_resume(
            [save(500), save(1000, "incomplete", findings=("missing scheduler, RNG, step",))], wanted()
        )
        assert (point.mode, point.save and point.save.step) == ("resume", 500)
        assert any("step 1000 skipped: incomplete" in reason for reason in point.reasons)

    def test_numeric_order(self) -> None:
        """CR-03: 9, 10, 100 are numbers; the latest is 100."""
        point = decide_resume([save(9), save(100), save(10)], wanted())
        assert point.save is not None
        assert point.save.step == 100

    def test_corrupt_ones_are_named(self) -> None:
        """CR-02: corrupt saves are passed over, each with its numbers."""
        found = [save(500), save(1000, "corrupt", findings=("1000 bytes short",)), save(1500, "missing")]
        point = decide_resume(found, wanted())
        assert point.save is not None
        assert point.save.step == 500
        assert [one.step for one in point.skipped] == [1500, 1000]
        assert "1000 bytes short" in point.skipped[1].reason

    def test_weights_only_is_not_a_resume(self) -> None:
        """CR-04: weights alone are refused, and the reason says what is missing."""
        lacking = ("missing optimizer, scheduler, RNG, step",)
        point = decide_resume([save(500, "weights-only", findings=lacking)], wanted())
        assert point.mode == "refused"
        assert "weights only: missing optimizer, scheduler, RNG, step" in " ".join(point.reasons)

    def test_inexact(self) -> None:
        """Optimizer without scheduler resumes as inexact, with that label, but not beside a complete one."""
        alone = decide_resume([save(500, "inexact", findings=("missing scheduler",))], wanted())
        assert alone.mode == "resume"
        assert "inexact: missing scheduler" in alone.reasons
        beside = decide_resume([save(500), save(600, "inexact")], wanted())
        assert beside.save is not None
        assert beside.save.step == 500
        assert [one.step for one in beside.skipped] == [600]

    def test_attempts(self) -> None:
        """CR-07: steps 308 and 407 of attempt 2 do not replace 60071 of attempt 1."""
        point = decide_resume([save(60071), save(308, attempt=2), save(407, attempt=2)], wanted(3))
        assert point.save is not None
        assert point.save.step == 60071

    def test_overwritten_in_place(self) -> None:
        """Of two saves in one folder only the later content exists."""
        point = decide_resume([save(100, uri="/last"), save(200, uri="/last"), save(50)], wanted())
        assert point.save is not None
        assert point.save.step == 200
        twice = [save(100, uri="/x", id="ck-a", digest="a"), save(100, uri="/x", id="ck-b", digest="b"), save(50)]
        assert (chosen := decide_resume(twice, wanted()).save) is not None
        assert chosen.step == 50


class TestCompatibility:
    def test_other_dataset(self) -> None:
        """CR-06: another dataset version is refused as a resume, and other code is said."""
        other = Compatibility(datasets=("dataset:cup-pick@v5",), code_revision="9999fff")
        point = decide_resume([save(500)], wanted(compatibility=other))
        assert point.mode == "refused"
        assert "dataset:cup-pick@v4 → dataset:cup-pick@v5" in " ".join(point.reasons)

    def test_other_code(self) -> None:
        """Other code alone resumes, and the answer says which."""
        other = MADE.model_copy(update={"code_revision": "9999fff"})
        point = decide_resume([save(500)], wanted(compatibility=other))
        assert point.mode == "resume"
        assert "code 0123abc → 9999fff: resumed with other code" in point.reasons

    def test_other_parameters(self) -> None:
        """Other hyper-parameters are no resume."""
        other = MADE.model_copy(update={"parameters_sha256": "2" * 64})
        assert decide_resume([save(500)], wanted(compatibility=other)).mode == "refused"


class TestNothing:
    @pytest.mark.parametrize(
        ("attempt", "cold", "mode"),
        [(1, False, "cold"), (2, False, "cold"), (2, True, "cold"), (9, False, "cold")],
    )
    def test_no_checkpoint(self, attempt: int, *, cold: bool, mode: str) -> None:
        """Before the first checkpoint a cold start loses nothing, so every attempt may make one."""
        assert decide_resume([], wanted(attempt, cold=cold)).mode == mode

    def test_a_cold_start_can_be_forbidden(self) -> None:
        """A job that forbids it, or whose checkpoints may not be read yet, is refused; the first attempt is not."""
        for attempt, mode in ((1, "cold"), (2, "refused")):
            assert decide_resume([], replace(wanted(attempt), forbid_cold_start=True)).mode == mode
            assert decide_resume([], replace(wanted(attempt), unread=True)).mode == mode

    def test_a_checkpoint_that_cannot_be_used_is_a_loss(self) -> None:
        """As soon as anything was saved, starting at step 0 needs the owner's word."""
        torn = replace(save(500), status="corrupt")
        assert decide_resume([torn], wanted(2)).mode == "refused"
        assert decide_resume([torn], wanted(2, cold=True)).mode == "cold"


class TestProperties:
    @given(
        st.lists(
            st.builds(
                save,
                st.integers(0, 50),
                st.sampled_from(["complete", "inexact", "weights-only", "corrupt", "missing", "incomplete", None]),
                st.integers(1, 3),
            ),
            max_size=12,
        ),
        st.randoms(use_true_random=False),
    )
    def test_order_does_not_matter(self, saves: list[Save], random: Any) -> None:
        """The decision is the same in whatever order checkpoints are known, and never uses an unfit one."""
        unique = list({one.id: one for one in saves}.values())
        point = decide_resume(unique, wanted())
        shuffled = unique[:]
        random.shuffle(shuffled)
        assert decide_resume(shuffled, wanted()) == point
        if point.save is not None:
            assert point.save.status in {"complete", "inexact"}
        waiting = unverified_ahead(unique)
        if waiting is not None and point.save is not None and point.save.status == "complete":
            assert waiting.order > point.save.order


class TestCommand:
    def test_first_attempt(self) -> None:
        """The first attempt starts cold, and the decision is on record."""
        registry = Registry()
        registry.say(submitted())
        assert registry.command("resume-point", job="reach-1", attempt=1)["mode"] == "cold"
        again = registry.command("resume-point", job="reach-1", attempt=1)
        assert (again["mode"], again["already"]) == ("cold", True)
        assert [one.body.event for one in registry.said].count("ResumeDecided") == 1

    def test_waits_for_verification(self) -> None:
        """While the newest save is not checked the answer is 'ask again'; a deadline passes over it, with that reason."""
        registry = Registry()
        old, new = written(100), written(200)
        registry.say(submitted(), started(1), old, verified(old), new, admitted(2))
        with pytest.raises(Refused) as refused:
            registry.command("resume-point", job="reach-1", attempt=2)
        assert refused.value.code == "verification-pending"
        found = registry.command("resume-point", job="reach-1", attempt=2, skip_unverified=True)
        assert (found["mode"], found["step"]) == ("resume", 100)
        assert "not verified in time" in found["skipped"][0]["reason"]

    def test_waits_for_the_log(self) -> None:
        """A registry that has not read as far as the attempt's admission does not refuse for lack of saves."""
        registry = Registry()
        registry.say(submitted(), started(1))
        with pytest.raises(Refused) as refused:
            registry.command("resume-point", job="reach-1", attempt=2)
        assert refused.value.code == "verification-pending"
        assert registry.command("resume-point", job="reach-1", attempt=2, skip_unverified=True)["mode"] == "refused"

    def test_after_verification(self) -> None:
        """Once it is checked, the newest is used; a repeat gives the same point with its folder."""
        registry = Registry()
        new = written(200)
        registry.say(submitted(), started(1), new, verified(new), admitted(2))
        first = registry.command("resume-point", job="reach-1", attempt=2)
        assert first["uri"] == new.uri
        assert registry.command("resume-point", job="reach-1", attempt=2) == first | {"already": True}

    def test_crash_loop(self) -> None:
        """CR-07: after three attempts died on loading 60071 without saving, attempt 5 uses 45441."""
        registry = Registry()
        good, bad = written(45441), written(60071)
        registry.say(submitted(), started(1), good, verified(good), bad, verified(bad), ended(1, code=1))
        for attempt in (2, 3, 4):
            registry.say(resumed(attempt, 60071), started(attempt), ended(attempt, code=1))
        registry.say(admitted(5))
        found = registry.command("resume-point", job="reach-1", attempt=5)
        assert found["step"] == 45441
        assert "suspect" in found["skipped"][0]["reason"]

    def test_kills_from_outside_are_no_crash_loop(self) -> None:
        """Pre-emption says nothing about the checkpoint."""
        registry = Registry()
        good = written(60071)
        registry.say(submitted(), started(1), good, verified(good))
        for attempt in (2, 3, 4):
            registry.say(
                resumed(attempt, 60071), started(attempt), ended(attempt, code=None, reason=Reason.PROCESS_KILLED)
            )
        registry.say(admitted(5))
        assert registry.command("resume-point", job="reach-1", attempt=5)["step"] == 60071

    @pytest.mark.parametrize(
        "args",
        [
            {"job": "reach-1"},
            {"job": "reach-1", "attempt": 0},
            {"job": "reach-1", "attempt": "2"},
            {"attempt": 1},
            {"job": "reach-1", "attempt": 1, "allow_cold_start": "yes"},
            {"job": "reach-1", "attempt": 1, "compatibility": {"datasets": 5}},
        ],
    )
    def test_bad_arguments(self, args: dict[str, Any]) -> None:
        """What does not fit is refused by name, never guessed."""
        with pytest.raises(Refused) as refused:
            Registry().command("resume-point", **args)
        assert refused.value.code == "bad-request"


class TestContinuing:
    """A job that continues an earlier one goes on from its checkpoints, with reasons."""

    def continued(self, *inherited: Save, **more: Any) -> Any:
        request = replace(
            wanted(1), continues="reach-1", inherited=tuple(replace(one, job="reach-1") for one in inherited)
        )
        return decide_resume([], replace(request, **more))

    def test_resumes_from_the_furthest(self) -> None:
        """The first attempt resumes where the earlier job was, and says whose checkpoint it is."""
        point = self.continued(save(500), save(1000))
        assert (point.mode, point.save.step) == ("resume", 1000)
        assert point.reasons[0] == "continues reach-1"
        assert "written by attempt 1 of reach-1" in point.reasons[1]

    def test_own_checkpoints_come_first(self) -> None:
        """What the job has saved itself counts before what it inherited."""
        request = replace(wanted(2), continues="reach-1", inherited=(save(9000),))
        point = decide_resume([save(1500)], request)
        assert (point.mode, point.save and point.save.step) == ("resume", 1500)

    def test_other_inputs_are_a_warm_start_with_its_reason(self) -> None:
        """Another dataset version forbids a resume; the weights are taken, and the difference is on record."""
        other = Compatibility(datasets=("dataset:cup-pick@v5",))
        point = self.continued(save(1000), compatibility=other)
        assert point.mode == "warm-start"
        assert "dataset dataset:cup-pick@v4 → dataset:cup-pick@v5" in point.reasons[0]

    def test_nothing_usable_is_not_step_zero(self) -> None:
        """Torn checkpoints are a loss: refused, unless the job allows a cold start."""
        torn = save(1000, "corrupt")
        assert self.continued(torn).mode == "refused"
        assert self.continued(torn, allow_cold_start=True).mode == "cold"

    def test_nothing_left_is_a_cold_start(self) -> None:
        """An earlier job without any checkpoint leaves nothing to lose."""
        assert self.continued().mode == "cold"

    def test_through_the_log(self) -> None:
        """The command follows the chain of jobs that its request names."""
        registry = Registry()
        registry.say(submitted(), started(1), written(500), verified(written(500)))
        registry.say(submitted("reach-2", restart={"start_from": "reach-1"}))
        registry.say(submitted("reach-3", restart={"start_from": "reach-2"}))
        answer = registry.command("resume-point", job="reach-3", attempt=1)
        assert (answer["mode"], answer["step"]) == ("resume", 500)
