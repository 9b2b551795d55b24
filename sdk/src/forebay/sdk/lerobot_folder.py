"""Reads a LeRobot folder (v3.0, v2.1 or v2.0) from outside: which files, which episodes, where each lies.

Used by the collector before anything is copied or said. It refuses only what cannot be
uploaded as a dataset at all. A broken entry or file of some episodes keeps no other episode
back: it is announced as far as it can be read, and ingest judges each episode.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from forebay.contracts.v1.episodes import RowWindow, TimeWindow
from forebay.runtime.regular_files import kind_of, open_regular, read_regular
from forebay.sdk.errors import NotADatasetError
from forebay.sdk.lerobot_v2_folder import EPISODES_FILE, read_lines
from forebay.sdk.path_templates import fill, inside

SourceFormat = Literal["lerobot-v3.0", "lerobot-v2.1", "lerobot-v2.0"]
_FORMATS: dict[str, SourceFormat] = {"v3.0": "lerobot-v3.0", "v2.1": "lerobot-v2.1", "v2.0": "lerobot-v2.0"}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MAX_INTEGER = 2**53
_MAX_EPISODE = 1_000_000
"""Higher episode numbers are taken for a mistake, here as by ingest."""
_PLACE = ("episode_index", "length", "data/chunk_index", "data/file_index", "dataset_from_index", "dataset_to_index")
_VIDEO = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEpisode:
    """One row of the episode table, with template paths filled in; a row that cannot be used claims no rows and no videos."""

    index: int
    length: int
    tasks: tuple[str, ...]
    rows: RowWindow
    videos: tuple[TimeWindow, ...]

    @property
    def files(self) -> frozenset[str]:
        return frozenset({self.rows.file} | {video.file for video in self.videos}) - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file to upload: its place in the dataset, where it really lies, its size."""

    path: str
    real: Path
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file that is not uploaded: its place in the dataset, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeRobotFolder:
    """What a scan found."""

    root: Path
    format: SourceFormat
    revision: str | None
    """The commit that a Hugging Face cache has it from."""
    robot: str | None
    files: tuple[SourceFile, ...]
    episodes: tuple[SourceEpisode, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def scan(root: Path) -> LeRobotFolder:
    """Read a folder; raises `NotADatasetError` that says what is missing or wrong."""
    if not root.is_dir():
        msg = f"{root} is not a folder" if root.exists() else f"{root} does not exist"
        raise NotADatasetError(msg, "give the folder that holds meta/info.json")
    info = _read_info(root)
    robot = info.get("robot_type")
    format_ = _FORMATS[str(info["codebase_version"])]
    found = list(_files(root))
    return LeRobotFolder(
        root=root,
        format=format_,
        revision=_snapshot_revision(root),
        robot=robot if isinstance(robot, str) else None,
        files=tuple(file for file in found if isinstance(file, SourceFile)),
        left_out=tuple(file for file in found if isinstance(file, LeftOut)),
        episodes=_read_episodes(root, info) if format_ == "lerobot-v3.0" else _read_v2_episodes(root, info),
    )


def _read_info(root: Path) -> Mapping[str, Any]:
    path = root / "meta/info.json"
    try:
        info = json.loads(read_regular(path))
    except FileNotFoundError as error:
        msg = f"{root} is not a LeRobot dataset: meta/info.json is missing"
        raise NotADatasetError(msg, "give the folder that holds meta/info.json") from error
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{path} cannot be read: {error}"
        raise NotADatasetError(msg, "the file may be truncated; record or copy it again") from error
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        msg = f"{path} has no 'features'"
        raise NotADatasetError(msg, "this is not the info.json of a LeRobot dataset")
    version = info.get("codebase_version")
    if not isinstance(version, str) or version not in _FORMATS:
        msg = f"{path} says codebase_version {version!r}; {', '.join(_FORMATS)} can be uploaded"
        raise NotADatasetError(msg, "convert the dataset with LeRobot's own converters first")
    _check_layout(root, version)
    for key in ("data_path", "video_path"):
        if not isinstance(info.get(key), str) and (key == "data_path" or info.get(key) is not None):
            msg = f"{path} has no usable {key!r}"
            raise NotADatasetError(msg, f"LeRobot {version} needs a path template there")
    return info


def _snapshot_revision(root: Path) -> str | None:
    real = root.absolute()
    return real.name if real.parent.name == "snapshots" and _COMMIT.fullmatch(real.name) else None


def _check_layout(root: Path, version: str) -> None:
    """A wrong label would send everybody to the other version's files."""
    lines, tables = (root / EPISODES_FILE).is_file(), bool(_episode_tables(root))
    claimed, other = (tables, lines) if version == "v3.0" else (lines, tables)
    if other and not claimed:
        layout = "v2.x" if version == "v3.0" else "v3.0"
        msg = f"{root} says codebase_version {version}, but its episode table is that of {layout}"
        raise NotADatasetError(msg, "correct the label in meta/info.json, or convert the files")


def _cameras(info: Mapping[str, Any]) -> list[str]:
    found = []
    for name, feature in info["features"].items():
        if isinstance(feature, dict) and feature.get("dtype") == "video":
            found.append(inside(name, what=f"the feature name {name!r}"))
    return found


def _files(root: Path) -> Iterator[SourceFile | LeftOut]:
    """Every file of the folder except hidden ones; links may lead only into the same Hugging Face cache."""
    allowed = [root.resolve()]
    blobs = root.absolute().parent.parent / "blobs"
    if root.absolute().parent.name == "snapshots" and not blobs.is_symlink():
        allowed.append(blobs.resolve())
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part.startswith(".") for part in relative.parts):
            continue
        file = _file(path, relative.as_posix(), allowed)
        if isinstance(file, LeftOut) and relative.parts[0] == "meta":
            msg = f"{path} cannot be uploaded: {file.why}"
            raise NotADatasetError(msg, "put the file itself in its place: what is under meta/ describes every episode")
        if file is not None:
            yield file


