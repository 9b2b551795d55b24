"""A version means what its sources mean: tasks by number in every column, files of meta/, fields per episode, names, splits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeRejected
from forebay.ingest.adapters import frame_batches, version_meaning
from forebay.ingest.domain import labels, version_commands
from forebay.ingest.domain.documents import Version, version_key
from forebay.ingest.errors import ReadBackError
from forebay.ingest.offline_conversion import Converted, convert_folder
from forebay.runtime.machine import NothingPending

from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from .lerobot_builder import EPISODES, PARTS
from .place import Place
from .simulated_log import PROJECT, request
from .stories import DATASET

INT = {"dtype": "int64", "shape": [1], "names": None}
SPARSE = {0: "unused pear", 3: "pick up the cube", 4: "valid", 9: "put it down"}
ANNOTATION, SUBTASK, MANY, NESTED = "annotation.human.validity", "subtask_index", "steps", "annotation.spans"
BINARY = bytes(range(256)) * 3


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


def _data_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in (root / "data").rglob("*.parquet"))


def _relabel(root: Path, tasks: dict[int, str] = SPARSE, *, with_table: bool = True) -> Path:
    """Give every row task numbers of a table with gaps and unused tasks, in four kinds of columns."""
    numbers = sorted(tasks)
    episode_tasks = {index: numbers[1 + index % 3] for index in range(len(PARTS))}
    for file in _data_files(root):
        table = pq.read_table(root / file)
        episodes: list[Any] = table["episode_index"].to_pylist()
        own = [episode_tasks[episode] for episode in episodes]
        table = table.set_column(table.schema.get_field_index("task_index"), "task_index", pa.array(own))
        other = [numbers[(episode + 2) % len(numbers)] for episode in episodes]
        table = table.append_column(ANNOTATION, pa.array(other))
        table = table.append_column(SUBTASK, pa.array([-1 if n % 5 == 0 else numbers[0] for n in range(len(own))]))
        table = table.append_column(MANY, pa.array([[a, b] for a, b in zip(own, other, strict=True)]))
        spans = [[{"start": 1, "task_index": number}] for number in other]
        table = table.append_column(NESTED, pa.array(spans))
        pq.write_table(table, root / file)
    document = json.loads((root / "meta/info.json").read_text())
    features = document["features"] | {
        ANNOTATION: INT,
        SUBTASK: INT,
        MANY: {"dtype": "int64", "shape": [2], "names": ["first_task_index", "second_task_index"]},
        NESTED: {"dtype": "language", "shape": [1], "names": None},
    }
    lerobot.change_info(root, features=features, total_tasks=len(tasks))
    if with_table:
        _write_tasks(root, tasks)
    _write_texts(root, {index: [tasks[number]] for index, number in episode_tasks.items()})
    return root


def _write_tasks(root: Path, tasks: dict[int, str]) -> None:
    if (root / "meta/tasks.jsonl").exists():
        v2.write_lines(root / "meta/tasks.jsonl", [{"task_index": n, "task": text} for n, text in tasks.items()])
    else:
        pq.write_table(pa.table({"task_index": [*tasks], "task": [*tasks.values()]}), root / "meta/tasks.parquet")


def _write_texts(root: Path, texts: dict[int, list[str]]) -> None:
    if (root / v2.EPISODES).exists():
        lines = v2.read_lines(root / v2.EPISODES)
        v2.write_lines(root / v2.EPISODES, [line | {"tasks": texts[line["episode_index"]]} for line in lines])
    else:
        lerobot.change_rows(root, EPISODES, lambda rows: [r | {"tasks": texts[r["episode_index"]]} for r in rows])


def _named(value: Any, tasks: dict[int, str], *, named: bool = True) -> Any:
    """A value with the text of each task in place of its number."""
    if isinstance(value, dict):
        return {key: _named(entry, tasks, named="task_index" in key) for key, entry in value.items()}
    if isinstance(value, list):
        return [_named(entry, tasks, named=named) for entry in value]
    return tasks[value] if named and value >= 0 else value


def _meanings(rows: list[dict[str, Any]], tasks: dict[int, str], dot: str = ".") -> list[list[Any]]:
    keys = ["task_index", *(key.replace(".", dot) for key in (ANNOTATION, SUBTASK, MANY, NESTED))]
    return [[_named(row[key], tasks) for key in keys] for row in rows]


def _of_source(root: Path, tasks: dict[int, str]) -> list[list[Any]]:
    rows = [row for file in _data_files(root) for row in pq.read_table(root / file).to_pylist()]
    return _meanings(rows, tasks)


def _tasks_by_place(root: Path) -> dict[int, str]:
    """As LeRobot takes them."""
    table = pq.read_table(root / "meta/tasks.parquet")
    assert table["task_index"].to_pylist() == [*range(table.num_rows)]
    texts: list[Any] = table["task"].to_pylist()
    return dict(enumerate(texts))


def _of_version(root: Path) -> list[list[Any]]:
    rows = lance.dataset(str(root / "frames.lance")).to_table().to_pylist()
    return _meanings(rows, _tasks_by_place(root), dot="_")


def _convert(root: Path, out: Path) -> Converted:
    return convert_folder(root, out, _silent)


@pytest.mark.parametrize("build", [lerobot.build, v2.build, lambda root: v2.build(root, "v2.0")])
def test_every_column_names_the_same_tasks(build: Callable[[Path], Path], tmp_path: Path) -> None:
    """Rows keep the texts that they name in columns of any shape; tasks that no row uses stay in the table."""
    root = _relabel(build(tmp_path / "in"))
    made = _convert(root, tmp_path / "out")
    assert _of_version(tmp_path / "out") == _of_source(root, SPARSE)
    tasks = _tasks_by_place(tmp_path / "out")
    assert {number: tasks[number] for number in SPARSE} == SPARSE
    assert any("has no tasks 1, 2" in note for note in made.version.notes)
    listed = pq.read_table(tmp_path / "out" / EPISODES)["tasks"].to_pylist()
    assert listed == [["pick up the cube"], ["valid"], ["put it down"]]


def test_numbers_too_large_to_keep_are_mapped(tmp_path: Path) -> None:
    """Numbers that were hashes become small ones, in all columns that name tasks, and the version says so."""
    tasks = {7: "a", 123_456_789: "b", 2**40: "c", 2**50: "d"}
    root = _relabel(lerobot.build(tmp_path / "in"), tasks)
    made = _convert(root, tmp_path / "out")
    assert _of_version(tmp_path / "out") == _of_source(root, tasks)
    assert [*_tasks_by_place(tmp_path / "out").values()] == ["a", "b", "c", "d"]
    assert any("123456789 is now 1" in note and SUBTASK in note for note in made.version.notes)


def test_equal_texts_and_notes_of_tasks_stay(tmp_path: Path) -> None:
    """Two tasks with one text stay two, and what the task table says beside texts is kept."""
    root = v2.build(tmp_path / "in")
    lines = [{"task_index": n, "task": "pick", "level": {"hard": n}} for n in range(3)]
    v2.write_lines(root / "meta/tasks.jsonl", lines)
    v2.write_lines(root / v2.EPISODES, [line | {"tasks": ["pick"]} for line in v2.read_lines(root / v2.EPISODES)])
    _convert(root, tmp_path / "out")
    table = pq.read_table(tmp_path / "out/meta/tasks.parquet").to_pydict()
    assert table["task"] == ["pick"] * 3
    assert table["level"] == [{"hard": 0}, {"hard": 1}, {"hard": 2}]
    rows = lance.dataset(str(tmp_path / "out/frames.lance")).to_table(columns=["task_index"])
    assert rows["task_index"].to_pylist() == [0] * 6 + [1] * 5 + [0] * 4


def _add_files(root: Path) -> dict[str, bytes]:
    """Files below meta/ that nobody here knows."""
    files = {
        "meta/modality.json": json.dumps({"annotation": {"human.validity": {}}}).encode(),
        "meta/calibration/left.bin": BINARY,
        "meta/calibration/deep/er/right": b"",
        "meta/embodiment.json": b"\xef\xbb\xbfnot { json",
        "meta/episodes/README.md": b"notes",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return files


@pytest.mark.parametrize("build", [lerobot.build, v2.build])
def test_unknown_files_are_carried_along(build: Callable[[Path], Path], tmp_path: Path) -> None:
    """Byte for byte, at their place, listed and in the manifest; files beside the dataset are named as left out."""
    root = build(tmp_path / "in")
    files = _add_files(root)
    (root / "README.md").write_text("a card")
    made = _convert(root, tmp_path / "out")
    kept = {name: content for name, content in files.items() if name != "meta/episodes/README.md"}
    assert {name: (tmp_path / "out" / name).read_bytes() for name in kept} == kept
    moved = next(name for name in made.version.carried if name not in kept)
    assert (tmp_path / "out" / moved).read_bytes() == b"notes"
    assert sorted(made.version.carried) == sorted([*kept, moved])
    assert any("left out: README.md" in note for note in made.version.notes)
    manifest = {e["path"] for e in json.loads((tmp_path / "out/forebay-manifest.json").read_bytes())["files"]}
    assert manifest >= {*kept, moved}
    copies = {row["path"] for row in lance.dataset(str(tmp_path / "out/meta.lance")).to_table().to_pylist()}
    assert "calibration/left.bin" in copies


FIELDS: dict[str, list[Any]] = {
    "scene": ["left", None, "right"],
    "segments": [[{"start": 0, "text": "go"}], [], [{"start": 1, "text": "put"}, {"start": 2, "text": "end"}]],
    "mixed": [1, "two", {"three": [3.5, None]}],
    "sometimes": [{"a": 1}, {"b": {}}, None],
    "huge": [2**70, 1, 2],
    "flag": [True, False, True],
}


def _field(root: Path, name: str) -> list[Any]:
    values = pq.read_table(root / EPISODES)[name].to_pylist()
    typed = name in {"scene", "segments", "flag"}
    return values if typed else [v if v is None or not isinstance(v, str) else _json(v) for v in values]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_unknown_fields_per_episode_stay_v2(tmp_path: Path) -> None:
    """Whatever JSON a line holds: typed where a column can hold it exactly, JSON text where none can."""
    root = v2.build(tmp_path / "in")
    lines = v2.read_lines(root / v2.EPISODES)
    v2.write_lines(
        root / v2.EPISODES,
        [line | {name: values[n] for name, values in FIELDS.items()} for n, line in enumerate(lines)],
    )
    _convert(root, tmp_path / "out")
    assert {name: _field(tmp_path / "out", name) for name in FIELDS} == FIELDS


def test_unknown_fields_per_episode_stay_v3(tmp_path: Path) -> None:
    """Columns keep their types; statistics of features that are not there are named as left out."""
    root = lerobot.build(tmp_path / "in")
    table = pq.read_table(root / EPISODES)
    table = table.append_column("quality", pa.array([0.5, 0.25, None], pa.float32()))
    table = table.append_column("key_frames", pa.array([[1], [], [2, 3]], pa.list_(pa.int16())))
    table = table.append_column("stats/gone/mean", pa.array([[0.0]] * 3))
    pq.write_table(table, root / EPISODES)
    made = _convert(root, tmp_path / "out")
    stored = pq.read_table(tmp_path / "out" / EPISODES)
    assert (stored.schema.field("quality").type, stored["quality"].to_pylist()) == (pa.float32(), [0.5, 0.25, None])
    assert stored["key_frames"].to_pylist() == [[1], [], [2, 3]]
    assert any("stats/gone" in note for note in made.version.notes)


def test_undeclared_columns_are_named(tmp_path: Path) -> None:
    """A column that info.json does not declare is left out, and the version says so."""
    root = lerobot.build(tmp_path / "in")
    for file in _data_files(root):
        table = pq.read_table(root / file)
        pq.write_table(table.append_column("secret_sauce", pa.array(np.zeros(table.num_rows))), root / file)
    assert any("secret_sauce" in note for note in _convert(root, tmp_path / "out").version.notes)


def test_splits_stay(tmp_path: Path) -> None:
    """Episodes stay in the split that the dataset put them into."""
    root = lerobot.build(tmp_path / "in")
    lerobot.change_info(root, splits={"train": "0:2", "test": "2:3"})
    _convert(root, tmp_path / "out")
    assert json.loads((tmp_path / "out/meta/info.json").read_text())["splits"] == {"train": "0:2", "test": "2:3"}


def test_a_changed_meaning_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read-back finds a column whose numbers were left as they were, and one whose names moved."""
    tasks = {7: "a", 123_456_789: "b", 2**40: "c", 2**50: "d"}
    root = _relabel(lerobot.build(tmp_path / "in"), tasks)
    with monkeypatch.context() as patched:
        patched.setattr(frame_batches, "renumbered", lambda column, *_, **__: column)
        with pytest.raises(ReadBackError, match="read back differently"):
            _convert(root, tmp_path / "out")
    names = labels.names_of
    swapped = lambda info, key: names(info, key)[:: -1 if info.document.get("storage_format") else 1]  # noqa: E731
    monkeypatch.setattr(version_meaning, "names_of", swapped)
    with pytest.raises(ReadBackError, match="other names"):
        _convert(root, tmp_path / "out")


