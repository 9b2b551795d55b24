"""A folder -> its read plan: a dataset version's root, one Lance table, or a plain folder such as a model.

A version root is LeRobot's Lance layout: `meta/`, `frames.lance` (one row per frame, dots
in names became underscores), `videos.lance` (one row per mp4, the bytes as a blob) and
`meta.lance`. Columns are those of frames; a camera's key selects its rows of videos.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.domain.plan import PlannedFile, ReadPlan, planned_file, unite_files
from forebay.cache.errors import (
    ColumnUnknownError,
    DataChangedError,
    DataUnreadableError,
    FormatUnsupportedError,
    PlanError,
)

FRAME_KEYS = ("index", "episode_index", "frame_index", "timestamp", "task_index")
"""Columns that every reader of episodes needs to find frames; planned along, a few bytes per row."""


def plan_folder(
    root: Path,
    *,
    columns: tuple[str, ...] = (),
    episodes: tuple[int, int] | None = None,
    source: str = "",
    version: int | None = None,
) -> ReadPlan:
    """Plan `root`; raises a `PlanError` that says what is wrong and what would help."""
    root = root.absolute()
    if not root.is_dir():
        msg = f"{root} is not a folder that can be read from here"
        raise DataUnreadableError(msg)
    try:
        if (root / "frames.lance").is_dir():
            files, whole = _version_root(root, columns, episodes)
        elif (root / "_versions").is_dir():
            files, whole = _single_table(root, columns, version)
        else:
            files, whole = _plain_folder(root, columns, episodes)
    except (OSError, ValueError, RuntimeError) as error:
        msg = f"{root} cannot be planned: {error}"
        raise DataUnreadableError(msg) from error
    except BaseException as error:
        # Lance's native code panics on some damage; that must not end the service that asked.
        if type(error).__name__ != "PanicException":
            raise
        msg = f"{root} is damaged: Lance gave up reading it ({error})"
        raise DataChangedError(msg) from error
    return ReadPlan(
        root=str(root),
        source=source,
        columns=tuple(sorted(columns)),
        episodes=episodes,
        files=unite_files(_relative(root, files)),
        whole_bytes=whole,
    )


def _version_root(
    root: Path, columns: tuple[str, ...], episodes: tuple[int, int] | None
) -> tuple[list[PlannedFile], int]:
    tables = {path.name: LanceTable(path) for path in sorted(root.glob("*.lance")) if path.is_dir()}
    whole = _tree_bytes(root) + sum(table.outside_bytes(root) for table in tables.values())
    if not columns and episodes is None:
        loose = [path for path in _tree(root) if path.relative_to(root).parts[0] not in tables]
        files = [planned_file(str(path), path.stat().st_size) for path in loose]
        return [*files, *(file for table in tables.values() for file in table.everything())], whole
    files = [planned_file(str(path), path.stat().st_size) for path in (*_tree(root / "meta"), *_loose(root))]
    frames = tables.pop("frames.lance")
    videos = tables.pop("videos.lance", None)
    for table in tables.values():
        files += table.everything()
    cameras = videos.values("video_key") if videos else ()
    wanted, keys = _sort_columns(columns, frames, cameras, root)
    rows = None if episodes is None else _episode_filter(frames, episodes)
    present = [name for name in FRAME_KEYS if name in frames.columns]
    files += frames.ranges(wanted, keys=present, rows=rows)
    if videos is not None:
        described = [name for name in videos.columns if name not in videos.blob_columns]
        blobs = videos.blob_columns if keys else ()
        files += videos.ranges(blobs, keys=described, payloads=_video_filter(root, keys, episodes))
    return files, whole


def _sort_columns(
    columns: tuple[str, ...], frames: LanceTable, cameras: tuple[str, ...], root: Path
) -> tuple[list[str], list[str]]:
    """Which of the asked columns are frame columns, and which are cameras."""
    if not columns:
        return list(frames.columns), list(cameras)
    wanted: list[str] = []
    keys: list[str] = []
    for column in columns:
        camera = next((key for key in cameras if key.replace(".", "_") == column.replace(".", "_")), None)
        own = frames.find_column(column)
        if camera is not None:
            keys.append(camera)
        elif own is not None:
            wanted.append(own)
        else:
            names = _feature_names(root)
            known = (*(names.get(name, name) for name in frames.columns), *cameras)
            raise ColumnUnknownError(column, known, f"{root.parent.name} {root.name}")
    return wanted, keys


def _feature_names(root: Path) -> dict[str, str]:
    """How the dataset's owner wrote the names that the table keeps without dots."""
    try:
        features = json.loads((root / "meta" / "info.json").read_bytes())["features"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {str(name).replace(".", "_"): str(name) for name in features}


def _episode_filter(frames: LanceTable, episodes: tuple[int, int]) -> str:
    first, last = episodes
    if not 0 <= first < last:
        msg = f"episodes {first}:{last} is empty: write FIRST:LAST with FIRST below LAST, for example 0:10"
        raise PlanError(msg)
    rows = f"episode_index >= {first} AND episode_index < {last}"
    if frames.count(rows) == 0:
        msg = f"episodes {first}:{last} select no frame of {frames.path.parent}"
        raise PlanError(msg)
    return rows


def _video_filter(root: Path, keys: list[str], episodes: tuple[int, int] | None) -> str:
    """Rows of videos.lance that hold these cameras, and of those the files that these episodes lie in."""
    clauses = []
    for key in keys:
        clause = f"video_key = '{key.replace(chr(39), chr(39) * 2)}'"
        files = _episode_files(root, key, episodes) if episodes else None
        if files is not None:
            places = " OR ".join(f"(chunk_index = {chunk} AND file_index = {file})" for chunk, file in files)
            clause = f"({clause} AND ({places or 'false'}))"
        clauses.append(clause)
    return " OR ".join(clauses) or "false"


def _episode_files(root: Path, key: str, episodes: tuple[int, int]) -> list[tuple[int, int]] | None:
    """(chunk, file) of the mp4 files that hold these episodes; None when meta/ does not say."""
    import pyarrow.parquet as pq  # noqa: PLC0415 only plans with episodes need it

    chunk, file = f"videos/{key}/chunk_index", f"videos/{key}/file_index"
    found: set[tuple[int, int]] = set()
    for path in sorted((root / "meta" / "episodes").rglob("*.parquet")):
        if not {chunk, file, "episode_index"} <= set(pq.read_schema(path).names):
            return None
        table = pq.read_table(path, columns=["episode_index", chunk, file])
        for index, chunk_index, file_index in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if episodes[0] <= index < episodes[1]:
                found.add((chunk_index, file_index))
    return sorted(found) or None


def _single_table(root: Path, columns: tuple[str, ...], version: int | None) -> tuple[list[PlannedFile], int]:
    table = LanceTable(root, version=version)
    files = table.ranges(columns) if columns else table.everything()
    return list(files), _tree_bytes(root) + table.outside_bytes(root)


def _plain_folder(
    root: Path, columns: tuple[str, ...], episodes: tuple[int, int] | None
) -> tuple[list[PlannedFile], int]:
    if columns or episodes:
        msg = f"{root} is no Lance version root, so columns and episodes cannot be picked from it: leave them out"
        raise FormatUnsupportedError(msg)
    files = [planned_file(str(path), path.stat().st_size) for path in _tree(root)]
    if not files:
        msg = f"{root} holds no file"
        raise DataUnreadableError(msg)
    return files, sum(file.size for file in files)


def _tree(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _loose(root: Path) -> list[Path]:
    """Files directly in the root, such as checksums."""
    return sorted(path for path in root.iterdir() if path.is_file())


def _tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in _tree(folder))


def _relative(root: Path, files: Iterable[PlannedFile]) -> Iterator[PlannedFile]:
    for file in files:
        path = Path(file.path)
        inside = path.is_relative_to(root)
        yield PlannedFile(
            path=path.relative_to(root).as_posix() if inside else str(path), size=file.size, ranges=file.ranges
        )
