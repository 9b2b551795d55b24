"""A LeRobot v3.0 dataset whose camera is stored as single pictures in the data files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY = "observation.images.wrist"
SIDE = 32
FPS = 10
LENGTHS = (10, 12)
DATA = "data/chunk-000/file-000.parquet"

Edit = Callable[[int, int, bytes], dict[str, Any] | None]
"""(episode, frame, encoded picture) -> what is stored."""


def encode(picture: Any, codec: str = "png") -> bytes:
    """One picture as PNG, JPEG (`mjpeg`) or TIFF; one with a single plane is depth in 16 bits."""
    form = "rgb24" if picture.ndim == 3 else "gray16le" if codec == "tiff" else "gray16be"
    target = io.BytesIO()
    with av.open(target, "w", format="image2pipe") as container:
        stream: Any = container.add_stream(codec, rate=1)
        stream.height, stream.width = picture.shape[:2]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else form
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format=form)))
        container.mux(stream.encode())
    return target.getvalue()


def picture(episode: int, frame: int) -> Any:
    """Coarse squares, other in every frame."""
    random = np.random.default_rng([episode, frame])
    return np.kron(random.integers(0, 256, (4, 4, 3), dtype=np.uint8), np.ones((SIDE // 4, SIDE // 4, 1), np.uint8))


def build(
    root: Path, edit: Edit = lambda _e, _f, content: {"bytes": content, "path": "frame.png"}, codec: str = "png"
) -> Path:
    """Write it; `edit` decides what stands in each row."""
    rows: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    random = np.random.default_rng(1)
    for episode, length in enumerate(LENGTHS):
        start = len(rows)
        for frame in range(length):
            state = random.normal(size=2).astype(np.float32).tolist()
            row = {
                "observation.state": state,
                "action": state,
                KEY: edit(episode, frame, encode(picture(episode, frame), codec)),
            }
            row |= {"timestamp": np.float32(frame / FPS), "frame_index": frame, "episode_index": episode}
            rows.append(row | {"index": len(rows), "task_index": 0})
        entry: dict[str, Any] = {"episode_index": episode, "tasks": ["pick"], "length": length}
        entry |= {"data/chunk_index": 0, "data/file_index": 0}
        entries.append(entry | {"dataset_from_index": start, "dataset_to_index": start + length})
    vector = pa.list_(pa.float32(), 2)
    fields: list[pa.Field[Any]] = [pa.field("observation.state", vector), pa.field("action", vector)]
    fields += [pa.field(KEY, pa.struct([pa.field("bytes", pa.binary()), pa.field("path", pa.string())]))]
    fields += [pa.field("timestamp", pa.float32())]
    fields += [pa.field(name, pa.int64()) for name in ("frame_index", "episode_index", "index", "task_index")]
    _write(root / DATA, pa.Table.from_pylist(rows, schema=pa.schema(fields)))
    _write(root / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(entries))
    _write(root / "meta/tasks.parquet", pa.table({"task_index": [0], "task": ["pick"]}))
    number = {"dtype": "int64", "shape": [1], "names": None}
    joints = {"dtype": "float32", "shape": [2], "names": ["a", "b"]}
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_episodes": len(LENGTHS),
        "total_frames": len(rows),
        "total_tasks": 1,
        "splits": {"train": f"0:{len(LENGTHS)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
        "features": {
            "observation.state": joints,
            "action": joints,
            KEY: {"dtype": "image", "shape": [SIDE, SIDE, 3], "names": ["height", "width", "channels"]},
            "timestamp": {"dtype": "float32", "shape": [1], "names": None},
            **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), number),
        },
    }
    (root / "meta/info.json").write_text(json.dumps(info))
    count = {"count": [len(rows)]}
    (root / "meta/stats.json").write_text(json.dumps({"observation.state": count, "action": count}))
    return root


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