# uploads and versions of versions


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.log.files_whole = False
    return made


def _root(place: Place, number: int) -> Path:
    version = place.log.state.get(Version, version_key(PROJECT, DATASET, number))
    assert version is not None
    return Path(version.root)


def _committed(place: Place, number: int) -> DatasetVersionCommitted:
    return next(body for body in place.log.of(DatasetVersionCommitted) if body.number == number)


async def test_a_second_upload_with_other_numbers(place: Place, tmp_path: Path) -> None:
    """Its task numbers are mapped in every column that names tasks; the first upload's rows stay as they are."""
    first = _relabel(lerobot.build(tmp_path / "one"))
    place.upload(first)
    await place.work()
    other = {0: "valid", 1: "put it down", 2: "brush", 3: "unused pear", 4: "never used"}
    second = _relabel(v2.build(tmp_path / "two", seed=5), other)
    lines = v2.read_lines(second / v2.EPISODES)
    v2.write_lines(second / v2.EPISODES, [line | {"best_task_index": 1, "scene": "x"} for line in lines])
    place.upload(second, "up-2")
    await place.work()
    version = _root(place, 2)
    assert _of_version(version) == [*_of_source(first, SPARSE), *_of_source(second, other)]
    tasks = _tasks_by_place(version)
    assert {number: tasks[number] for number in SPARSE} == SPARSE
    assert set(other.values()) <= set(tasks.values())
    table = pq.read_table(version / EPISODES)
    assert [n if n is None else tasks[n] for n in table["best_task_index"].to_pylist()] == [None] * 3 + [
        "put it down"
    ] * 3
    assert table["scene"].to_pylist() == [None] * 3 + ["x"] * 3
    assert any("task numbers of up-2" in note for note in _committed(place, 2).notes or ())


