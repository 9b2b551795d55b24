"""Saves of a run that Forebay did not watch: which folders count, in what order, and why others do not."""

from __future__ import annotations

from pathlib import Path

from forebay.sdk.old_runs import saves_in
from forebay.sdk.resume import ResumePoint

from sdk.tests.builders import write_save


def test_names_are_numbers(tmp_path: Path) -> None:
    """CR-03: 9, 10, 100 in the order of their steps; best, a bare file, a temporary and a link are named and passed."""
    for step in (9, 10, 100):
        write_save(tmp_path / f"checkpoint-{step}", step)
    write_save(tmp_path / "checkpoint-best", 10, value=3)
    write_save(tmp_path / "checkpoint-300.tmp", 300)
    (tmp_path / "checkpoint-200.safetensors").write_bytes(b"x")
    (tmp_path / "last").symlink_to(tmp_path / "checkpoint-10")
    whole, passed = saves_in(tmp_path)
    assert [save.step for save in whole] == [9, 10, 100]
    reasons = {one.folder.name: one.reason for one in passed}
    assert set(reasons) == {"checkpoint-best", "checkpoint-300.tmp", "checkpoint-200.safetensors", "last"}
    assert reasons["last"] == "a second name of checkpoint-10"
    assert "never finished" in reasons["checkpoint-300.tmp"]


def test_one_checkpoint(tmp_path: Path) -> None:
    """A single checkpoint's folder is that one, a link to it is resolved."""
    write_save(tmp_path / "000500", 500)
    (tmp_path / "last").symlink_to(tmp_path / "000500")
    for folder in (tmp_path / "000500", tmp_path / "last"):
        whole, passed = saves_in(folder)
        assert [save.folder.name for save in whole] == ["000500"]
        assert passed == []


def test_a_training_output(tmp_path: Path) -> None:
    """The output folder of a training run holds its saves in `checkpoints`."""
    write_save(tmp_path / "checkpoints" / "000500", 500)
    assert [save.step for save in saves_in(tmp_path)[0]] == [500]


def test_broken_and_twice(tmp_path: Path) -> None:
    """A truncated save and a second content of the same step are passed over with their reasons."""
    write_save(tmp_path / "a-100", 100)
    write_save(tmp_path / "b-100", 100, value=9)
    write_save(tmp_path / "c-200", 200)
    weights = tmp_path / "c-200" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    whole, passed = saves_in(tmp_path)
    assert [save.folder.name for save in whole] == ["a-100"]
    reasons = {one.folder.name: one.reason for one in passed}
    assert "also in a-100" in reasons["b-100"]
    assert "the header promises" in reasons["c-200"]


def test_a_warm_start_is_no_resume() -> None:
    """The command is told the weights only: a step would make it skip data that it has never seen."""
    warm = ResumePoint(mode="warm-start", uri="/saves/000500", step=500).environment()
    assert warm == {"FOREBAY_WARM_START_FROM": "/saves/000500"}
    resume = ResumePoint(mode="resume", uri="/saves/000500", step=500).environment()
    assert resume == {"FOREBAY_RESUME_FROM": "/saves/000500", "FOREBAY_RESUME_STEP": "500"}
