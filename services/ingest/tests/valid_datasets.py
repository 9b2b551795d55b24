"""Valid datasets of every shape: several data and video files, cameras, tasks, frame rates, both formats.

A `Shape` says everything about a dataset; `build` writes it. Nothing in it may break a rule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

RATES = ("10", "30", "29.97", "12.5", "59.94")
SIDE = 32
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
SIGNALS = ("observation.state", "action")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One dataset."""

    lengths: tuple[int, ...]
    rate: str
    data: tuple[int, ...]
    """Data file of each episode."""
    videos: dict[str, tuple[int, ...]]
    """Camera -> video file of each episode."""
    tasks: tuple[int, ...]
    width: int
    seed: int
    version: str = "v3.0"

    @property
    def fps(self) -> float:
        return float(self.rate)

    @property
    def texts(self) -> list[str]:
        return [f"put thing {number} away" for number in range(max(self.tasks) + 1)]

    def data_file(self, episode: int) -> str:
        if self.version == "v3.0":
            return f"data/chunk-000/file-{self.data[episode]:03d}.parquet"
        return f"data/chunk-000/episode_{episode:06d}.parquet"

    def video_file(self, camera: str, episode: int) -> str:
        if self.version == "v3.0":
            return f"videos/{camera}/chunk-000/file-{self.videos[camera][episode]:03d}.mp4"
        return f"videos/chunk-000/{camera}/episode_{episode:06d}.mp4"

    def sharing(self, camera: str, episode: int) -> list[int]:
        """The episodes in the same video file, in order."""
        file = self.video_file(camera, episode)
        return [other for other in range(len(self.lengths)) if self.video_file(camera, other) == file]

    def beside(self, episode: int) -> list[int]:
        """The episodes in the same data file."""
        return [other for other in range(len(self.lengths)) if self.data_file(other) == self.data_file(episode)]


@st.composite
def shapes(draw: st.DrawFn, shortest: int = 1, version: str = "v3.0") -> Shape:
    """Any valid shape; episodes have at least `shortest` frames."""
    count = draw(st.integers(2, 4))

    def files() -> tuple[int, ...]:
        steps = draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))
        return (0, *(int(number) for number in np.cumsum(steps)))

    return Shape(
        lengths=tuple(draw(st.lists(st.integers(shortest, shortest + 12), min_size=count, max_size=count))),
        rate=draw(st.sampled_from(RATES)),
        data=files(),
        videos={f"observation.images.cam{number}": files() for number in range(draw(st.integers(1, 2)))},
        tasks=(0, *draw(st.lists(st.integers(0, 1), min_size=count - 1, max_size=count - 1))),
        width=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 10_000)),
        version=version,
    )


def build(root: Path, shape: Shape) -> Path:
    """Write the dataset below `root`."""
    rows = _rows(shape)
    _write_json(root / "meta/info.json", _info(shape))
    for file in sorted({shape.data_file(episode) for episode in range(len(shape.lengths))}):
        there = [rows[episode] for episode in range(len(shape.lengths)) if shape.data_file(episode) == file]
        _write_table(root / file, pa.concat_tables(there))
    for camera in shape.videos:
        for episode in range(len(shape.lengths)):
            if shape.sharing(camera, episode)[0] == episode:
                write_video(root, shape, camera, episode)
    (_write_v3_tables if shape.version == "v3.0" else _write_v2_tables)(root, shape, rows)
    return root


def _info(shape: Shape) -> dict[str, Any]:
    episodes = len(shape.lengths)
    v3 = shape.version == "v3.0"
    names = [f"joint_{number}" for number in range(shape.width)]
    vector = {"dtype": "float32", "shape": [shape.width], "names": names}
    picture = {
        "dtype": "video",
        "shape": [SIDE, SIDE, 3],
        "names": ["height", "width", "channels"],
        "info": {"video.codec": "h264", "video.fps": shape.fps},
    }
    number = {"dtype": "int64", "shape": [1], "names": None}
    folder = "{chunk_index:03d}/file-{file_index:03d}" if v3 else "{episode_chunk:03d}/episode_{episode_index:06d}"
    videos = (
        f"{{video_key}}/chunk-{folder}" if v3 else "chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}"
    )
    return {
        "codebase_version": shape.version,
        "robot_type": "any_arm",
        "total_episodes": episodes,
        "total_frames": sum(shape.lengths),
        "total_tasks": len(shape.texts),
        **({} if v3 else {"total_videos": episodes * len(shape.videos), "total_chunks": 1}),
        "chunks_size": 1000,
        "fps": shape.fps if "." in shape.rate else int(shape.rate),
        "splits": {"train": f"0:{episodes}"},
        "data_path": f"data/chunk-{folder}.parquet",
        "video_path": f"videos/{videos}.mp4",
        "features": {
            **dict.fromkeys(SIGNALS, vector),
            **dict.fromkeys(shape.videos, picture),
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), number),
        },
    }


