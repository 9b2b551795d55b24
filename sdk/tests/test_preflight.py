"""Preflight: every check runs, and everything that is wrong is reported in one go."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import PreflightCheck
from forebay.sdk.inputs import Inputs
from forebay.sdk.preflight import Surroundings, run_preflight

from sdk.tests.builders import pinned

PATH = {"PATH": os.defpath}


@pytest.fixture
def root(recording: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recording, tmp_path / "v1"))


def check(
    tmp_path: Path,
    inputs: dict[str, Any],
    *command: str,
    free_bytes: int = 1,
    environment: dict[str, str] | None = None,
) -> dict[str, PreflightCheck]:
    around = Surroundings(output=tmp_path / "output", free_bytes=free_bytes, environment=environment or PATH)
    found = run_preflight(Inputs.model_validate(inputs), command or (sys.executable,), around)
    return {one.name: one for one in found}


def test_everything_in_order_passes(root: Path, tmp_path: Path) -> None:
    """Data at the pinned version, output, processors, memory, command."""
    found = check(tmp_path, {"inputs": [pinned(root)], "resources": {"memory_bytes": 1024}})
    assert {one.status for one in found.values()} == {"pass"}
    assert set(found) == {"data reach@v1", "output", "cpu", "memory", "command"}


def test_everything_that_is_wrong_is_reported_together(tmp_path: Path) -> None:
    """One start tells all: data, output, resources, GPUs and command."""
    output = tmp_path / "output"
    output.write_text("a file where a folder should be")
    lost = {
        "kind": "dataset", "logical": "dataset:reach@v1", "name": "reach", "number": 1, "root": str(tmp_path / "gone"),
        "manifest_sha256": "0" * 64,
    }  # fmt: skip
    resources = {"cpu": 4096, "memory_bytes": 1 << 60, "gpus": 2}
    found = check(tmp_path, {"inputs": [lost], "resources": resources}, "no-such-program")
    assert {name: one.reason for name, one in found.items() if one.status == "fail"} == {
        "data reach@v1": Reason.DATA_MISSING,
        "output": Reason.OUTPUT_NOT_WRITABLE,
        "cpu": Reason.RESOURCES_MISSING,
        "memory": Reason.RESOURCES_MISSING,
        "gpu": Reason.RESOURCES_MISSING,
        "command": Reason.COMMAND_NOT_FOUND,
    }
    assert "4096" in found["cpu"].message


def test_a_version_that_changed_is_not_what_was_pinned(root: Path, tmp_path: Path) -> None:
    """Another manifest, a file of another size, a file that is gone: each is seen and named."""
    inputs = {"inputs": [pinned(root)], "resources": {"memory_bytes": 1024}}
    other = {"inputs": [pinned(root) | {"manifest_sha256": "1" * 64}]}
    assert check(tmp_path, other)["data reach@v1"].reason == Reason.DATASET_CHANGED
    (root / "meta/stats.json").write_text("{}")
    assert "meta/stats.json has 2 bytes" in check(tmp_path, inputs)["data reach@v1"].message
    (root / "meta/stats.json").unlink()
    assert "meta/stats.json is missing" in check(tmp_path, inputs)["data reach@v1"].message


def test_an_output_without_room_fails(tmp_path: Path) -> None:
    """Numbers of both sides are in the message."""
    found = check(tmp_path, {"resources": {"memory_bytes": 1}}, free_bytes=1 << 60)["output"]
    assert (found.status, found.reason) == ("fail", Reason.OUTPUT_FULL)


def test_declared_gpus_without_a_device_file_are_worth_a_warning(tmp_path: Path) -> None:
    """The scheduler's declaration counts, and what is not seen is said."""
    inputs = {"resources": {"memory_bytes": 1, "gpus": 1}}
    found = check(tmp_path, inputs, environment=PATH | {"CUDA_VISIBLE_DEVICES": "97"})["gpu"]
    assert found.status == "warn"


def test_a_missing_script_is_found_before_the_start(tmp_path: Path) -> None:
    """`python train.py` with no train.py is a command that cannot run."""
    found = check(tmp_path, {"resources": {"memory_bytes": 1}}, sys.executable, str(tmp_path / "train.py"))["command"]
    assert found.reason == Reason.COMMAND_NOT_FOUND


def test_three_kinds_of_absent_data_are_told_apart(root: Path, tmp_path: Path) -> None:
    """Nothing mounted, something else mounted, and a version that is gone: each has its reason and its next step."""
    empty, other, gone = tmp_path / "mnt", tmp_path / "other", root.parent / "pool"
    empty.mkdir()
    other.mkdir()
    (other / "photos.zip").write_bytes(b"x")
    gone.mkdir()
    (gone / "v2").mkdir()
    for place, reason, words in (
        (empty, Reason.DATA_NOT_MOUNTED, "nothing is mounted on it"),
        (empty / "pool/v1", Reason.DATA_NOT_MOUNTED, "nothing is mounted on it"),
        (other, Reason.OTHER_DATA_MOUNTED, "photos.zip"),
        (gone / "v1", Reason.DATA_MISSING, "does not exist"),
    ):
        found = check(tmp_path, {"inputs": [pinned(root) | {"root": str(place)}]})["data reach@v1"]
        assert (found.status, found.reason) == ("fail", reason)
        assert words in found.message
