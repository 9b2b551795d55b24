"""Checkpoint cases from public reports, with real files: what is there, what is taken, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.v1.models import CheckpointWritten, Compatibility
from forebay.registry.domain.decide import VERIFY
from forebay.registry.workers.verify_checkpoint import emit_of, verify
from forebay.runtime.errors import Refused

from services.registry.tests.histories import (
    PROJECT,
    Registry,
    ended,
    leased,
    resumed,
    started,
    submitted,
    verified,
    written,
)
from services.registry.tests.test_verify_checkpoint import WHOLE, event_for, lerobot, put

STATE = [name for name in lerobot() if name.startswith("training_state/")]


def seen(registry: Registry, folder: Path, step: int, attempt: int = 1, **more: Any) -> CheckpointWritten:
    """The agent sees a folder, the registry's worker reads it, and both say so."""
    body = event_for(folder, step, checkpoint=f"ck-{attempt}-{step}", attempt=attempt, **more)
    registry.say(body)
    registry.act(emit_of(PROJECT, body, verify(body, [folder.parent])))
    return body


@pytest.fixture
def registry() -> Registry:
    found = Registry()
    found.say(submitted(), leased(), started(1))
    return found


def preview(registry: Registry, **args: Any) -> dict[str, Any]:
    before = len(registry.said)
    found = registry.ask("resume-preview", job="reach-1", **args)
    assert len(registry.said) == before
    return found


def skipped(found: dict[str, Any]) -> dict[int, str]:
    return {one["step"]: one["reason"] for one in found["skipped"]}


