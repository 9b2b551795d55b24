"""Writes the `meta/` folder of a version: info.json, episode table, tasks and statistics, numbered densely."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.exact_columns import column_of
from forebay.ingest.adapters.lerobot_tables import is_v2
from forebay.ingest.adapters.lerobot_v2_tables import episode_statistics
from forebay.ingest.adapters.metadata_tables import episode_files
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain import statistics
from forebay.ingest.domain.info_file import MAX_WIDTH
from forebay.ingest.domain.path_template import DEFAULT_DATA_PATH, DEFAULT_VIDEO_PATH
from forebay.ingest.domain.recording import Info
from forebay.ingest.domain.statistics import Statistics
from forebay.ingest.domain.version_plan import FILES_PER_CHUNK, PlannedEpisode, VersionPlan
from forebay.ingest.domain.version_splits import version_splits
from forebay.ingest.errors import IngestError

_GATHER = 32
"""Episodes kept as Python values, which take a hundred times the room of the table they become."""
_GROUP = 256
"""Episodes of one row group."""
_NARROW = 512
"""Values per row."""

_ONLY_V2 = ("total_chunks", "total_videos")
_SINCE_V3: dict[str, Any] = {"data_files_size_in_mb": 100, "video_files_size_in_mb": 200}
"""LeRobot's own defaults, for sources of v2.x that lack them."""

StatsOf = Mapping[str, Statistics]


def write_info(meta: Path, plan: VersionPlan) -> None:
    """info.json of the source, with what the version changes."""
    document = _SINCE_V3 | {key: value for key, value in plan.info.document.items() if key not in _ONLY_V2}
    document |= {
        "codebase_version": "v3.0",
        "total_episodes": len(plan.episodes),
        "total_frames": plan.frames,
        "total_tasks": len(plan.tasks),
        "chunks_size": FILES_PER_CHUNK,
        "splits": version_splits(plan),
        "data_path": DEFAULT_DATA_PATH,
        "video_path": DEFAULT_VIDEO_PATH if plan.info.cameras else None,
        "storage_format": "lance",
    }
    _write_json(meta / "info.json", document)


def _write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=4, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def task_notes(plan: VersionPlan) -> dict[str, list[Any]]:
    """What the origins' task tables say beside the texts: column -> the value of every task."""
    found: dict[str, list[Any]] = {}
    for source in plan.sources.values():
        for number, notes in source.task_notes.items():
            place = plan.numbers[source.origin].get(number)
            if place is None:
                continue
            for name, value in notes.items():
                column = found.setdefault(name, [None] * len(plan.tasks))
                column[place] = value if column[place] is None else column[place]
    return found