def _file(path: Path, name: str, allowed: list[Path]) -> SourceFile | LeftOut | None:
    """A regular file, or why it is not uploaded; None for a folder."""
    try:
        real = path.resolve()
        if not any(real.is_relative_to(folder) for folder in allowed):
            return LeftOut(path=name, why="it is a link out of the folder")
        if path.is_symlink() and not real.exists():
            return LeftOut(path=name, why="it is a link to nothing")
        status = real.stat()
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        return LeftOut(path=name, why=f"it cannot be looked at ({type(error).__name__})")
    if stat.S_ISDIR(status.st_mode):
        return LeftOut(path=name, why="it is a link to a folder") if path.is_symlink() else None
    if not stat.S_ISREG(status.st_mode):
        return LeftOut(path=name, why=f"it is {kind_of(status.st_mode)}, not a regular file")
    return SourceFile(path=name, real=real, bytes=status.st_size)


def _read_v2_episodes(root: Path, info: Mapping[str, Any]) -> tuple[SourceEpisode, ...]:
    lines = read_lines(root, info, _cameras(info) if info.get("video_path") else [])
    return tuple(
        SourceEpisode(index=line.index, length=line.length, tasks=line.tasks, rows=line.rows, videos=line.videos)
        for line in lines
    )


def _read_episodes(root: Path, info: Mapping[str, Any]) -> tuple[SourceEpisode, ...]:
    """Every episode that is listed; a file of the table that cannot be read hides only its own."""
    cameras = _cameras(info) if info.get("video_path") else []
    rows: dict[int, dict[str, Any]] = {}
    broken: list[NotADatasetError] = []
    for path in _episode_tables(root):
        try:
            listed = _table_rows(path, cameras)
        except NotADatasetError as error:
            broken.append(error)
            continue
        for row in listed:
            index = _count(row["episode_index"])
            if (
                index is not None and index <= _MAX_EPISODE
            ):  # one without a number cannot be announced; ingest sees the entry
                rows.setdefault(index, row)
    if not rows:
        msg = f"{root / 'meta/episodes'} lists no episode"
        advice = "a recording that was not finalised has no episode table; finalise it first"
        raise broken[0] if broken else NotADatasetError(msg, advice)
    first_rows: dict[tuple[int, int], int] = {}
    for row in rows.values():
        if _usable(row, cameras):
            place = (row["data/chunk_index"], row["data/file_index"])
            first_rows[place] = min(first_rows.get(place, row["dataset_from_index"]), row["dataset_from_index"])
    return tuple(_episode(rows[index], info, cameras, first_rows) for index in sorted(rows))


