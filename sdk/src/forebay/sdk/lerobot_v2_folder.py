"""Episodes of a LeRobot v2.1 or v2.0 folder, seen from outside: one data file and one video per camera each.

Called by `lerobot_folder.scan`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.contracts.v1.episodes import RowWindow, TimeWindow
from forebay.runtime.regular_files import TooLargeError, read_regular
from forebay.sdk.errors import NotADatasetError
from forebay.sdk.path_templates import fill

EPISODES_FILE = "meta/episodes.jsonl"
_MAX_BYTES = 256 << 20
_MAX_EPISODE = 1_000_000
"""Higher episode numbers are taken for a mistake, here as by ingest."""
_MAX_EPISODE = 1_000_000
"""Higher episode numbers are taken for a mistake, here as by ingest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLine:
    """One line of episodes.jsonl, with template paths filled in."""

    index: int
    length: int
    tasks: tuple[str, ...]
    rows: RowWindow
    videos: tuple[TimeWindow, ...]


def read_lines(root: Path, info: Mapping[str, Any], cameras: list[str]) -> list[EpisodeLine]:
    """Every episode in order; raises `NotADatasetError` when none can be announced."""
    fps, chunk_size = info.get("fps"), info.get("chunks_size", 1000)
    if not isinstance(fps, int | float) or isinstance(fps, bool) or not (math.isfinite(fps) and fps > 0):
        msg = f"{root / 'meta/info.json'} has no usable 'fps'"
        raise NotADatasetError(msg, "LeRobot v2.x needs the frame rate there")
    if not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1:
        msg = f"{root / 'meta/info.json'} says chunks_size = {chunk_size!r}"
        raise NotADatasetError(msg, "it must be a whole number from 1; LeRobot writes 1000")
    found: dict[int, EpisodeLine] = {}
    for line in _objects(root / EPISODES_FILE):
        index, length, tasks = _count(line.get("episode_index")), _count(line.get("length")), line.get("tasks")
        if (
            index is None or index > _MAX_EPISODE or index in found
        ):  # one without a number cannot be announced; ingest sees the line
            continue
        texts = tuple(str(task) for task in tasks) if isinstance(tasks, list) else ()
        if length is None:
            nowhere = RowWindow(file="", start=0, stop=0)
            found[index] = EpisodeLine(index=index, length=0, tasks=texts, rows=nowhere, videos=())
            continue
        values: dict[str, int | str] = {"episode_index": index, "episode_chunk": index // chunk_size}
        found[index] = EpisodeLine(
            index=index,
            length=length,
            tasks=texts,
            rows=RowWindow(file=fill(str(info["data_path"]), values, what="data_path"), start=0, stop=length),
            videos=tuple(
                TimeWindow(
                    camera=camera,
                    file=fill(str(info["video_path"]), {**values, "video_key": camera}, what="video_path"),
                    start=0.0,
                    stop=length / fps,
                )
                for camera in cameras
            ),
        )
    if not found:
        msg = f"{root / EPISODES_FILE} lists no episode"
        raise NotADatasetError(msg, "a recording that was not finished has no episode table; finish it first")
    return [found[index] for index in sorted(found)]


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """Every line that is a JSON object; ingest says which are not."""
    try:
        lines = read_regular(path, limit=_MAX_BYTES).splitlines()
    except TooLargeError as error:
        msg = f"{path}: {error.strerror}"
        raise NotADatasetError(msg, "split the dataset; nothing was uploaded") from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise NotADatasetError(msg, "LeRobot v2.x lists its episodes there; download or copy it again") from error
    for text in lines:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            yield line


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