def write_tasks(meta: Path, plan: VersionPlan) -> None:
    """tasks.parquet with the text as pandas index, which is how LeRobot looks tasks up."""
    tasks = plan.tasks
    column = {"metadata": None}
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            column | {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
            column | {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object"},
        ],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    fields: list[pa.Field[Any]] = [pa.field("task_index", pa.int64()), pa.field("task", pa.string())]
    schema = pa.schema(fields, {"pandas": json.dumps(pandas)})
    table = pa.table({"task_index": list(range(len(tasks))), "task": list(tasks)}, schema=schema)
    for name, values in task_notes(plan).items():
        table = table.append_column(name, column_of(values, f"the task field {name}"))
    pq.write_table(table, meta / "tasks.parquet")


class EpisodeTableWriter:
    """Writes meta/episodes as the episodes come, and adds up the dataset's statistics."""

    def __init__(self, meta: Path, info: Info, fields: Mapping[str, Any]) -> None:
        """`fields`: further columns, with a value for every episode of the version."""
        folder = meta / "episodes" / "chunk-000"
        folder.mkdir(parents=True)
        self._path = folder / "file-000.parquet"
        self._meta = meta
        self._info = info
        self._fields = fields
        self._done = 0
        self._rows: list[dict[str, Any]] = []
        self._tables: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._totals: dict[str, Statistics] = {}
        self._lacking: set[str] = set()
        """Features that some episode has no statistics of: the dataset gets none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, episode: PlannedEpisode, stats: StatsOf) -> None:
        row: dict[str, Any] = {
            "episode_index": episode.index,
            "tasks": list(episode.texts),
            "length": episode.length,
            "data/chunk_index": 0,
            "data/file_index": 0,
            "dataset_from_index": episode.start,
            "dataset_to_index": episode.start + episode.length,
        }
        for camera, chunk, file, start, stop in episode.videos:
            place = f"videos/{camera}"
            row |= {f"{place}/chunk_index": chunk, f"{place}/file_index": file}
            row |= {f"{place}/from_timestamp": start, f"{place}/to_timestamp": stop}
        for feature in self._info.features:
            found = stats.get(feature.key)
            if found is None:
                self._lacking.add(feature.key)
                continue
            self._totals[feature.key] = statistics.merge(self._totals.get(feature.key), found)
            row |= {f"stats/{feature.key}/{name}": value for name, value in statistics.to_lists(found).items()}
        row |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        self._rows.append(row)
        if len(self._rows) >= _GATHER:
            self._gather()

    def _gather(self) -> None:
        if not self._rows:
            return
        if self._schema is None:
            self._schema = pa.Table.from_pylist(self._rows[:1]).schema
        table = pa.Table.from_pylist(self._rows, schema=self._schema)
        for name, column in self._fields.items():
            table = table.append_column(name, column.slice(self._done, table.num_rows))
        self._tables.append(table)
        self._done += table.num_rows
        self._rows = []
        if sum(table.num_rows for table in self._tables) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._schema is None or not self._tables:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._tables[0].schema)
        self._writer.write_table(pa.concat_tables(self._tables))
        self._tables = []

    def finish(self) -> tuple[str, ...]:
        """Write what is left, and stats.json. Returns the features that it has no statistics of, although some episode has."""
        self._gather()
        self._flush()
        whole = {key: value for key, value in self._totals.items() if key not in self._lacking}
        _write_json(self._meta / "stats.json", {key: statistics.to_lists(value) for key, value in whole.items()})
        return tuple(sorted(self._lacking & self._totals.keys()))


def episode_ranges(meta: Path) -> Iterator[tuple[int, int]]:
    """First row, and the row after the last, of every episode that `meta` lists."""
    for path in sorted((meta / "episodes").rglob("*.parquet")):
        with ParquetTable(path, links=True) as table:
            for batch in table.blocks(["dataset_from_index", "dataset_to_index"]):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def camera_statistics(root: Path, info: Info) -> dict[int, dict[str, Statistics]]:
    """The recorder's per-episode statistics of its cameras, by source index; what cannot be used is left out.

    They are made of sampled pixels, so they are taken over rather than computed again.
    """
    folder = DatasetFolder(root)
    if is_v2(info):
        return _v2_camera_statistics(folder, info)
    found: dict[int, dict[str, Statistics]] = {}
    cameras = (*info.cameras, *info.image_cameras)
    names = [*statistics.MOMENTS, *statistics.QUANTILES]
    for file in episode_files(folder):
        try:
            with ParquetTable(folder.path(file)) as table:
                wanted = [f"stats/{camera.key}/{name}" for camera in cameras for name in names]
                there = [name for name in wanted if name in table.schema.names]
                if not there:
                    continue
                rows = table.read(["episode_index", *there]).to_pylist()
        except IngestError:
            continue
        for row in rows:
            for camera in cameras:
                prefix = f"stats/{camera.key}/"
                entry = {key.removeprefix(prefix): row[key] for key in there if key.startswith(prefix)}
                stats = statistics.from_lists(entry)
                if stats is not None and stats["mean"].size <= MAX_WIDTH:
                    found.setdefault(row["episode_index"], {})[camera.key] = stats
    return found


def _v2_camera_statistics(folder: DatasetFolder, info: Info) -> dict[int, dict[str, Statistics]]:
    found: dict[int, dict[str, Statistics]] = {}
    for index, entries in episode_statistics(folder):
        for camera in (*info.cameras, *info.image_cameras):
            entry = entries.get(camera.key)
            stats = statistics.from_lists(entry) if isinstance(entry, dict) else None
            if stats is not None and stats["mean"].size <= MAX_WIDTH:
                found.setdefault(index, {})[camera.key] = stats
    return found


class EpisodeStatistics:
    """Collects the numeric columns of one episode and describes them when it is complete."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[Any]] = {}

    def add(self, rows: pa.RecordBatch, columns: list[tuple[str, str]]) -> None:
        for key, column in columns:
            values: Any = rows.column(column)
            width = 1
            if pa.types.is_fixed_size_list(values.type):
                width, values = values.type.list_size, values.flatten()
            if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
                numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
                self._blocks.setdefault(key, []).append(numbers.reshape(-1, width))

    def describe(self) -> dict[str, Statistics]:
        """Narrow columns are described side by side: per call numpy takes longer than for the numbers."""
        found: dict[str, Statistics] = {}
        narrow: dict[str, Any] = {}
        for key, blocks in self._blocks.items():
            values = np.concatenate(blocks)
            if not len(values) or not np.isfinite(values).all():
                continue
            if values.shape[1] <= _NARROW:
                narrow[key] = values
            else:
                found[key] = statistics.describe(values)
        if narrow:
            together = statistics.describe(np.concatenate(list(narrow.values()), axis=1))
            ends = np.cumsum([values.shape[1] for values in narrow.values()])
            for key, stop in zip(narrow, ends, strict=True):
                own = slice(stop - narrow[key].shape[1], stop)
                found[key] = {name: v if name == "count" else v[own] for name, v in together.items()}
        return found
