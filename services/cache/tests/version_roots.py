"""A small dataset version in LeRobot's Lance layout, for tests of planning and warming."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import lance_tables as tables

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
EPISODES = 6
VIDEO_BYTES = 1_200_000


def write_version(root: Path, *, video_bytes: int = VIDEO_BYTES) -> Path:
    """Six episodes of 100 frames, two cameras, two mp4 files per camera (episodes 0-2 and 3-5)."""
    meta = root / "meta"
    (meta / "episodes" / "chunk-000").mkdir(parents=True)
    features = {name: {"dtype": "float32"} for name in ("observation.state", "action")}
    info = {"codebase_version": "v3.0", "storage_format": "lance", "features": features}
    (meta / "info.json").write_text(json.dumps(info))
    files = [index // 3 for index in range(EPISODES)]
    episodes: dict[str, list[int]] = {"episode_index": list(range(EPISODES))}
    for key in (FRONT, WRIST):
        episodes[f"videos/{key}/chunk_index"] = [0] * EPISODES
        episodes[f"videos/{key}/file_index"] = files
    pq.write_table(pa.table(episodes), meta / "episodes" / "chunk-000" / "file-000.parquet")
    random = np.random.default_rng(7)
    frames = tables.frame_table(EPISODES * 100)
    keys: dict[str, Any] = {
        "frame_index": np.arange(EPISODES * 100) % 100,
        "timestamp": (np.arange(EPISODES * 100) % 100 / 30).astype(np.float32),
        "task_index": np.zeros(EPISODES * 100, dtype=np.int64),
    }
    for name, values in keys.items():
        frames = frames.append_column(name, pa.array(values))
    lance.write_dataset(frames, root / "frames.lance", data_storage_version="2.2")
    lance.dataset(str(root / "frames.lance")).create_scalar_index("episode_index", "BTREE")
    videos = tables.blob_table([video_bytes] * 4, [FRONT, WRIST, FRONT, WRIST])
    lance.write_dataset(videos, root / "videos.lance", data_storage_version="2.2")
    lance.dataset(str(root / "videos.lance")).create_scalar_index("video_key", "BITMAP")
    described = pa.table({"path": ["meta/info.json"], "data": pa.array([random.bytes(500)], pa.large_binary())})
    lance.write_dataset(described, root / "meta.lance", data_storage_version="2.2")
    (root / "checksums.json").write_text("{}")
    return root