def _count(value: Any) -> int | None:
    """A whole number from 0, or nothing."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_INTEGER
    return int(value) if whole and value == int(value) else None


def _usable(row: Mapping[str, Any], cameras: list[str]) -> bool:
    """Whether an entry says where its episode lies."""
    counts = [row[name] for name in _PLACE]
    counts += [row[f"videos/{camera}/{column}"] for camera in cameras for column in _VIDEO[:2]]
    times = [row[f"videos/{camera}/{column}"] for camera in cameras for column in _VIDEO[2:]]
    return all(_count(value) is not None for value in counts) and all(
        isinstance(value, int | float) and math.isfinite(value) for value in times
    )


def _episode_tables(root: Path) -> list[Path]:
    return sorted((root / "meta/episodes").glob("*/*.parquet"))


def _table_rows(path: Path, cameras: list[str]) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 `forebay --help` must not pay for it
    import pyarrow.parquet as pq  # noqa: PLC0415

    wanted = [*_PLACE, *(f"videos/{camera}/{column}" for camera in cameras for column in _VIDEO)]
    try:
        with open_regular(path) as opened, pq.ParquetFile(opened) as file:
            present = set(file.schema_arrow.names)
            missing = [name for name in wanted if name not in present]
            if missing:
                msg = f"{path} has no column {', '.join(missing)}"
                raise NotADatasetError(msg, "the episode table is not that of LeRobot v3.0")
            rows: list[dict[str, Any]] = file.read(
                columns=wanted + (["tasks"] if "tasks" in present else [])
            ).to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        msg = f"the episode table {path} cannot be read: {error}"
        raise NotADatasetError(msg, "it may be truncated or not finalised; nothing was uploaded") from error
    return rows


def _episode(
    row: Mapping[str, Any], info: Mapping[str, Any], cameras: list[str], first_rows: Mapping[tuple[int, int], int]
) -> SourceEpisode:
    tasks = tuple(str(task) for task in row.get("tasks") or ())
    if not _usable(row, cameras):
        nowhere = RowWindow(file="", start=0, stop=0)
        length = _count(row["length"]) or 0
        return SourceEpisode(index=int(row["episode_index"]), length=length, tasks=tasks, rows=nowhere, videos=())
    chunk, file = int(row["data/chunk_index"]), int(row["data/file_index"])
    first = first_rows[(chunk, file)]
    videos = []
    for camera in cameras:
        at, number, start, stop = (row[f"videos/{camera}/{column}"] for column in _VIDEO)
        values: dict[str, int | str] = {"video_key": camera, "chunk_index": int(at), "file_index": int(number)}
        path = fill(str(info["video_path"]), values, what="video_path")
        videos.append(TimeWindow(camera=camera, file=path, start=float(start), stop=float(stop)))
    return SourceEpisode(
        index=int(row["episode_index"]),
        length=int(row["length"]),
        tasks=tasks,
        rows=RowWindow(
            file=fill(str(info["data_path"]), {"chunk_index": chunk, "file_index": file}, what="data_path"),
            start=int(row["dataset_from_index"]) - first,
            stop=int(row["dataset_to_index"]) - first,
        ),
        videos=tuple(videos),
    )
