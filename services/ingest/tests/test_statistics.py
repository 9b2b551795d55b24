"""Every stored statistic is compared with the rows, and what LeRobot itself approximates is no finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.picture_statistics import check_picture_statistics
from forebay.ingest.domain.recording import Feature
from forebay.ingest.domain.signals import FeatureScan, VectorBlock
from forebay.ingest.domain.stored_statistics import Summary, check_statistics, summarise
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, Part

Array = npt.NDArray[np.float64]
SHARES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
EPISODES_OF = [scale * np.sin(np.arange(120)[:, None] / 9.0 + np.arange(3)) for scale in (0.4, 0.5, 0.45, 2.0)]
"""Three calm recordings and one with large motions."""
ACTION = Feature(key="action", dtype="float32", shape=(3,))


def described(table: Array) -> dict[str, Any]:
    found = {name: getattr(table, name)(axis=0) for name in ("min", "max", "mean", "std")}
    return found | {name: np.quantile(table, share, axis=0) for name, share in SHARES.items()}


def rows_of(tables: list[Array]) -> Summary:
    scans = []
    for table in tables:
        scan = FeatureScan()
        scan.add(VectorBlock(lengths=np.full(len(table), table.shape[1]), values=table.reshape(-1)), 0)
        scans.append(scan)
    parts = ((scan.moments, scan.low, scan.high) for scan in scans)
    found = summarise(parts, (stretch for scan in scans for stretch in scan.spread))
    assert found is not None
    return found


def judge(tables: list[Array], stored: dict[str, Any]) -> list[Breach]:
    return check_statistics(ACTION, stored, rows_of(tables), "meta/stats.json")


def averaged(tables: list[Array]) -> dict[str, Any]:
    """What LeRobot's aggregation makes of the episodes' quantiles."""
    every = [described(table) for table in tables]
    return {name: np.mean([one[name] for one in every], axis=0) for name in SHARES}


def bounds(tables: list[Array]) -> dict[str, Any]:
    every = [described(table) for table in tables]
    low = {name: np.min([one[name] for one in every], axis=0) for name in ("q01", "q10")}
    high = {name: np.max([one[name] for one in every], axis=0) for name in ("q90", "q99")}
    return low | high


def from_histogram(table: Array) -> dict[str, Any]:
    """LeRobot's own: 5,000 bins, the value where the count is reached."""
    found: dict[str, Any] = {name: [] for name in SHARES}
    for column in table.T:
        counts, edges = np.histogram(column, bins=5000)
        for name, share in SHARES.items():
            found[name].append(edges[int(np.searchsorted(np.cumsum(counts), share * len(column)))])
    return found


@pytest.mark.parametrize("lengths", [120, 30, 20])
def test_approximate_quantiles_are_no_finding(lengths: int) -> None:
    """Exact ones, those of histograms, averages of episodes that are alike, and bounds after a merge."""
    tables = [table[:lengths] for table in EPISODES_OF]
    whole = np.concatenate(tables)
    alike = [table + 0.01 * number for number, table in enumerate([tables[0]] * 4)]
    assert judge(tables, described(whole)) == []
    assert judge(tables, described(whole) | from_histogram(whole)) == []
    assert judge(tables, described(whole) | bounds(tables)) == []
    assert judge(alike, described(np.concatenate(alike)) | averaged(alike)) == []


def test_averaged_quantiles_are_reported() -> None:
    """The finding names a quantile that rows are clipped at, its stored value, that of the rows, and the share beyond."""
    whole = np.concatenate(EPISODES_OF)
    (breach,) = judge(EPISODES_OF, described(whole) | averaged(EPISODES_OF))
    assert breach.rule is rules.STATISTICS
    assert (breach.found or "").startswith(("q01", "q99"))
    assert "% of the rows lie" in breach.message


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("factor", [0.0, 9.0])
def test_one_wrong_quantile_in_one_dimension_is_reported(name: str, factor: float) -> None:
    """Too far in or further out than any episode reaches."""
    whole = np.concatenate(EPISODES_OF)
    stored = described(whole)
    stored[name][1] = 1.0 if name == "q50" and not factor else (stored[name][1] + 0.1) * factor
    (breach,) = judge(EPISODES_OF, stored)
    assert f"action[1]: the stored {name} is" in breach.message


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        (np.random.default_rng(0).normal(0.5, 1e-3, (220, 3)), "std", 0.0),
        (np.random.default_rng(0).normal(0.5, 1e-3, (220, 3)), "std", 0.004),
        (np.where(np.arange(900)[:, None] == 5, 1.0, np.zeros(3)), "std", 0.06),
        (np.where(np.arange(900)[:, None] == 5, 1.0, np.zeros(3)), "mean", 0.008),
        (np.full((200, 3), 0.3), "std", 0.1),
    ],
    ids=["none of a little", "four times a little", "a joint that moved once", "its mean", "some of a constant"],
)
def test_columns_that_hardly_move_are_compared_by_their_own_deviation(table: Array, name: str, value: float) -> None:
    """The range of the values says nothing there."""
    stored = described(table)
    assert judge([table], stored) == []
    stored[name] = np.full(3, value)
    (breach,) = judge([table], stored)
    assert f"{name}[" in (breach.expected or "")


