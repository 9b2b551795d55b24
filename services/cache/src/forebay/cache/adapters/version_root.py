"""A root -> its read plan: a version in LeRobot's Lance layout, LeRobot's own files, one Lance table, or a plain folder.

A version root has `meta/`, `frames.lance` (one row per frame, dots in names became
underscores), `videos.lance` (one row per mp4, the bytes as a blob) and `meta.lance`.
Columns are those of frames; a camera's key selects its rows of videos.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from forebay.cache.adapters.lance_format import Layouts
from forebay.cache.adapters.lance_manifest import resolve_version
from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.adapters.lerobot_files import INFO, LerobotFiles
from forebay.cache.adapters.origin import FolderOrigin, Origin
from forebay.cache.adapters.origin_file import read_parquet
from forebay.cache.domain.plan import PlannedFile, ReadPlan, planned_file, unite_files
from forebay.cache.errors import (
    ColumnUnknownError,
    DataChangedError,
    DataUnreadableError,
    FormatUnsupportedError,
    PlanError,
)

Kind = Literal["any", "lance", "lerobot"]
FRAME_KEYS = ("index", "episode_index", "frame_index", "timestamp", "task_index")
"""Columns that every reader of episodes needs to find frames; planned along, a few bytes per row."""
_READERS = 16
_LAYOUTS = Layouts()
"""Tails of data files, for all plans of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a job wants of a root."""

    columns: tuple[str, ...] = ()
    episodes: tuple[int, int] | None = None
    rows: str | None = None
    """An SQL filter on a Lance table."""
    version: int | str | None = None
    """Of a single Lance table: a number or a tag."""
    kind: Kind = "any"
    """What the root has to be."""

    @property
    def wants_everything(self) -> bool:
        return not self.columns and self.episodes is None and self.rows is None


@dataclass(slots=True, kw_only=True)
class Found:
    """The files of a plan while it is made, paths still absolute."""

    files: list[PlannedFile]
    whole_bytes: int
    notes: list[str] = field(default_factory=list)


def plan_folder(
    root: Path | str,
    *,
    columns: tuple[str, ...] = (),
    episodes: tuple[int, int] | None = None,
    source: str = "",
    version: int | str | None = None,
    rows: str | None = None,
    kind: Kind = "any",
    origin: Origin | None = None,
) -> ReadPlan:
    """Plan `root`; raises a `PlanError` that says what is wrong and what would help."""
    request = Request(columns=columns, episodes=episodes, rows=rows, version=version, kind=kind)
    place = str(root.absolute()) if isinstance(root, Path) else root.rstrip("/")
    _check(request)
    try:
        found = _plan(origin or FolderOrigin(), place, request)
    except (OSError, ValueError, RuntimeError) as error:
        msg = f"{place} cannot be planned: {error}"
        raise DataUnreadableError(msg) from error
    except BaseException as error:
        # Lance's native code panics on some damage; that must not end the service that asked.
        if type(error).__name__ != "PanicException":
            raise
        msg = f"{place} is damaged: Lance gave up reading it ({error})"
        raise DataChangedError(msg) from error
    return ReadPlan(
        root=place,
        source=source,
        columns=tuple(sorted(columns)),
        episodes=episodes,
        files=_with_etags(origin or FolderOrigin(), place, unite_files(_relative(place, found.files))),
        whole_bytes=found.whole_bytes,
        notes=tuple(found.notes),
    )


def _check(request: Request) -> None:
    if request.episodes is not None and not 0 <= request.episodes[0] < request.episodes[1]:
        first, last = request.episodes
        msg = f"episodes {first}:{last} is empty: write FIRST:LAST with FIRST below LAST, for example 0:10"
        raise PlanError(msg)
    if request.rows is not None and not request.rows.strip():
        msg = "the filter is empty: leave it out, or write an SQL condition such as 'episode_index < 10'"
        raise PlanError(msg)


def _plan(origin: Origin, root: str, request: Request) -> Found:
    names = origin.names(root)
    if not names:
        msg = f"{root} is not a folder that can be read from here, or it holds no file"
        raise DataUnreadableError(msg)
    if request.kind == "lerobot" and "info.json" not in origin.names(f"{root}/meta"):
        msg = f"{root} is no LeRobot folder: it has no {INFO}"
        raise DataUnreadableError(msg)
    if request.kind == "lance" and "_versions/" not in names:
        msg = f"{root} is no Lance table{_hint(origin, root, names)}"
        raise DataUnreadableError(msg)
    if "frames.lance/" in names:
        return _version_root(origin, root, names, request)
    if "_versions/" in names:
        return _single_table(origin, root, request)
    if request.version is not None or request.rows is not None:
        what = "a version" if request.rows is None else "a filter"
        msg = f"{what} can be picked of a Lance table only, and {root} is none"
        raise DataUnreadableError(msg)
    if "meta/" in names and "info.json" in origin.names(f"{root}/meta"):
        return _lerobot(origin, root, request)
    return _plain_folder(origin, root, request)


def _hint(origin: Origin, root: str, names: Iterable[str]) -> str:
    """What a folder is that is no Lance table, for people who meant something else."""
    if "frames.lance/" in names:
        return ", it is the root of a dataset version: use --root, or one of its tables"
    if "meta/" in names and "info.json" in origin.names(f"{root}/meta"):
        return ", it is a LeRobot folder: use --root"
    tables = [name[:-1] for name in names if name.endswith("/") and "_versions/" in origin.names(f"{root}/{name[:-1]}")]
    return f"; tables in it: {', '.join(tables[:5])}" if tables else ": it has no manifest under _versions/"


def _version_root(origin: Origin, root: str, names: list[str], request: Request) -> Found:
    tables = {
        name[:-1]: LanceTable(origin, f"{root}/{name[:-1]}", layouts=_LAYOUTS)
        for name in names
        if name.endswith(".lance/")
    }
    beside = [(f"{root}/{name}", origin.size(f"{root}/{name}")) for name in names if not name.endswith("/")]
    loose = [*beside, *origin.tree(f"{root}/meta")]
    whole = sum(table.whole_bytes for table in tables.values()) + sum(size for _, size in loose)
    if request.wants_everything:
        folders = [name[:-1] for name in names if name.endswith("/") and name[:-1] not in tables]
        rest = [*beside, *(one for name in folders for one in origin.tree(f"{root}/{name}"))]
        files = [planned_file(path, size) for path, size in rest]
        return Found(
            files=[*files, *(one for table in tables.values() for one in table.everything())], whole_bytes=whole
        )
    files = [planned_file(path, size) for path, size in loose]
    frames = tables.pop("frames.lance")
    videos = tables.pop("videos.lance", None)
    for table in tables.values():
        files += table.everything()
    cameras = videos.values("video_key") if videos else ()
    wanted, keys = _sort_columns(request.columns, frames, cameras, origin, root)
    present = [name for name in FRAME_KEYS if name in frames.columns]
    files += frames.ranges(wanted, keys=present, rows=_rows(frames, request), lookups=True)
    if videos is not None:
        described = [name for name in videos.columns if name not in videos.blob_columns]
        blobs = videos.blob_columns if keys else ()
        chosen = _video_filter(origin, root, keys, request.episodes)
        files += videos.ranges(blobs, keys=described, payloads=chosen, lookups=True)
    return Found(files=files, whole_bytes=whole)


def _sort_columns(
    columns: tuple[str, ...], frames: LanceTable, cameras: tuple[str, ...], origin: Origin, root: str
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
            names = _feature_names(origin, root)
            known = (*(names.get(name, name) for name in frames.columns), *cameras)
            raise ColumnUnknownError(column, known, "/".join(root.split("/")[-2:]))
    return wanted, keys


def _feature_names(origin: Origin, root: str) -> dict[str, str]:
    """How the dataset's owner wrote the names that the table keeps without dots."""
    try:
        path = f"{root}/{INFO}"
        features = json.loads(origin.read(path, 0, origin.size(path)))["features"]
        return {str(name).replace(".", "_"): str(name) for name in features}
    except (PlanError, ValueError, KeyError, TypeError):
        return {}


