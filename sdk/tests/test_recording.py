"""The example's recorder: honest physics, and a dataset that looks like LeRobot's own."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import av
import numpy as np
import pyarrow.parquet as pq
import pytest

from sdk.tests import builders


@pytest.fixture(scope="module")
def record_arm() -> ModuleType:
    spec = spec_from_file_location("record_arm", builders.EXAMPLES / "record_arm.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["record_arm"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("gravity", [0.0, 9.81])
def test_energy_is_kept_without_torque_and_damping(record_arm: ModuleType, gravity: float) -> None:
    """The equations of motion are those of two rigid links: what nobody adds or takes away stays."""
    arm = record_arm.Arm(damping=0.0, gravity=gravity)
    motion = (0.3, 1.1, 1.5, -2.0)
    before = arm.energy(motion)
    for _ in range(2000):
        motion = arm.step(motion, (0.0, 0.0), 0.001)
    assert arm.energy(motion) == pytest.approx(before, rel=1e-6)


def test_inverse_kinematics_leads_to_the_target(record_arm: ModuleType) -> None:
    """The expert's joint angles put the tip where the target is."""
    arm = record_arm.Arm()
    target = (0.31, 0.22)
    joints = arm.inverse_kinematics(target)
    assert arm.joints_xy(*joints)[2] == pytest.approx(target)


def test_torques_stay_within_the_motors_limits(record_arm: ModuleType) -> None:
    """Nobody moves faster than the motors allow."""
    arm = record_arm.Arm()
    for wanted in ((100.0, -100.0), (-100.0, -100.0)):
        first, second = record_arm.controller(arm, (0.0, 1.0, 0.0, 0.0), wanted)
        assert (abs(first), abs(second)) == arm.torque_limit


def test_dataset_has_every_column_that_lerobot_writes(recording: Path) -> None:
    """Episode table, tasks and info name what LeRobot v3.0 names."""
    table = pq.read_table(recording / "meta/episodes/chunk-000/file-000.parquet")
    camera = "videos/observation.images.top"
    expected = {
        "episode_index", "tasks", "length", "data/chunk_index", "data/file_index", "dataset_from_index",
        "dataset_to_index", "meta/episodes/chunk_index", "meta/episodes/file_index", f"{camera}/chunk_index",
        f"{camera}/file_index", f"{camera}/from_timestamp", f"{camera}/to_timestamp", "stats/action/mean",
    }  # fmt: skip
    assert expected <= set(table.column_names)
    tasks = pq.read_table(recording / "meta/tasks.parquet")
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    info = json.loads((recording / "meta/info.json").read_text())
    frames = pq.read_metadata(recording / "data/chunk-000/file-000.parquet").num_rows
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == (
        "v3.0",
        4,
        frames,
    )
    json.loads((recording / "meta/stats.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} in stats"))


def test_every_frame_has_a_picture(recording: Path) -> None:
    """The video has as many frames as the table has rows, at the declared rate."""
    rows = pq.read_metadata(recording / "data/chunk-000/file-000.parquet").num_rows
    with av.open(str(recording / "videos/observation.images.top/chunk-000/file-000.mp4")) as container:
        stream = container.streams.video[0]
        times = [frame.time for frame in container.decode(stream)]
        assert (stream.codec_context.name, float(stream.average_rate or 0), len(times)) == ("h264", 30.0, rows)
    assert times[-1] == pytest.approx((rows - 1) / 30, abs=1e-4)


def test_exactly_one_action_is_broken(recording: Path) -> None:
    """The broken episode has NaN where the command line said, and nowhere else."""
    table = pq.read_table(recording / "data/chunk-000/file-000.parquet")
    action = np.array(table["action"].to_pylist())
    (row,) = np.argwhere(np.isnan(action).any(axis=1)).ravel().tolist()
    assert (table["episode_index"][row].as_py(), table["frame_index"][row].as_py()) == (1, 12)
    assert math.isnan(action[row, 0])


def test_same_seed_gives_the_same_files(recording: Path, tmp_path: Path) -> None:
    """Recording again with the same seed gives the same bytes, so uploads can be compared."""
    again = builders.record(tmp_path / "again")
    digests = [
        {
            path.relative_to(root): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in root.rglob("*")
            if path.is_file()
        }
        for root in (recording, again)
    ]
    assert digests[0] == digests[1]
