"""Writes a tiny LeRobot v3.0 dataset, and breaks it in named ways.

Two episodes share the first video file, the third has its own; rows lie in two data
files. So every check meets a shared file, a file boundary and an offset that is not 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CAMERA = "observation.images.front"
FPS = 10
WIDTH = 3
SIDE = 32
TASKS = ("pick up the cube", "put it down")
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
FIRST_DATA = "data/chunk-000/file-000.parquet"
SECOND_DATA = "data/chunk-000/file-001.parquet"
FIRST_VIDEO = f"videos/{CAMERA}/chunk-000/file-000.mp4"
SECOND_VIDEO = f"videos/{CAMERA}/chunk-000/file-001.mp4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One episode: its length, and the data and video file it lies in."""

    length: int
    data: int
    video: int
    task: int = 0


PARTS = (Part(length=6, data=0, video=0), Part(length=5, data=0, video=0, task=1), Part(length=4, data=1, video=1))


def info(parts: tuple[Part, ...] = PARTS) -> dict[str, Any]:
    """A valid info.json."""
    vector = {"dtype": "float32", "shape": [WIDTH], "names": [f"joint_{n}" for n in range(WIDTH)]}
    number = {"dtype": "int64", "shape": [1], "names": None}
    video = {
        "dtype": "video",
        "shape": [SIDE, SIDE, 3],
        "names": ["height", "width", "channels"],
        "info": {"video.codec": "h264", "video.fps": FPS},
    }
    return {
        "codebase_version": "v3.0",
        "robot_type": "tiny_arm",
        "total_episodes": len(parts),
        "total_frames": sum(part.length for part in parts),
        "total_tasks": len(TASKS),
        "chunks_size": 1000,
        "fps": FPS,
        "splits": {"train": f"0:{len(parts)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            "observation.state": vector,
            "action": vector,
            CAMERA: video,
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), number),
        },
    }


def build(root: Path, parts: tuple[Part, ...] = PARTS, seed: int = 0) -> Path:
    """Write the dataset below `root`."""
    _write_json(root / "meta/info.json", info(parts))
    _write_parquet(root / "meta/tasks.parquet", pa.table({"task_index": [0, 1], "task": list(TASKS)}))
    count = {"count": [sum(part.length for part in parts)]}
    _write_json(root / "meta/stats.json", {"observation.state": count, "action": count})
    _write_rows(root, parts, np.random.default_rng(seed))
    _write_episodes(root, parts)
    for video in sorted({part.video for part in parts}):
        frames = sum(part.length for part in parts if part.video == video)
        write_video(root / f"videos/{CAMERA}/chunk-000/file-{video:03d}.mp4", frames)
    return root


def _write_rows(root: Path, parts: tuple[Part, ...], random: np.random.Generator) -> None:
    start = 0
    tables: dict[int, list[pa.Table]] = {}
    for index, part in enumerate(parts):
        n = part.length
        vectors = {
            key: pa.FixedSizeListArray.from_arrays(pa.array(random.normal(size=n * WIDTH).astype(np.float32)), WIDTH)
            for key in ("observation.state", "action")
        }
        columns: dict[str, Any] = {
            **vectors,
            "timestamp": pa.array((np.arange(n) / FPS).astype(np.float32)),
            "frame_index": np.arange(n),
            "episode_index": np.full(n, index),
            "index": np.arange(start, start + n),
            "task_index": np.full(n, part.task),
        }
        tables.setdefault(part.data, []).append(pa.table(columns))
        start += n
    for data, pieces in tables.items():
        _write_parquet(root / f"data/chunk-000/file-{data:03d}.parquet", pa.concat_tables(pieces))


def _write_episodes(root: Path, parts: tuple[Part, ...]) -> None:
    rows, start = [], 0
    for index, part in enumerate(parts):
        before = sum(other.length for other in parts[:index] if other.video == part.video)
        rows.append(
            {
                "episode_index": index,
                "tasks": [TASKS[part.task]],
                "length": part.length,
                "data/chunk_index": 0,
                "data/file_index": part.data,
                "dataset_from_index": start,
                "dataset_to_index": start + part.length,
                f"videos/{CAMERA}/chunk_index": 0,
                f"videos/{CAMERA}/file_index": part.video,
                f"videos/{CAMERA}/from_timestamp": before / FPS,
                f"videos/{CAMERA}/to_timestamp": (before + part.length) / FPS,
            }
        )
        start += part.length
    _write_parquet(root / EPISODES, pa.Table.from_pylist(rows))


def write_video(path: Path, frames: int, fps: int = FPS) -> None:
    """A moving square, as h264."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": "4", "preset": "ultrafast"}
        stream.time_base = Fraction(1, fps)
        for number in range(frames):
            picture = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
            picture[number % SIDE :, : number + 4] = 200
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def _write_parquet(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


# breaking it


def change_info(root: Path, **changes: Any) -> None:
    document = json.loads((root / "meta/info.json").read_text())
    _write_json(root / "meta/info.json", {**document, **changes})


def change_feature(root: Path, key: str, **changes: Any) -> None:
    document = json.loads((root / "meta/info.json").read_text())
    document["features"][key] |= changes
    _write_json(root / "meta/info.json", document)


def change_rows(root: Path, file: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Rewrite a parquet file row by row; vectors become plain lists, so that rows may differ in length."""
    table = pq.read_table(root / file)
    fields = [
        pa.field(f.name, pa.list_(f.type.value_type)) if pa.types.is_fixed_size_list(f.type) else f
        for f in table.schema
    ]
    _write_parquet(root / file, pa.Table.from_pylist(change(table.to_pylist()), schema=pa.schema(fields)))


def change_cell(root: Path, file: str, row: int, column: str, value: Any) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[row][column] = value
        return rows

    change_rows(root, file, change)


def change_column(root: Path, file: str, column: str, value: Callable[[dict[str, Any]], Any]) -> None:
    change_rows(root, file, lambda rows: [{**row, column: value(row)} for row in rows])


def cut(root: Path, file: str, share: float = 0.5) -> None:
    """Keep only the first part of a file."""
    content = (root / file).read_bytes()
    (root / file).write_bytes(content[: int(len(content) * share)])


def pointer(root: Path, file: str) -> None:
    """Put a Git LFS pointer where the file was."""
    size = (root / file).stat().st_size
    (root / file).write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize {size}\n")


def double_column(root: Path, file: str, column: str) -> None:
    """Append a column of the same name with other values."""
    table = pq.read_table(root / file)
    other = pa.array([9] * table.num_rows, pa.int64())
    names: list[str] = [*table.column_names, column]
    columns: list[Any] = [*table.columns, other]
    _write_parquet(root / file, pa.Table.from_arrays(columns, names=names))
