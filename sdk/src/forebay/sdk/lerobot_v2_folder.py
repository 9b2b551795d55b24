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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLine:
    """One line of episodes.jsonl, with template paths filled in."""

    index: int
    length: int
    tasks: tuple[str, ...]
    rows: RowWindow
    videos: tuple[TimeWindow, ...]


def read_lines(root: Path, info: Mapping[str, Any], cameras: list[str]) -> list[EpisodeLine]:
    """Every episode in order; raises `NotADatasetError` that names the line that cannot be used."""
    fps, chunk_size = info.get("fps"), info.get("chunks_size", 1000)
    if not isinstance(fps, int | float) or isinstance(fps, bool) or not (math.isfinite(fps) and fps > 0):
        msg = f"{root / 'meta/info.json'} has no usable 'fps'"
        raise NotADatasetError(msg, "LeRobot v2.x needs the frame rate there")
    if not isinstance(chunk_size, int) or isinstance(chunk_size, bool) or chunk_size < 1:
        msg = f"{root / 'meta/info.json'} says chunks_size = {chunk_size!r}"
        raise NotADatasetError(msg, "it must be a whole number from 1; LeRobot writes 1000")
    found: dict[int, EpisodeLine] = {}
    for number, line in _objects(root / EPISODES_FILE):
        index, length, tasks = _count(line.get("episode_index")), _count(line.get("length")), line.get("tasks")
        if index is None or length is None:
            told = f"episode_index {line.get('episode_index')!r}, length {line.get('length')!r}"
            msg = f"{root / EPISODES_FILE}, line {number}: {told}"
            raise NotADatasetError(msg, "both must be whole numbers from 0; repair the file, nothing was uploaded")
        if index in found:
            msg = f"{root / EPISODES_FILE} lists episode {index} twice"
            raise NotADatasetError(msg, "remove the stale line")
        values: dict[str, int | str] = {"episode_index": index, "episode_chunk": index // chunk_size}
        found[index] = EpisodeLine(
            index=index,
            length=length,
            tasks=tuple(str(task) for task in tasks) if isinstance(tasks, list) else (),
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


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        lines = read_regular(path, limit=_MAX_BYTES).splitlines()
    except TooLargeError as error:
        msg = f"{path}: {error.strerror}"
        raise NotADatasetError(msg, "split the dataset; nothing was uploaded") from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}"
        raise NotADatasetError(msg, "LeRobot v2.x lists its episodes there; download or copy it again") from error
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"{path}, line {number} is no JSON: {error}"
            raise NotADatasetError(msg, "the file may be cut; copy it again, nothing was uploaded") from error
        if not isinstance(line, dict):
            msg = f"{path}, line {number} is no JSON object"
            raise NotADatasetError(msg, "repair the file, nothing was uploaded")
        yield number, line


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
