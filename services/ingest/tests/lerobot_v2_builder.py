"""Writes a tiny LeRobot v2.1 or v2.0 dataset: the rows of `lerobot_builder`, one data file and one video per episode."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from . import lerobot_builder as lerobot
from .lerobot_builder import CAMERA, PARTS, TASKS, Part

EPISODES = "meta/episodes.jsonl"
EPISODE_STATS = "meta/episodes_stats.jsonl"


def data_file(episode: int) -> str:
    return f"data/chunk-000/episode_{episode:06d}.parquet"


def video_file(episode: int) -> str:
    return f"videos/chunk-000/{CAMERA}/episode_{episode:06d}.mp4"


def info(version: str = "v2.1", parts: tuple[Part, ...] = PARTS) -> dict[str, Any]:
    """A valid info.json."""
    return {
        **lerobot.info(parts),
        "codebase_version": version,
        "total_chunks": 1,
        "total_videos": len(parts),
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    }


def build(root: Path, version: str = "v2.1", parts: tuple[Part, ...] = PARTS, seed: int = 0) -> Path:
    """Write the dataset below `root`; v2.0 has statistics of the whole only."""
    alone = tuple(Part(length=p.length, data=n, video=n, task=p.task) for n, p in enumerate(parts))
    lerobot.build(root, alone, seed)
    for number in range(len(parts)):
        _move(root / f"data/chunk-000/file-{number:03d}.parquet", root / data_file(number))
        _move(root / f"videos/{CAMERA}/chunk-000/file-{number:03d}.mp4", root / video_file(number))
    shutil.rmtree(root / "meta/episodes")
    shutil.rmtree(root / f"videos/{CAMERA}")
    (root / "meta/tasks.parquet").unlink()
    (root / "meta/info.json").write_text(json.dumps(info(version, parts)))
    write_lines(root / "meta/tasks.jsonl", [{"task_index": n, "task": text} for n, text in enumerate(TASKS)])
    episodes = [
        {"episode_index": n, "tasks": [TASKS[part.task]], "length": part.length} for n, part in enumerate(parts)
    ]
    write_lines(root / EPISODES, episodes)
    if version == "v2.1":
        (root / "meta/stats.json").unlink()
        write_lines(root / EPISODE_STATS, [{"episode_index": n, "stats": _stats(root, n)} for n in range(len(parts))])
    return root


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _stats(root: Path, episode: int) -> dict[str, Any]:
    values = np.array(pq.read_table(root / data_file(episode))["action"].to_pylist(), dtype=np.float64)
    picture = {name: [[[value]]] * 3 for name, value in (("min", 0.0), ("max", 0.8), ("mean", 0.2), ("std", 0.1))}
    return {
        "action": {
            **{name: getattr(values, name)(axis=0).tolist() for name in ("min", "max", "mean", "std")},
            "count": [len(values)],
        },
        CAMERA: {**picture, "count": [len(values)]},
    }


def write_lines(path: Path, entries: list[Any]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def change_line(root: Path, file: str, number: int, **changes: Any) -> None:
    lines = read_lines(root / file)
    lines[number] |= changes
    write_lines(root / file, lines)