@pytest.mark.parametrize("value", [0.1, 40.1, 1e4 / 3])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-4])
def test_sums_in_single_precision_are_no_finding(value: float, noise: float) -> None:
    """NumPy adds float32 rows one by one, and RunningQuantileStats subtracts squares; both lose digits."""
    table = (value * (1 + np.random.default_rng(0).normal(0, noise, (5000, 3)))).astype(np.float32)
    mean, squares = table.mean(axis=0), (table**2).mean(axis=0)
    wide = [table.astype(np.float64)]
    exact = described(wide[0])
    assert judge(wide, exact | {"mean": mean, "std": table.std(axis=0)}) == []
    assert judge(wide, exact | {"mean": mean, "std": np.sqrt(np.maximum(squares - mean**2, 0))}) == []


def test_pictures_of_another_scale_or_brightness_are_reported() -> None:
    """Means of 0 to 255, and a dark scene that is said to be bright; a sample of the pictures is near enough."""
    camera = Feature(key=CAMERA, dtype="video", shape=(48, 64, 3))

    def check(mean: float) -> list[Breach]:
        return check_picture_statistics(camera, {"mean": [[[mean]]] * 3}, 0.4, "meta/stats.json")

    assert check(0.4) == check(0.55) == check(0.25) == []
    assert [breach.feature for breach in [*check(102.0), *check(0.9), *check(0.0)]] == [CAMERA] * 3


# whole datasets

PARTS = (Part(length=40, data=0, video=0), Part(length=30, data=0, video=0))
COLUMNS = ("action", "observation.state", "timestamp", "frame_index", "episode_index", "index", "task_index")


def build(root: Path) -> Path:
    """Two episodes with statistics of the whole and of each episode, in every column."""
    lerobot.build(root, PARTS)
    table = pq.read_table(root / FIRST_DATA)
    rows = pq.read_table(root / EPISODES).to_pylist()
    whole = {}
    for key in COLUMNS:
        values = np.array(table[key].to_pylist(), dtype=np.float64).reshape(table.num_rows, -1)
        whole[key] = {name: value.tolist() for name, value in described(values).items()} | {"count": [70]}
        for row, part in zip(rows, np.split(values, [40]), strict=True):
            row |= {f"stats/{key}/{name}": value.tolist() for name, value in described(part).items()}
    (root / "meta/stats.json").write_text(json.dumps(whole))
    pq.write_table(pa.Table.from_pylist(rows), root / EPISODES)
    return root


def found_in(root: Path) -> list[Breach]:
    return [breach for breach in inspect(root).report.breaches if breach.rule is rules.STATISTICS]


def test_right_statistics_of_every_column_are_no_finding(tmp_path: Path) -> None:
    """Of the dataset and of each episode."""
    assert found_in(build(tmp_path / "in")) == []


@pytest.mark.parametrize(
    ("key", "name", "severity"),
    [
        ("action", "q99", "warning"),
        ("timestamp", "max", "warning"),
        ("frame_index", "mean", "warning"),
        ("index", "max", "info"),
    ],
)
def test_a_wrong_statistic_of_the_dataset_is_reported(tmp_path: Path, key: str, name: str, severity: str) -> None:
    """Also of columns that only count; those that LeRobot's own tools number anew are an info."""
    root = build(tmp_path / "in")
    document = json.loads((root / "meta/stats.json").read_text())
    document[key][name][-1] += 50.0
    (root / "meta/stats.json").write_text(json.dumps(document))
    (breach,) = found_in(root)
    assert (breach.feature, breach.severity, breach.episodes) == (key, severity, None)
    assert breach.message.startswith(f"{key}[")


def test_a_wrong_quantile_of_one_episode_is_reported(tmp_path: Path) -> None:
    """In the columns beside the episode table."""
    root = build(tmp_path / "in")

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[1]["stats/action/q90"][2] = -3.0
        return rows

    lerobot.change_rows(root, EPISODES, change)
    (breach,) = found_in(root)
    assert (breach.feature, breach.episodes) == ("action", (1,))
    assert "q90" in breach.message