async def test_a_second_upload_that_names_a_task_of_no_table(place: Place, tmp_path: Path) -> None:
    """The episode that names it is rejected, the others make the next version, and nothing waits for a person."""
    place.upload(_relabel(lerobot.build(tmp_path / "one")))
    await place.work()
    second = _relabel(
        v2.build(tmp_path / "two", seed=5), {0: "valid", 1: "put it down", 2: "brush", 3: "unused", 4: "none"}
    )
    file = second / v2.data_file(1)
    table = pq.read_table(file)
    column = table.column_names.index(ANNOTATION)
    wrong = pa.array([77] * table.num_rows, table.schema.field(column).type)
    pq.write_table(table.set_column(column, table.schema.field(column), wrong), file)
    place.upload(second, "up-2")
    await place.work()
    (rejected,) = place.log.of(EpisodeRejected)
    assert rejected.source_index == 1
    assert [finding.rule for finding in rejected.findings] == ["LR-TASK-001"]
    assert f"{ANNOTATION} names task 77" in rejected.findings[0].message
    assert _committed(place, 2).episode_count == 3 + 2


async def test_a_second_upload_with_other_notes(place: Place, tmp_path: Path) -> None:
    """What it says otherwise is kept beside, named on record, and nothing of the first is overwritten."""
    first, second = lerobot.build(tmp_path / "one"), lerobot.build(tmp_path / "two", seed=5)
    lerobot.change_info(second, robot_type="other_arm", operator="ada")
    for root, text in ((first, b"1"), (second, b"2")):
        (root / "meta/calibration").mkdir()
        (root / "meta/calibration/arm.bin").write_bytes(text)
    place.upload(first)
    place.upload(second, "up-2")
    await place.work()
    version = _root(place, 2)
    assert json.loads((version / "meta/info.json").read_text())["robot_type"] == "tiny_arm"
    kept = version / "meta/uploads/up-2"
    assert json.loads((kept / "info.json").read_text())["robot_type"] == "other_arm"
    assert [(version / "meta/calibration/arm.bin").read_bytes(), (kept / "calibration/arm.bin").read_bytes()] == [
        b"1",
        b"2",
    ]
    body = _committed(place, 2)
    assert set(body.carried or ()) == {
        "meta/calibration/arm.bin",
        "meta/uploads/up-2/calibration/arm.bin",
        "meta/uploads/up-2/info.json",
    }
    assert any("other_arm" in note and "operator" in note for note in (body.notes or ()))