def _rows(table: LanceTable, request: Request) -> str | None:
    """The filter that selects what was asked for; refused when it selects nothing."""
    clauses = []
    if request.episodes is not None:
        first, last = request.episodes
        if table.find_column("episode_index") is None:
            msg = f"{table.path} has no column episode_index to pick episodes by; leave --episodes out"
            raise PlanError(msg)
        clauses.append(f"episode_index >= {first} AND episode_index < {last}")
    if request.rows is not None:
        clauses.append(request.rows)
    if not clauses:
        return None
    rows = clauses[0] if len(clauses) == 1 else " AND ".join(f"({one})" for one in clauses)
    if not table.holds_rows(rows):
        what = f"episodes {request.episodes[0]}:{request.episodes[1]}" if request.episodes else f"the filter {rows!r}"
        msg = f"{what} select no row of {table.path}"
        raise PlanError(msg)
    return rows


def _video_filter(origin: Origin, root: str, keys: list[str], episodes: tuple[int, int] | None) -> str:
    """Rows of videos.lance that hold these cameras, and of those the files that these episodes lie in."""
    clauses = []
    for key in keys:
        clause = f"video_key = '{key.replace(chr(39), chr(39) * 2)}'"
        files = _episode_files(origin, root, key, episodes) if episodes else None
        if files is not None:
            places = " OR ".join(f"(chunk_index = {chunk} AND file_index = {file})" for chunk, file in files)
            clause = f"({clause} AND ({places or 'false'}))"
        clauses.append(clause)
    return " OR ".join(clauses) or "false"


