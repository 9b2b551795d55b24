"""One round tells a collector everything: a fault of the structure hides no fault of the rows, and advice fits the case."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.adapters.decoders import Decoders
from forebay.ingest.domain.report import Report
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, FIRST_VIDEO

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def pool() -> Iterator[Decoders]:
    with Decoders() as decoders:
        yield decoders


def drop(file: str, *columns: str) -> Change:
    return lambda root: pq.write_table(pq.read_table(root / file).drop_columns(list(columns)), root / file)


def forget(key: str) -> Change:
    def change(root: Path) -> None:
        document = json.loads((root / "meta/info.json").read_text())
        del document[key]
        (root / "meta/info.json").write_text(json.dumps(document))

    return change


STRUCTURE: dict[str, tuple[Change, str]] = {
    "no version": (forget("codebase_version"), "LR-FORMAT-002"),
    "the wrong version": (lambda root: lerobot.change_info(root, codebase_version="v2.1"), "LR-FORMAT-002"),
    "a missing total": (forget("total_frames"), "LR-FORMAT-001"),
    "no path of the data": (forget("data_path"), "LR-FORMAT-001"),
    "a feature without shape": (lambda root: lerobot.change_feature(root, "action", shape="?"), "LR-FORMAT-001"),
    "a column is missing": (drop(FIRST_DATA, "index"), "LR-STRUCT-005"),
    "no timestamps and no tasks": (drop(FIRST_DATA, "task_index", "action"), "LR-STRUCT-005"),
    "a column is there twice": (lambda root: lerobot.double_column(root, FIRST_DATA, "action"), "LR-STRUCT-005"),
    "an episode table with a column twice": (
        lambda root: lerobot.double_column(root, EPISODES, f"videos/{CAMERA}/file_index"),
        "LR-STRUCT-005",
    ),
    "a cut episode table": (lambda root: lerobot.cut(root, EPISODES), "LR-STRUCT-004"),
    "no episode table": (lambda root: (root / EPISODES).unlink(), "LR-STRUCT-002"),
    "no task table": (lambda root: (root / "meta/tasks.parquet").unlink(), "LR-STRUCT-002"),
    "a missing video": (lambda root: (root / FIRST_VIDEO).unlink(), "LR-STRUCT-002"),
    "a pointer in place of a video": (lambda root: lerobot.pointer(root, FIRST_VIDEO), "LR-STRUCT-003"),
}


@pytest.mark.parametrize(("change", "rule"), STRUCTURE.values(), ids=STRUCTURE)
def test_a_fault_of_the_structure_hides_no_fault_of_the_rows(
    change: Change, rule: str, tmp_path: Path, pool: Decoders
) -> None:
    """A NaN in episode 0 and a clock that runs too slowly in episode 1 are reported beside it."""
    root = lerobot.build(tmp_path / "in")
    lerobot.change_cell(root, FIRST_DATA, 2, "observation.state", [float("nan"), 0.0, 0.0])
    lerobot.change_column(
        root, FIRST_DATA, "timestamp", lambda row: row["timestamp"] * (1.5 if row["episode_index"] == 1 else 1)
    )
    change(root)
    report = inspect(root, decoders=pool).report
    told = {(breach.rule.id, breach.episodes) for breach in report.breaches if breach.severity == "error"}
    assert rule in {id_ for id_, _ in told}
    assert {("LR-SIGNAL-001", (0,)), ("LR-SIGNAL-003", (1,))} <= told
    assert not report.good


@pytest.mark.parametrize("name", [name for name in STRUCTURE if name != "a column is there twice"])
def test_a_fault_of_the_structure_alone_brings_no_others(name: str, tmp_path: Path, pool: Decoders) -> None:
    """The same datasets with good rows: one rule is broken."""
    change, rule = STRUCTURE[name]
    root = lerobot.build(tmp_path / "in")
    change(root)
    report = inspect(root, decoders=pool).report
    assert {breach.rule.id for breach in report.breaches if breach.severity in {"error", "hold"}} == {rule}


# stray files


def foreign(root: Path, place: str) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3], f"b{place}": ["x", "y", "z"]}), root / place)


def unlisted(root: Path, place: str) -> None:
    table = pq.read_table(root / FIRST_DATA)
    at = table.schema.get_field_index("episode_index")
    pq.write_table(
        table.set_column(at, "episode_index", pa.array([int(place[-11:-8]) + 40] * len(table))), root / place
    )


def broken(root: Path, place: str) -> None:
    (root / place).write_bytes(b"not a parquet file")


STRAYS: dict[str, Callable[[Path, str], None]] = {
    "other columns": foreign,
    "unlisted rows": unlisted,
    "unreadable": broken,
}


@pytest.mark.parametrize("kind", STRAYS)
@pytest.mark.parametrize("count", [1, 7])
def test_stray_data_files_are_one_finding_and_reject_nothing(
    kind: str, count: int, tmp_path: Path, pool: Decoders
) -> None:
    """Whatever they hold."""
    root = lerobot.build(tmp_path / "in")
    for number in range(count):
        STRAYS[kind](root, f"data/chunk-000/file-{number + 5:03d}.parquet")
    report = inspect(root, decoders=pool).report
    (breach,) = report.breaches
    assert (breach.rule.id, report.outcome) == ("LR-STRUCT-010", "accept_with_warning")
    says = "1 file under data/ belongs to no episode" if count == 1 else "7 files under data/ belong to no episode"
    assert breach.message.startswith(says)


def test_stray_data_files_of_v21_are_one_finding(tmp_path: Path, pool: Decoders) -> None:
    """There each episode has a file of its own."""
    root = v2.build(tmp_path / "in", "v2.1")
    for number in (90, 91):
        foreign(root, f"data/chunk-000/episode_{number:06d}.parquet")
    report = inspect(root, decoders=pool).report
    assert [breach.rule.id for breach in report.breaches if breach.severity != "info"] == ["LR-STRUCT-010"]
    assert report.good


def test_other_files_beside_the_dataset_are_no_finding(tmp_path: Path, pool: Decoders) -> None:
    """Notes, pictures and archives are nobody's data."""
    root = lerobot.build(tmp_path / "in")
    for place in ("README.md", "data/notes.txt", "meta/backup.zip", f"videos/{CAMERA}/thumbnail.jpg"):
        (root / place).write_text("note")
    assert inspect(root, decoders=pool).report.breaches == ()