class TestCases:
    def test_cr_01_newest_is_incomplete(self, registry: Registry, tmp_path: Path) -> None:
        """CR-01: killed while saving 1000: resume at 500, 1000 named as incomplete with what it lacks."""
        seen(registry, put(tmp_path / "000500", lerobot(500)), 500)
        half = {
            name: body
            for name, body in lerobot(1000).items()
            if not name.endswith(("training_step.json", "scheduler_state.json", "rng_state.safetensors"))
        }
        seen(registry, put(tmp_path / "001000", half), 1000)
        found = preview(registry)
        assert (found["mode"], found["step"]) == ("resume", 500)
        assert "missing scheduler, RNG, step" in skipped(found)[1000]
        with pytest.raises(Refused) as refused:
            registry.command("model-register", model="m", job="reach-1", checkpoint="1000")
        assert refused.value.code == "unusable-checkpoint"

    def test_cr_02_truncated_padded_empty(self, registry: Registry, tmp_path: Path) -> None:
        """CR-02: cut, padded and empty files are corrupt by header arithmetic, each with its numbers."""
        seen(registry, put(tmp_path / "000500", lerobot(500)), 500)
        weights, optimizer = "pretrained_model/model.safetensors", "training_state/optimizer_state.safetensors"
        for step, change in (
            (1000, {weights: WHOLE[: len(WHOLE) * 6 // 10]}),
            (1500, {weights: WHOLE + bytes(100)}),
            (2000, {optimizer: b""}),
        ):
            seen(registry, put(tmp_path / f"{step:06d}", lerobot(step) | change), step)
        found = preview(registry)
        assert found["step"] == 500
        said = skipped(found)
        assert "100 bytes more than the header covers" in said[1500]
        assert "empty file" in said[2000]
        assert "truncated" in said[1000]

    def test_shards_by_index(self, registry: Registry, tmp_path: Path) -> None:
        """Weights in shards are whole when every tensor of the index lies in its shard; a lost shard is corrupt."""
        index = {"weight_map": {"w": "model-1.safetensors", "b": "model-2.safetensors"}}
        sharded = {name: body for name, body in lerobot(700).items() if not name.endswith("/model.safetensors")}
        sharded |= {
            "pretrained_model/model.safetensors.index.json": json.dumps(index).encode(),
            "pretrained_model/model-1.safetensors": WHOLE,
            "pretrained_model/model-2.safetensors": WHOLE,
        }
        seen(registry, put(tmp_path / "000700", sharded), 700)
        assert preview(registry)["step"] == 700
        del sharded["pretrained_model/model-2.safetensors"]
        seen(registry, put(tmp_path / "000800", sharded | {"training_state/training_step.json": b'{"step": 800}'}), 800)
        found = preview(registry)
        assert found["step"] == 700
        assert "model-2.safetensors" in skipped(found)[800]

    def test_cr_04_weights_only(self, registry: Registry, tmp_path: Path) -> None:
        """CR-04: weights alone are refused as a resume; a new run may begin with them, and lineage says from where."""
        weights = {name: body for name, body in lerobot(1000).items() if name not in STATE}
        body = seen(registry, put(tmp_path / "001000", weights), 1000)
        found = preview(registry, checkpoint="1000")
        assert found["mode"] == "refused"
        assert "weights only: missing optimizer, scheduler, RNG, step" in found["reasons"][0]
        registry.say(submitted("warm-1", restart={"start_from": body.checkpoint}), leased("warm-1"))
        point = registry.command("resume-point", job="warm-1", attempt=1)
        assert (point["mode"], point["checkpoint"]) == ("warm-start", body.checkpoint)
        parents = registry.ask("lineage", id="warm-1/1")["tree"]["parents"]
        assert {one["id"] for one in parents} == {"job:warm-1", f"checkpoint:{body.checkpoint}"}

    def test_cr_06_changed_conditions(self, registry: Registry, tmp_path: Path) -> None:
        """CR-06: other data, other code, fewer steps: three conflicts by name, and the resume is refused."""
        made = Compatibility(datasets=("dataset:cup-pick@v4",), code_revision="0123abc")
        seen(registry, put(tmp_path / "001000", lerobot(1000)), 1000, compatibility=made)
        asked = {"datasets": ["dataset:cup-pick@v5"], "code_revision": "9999fff"}
        found = preview(registry, checkpoint="1000", compatibility=asked, steps=800)
        assert found["mode"] == "refused"
        assert [one["what"] for one in found["conflicts"]] == ["dataset_version", "code", "steps"]
        said = " ".join(found["reasons"])
        for words in ("cup-pick@v4 → dataset:cup-pick@v5", "0123abc → 9999fff", "nothing to do", "a new run may start"):
            assert words in said
        same = preview(registry, checkpoint="1000", compatibility={**asked, "datasets": ["dataset:cup-pick@v4"]})
        assert same["mode"] == "resume"
        assert any("9999fff" in reason for reason in same["reasons"])

    def test_cr_07_restart_from_scratch(self) -> None:
        """CR-07: restarted and resumed are two facts; 308 and 407 do not replace 60071."""
        registry = Registry()
        registry.say(submitted(), leased(), started(1))
        for step in (30899, 45441, 60071):
            registry.say(written(step), verified(written(step)))
        registry.say(ended(1, code=None), started(2))
        for step in (308, 407):
            registry.say(written(step, 2), verified(written(step, 2)))
        found = preview(registry)
        assert (found["attempt"], found["step"]) == (3, 60071)
        second = found["attempts"][1]
        assert (second["restarted"], second["resumed"]) == (True, False)
        assert "STEP_REGRESSION" in registry.codes()

    def test_cr_07_crash_loop(self) -> None:
        """CR-07: three attempts died within loading 60071, so the fourth uses 45441."""
        registry = Registry()
        registry.say(submitted(), leased(), started(1))
        for step in (45441, 60071):
            registry.say(written(step), verified(written(step)))
        registry.say(ended(1, code=1))
        for attempt in (2, 3, 4):
            registry.say(resumed(attempt, 60071), started(attempt), ended(attempt, code=1))
        found = preview(registry)
        assert (found["attempt"], found["step"]) == (5, 45441)
        assert "suspect" in skipped(found)[60071]

    def test_cr_08_marked_in_progress(self, registry: Registry, tmp_path: Path) -> None:
        """CR-08: every file is there, and a marker: 500 is taken; 1500 by name is refused, nothing else in its place."""
        seen(registry, put(tmp_path / "000500", lerobot(500)), 500)
        for step in (1000, 1500):
            seen(registry, put(tmp_path / f"{step:06d}", {**lerobot(step), ".incomplete": b""}), step)
        assert preview(registry)["step"] == 500
        found = preview(registry, checkpoint="1500")
        assert (found["mode"], found["checkpoint"]) == ("refused", None)
        assert "marked in progress" in found["reasons"][0]

    def test_li_01_registering(self, registry: Registry, tmp_path: Path) -> None:
        """LI-01: no such checkpoint and no such job are refused; a good one keeps all identities."""
        body = seen(registry, put(tmp_path / "000500", lerobot(500)), 500)
        for args in (
            {"job": "reach-1", "checkpoint": str(tmp_path / "009999")},
            {"job": "reach-404", "checkpoint": body.uri},
        ):
            with pytest.raises(Refused):
                registry.command("model-register", model="cup", **args)
        registry.command("model-register", model="cup", job="reach-1", checkpoint=body.uri)
        fields = registry.ask("lineage", id="cup")["tree"]["fields"]
        assert (fields["job"], fields["attempt"], fields["artefact_sha256"]) == ("reach-1", 1, body.digest)
        assert fields["datasets"] == ["dataset:pick@v1"]

    def test_li_03_overwritten_after_registration(self, registry: Registry, tmp_path: Path) -> None:
        """LI-03: the folder changes between registration and promotion: refused, broken, and the next is version 2."""
        folder = put(tmp_path / "000500", lerobot(500))
        first = seen(registry, folder, 500)
        registry.command("model-register", model="cup", job="reach-1", checkpoint="500")
        registry.command("model-evaluate", model="cup", metrics={"s": 1.0}, source="x")
        put(folder, {"pretrained_model/config.json": b'{"other": 1}'})
        body = event_for(folder, 500, checkpoint="ck-other")
        registry.say(body)
        registry.act(emit_of(PROJECT, body, verify(body, [tmp_path])))
        with pytest.raises(Refused) as refused:
            registry.command("model-release", model="cup", channel="production", number=1)
        assert refused.value.code == "artefact-changed"
        assert {one["code"] for one in registry.ask("audit")["findings"]} >= {"MODEL_BROKEN"}
        assert verify(first, [tmp_path]).status == "corrupt"


class TestPreview:
    def test_unverified_is_said(self, registry: Registry, tmp_path: Path) -> None:
        """A save that is not checked yet makes the answer incomplete, and it is not taken."""
        folder = put(tmp_path / "000500", lerobot(500))
        registry.say(event_for(folder, 500))
        found = preview(registry)
        assert not found["complete"]
        assert found["saves"][0]["status"] == "not verified"
        assert [work.kind for work in registry.work] == [VERIFY]

    def test_asks_as_the_job_would(self, registry: Registry, tmp_path: Path) -> None:
        """Without other words the preview asks with what the job has pinned, and a save of other data is refused."""
        made = Compatibility(datasets=("dataset:pick@v7",))
        seen(registry, put(tmp_path / "000500", lerobot(500)), 500, compatibility=made)
        found = preview(registry)
        assert (found["mode"], found["wanted"]["datasets"]) == ("refused", ["dataset:pick@v1"])
        assert "pick@v7 → dataset:pick@v1" in skipped(found)[500]

    def test_name_and_unknown(self, registry: Registry) -> None:
        """A job by its name is its latest run; an unknown one is refused with close matches."""
        assert registry.ask("resume-preview", job="reach")["job"] == "reach-1"
        with pytest.raises(Refused) as refused:
            registry.ask("resume-preview", job="rech")
        assert refused.value.code == "unknown-id"

    def test_nothing_to_do(self, registry: Registry, tmp_path: Path) -> None:
        """A job whose parameter says 500 steps and that has saved 500 is told so, and may end by itself."""
        registry.say(submitted("done-1", parameters={"steps": 500}), leased("done-1"))
        seen(registry, put(tmp_path / "000500", lerobot(500)), 500, job="done-1")
        found = registry.ask("resume-preview", job="done-1")
        assert found["mode"] == "resume"
        assert any("nothing to do" in reason for reason in found["reasons"])

    def test_start_from_must_exist(self, registry: Registry) -> None:
        """A job that begins with a checkpoint nobody knows is refused at its start, not begun at step 0."""
        registry.say(submitted("warm-1", restart={"start_from": "ck-none"}))
        with pytest.raises(Refused) as refused:
            registry.command("resume-point", job="warm-1", attempt=1)
        assert refused.value.code == "unknown-checkpoint"

    def test_start_from_waits_for_the_check(self, registry: Registry, tmp_path: Path) -> None:
        """The start waits until the named checkpoint's files are checked."""
        registry.say(event_for(put(tmp_path / "000500", lerobot(500)), 500))
        registry.say(submitted("warm-1", restart={"start_from": "ck-1"}))
        with pytest.raises(Refused) as refused:
            registry.command("resume-point", job="warm-1", attempt=1)
        assert refused.value.code == "verification-pending"
        point = registry.command("resume-point", job="warm-1", attempt=1, skip_unverified=True)
        assert point["mode"] == "refused"
