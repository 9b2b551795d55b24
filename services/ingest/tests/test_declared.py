"""What a dataset or its collector declares, against what is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forebay.ingest.adapters.decoders import Decoders
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.collection_request import parse_request
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from . import pictures_builder as pictures
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, FIRST_VIDEO, Part

LENGTHS = (12, 10)
PARTS = tuple(Part(length=n, data=0, video=number) for number, n in enumerate(LENGTHS))
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def pool() -> Iterator[Decoders]:
    with Decoders() as decoders:
        yield decoders


def found(root: Path, pool: Decoders, rule: str, request: dict[str, Any] | None = None) -> list[Breach]:
    terms = None if request is None else parse_request(json.dumps(request).encode())
    report = inspect(root, decoders=pool, request=terms).report
    assert report.outcome in {"accept", "accept_with_warning", "hold"}, report.breaches
    return [breach for breach in report.breaches if breach.rule.id == rule]


def build(root: Path) -> Path:
    lerobot.build(root, PARTS)
    lerobot.change_feature(root, CAMERA, shape=[pictures.SIDE, pictures.SIDE, 3])
    for number, length in enumerate(LENGTHS):
        pictures.write(root / f"videos/{CAMERA}/chunk-000/file-{number:03d}.mp4", pictures.scene(number, length))
    return root


def ends_early(frames: float, episodes: tuple[int, ...] = (0, 1)) -> Change:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        key = f"videos/{CAMERA}/to_timestamp"
        return [{**row, key: row[key] - (frames / 10 if row["episode_index"] in episodes else 0)} for row in rows]

    return lambda root: lerobot.change_rows(root, EPISODES, change)


@dataclass(frozen=True, kw_only=True)
class Case:
    change: Change
    rule: str
    severity: str | None = None
    says: str = ""


def info(**changes: Any) -> Change:
    return lambda root: lerobot.change_info(root, **changes)


def names(value: Any) -> Change:
    return lambda root: lerobot.change_feature(root, "action", names=value)


CASES = {
    "too many videos": Case(
        change=info(total_videos=9), rule="LR-META-001", severity="warning", says="total_videos = 9, stored are 2"
    ),
    "as many videos as there are": Case(change=info(total_videos=2), rule="LR-META-001"),
    "an episode in no split": Case(
        change=info(splits={"train": "0:1"}),
        rule="LR-META-001",
        severity="warning",
        says="1 of 2 episodes lie in no split: 1",
    ),
    "splits of all episodes": Case(change=info(splits={"train": "0:1", "val": "1:2"}), rule="LR-META-001"),
    "windows that end early": Case(
        change=ends_early(1), rule="LR-VIDEO-003", severity="info", says="one frame short in episodes 0, 1"
    ),
    "a window that ends early": Case(
        change=ends_early(1, (1,)), rule="LR-VIDEO-003", severity="info", says="one frame short in episode 1,"
    ),
    "too few names": Case(
        change=names(["a", "b"]), rule="LR-META-006", severity="warning", says="expected 3 names, info.json has 2 names"
    ),
    "too few names in a group": Case(
        change=names({"motors": ["a", "b"]}),
        rule="LR-META-006",
        severity="warning",
        says="joints cannot be mapped by name",
    ),
    "too many names in a list of lists": Case(
        change=names([["a", "b", "c", "d"]]), rule="LR-META-006", severity="warning", says="has 4 names"
    ),
    "names in a list of lists": Case(change=names([["a", "b", "c"]]), rule="LR-META-006"),
    "one name for all": Case(change=names(["action"]), rule="LR-META-006"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_difference_is_reported_and_rejects_nothing(case: Case, tmp_path: Path, pool: Decoders) -> None:
    """Totals, splits, ends of windows and names of joints; what is right carries no finding."""
    root = build(tmp_path / "in")
    case.change(root)
    told = found(root, pool, case.rule)
    assert [breach.severity for breach in told] == ([] if case.severity is None else [case.severity])
    assert all(case.says in breach.message for breach in told)


REPORTS: dict[str, dict[str, Any]] = {
    "one object per episode": {"episodes": [{"episode_index": 1, "duration_s": 1.5}, {"episode_index": 0, "duration_s": 1.8}]},
    "a list": {"durations_s": [1.8, 1.5]},
    "a table": {"report": {"episode_durations_s": {"0": 1.8, "1": 1.5}}},
    "start and end": {
        "operator_report": {
            "status": "OK",
            "fps": 10,
            "episodes": [
                {"started_at": "2026-11-02T08:00:00Z", "ended_at": "2026-11-02T08:00:01.800Z"},
                {"started_at": "2026-11-02T08:01:00Z", "ended_at": "2026-11-02T08:01:01.500Z"},
            ],
        }
    },
}  # fmt: skip


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_measured_durations_are_evidence_of_the_rate(report: dict[str, Any], tmp_path: Path, pool: Decoders) -> None:
    """22 rows in 3.3 s are 6.67 per second, whatever the report claims."""
    (breach,) = found(build(tmp_path / "in"), pool, "LR-REQUEST-002", report)
    assert (breach.severity, breach.episodes) == ("warning", (0, 1))
    assert (breach.expected, breach.found) == ("10 rows per second", "6.67 rows per second")
    assert "episode 0: 12 rows in 1.80 s" in breach.message


@pytest.mark.parametrize("durations", [[1.2, 1.0], [1.3, 1.1], ["soon", -1], {"0": None}])
def test_durations_that_agree_or_say_nothing_are_no_finding(durations: Any, tmp_path: Path, pool: Decoders) -> None:
    """Starting and stopping takes a moment."""
    assert found(build(tmp_path / "in"), pool, "LR-REQUEST-002", {"durations_s": durations}) == []


def walk(root: Path, late: int) -> None:
    """The action is the state of the row `late` rows after its own."""

    def place(row: dict[str, Any], more: int) -> list[float]:
        return [float(np.sin(row["frame_index"] + more + 5 * row["episode_index"]))] * 3

    lerobot.change_column(root, FIRST_DATA, "observation.state", lambda row: place(row, 0))
    lerobot.change_column(root, FIRST_DATA, "action", lambda row: place(row, late))


@pytest.mark.parametrize(("late", "says"), [(0, "its own row"), (1, "the next row"), (2, None)])
def test_an_action_that_only_repeats_the_state_is_an_info(
    late: int, says: str | None, tmp_path: Path, pool: Decoders
) -> None:
    """In every episode that moves."""
    root = build(tmp_path / "in")
    walk(root, late)
    told = found(root, pool, "LR-SIGNAL-008")
    assert [breach.severity for breach in told] == ([] if says is None else ["info"])
    assert all(says in breach.message for breach in told if says)


@pytest.mark.parametrize("level", [0, 3, 90])
def test_a_black_camera_is_reported_as_black(level: int, tmp_path: Path, pool: Decoders) -> None:
    """Also with a little noise; a still picture that shows something is not black."""
    root = build(tmp_path / "in")
    still = [np.full((pictures.SIDE, pictures.SIDE, 3), level, dtype=np.uint8)] * LENGTHS[0]
    pictures.write(root / FIRST_VIDEO, pictures.noisy(still, 1.0))
    (breach,) = found(root, pool, "LR-VIDEO-008")
    assert (breach.severity, breach.episodes) == ("hold", (0,))
    assert ("is black" in breach.message) is (level < 24)