# words


def texts(report: Report) -> list[str]:
    return [f"{entry['message']} → {entry['advice']}" for entry in report.to_json()["findings"]]


def test_no_sentence_has_an_empty_list(tmp_path: Path, pool: Decoders) -> None:
    """A file that is needed by nobody, beside an episode table that cannot be read."""
    root = lerobot.build(tmp_path / "in")
    foreign(root, "data/chunk-000/file-005.parquet")
    lerobot.cut(root, EPISODES)
    said = texts(inspect(root, decoders=pool).report)
    assert said
    assert all("(episodes )" not in text and "episodes  " not in text for text in said)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        (drop(FIRST_DATA, "action"), "Write the column into every data file"),
        (forget("codebase_version"), "Write the codebase_version that the recorder used"),
        (lambda root: lerobot.change_info(root, codebase_version="v9.0"), "Update Forebay"),
        (lambda root: lerobot.double_column(root, FIRST_DATA, "action"), "each column once"),
    ],
)
def test_the_advice_is_that_of_the_case(change: Change, advice: str, tmp_path: Path, pool: Decoders) -> None:
    """One rule may be broken in ways that need other repairs."""
    root = lerobot.build(tmp_path / "in")
    change(root)
    assert any(advice in text for text in texts(inspect(root, decoders=pool).report))


def test_columns_that_are_neither_declared_nor_there_are_not_said_to_be_there(tmp_path: Path, pool: Decoders) -> None:
    """Both is reported: that info.json does not list them, and that the rows have none."""
    root = lerobot.build(tmp_path / "in")
    document: dict[str, Any] = json.loads((root / "meta/info.json").read_text())
    del document["features"]["index"]
    (root / "meta/info.json").write_text(json.dumps(document))
    for file in (FIRST_DATA, lerobot.SECOND_DATA):
        drop(file, "index")(root)
    said = " ".join(texts(inspect(root, decoders=pool).report))
    assert "column 'index' is missing" in said
    assert "every row has" not in said