def _other_order(root: Path) -> None:
    lerobot.change_feature(root, "action", names=["joint_1", "joint_0", "joint_2"])


def _other_modality(root: Path) -> None:
    (root / "meta/modality.json").write_text(json.dumps({"state": {"arm": {"start": 1, "end": 3}}}))


def _other_subtasks(root: Path) -> None:
    pq.write_table(pa.table({"subtask_index": [0, 1], "subtask": ["reach", "lift"]}), root / "meta/subtasks.parquet")


@pytest.mark.parametrize(
    ("change", "says"),
    [(_other_order, "value 0 is 'joint_0'"), (_other_modality, "modality.json"), (_other_subtasks, "means 'grasp'")],
)
async def test_an_upload_that_means_something_else(
    place: Place, tmp_path: Path, change: Callable[[Path], None], says: str
) -> None:
    """Equal columns with other meanings never share a table: the upload is refused, with what differs."""
    for number, upload in enumerate(("up-1", "up-2")):
        root = lerobot.build(tmp_path / upload, seed=number)
        (root / "meta/modality.json").write_text(json.dumps({"state": {"arm": {"start": 0, "end": 3}}}))
        subtasks = {"subtask_index": [0, 1], "subtask": ["reach", "grasp"]}
        pq.write_table(pa.table(subtasks), root / "meta/subtasks.parquet")
        for file in _data_files(root):
            table = pq.read_table(root / file)
            pq.write_table(table.append_column("subtask_index", pa.array([1] * table.num_rows)), root / file)
        lerobot.change_info(
            root, features=json.loads((root / "meta/info.json").read_text())["features"] | {"subtask_index": INT}
        )
        if number:
            change(root)
        place.upload(root, upload)
        await place.work()
    refused = place.log.of(EpisodeRejected)
    assert len(refused) == 3
    assert all(any(f.rule == "LR-DATASET-001" and says in f.message for f in body.findings) for body in refused)
    assert len(place.log.of(DatasetVersionCommitted)) == 1


