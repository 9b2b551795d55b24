"""What recorders, merging tools and file systems do to datasets: no good frame is refused for it, and nothing is lost in silence.

Each kind is taken from a public report. `SOUND` must be accepted, at most with the
named rules as warnings, and must come through a conversion with its read-back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.adapters.decoders import Decoders
from forebay.ingest.inspection import inspect
from forebay.ingest.offline_conversion import convert_folder

from . import images_builder
from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, SECOND_DATA, TASKS

DATA = (FIRST_DATA, SECOND_DATA)
SHADOW = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        " + bytes(60)
"""The head of an AppleDouble file."""
LENGTHS = tuple(part.length for part in lerobot.PARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A way that datasets come in, and what may be said about it."""

    change: Callable[[Path], object]
    warns: tuple[str, ...] = ()
    version: str = "v3.0"


def all_of(*changes: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for one in changes:
            one(root)

    return change


def change_table(root: Path, file: str, change: Callable[[Any], Any]) -> None:
    pq.write_table(change(pq.read_table(root / file)), root / file)


def set_column(table: Any, name: str, values: Any) -> Any:
    if name in table.schema.names:
        return table.set_column(table.schema.get_field_index(name), name, values)
    return table.append_column(name, values)


def recast(root: Path, column: str, kind: Any, files: tuple[str, ...] = DATA) -> None:
    for file in files:
        change_table(root, file, lambda table: set_column(table, column, table[column].cast(kind)))


def add_feature(root: Path, key: str, dtype: str, shape: list[int], values: Callable[[int], Any]) -> None:
    """A column with `values(rows)` in every data file, declared in info.json."""
    document = json.loads((root / "meta/info.json").read_text())
    document["features"][key] = {"dtype": dtype, "shape": shape, "names": None}
    (root / "meta/info.json").write_text(json.dumps(document))
    for file in DATA:
        change_table(root, file, lambda table: set_column(table, key, values(table.num_rows)))


def rename(root: Path, names: dict[str, str]) -> None:
    document = json.loads((root / "meta/info.json").read_text())
    document["features"] = {names.get(key, key): value for key, value in document["features"].items()}
    (root / "meta/info.json").write_text(json.dumps(document))
    stats = json.loads((root / "meta/stats.json").read_text())
    (root / "meta/stats.json").write_text(json.dumps({names.get(key, key): value for key, value in stats.items()}))
    for file in DATA:
        change_table(root, file, lambda table: table.rename_columns([names.get(n, n) for n in table.column_names]))


def whole_numbers_as_floats(root: Path) -> None:
    lerobot.change_info(root, total_episodes=3.0, total_frames=float(sum(LENGTHS)), total_tasks=2.0, chunks_size=1000.0)
    lerobot.change_feature(root, "action", shape=[3.0])


def entries_as_floats(root: Path) -> None:
    def settle(table: Any) -> Any:
        for column in ("length", "data/file_index", f"videos/{CAMERA}/file_index"):
            table = set_column(table, column, table[column].cast(pa.float64()))
        return table

    change_table(root, EPISODES, settle)


def renumber(number: Callable[[int], int]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for file in (*DATA, EPISODES):
            lerobot.change_column(root, file, "episode_index", lambda row: number(row["episode_index"]))

    return change


def shadows(root: Path) -> None:
    for path in [*root.rglob("*")]:
        if path.is_file():
            (path.parent / f"._{path.name}").write_bytes(SHADOW)


def backup_below_data(root: Path) -> None:
    shutil.copytree(root / "data", root / "copy")
    (root / "copy").rename(root / "data/backup")


def litter(root: Path) -> None:
    for name in (".DS_Store", "meta/.DS_Store", "data/chunk-000/.DS_Store", "Thumbs.db", "desktop.ini", "README.md"):
        (root / name).write_bytes(b"\0\0\0\1Bud1")
    (root / "__MACOSX/data").mkdir(parents=True)
    (root / "__MACOSX/data/._file-000.parquet").write_bytes(SHADOW)


def texts(rows: int) -> list[str]:
    return [f"step {number % 2}" for number in range(rows)]


def language(root: Path) -> None:
    """The annotation columns of LeRobot: rows of any number, most of them empty."""
    persistent: Any = pa.list_(
        pa.struct(
            [("role", pa.string()), ("content", pa.string()), ("timestamp", pa.float32()), ("camera", pa.string())]
        )
    )
    events: Any = pa.list_(pa.struct([("role", pa.string()), ("tool_calls", pa.list_(pa.string()))]))
    plan = [{"role": "user", "content": text, "timestamp": 0.0, "camera": None} for text in ("grasp", None)]
    said = [{"role": "user", "tool_calls": None}, {"role": "assistant", "tool_calls": ["stop", None]}]
    add_feature(root, "language_persistent", "language", [1], lambda rows: pa.array([plan] * rows, persistent))
    add_feature(
        root, "language_events", "language", [1], lambda rows: pa.array([said] + [[]] * (rows - 2) + [None], events)
    )


def strings_of_two_types(root: Path) -> None:
    add_feature(root, "note", "string", [1], lambda rows: pa.array(texts(rows)))
    recast(root, "note", pa.large_string(), (SECOND_DATA,))


def gap_in_v2(root: Path) -> None:
    (root / v2.data_file(2)).rename(root / v2.data_file(5))
    (root / v2.video_file(2)).rename(root / v2.video_file(5))
    lerobot.change_column(root, v2.data_file(5), "episode_index", lambda _row: 5)
    for file in (v2.EPISODES, v2.EPISODE_STATS):
        v2.change_line(root, file, 2, episode_index=5)


def numbers_in_other_widths(root: Path) -> None:
    recast(root, "index", pa.int32())
    recast(root, "timestamp", pa.float64())


def rows_counted_per_file(root: Path) -> None:
    for episode in range(3):
        lerobot.change_column(root, v2.data_file(episode), "index", lambda row: row["frame_index"])


def deleted_rows(root: Path) -> None:
    """Episodes were taken out, and the rows behind them kept their numbers."""
    lerobot.change_column(root, SECOND_DATA, "index", lambda row: row["index"] + 7)
    for column in ("dataset_from_index", "dataset_to_index"):
        lerobot.change_cell(root, EPISODES, 2, column, {"dataset_from_index": 18, "dataset_to_index": 22}[column])


def task_table(**columns: Any) -> Callable[[Path], None]:
    return lambda root: pq.write_table(pa.table({"task_index": [0, 1], **columns}), root / "meta/tasks.parquet")


SOUND: dict[str, Kind] = {
    "whole numbers written as floats": Kind(change=whole_numbers_as_floats, warns=("LR-FORMAT-001",)),
    "splits that are lists": Kind(
        change=lambda root: lerobot.change_info(root, splits={"train": [0, 1, 2]}), warns=("LR-META-001",)
    ),
    "splits in percent": Kind(change=lambda root: lerobot.change_info(root, splits="80%"), warns=("LR-META-001",)),
    "splits that are null": Kind(change=lambda root: lerobot.change_info(root, splits=None)),
    "a stale number of tasks": Kind(
        change=lambda root: lerobot.change_info(root, total_tasks=1), warns=("LR-META-001",)
    ),
    "a version with a patch number": Kind(change=lambda root: lerobot.change_info(root, codebase_version="3.0.1")),
    "tasks as categories": Kind(change=task_table(task=pa.array([*TASKS]).dictionary_encode())),
    "tasks as the index of pandas": Kind(change=task_table(__index_level_0__=[*TASKS])),
    "floats in the episode table": Kind(change=entries_as_floats, warns=("LR-EPISODE-003",)),
    "a hole between the episodes": Kind(change=renumber(lambda n: 5 if n == 2 else n), warns=("LR-EPISODE-005",)),
    "episodes counted from 1": Kind(change=renumber(lambda n: n + 1), warns=("LR-EPISODE-005",)),
    "rows that kept their numbers when others went": Kind(change=deleted_rows, warns=("LR-SIGNAL-004",)),
    "files that macOS wrote beside the others": Kind(change=shadows, warns=("LR-STRUCT-010",)),
    "a backup below data": Kind(change=backup_below_data, warns=("LR-STRUCT-010",)),
    "litter of file systems": Kind(change=litter),
    "numbers in other widths": Kind(change=numbers_in_other_widths),
    "actions in float64 in one file": Kind(
        change=lambda root: recast(root, "action", pa.list_(pa.float64(), 3), (FIRST_DATA,)), warns=("LR-STRUCT-005",)
    ),
    "actions in float64 in the other file": Kind(
        change=lambda root: recast(root, "action", pa.list_(pa.float64(), 3), (SECOND_DATA,)), warns=("LR-STRUCT-005",)
    ),
    "texts of two types": Kind(change=strings_of_two_types),
    "texts as categories": Kind(
        change=lambda root: add_feature(root, "note", "string", [1], lambda n: pa.array(texts(n)).dictionary_encode())
    ),
    "texts in lists of one": Kind(
        change=lambda root: add_feature(root, "note", "string", [1], lambda n: pa.array([[text] for text in texts(n)]))
    ),
    "texts in lists of two": Kind(
        change=lambda root: add_feature(root, "note", "string", [2], lambda n: pa.array([[t, t] for t in texts(n)]))
    ),
    "texts that are missing in some rows": Kind(
        change=lambda root: add_feature(root, "note", "string", [1], lambda n: pa.array([None, *texts(n - 1)])),
        warns=("LR-SIGNAL-002",),
    ),
    "language columns": Kind(change=language),
    "signals by the names of openpi": Kind(
        change=lambda root: rename(root, {"action": "actions", "observation.state": "state"})
    ),
    "a hole in v2.1": Kind(change=gap_in_v2, warns=("LR-EPISODE-005",), version="v2.1"),
    "rows counted per file in v2.1": Kind(change=rows_counted_per_file, warns=("LR-SIGNAL-004",), version="v2.1"),
    "a length as a float in v2.1": Kind(
        change=lambda root: v2.change_line(root, v2.EPISODES, 0, length=6.0), warns=("LR-EPISODE-003",), version="v2.1"
    ),
    "files of macOS in v2.1": Kind(change=shadows, warns=("LR-STRUCT-010",), version="v2.1"),
}


@pytest.fixture(scope="module")
def pool() -> Any:
    with Decoders() as decoders:
        yield decoders


@pytest.mark.parametrize("name", SOUND)
def test_sound_data_is_accepted_and_comes_through_a_conversion(name: str, tmp_path: Path, pool: Decoders) -> None:
    """Nothing worse than the named warnings, and every row is in the version."""
    kind = SOUND[name]
    root = lerobot.build(tmp_path / "in") if kind.version == "v3.0" else v2.build(tmp_path / "in", kind.version)
    kind.change(root)
    report = inspect(root, decoders=pool).report
    told = {(breach.rule.id, breach.severity) for breach in report.breaches}
    assert told == {(rule, "warning") for rule in kind.warns}
    assert [episode.outcome in {"accept", "accept_with_warning"} for episode in report.episodes] == [True] * 3
    done = convert_folder(root, tmp_path / "out", lambda *_: None)
    assert done.plan.frames == sum(LENGTHS)


def test_files_of_two_types_keep_the_wider_one(tmp_path: Path) -> None:
    """float32 rows are the same numbers in float64; the other way round they would not be."""
    root = lerobot.build(tmp_path / "in")
    exact = float(np.float64(1) / 3)
    recast(root, "action", pa.list_(pa.float64(), 3), (SECOND_DATA,))
    lerobot.change_cell(root, SECOND_DATA, 1, "action", [exact, 0.0, 0.0])
    convert_folder(root, tmp_path / "out", lambda *_: None)
    table = lance.dataset(str(tmp_path / "out/frames.lance")).to_table()
    assert table.schema.field("action").type == pa.list_(pa.float64(), 3)
    assert table["action"][sum(LENGTHS[:2]) + 1].as_py()[0] == exact


def zero_actions(*names: str) -> Callable[[Path], None]:
    """The first episode's."""

    def zero(row: dict[str, Any]) -> dict[str, Any]:
        return row if row["episode_index"] else {**row, **{name: [0.0] * 3 for name in names}}

    return lambda root: lerobot.change_rows(root, FIRST_DATA, lambda rows: [zero(row) for row in rows])


def split_action(root: Path) -> None:
    """Two arms with a column each."""
    rename(root, {"action": "action.left", "observation.state": "action.right"})


OPENPI = {"action": "actions", "observation.state": "state"}


def claim_rows_twice(root: Path) -> None:
    lerobot.change_column(root, SECOND_DATA, "index", lambda row: row["index"] - 11)
    lerobot.change_cell(root, EPISODES, 2, "dataset_from_index", 0)
    lerobot.change_cell(root, EPISODES, 2, "dataset_to_index", 4)


BROKEN: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "NaN in openpi's actions": (
        all_of(
            lambda root: rename(root, OPENPI),
            lambda root: lerobot.change_cell(root, FIRST_DATA, 2, "actions", [float("nan"), 1.0, 2.0]),
        ),
        "reject",
        "LR-SIGNAL-001",
    ),
    "openpi's actions all zero": (
        all_of(lambda root: rename(root, OPENPI), zero_actions("actions")),
        "hold",
        "LR-SIGNAL-005",
    ),
    "both halves of the action zero": (
        all_of(split_action, zero_actions("action.left", "action.right")),
        "hold",
        "LR-SIGNAL-005",
    ),
    "two episodes claim the same rows": (claim_rows_twice, "reject", "LR-SIGNAL-004"),
    "a second copy of the rows where readers look": (
        lambda root: shutil.copy(root / FIRST_DATA, root / "data/chunk-000/file-000 (1).parquet"),
        "reject",
        "LR-STRUCT-006",
    ),
    "missing numbers are no missing texts": (
        lambda root: add_feature(
            root, "force", "float32", [1], lambda n: pa.array([None, *[1.0] * (n - 1)], pa.float32())
        ),
        "reject",
        "LR-SIGNAL-002",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_looks_like_a_habit_and_is_none(name: str, tmp_path: Path, pool: Decoders) -> None:
    """The same places, truly broken."""
    change, outcome, rule = BROKEN[name]
    root = lerobot.build(tmp_path)
    change(root)
    report = inspect(root, decoders=pool).report
    assert report.outcome == outcome
    assert rule in {breach.rule.id for breach in report.breaches if breach.severity != "warning"}


def test_one_parked_arm_is_no_dead_action(tmp_path: Path, pool: Decoders) -> None:
    """Of an action in two columns, one may be zero."""
    root = lerobot.build(tmp_path)
    split_action(root)
    zero_actions("action.left")(root)
    assert inspect(root, decoders=pool).report.outcome == "accept"


def test_the_later_episode_is_blamed_for_claiming_rows(tmp_path: Path, pool: Decoders) -> None:
    """The one that was there first is good."""
    root = lerobot.build(tmp_path)
    claim_rows_twice(root)
    assert [episode.outcome for episode in inspect(root, decoders=pool).report.episodes] == [
        "accept",
        "accept",
        "reject",
    ]


def depth(episode: int, frame: int, codec: str) -> bytes:
    """Millimetres of a room, in 16 bits."""
    table = np.random.default_rng([episode, frame]).integers(0, 8, (images_builder.SIDE, images_builder.SIDE)) * 500
    return images_builder.encode(table.astype(np.uint16), codec)


@pytest.mark.parametrize("codec", ["png", "tiff"])
def test_depth_in_16_bits_is_looked_at_in_its_own_unit(codec: str, tmp_path: Path, pool: Decoders) -> None:
    """A room of four metres uses a sixteenth of the range, and still it moves; one that stands still is held."""

    def moving(episode: int, frame: int, _content: bytes) -> dict[str, Any]:
        return {"bytes": depth(episode, frame, codec), "path": None}

    def frozen(episode: int, _frame: int, _content: bytes) -> dict[str, Any]:
        return {"bytes": depth(episode, 0, codec), "path": None}

    for name, edit, outcome in (("moving", moving, "accept"), ("frozen", frozen, "hold")):
        root = images_builder.build(tmp_path / name, edit)
        lerobot.change_feature(root, images_builder.KEY, shape=[images_builder.SIDE, images_builder.SIDE, 1])
        assert inspect(root, decoders=pool).report.outcome == outcome
    cut = images_builder.build(tmp_path / "cut", lambda e, f, _c: {"bytes": depth(e, f, codec)[:600], "path": None})
    assert inspect(cut, decoders=pool).report.outcome == "reject"


def test_what_every_file_repeats_is_told_once(tmp_path: Path, pool: Decoders) -> None:
    """A warning per file would bury the others."""
    root = v2.build(tmp_path)
    for episode in range(3):
        lerobot.change_column(
            root, v2.data_file(episode), "action", lambda row: [round(value) for value in row["action"]]
        )
        change_table(
            root, v2.data_file(episode), lambda t: set_column(t, "action", t["action"].cast(pa.list_(pa.int64())))
        )
    found = [b for b in inspect(root, decoders=pool).report.breaches if b.rule.id == "LR-STRUCT-005"]
    assert [(b.episodes, "the same in 2 more files" in b.message) for b in found] == [((0, 1, 2), True)]
