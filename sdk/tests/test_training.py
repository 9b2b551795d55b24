"""The example's training: it learns, and a resumed run is the uninterrupted run, to the last bit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sdk.tests import builders


@pytest.fixture(scope="module")
def inputs(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    good = builders.record(folder / "good", episodes=12, broken=-1)
    (folder / "inputs.json").write_text(json.dumps({"inputs": [builders.pinned(good)]}))
    return folder / "inputs.json"


def train(inputs: Path, output: Path, *, resume_from: Path | None = None) -> str:
    settings = {"FOREBAY_INPUTS": str(inputs), "FOREBAY_OUTPUT": str(output), "OPENBLAS_NUM_THREADS": "1"}
    parameters = {
        "FOREBAY_PARAM_STEPS": "90",
        "FOREBAY_PARAM_CHECKPOINT_EVERY": "30",
        "FOREBAY_PARAM_REPORT_EVERY": "30",
    }
    resumed = {"FOREBAY_RESUME_FROM": str(resume_from), "FOREBAY_ATTEMPT": "2"} if resume_from else {}
    command = [sys.executable, str(builders.EXAMPLES / "train_bc.py"), "--dataset", "dataset:reach@train-ready"]
    done = subprocess.run(
        command, env=settings | parameters | resumed, capture_output=True, text=True, check=False, cwd=output.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_resumed_run_is_the_uninterrupted_run(inputs: Path, tmp_path: Path) -> None:
    """Weights, optimizer, shuffling and schedule go on exactly: the last checkpoint is the same, bit for bit."""
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    train(inputs, whole)
    middle = Path(shutil.copytree(whole / "checkpoints/step-000030", tmp_path / "from/step-000030"))
    said = train(inputs, rest, resume_from=middle)
    assert "resumed from step-000030 at step 30" in said
    assert not (rest / "checkpoints/step-000030").exists()
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (rest / "checkpoints/step-000090" / name).read_bytes() == (
            whole / "checkpoints/step-000090" / name
        ).read_bytes()
    results = [json.loads((output / "eval.json").read_text()) for output in (whole, rest)]
    assert results[0] == results[1]


def test_the_held_out_loss_falls(inputs: Path, tmp_path: Path) -> None:
    """It learns something that holds for episodes it never saw."""
    train(inputs, tmp_path / "out")
    history = json.loads((tmp_path / "out/metrics.json").read_text())["history"]
    losses = [point["held_out_loss"] for point in history]
    assert losses[-1] < losses[0]
    result = json.loads((tmp_path / "out/eval.json").read_text())
    assert result["held_out_loss"] < result["mean_action_loss"]
    assert not list((tmp_path / "out/checkpoints").glob("*.tmp"))
