"""What recorders, merging tools and people do to a dataset: changes of a folder that a builder wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from . import pictures_builder as pictures
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, SECOND_DATA, SECOND_VIDEO


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "data").rglob("*.parquet"))


def times(time: Callable[[dict[str, Any]], float]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for file in files_of(root):
            lerobot.change_column(root, file, "timestamp", time)

    return change


def jitter(root: Path) -> None:
    random = Random(1)  # noqa: S311 no secret
    times(lambda row: row["timestamp"] + (random.uniform(-0.008, 0.008) if row["frame_index"] else 0.0))(root)


def lose_a_sample(root: Path) -> None:
    late = {0: 0.0, 1: 0.1}
    times(lambda row: row["timestamp"] + late[row["episode_index"] == 1 and row["frame_index"] > 2])(root)


def undeclare(*names: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        document = json.loads((root / "meta/info.json").read_text())
        document["features"] = {key: value for key, value in document["features"].items() if key not in names}
        (root / "meta/info.json").write_text(json.dumps(document))

    return change


def drop_frame_index(root: Path) -> None:
    for file in files_of(root):
        pq.write_table(pq.read_table(root / file).drop_columns(["frame_index"]), root / file)


def all_of(*changes: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for one in changes:
            one(root)

    return change


def copy(source: str, target: str) -> Callable[[Path], object]:
    return lambda root: shutil.copy(root / source, root / target)


def forget_to_count(root: Path) -> None:
    for file in files_of(root):
        lerobot.change_column(root, file, "episode_index", lambda _: 0)


def table(file: str, **columns: Any) -> Callable[[Path], object]:
    return lambda root: pq.write_table(pa.table(columns), root / file)


def statistics(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def rewrite(root: Path) -> None:
        document = json.loads((root / "meta/stats.json").read_text())
        change(document)
        (root / "meta/stats.json").write_text(json.dumps(document))

    return rewrite


def no_windows(root: Path) -> None:
    """A camera that the episode table has columns for, and no values."""
    for place in ("chunk_index", "file_index", "from_timestamp", "to_timestamp"):
        lerobot.change_column(root, EPISODES, f"videos/{CAMERA}/{place}", lambda _: None)


def turned(root: Path) -> None:
    """Tactile images of two rows and three columns, stored as three rows of two."""
    document = json.loads((root / "meta/info.json").read_text())
    document["features"]["observation.tactile"] = {"dtype": "float32", "shape": [2, 3], "names": None}
    (root / "meta/info.json").write_text(json.dumps(document))
    for file in files_of(root):
        rows = pq.read_table(root / file)
        values = np.random.default_rng(1).normal(size=(rows.num_rows, 3, 2)).tolist()
        column = pa.array(values, pa.list_(pa.list_(pa.float32())))
        pq.write_table(rows.append_column("observation.tactile", column), root / file)


def stick(row: dict[str, Any]) -> list[float]:
    return [0.5, 0.25, 0.125] if row["episode_index"] == 1 else list(row["action"])


def uncount(root: Path) -> None:
    lines = v2.read_lines(root / v2.EPISODE_STATS)
    for line in lines:
        del line["stats"]["action"]["count"]
    v2.write_lines(root / v2.EPISODE_STATS, lines)


def shorten_videos(root: Path) -> None:
    """What an encoder loses when it is closed too early."""
    for episode, part in enumerate(lerobot.PARTS):
        lerobot.write_video(root / v2.video_file(episode), part.length - 1)


def leftovers_of_v2(root: Path) -> None:
    """A conversion in place that did not clear away what it read."""
    other = v2.build(root.parent / "before")
    for path in [*(other / "data/chunk-000").iterdir(), other / v2.EPISODES]:
        shutil.copy(path, root / path.relative_to(other))


def table_of_v2(root: Path) -> None:
    shutil.rmtree(root / "meta/episodes")
    v2.write_lines(root / v2.EPISODES, [{"episode_index": 0, "tasks": ["a"], "length": 6}])


def recast(kind: Any, *columns: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        for file in files_of(root):
            rows = pq.read_table(root / file)
            for column in columns:
                place = rows.column_names.index(column)
                rows = rows.set_column(place, column, rows[column].cast(kind))
            pq.write_table(rows, root / file)

    return change


def halve(root: Path) -> None:
    recast(pa.float64(), "task_index")(root)
    for file in files_of(root):
        lerobot.change_column(root, file, "task_index", lambda row: row["task_index"] + 0.5)


def reorder(file: str, order: list[int]) -> Callable[[Path], None]:
    return lambda root: pq.write_table(pq.read_table(root / file).take(order), root / file)


def exchange_files(root: Path) -> None:
    first, second, aside = (root / name for name in (FIRST_DATA, SECOND_DATA, "aside"))
    for source, target in ((first, aside), (second, first), (aside, second)):
        source.rename(target)
    lerobot.change_column(root, EPISODES, "data/file_index", lambda row: 1 - row["data/file_index"])


def scramble(root: Path) -> None:
    lerobot.change_cell(root, EPISODES, 0, "dataset_to_index", 7)


def one_deeper(root: Path) -> None:
    root.rename(root.parent / "aside")
    root.mkdir()
    (root.parent / "aside").rename(root / "reach")


def late_video(root: Path) -> None:
    shown = pictures.scene(1, 4)
    pictures.write(root / SECOND_VIDEO, shown, times=[5 + number / 10 for number in range(4)])
    lerobot.change_feature(root, CAMERA, shape=[pictures.SIDE, pictures.SIDE, 3])