async def test_a_table_of_labels_may_grow(place: Place, tmp_path: Path) -> None:
    """An upload whose subtasks have all that the dataset has, and more, brings the new table."""
    for number, upload in enumerate(("up-1", "up-2")):
        root = lerobot.build(tmp_path / upload, seed=number)
        features = json.loads((root / "meta/info.json").read_text())["features"]
        for file in _data_files(root):
            table = pq.read_table(root / file)
            pq.write_table(table.append_column(SUBTASK, pa.array([number] * table.num_rows)), root / file)
        lerobot.change_info(root, features=features | {SUBTASK: INT})
        v2.write_lines(
            root / "meta/subtasks.jsonl", [{"subtask_index": n, "subtask": f"s{n}"} for n in range(number + 1)]
        )
        place.upload(root, upload)
        await place.work()
    version = _root(place, 2)
    assert [line["subtask"] for line in v2.read_lines(version / "meta/subtasks.jsonl")] == ["s0", "s1"]
    rows = lance.dataset(str(version / "frames.lance")).to_table(columns=[SUBTASK])
    assert rows[SUBTASK].to_pylist() == [0] * 15 + [1] * 15


@pytest.mark.parametrize("how", ["derive", "rewrite", "compact"])
async def test_versions_of_versions_mean_the_same(place: Place, tmp_path: Path, how: str) -> None:
    """Fewer episodes or one file of rows: numbers, tasks, carried files, fields and splits stay as they were."""
    root = _relabel(lerobot.build(tmp_path / "one"))
    files = _add_files(root)
    lerobot.change_info(root, splits={"train": "0:2", "test": "2:3"})
    table = pq.read_table(root / EPISODES)
    pq.write_table(table.append_column("scene", pa.array([{"x": n} for n in range(3)])), root / EPISODES)
    place.upload(root)
    await place.work()
    if how == "compact":
        second = _relabel(lerobot.build(tmp_path / "two", seed=4))
        lerobot.change_info(second, splits={"test": "0:3"})
        place.upload(second, "up-2")
        await place.work()
        command = version_commands.compact(
            place.log.state, NothingPending(), request({"dataset": DATASET, "reason": "many"}, "c1")
        )
    else:
        args = {"dataset": DATASET, "reason": "bad", "exclude": [1], "rewrite": how == "rewrite"}
        command = version_commands.derive(place.log.state, NothingPending(), request(args, "d1"))
    base = _root(place, len(place.log.of(DatasetVersionCommitted)))
    before = _of_version(base)
    place.log.command(command)
    await place.work()
    version = _root(place, len(place.log.of(DatasetVersionCommitted)))
    assert version != base
    assert _tasks_by_place(version) == _tasks_by_place(base)
    assert _of_version(version) == (before if how == "compact" else [*before[:6], *before[11:]])
    assert (version / "meta/calibration/left.bin").read_bytes() == files["meta/calibration/left.bin"]
    scenes = pq.read_table(version / EPISODES)["scene"].to_pylist()
    splits = json.loads((version / "meta/info.json").read_text())["splits"]
    if how == "compact":
        assert (scenes, splits) == ([{"x": 0}, {"x": 1}, {"x": 2}, None, None, None], {"train": "0:2", "test": "2:6"})
    else:
        assert (scenes, splits) == ([{"x": 0}, {"x": 2}], {"train": "0:1", "test": "1:2"})
