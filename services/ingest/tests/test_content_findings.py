"""Findings about cameras, statistics and signals of single episodes, and what is no finding of the kind it looks like."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.domain.recording import Feature
from forebay.ingest.domain.stored_statistics import Moments, Summary, check_statistics
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from . import valid_datasets
from .lerobot_builder import EPISODES, FIRST_DATA, Part
from .valid_datasets import Shape


def test_two_cameras_with_one_picture_are_held(tmp_path: Path) -> None:
    """One camera was written under two names."""
    shape = Shape(
        lengths=(12, 14),
        rate="10",
        data=(0, 0),
        videos={"observation.images.a": (0, 0), "observation.images.b": (0, 0)},
        tasks=(0, 0),
        width=2,
        seed=3,
    )
    folder = valid_datasets.build(tmp_path / "in", shape)
    first, second = (folder / shape.video_file(camera, 0) for camera in shape.videos)
    second.write_bytes(first.read_bytes())
    (breach,) = inspect(folder).report.breaches
    assert (breach.rule.id, breach.severity, breach.episodes) == ("LR-VIDEO-010", "hold", (0, 1))
    assert "observation.images.a, observation.images.b" in breach.message


def test_sums_in_float32_are_no_stale_statistics() -> None:
    """Recorders add up rows and their squares in float32: a still joint gets a deviation, a nearly still one may get none."""
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [np.full(900, 152.3), 43.2 + rng.choice([0.0, 0.1], 900), rng.uniform(-3, 3, 900), rng.uniform(90, 95, 900)]
    ).astype(np.float32)
    squares = (rows**2).mean(axis=0) - rows.mean(axis=0) ** 2
    stored: dict[str, object] = {"mean": rows.mean(axis=0).tolist(), "std": np.sqrt(np.maximum(squares, 0)).tolist()}
    table = rows.astype(np.float64)
    assert np.abs(np.sqrt(np.maximum(squares, 0)) - table.std(axis=0)).max() > 0.01 * np.ptp(table, axis=0).min()
    moments = Moments()
    moments.add(table)
    summary = Summary(moments=moments, low=table.min(axis=0), high=table.max(axis=0))
    feature = Feature(key="action", dtype="float32", shape=(4,))
    assert check_statistics(feature, stored, summary, "meta/stats.json") == []
    for stale in ({"std": (table.std(axis=0) + 0.5).tolist()}, {"mean": (table.mean(axis=0) + 1).tolist()}):
        (breach,) = check_statistics(feature, stored | stale, summary, "meta/stats.json")
        assert breach.rule.id == "LR-META-007"


@pytest.mark.parametrize("version", ["v3.0", "v2.1"])
def test_statistics_of_one_episode_are_compared(version: str, tmp_path: Path) -> None:
    """What is stored about an episode must follow from its own rows."""
    shape = Shape(
        lengths=(6, 7, 8),
        rate="10",
        data=(0, 0, 0),
        videos={"observation.images.a": (0, 0, 0)},
        tasks=(0, 0, 0),
        width=2,
        seed=3,
        version=version,
    )
    folder = valid_datasets.build(tmp_path / "in", shape)
    if version == "v3.0":
        rows = pq.read_table(folder / EPISODES).to_pylist()
        states = np.split(np.array(pq.read_table(folder / FIRST_DATA)["action"].to_pylist()), [6, 13])
        for row, values in zip(rows, states, strict=True):
            row |= {
                f"stats/action/{name}": getattr(values, name)(axis=0).tolist() for name in ("min", "max", "mean", "std")
            }
        pq.write_table(pa.Table.from_pylist(rows), folder / EPISODES)
        assert inspect(folder).report.breaches == ()
        rows[1]["stats/action/mean"] = rows[2]["stats/action/mean"]
        pq.write_table(pa.Table.from_pylist(rows), folder / EPISODES)
    else:
        path = folder / "meta/episodes_stats.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1]["stats"]["action"] = lines[2]["stats"]["action"]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (breach,) = inspect(folder).report.breaches
    assert (breach.rule.id, breach.severity, breach.episodes, breach.feature) == (
        "LR-META-007",
        "warning",
        (1,),
        "action",
    )


def test_a_state_that_stands_still_is_told(tmp_path: Path) -> None:
    """To the last bit, in one episode, while the action moves; shorter episodes are not judged."""
    folder = lerobot.build(tmp_path / "in", (Part(length=9, data=0, video=0), Part(length=9, data=0, video=0)))
    lerobot.change_column(
        folder,
        FIRST_DATA,
        "observation.state",
        lambda row: [0.5] * 3 if row["episode_index"] else row["observation.state"],
    )
    found = [breach for breach in inspect(folder).report.breaches if breach.rule.id == "LR-SIGNAL-007"]
    assert [(breach.severity, breach.episodes) for breach in found] == [("warning", (1,))]


def test_an_error_page_is_no_truncated_video(tmp_path: Path) -> None:
    """A download that saved the server's answer under the video's name."""
    folder = lerobot.build(tmp_path / "in")
    for path in folder.rglob("*.mp4"):
        path.write_bytes(b"<!DOCTYPE html><html>404 not found</html>" * 30)
    report = inspect(folder).report
    assert report.outcome == "reject"
    assert all("cut off" not in breach.message for breach in report.breaches)


def test_a_missing_entry_is_named_by_its_number(tmp_path: Path) -> None:
    """The middle line of the episode table is gone, its rows are here: no upload will bring it."""
    folder = lerobot.build(tmp_path / "in")
    lerobot.change_rows(folder, EPISODES, lambda rows: [rows[0], rows[2]])
    report = inspect(folder).report
    assert report.outcome == "reject"
    assert "1" in next(breach.message for breach in report.breaches if breach.rule.id == "LR-STRUCT-007")