def _episode_files(origin: Origin, root: str, key: str, episodes: tuple[int, int]) -> list[tuple[int, int]] | None:
    """(chunk, file) of the mp4 files that hold these episodes; None when meta/ does not say."""
    names = ["episode_index", f"videos/{key}/chunk_index", f"videos/{key}/file_index"]
    found: set[tuple[int, int]] = set()
    for path, _ in origin.tree(f"{root}/meta/episodes"):
        if path.endswith(".parquet"):
            columns = read_parquet(origin, path, names)
            if any(name not in columns for name in names):
                return None
            for index, chunk_index, file_index in zip(*(columns[name] for name in names), strict=True):
                if episodes[0] <= index < episodes[1]:
                    found.add((int(chunk_index), int(file_index)))
    return sorted(found) or None


def _single_table(origin: Origin, root: str, request: Request) -> Found:
    folder, version = resolve_version(origin, root, request.version)
    table = LanceTable(origin, folder, version=version, layouts=_LAYOUTS)
    if request.wants_everything:
        return Found(files=list(table.everything()), whole_bytes=table.whole_bytes)
    columns = request.columns or table.columns
    for column in columns:
        table.resolve(column)
    keys = ("episode_index",) if request.episodes is not None and table.find_column("episode_index") else ()
    files = list(table.ranges(columns, keys=keys, rows=_rows(table, request)))
    return Found(files=files, whole_bytes=table.whole_bytes)


def _lerobot(origin: Origin, root: str, request: Request) -> Found:
    dataset = LerobotFiles(origin, root)
    tree = origin.tree(root)
    whole = sum(size for _, size in tree)
    if request.wants_everything:
        return Found(files=[planned_file(path, size) for path, size in tree], whole_bytes=whole)
    files, notes = dataset.ranges(request.columns, request.episodes)
    return Found(files=files, whole_bytes=whole, notes=notes)


def _plain_folder(origin: Origin, root: str, request: Request) -> Found:
    if request.columns or request.episodes:
        msg = f"{root} is no dataset, so columns and episodes cannot be picked from it: leave them out"
        raise FormatUnsupportedError(msg)
    files = [planned_file(path, size) for path, size in origin.tree(root)]
    if not files:
        msg = f"{root} holds no file"
        raise DataUnreadableError(msg)
    return Found(files=files, whole_bytes=sum(file.size for file in files))


def _with_etags(origin: Origin, root: str, files: tuple[PlannedFile, ...]) -> tuple[PlannedFile, ...]:
    """On object storage a file has a name for its content, which tells when it was exchanged for another of its size."""
    if "://" not in root:
        return files

    def named(file: PlannedFile) -> PlannedFile:
        _, etag = origin.identity(file.path if "://" in file.path else f"{root}/{file.path}")
        return replace(file, etag=etag)

    with ThreadPoolExecutor(_READERS) as pool:
        return tuple(pool.map(named, files))


def _relative(root: str, files: Iterable[PlannedFile]) -> Iterator[PlannedFile]:
    for file in files:
        inside = file.path.startswith(f"{root}/")
        yield PlannedFile(
            path=file.path.removeprefix(f"{root}/") if inside else file.path, size=file.size, ranges=file.ranges
        )