def _rows(shape: Shape) -> list[pa.Table]:
    random = np.random.default_rng(shape.seed)
    start, tables = 0, []
    for episode, count in enumerate(shape.lengths):
        vectors = {
            key: pa.FixedSizeListArray.from_arrays(
                pa.array(random.normal(size=count * shape.width).astype(np.float32)), shape.width
            )
            for key in SIGNALS
        }
        columns: dict[str, Any] = {
            **vectors,
            "timestamp": pa.array((np.arange(count) / shape.fps).astype(np.float32)),
            "frame_index": np.arange(count),
            "episode_index": np.full(count, episode),
            "index": np.arange(start, start + count),
            "task_index": np.full(count, shape.tasks[episode]),
        }
        tables.append(pa.table(columns))
        start += count
    return tables


def _statistics(shape: Shape, table: pa.Table) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in SIGNALS:
        values = np.array(table[key].to_pylist(), dtype=np.float64)
        found[key] = {name: getattr(values, name)(axis=0).tolist() for name in ("min", "max", "mean", "std")}
        found[key]["count"] = [len(values)]
    for camera in shape.videos:
        means = {"min": 0.0, "max": 1.0, "mean": 0.5, "std": 0.3}
        found[camera] = {name: [[[value]]] * 3 for name, value in means.items()} | {"count": [table.num_rows]}
    return found


def _write_v3_tables(root: Path, shape: Shape, rows: list[pa.Table]) -> None:
    _write_table(root / "meta/tasks.parquet", pa.table({"task_index": [*range(len(shape.texts))], "task": shape.texts}))
    _write_json(root / "meta/stats.json", _statistics(shape, pa.concat_tables(rows)))
    entries, start = [], 0
    for episode, length in enumerate(shape.lengths):
        entry: dict[str, Any] = {
            "episode_index": episode,
            "tasks": [shape.texts[shape.tasks[episode]]],
            "length": length,
            "data/chunk_index": 0,
            "data/file_index": shape.data[episode],
            "dataset_from_index": start,
            "dataset_to_index": start + length,
        }
        for camera, files in shape.videos.items():
            before = sum(shape.lengths[n] for n in shape.sharing(camera, episode) if n < episode)
            place = f"videos/{camera}"
            entry |= {f"{place}/chunk_index": 0, f"{place}/file_index": files[episode]}
            entry[f"{place}/from_timestamp"] = before / shape.fps
            entry[f"{place}/to_timestamp"] = (before + length) / shape.fps
        entries.append(entry)
        start += length
    _write_table(root / EPISODES, pa.Table.from_pylist(entries))


def _write_v2_tables(root: Path, shape: Shape, rows: list[pa.Table]) -> None:
    tasks = [{"task_index": number, "task": text} for number, text in enumerate(shape.texts)]
    episodes = [
        {"episode_index": number, "tasks": [shape.texts[shape.tasks[number]]], "length": length}
        for number, length in enumerate(shape.lengths)
    ]
    stats = [{"episode_index": number, "stats": _statistics(shape, table)} for number, table in enumerate(rows)]
    for name, lines in (("tasks", tasks), ("episodes", episodes), ("episodes_stats", stats)):
        (root / f"meta/{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_video(
    root: Path, shape: Shape, camera: str, episode: int, *, frozen: int | None = None, spare: int = 0
) -> None:
    """The file that `episode` lies in, with its neighbours. `frozen`: that episode shows one picture; `spare`
    frames more, or fewer, at the end."""
    sharing = shape.sharing(camera, episode)
    pictures = [picture for other in sharing for picture in _pictures(shape, camera, other, still=other == frozen)]
    pictures = pictures[:spare] if spare < 0 else pictures + pictures[:spare]
    path = root / shape.video_file(camera, episode)
    path.parent.mkdir(parents=True, exist_ok=True)
    rate = Fraction(shape.rate)
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": "4", "preset": "ultrafast"}
        stream.time_base = 1 / rate
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def _pictures(shape: Shape, camera: str, episode: int, *, still: bool) -> list[Any]:
    """Coarse squares that take other greys in every frame."""
    random = np.random.default_rng([shape.seed, episode, [*shape.videos].index(camera)])
    grids = random.integers(0, 256, (shape.lengths[episode], 4, 4, 3), dtype=np.uint8)
    if still:
        grids[:] = grids[0]
    return [np.kron(grid, np.ones((SIDE // 4, SIDE // 4, 1), dtype=np.uint8)) for grid in grids]


def _write_table(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def _write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
