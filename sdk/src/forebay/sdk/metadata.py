"""The `meta/` folder of a LeRobot v3.0 dataset: info.json, episodes, tasks.

Read by `Dataset`. The collector has its own stricter reader (`lerobot_folder`),
because it must judge folders from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forebay.sdk.errors import DataUnreadableError

if TYPE_CHECKING:
    from forebay.sdk.roots import Root

INFO = "meta/info.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoPart:
    """Where one episode lies in a camera's video file, in seconds of that file."""

    chunk: int
    file: int
    start: float
    stop: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeMeta:
    """One episode of a version: its rows and its part of each camera's video."""

    index: int
    start: int
    stop: int
    chunk: int
    file: int
    tasks: tuple[str, ...]
    videos: Mapping[str, VideoPart]

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What `meta/` says about a version."""

    info: Mapping[str, Any]
    episodes: tuple[EpisodeMeta, ...]

    @property
    def features(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.info["features"]
        return found

    @property
    def cameras(self) -> tuple[str, ...]:
        return tuple(name for name, feature in self.features.items() if feature["dtype"] == "video")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the frame table: every feature that is no video."""
        return tuple(name for name, feature in self.features.items() if feature["dtype"] != "video")


def read_metadata(root: Root) -> Metadata:
    """Read `meta/`; raises `DataUnreadableError` that names the file."""
    try:
        info = json.loads(root.read(INFO))
        cameras = [name for name, feature in info["features"].items() if feature["dtype"] == "video"]
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{INFO} cannot be read: {error}"
        raise DataUnreadableError(msg, "ask `forebay why` about the job, or check the mount") from error
    version = info.get("codebase_version")
    if version != "v3.0":
        msg = f"this version is registered as LeRobot {version}, which is read here only in v3.0"
        raise DataUnreadableError(msg, "open it with LeRobot itself, or upload it: versions of uploads are v3.0")
    return Metadata(info=info, episodes=_episodes(root, cameras))


def _episodes(root: Root, cameras: list[str]) -> tuple[EpisodeMeta, ...]:
    import pyarrow.parquet as pq  # noqa: PLC0415 only who reads data pays for it

    wanted = ["episode_index", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"]
    wanted += [f"videos/{camera}/{part}" for camera in cameras for part in _VIDEO_COLUMNS]
    rows: list[dict[str, Any]] = []
    for path in sorted(name for name in root.below("meta/episodes") if name.endswith(".parquet")):
        try:
            with pq.ParquetFile(root.source(path)) as file:
                names = [name for name in [*wanted, "tasks"] if name in file.schema_arrow.names]
                rows += file.read(columns=names).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise root.failed(path, error) from None
    return tuple(_episode(row, cameras) for row in sorted(rows, key=lambda row: int(row["episode_index"])))


_VIDEO_COLUMNS = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")


def _episode(row: Mapping[str, Any], cameras: list[str]) -> EpisodeMeta:
    videos = {}
    for camera in cameras:
        chunk, file, start, stop = (row.get(f"videos/{camera}/{part}") for part in _VIDEO_COLUMNS)
        if chunk is not None and file is not None:
            videos[camera] = VideoPart(chunk=int(chunk), file=int(file), start=float(start or 0), stop=float(stop or 0))
    return EpisodeMeta(
        index=int(row["episode_index"]),
        start=int(row["dataset_from_index"]),
        stop=int(row["dataset_to_index"]),
        chunk=int(row.get("data/chunk_index") or 0),
        file=int(row.get("data/file_index") or 0),
        tasks=tuple(row.get("tasks") or ()),
        videos=videos,
    )
