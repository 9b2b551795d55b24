"""Fields of the episode table that no reader of LeRobot knows: kept per episode, whatever they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.exact_columns import column_of, stacked
from forebay.ingest.adapters.lerobot_tables import is_v2
from forebay.ingest.adapters.lerobot_v2_tables import EPISODES_FILE, episode_lines
from forebay.ingest.adapters.metadata_tables import CAMERA_PLACES, episode_files
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.adapters.task_numbers import renumbered
from forebay.ingest.domain.labels import is_task_number
from forebay.ingest.domain.recording import Info

_INDEX = "episode_index"
_WRITTEN_ANEW = frozenset(
    {
        _INDEX,
        "tasks",
        "length",
        "dataset_from_index",
        "dataset_to_index",
        "data/chunk_index",
        "data/file_index",
        "meta/episodes/chunk_index",
        "meta/episodes/file_index",
    }
)
Column = Any
"""A pyarrow array of any kind; its stubs do not know lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeFields:
    """The further fields of some episodes."""

    columns: Mapping[str, Column]
    left_out: tuple[str, ...] = ()
    """Columns that describe features which are not there."""

    def mapped(self, numbers: Mapping[int, int]) -> EpisodeFields:
        """With the task numbers of a version."""
        if all(old == new for old, new in numbers.items()):
            return self
        columns = {
            name: renumbered(column, numbers, f"the episode field {name}", named=is_task_number(name))
            for name, column in self.columns.items()
        }
        return EpisodeFields(columns=columns, left_out=self.left_out)


def read_fields(folder: DatasetFolder, info: Info, episodes: Sequence[int]) -> EpisodeFields:
    """The further fields of these episodes, in this order. Raises `IngestError` when the table is not readable any more."""
    if is_v2(info):
        return _of_lines(folder, episodes)
    return _of_tables(folder, info, episodes)


def _of_lines(folder: DatasetFolder, episodes: Sequence[int]) -> EpisodeFields:
    wanted = set(episodes)
    lines: dict[int, dict[str, Any]] = {}
    for index, line in episode_lines(folder, EPISODES_FILE):
        if index in wanted:
            lines.setdefault(index, {key: value for key, value in line.items() if key not in _WRITTEN_ANEW})
    names = dict.fromkeys(name for line in lines.values() for name in line)
    return EpisodeFields(
        columns={name: column_of([lines.get(n, {}).get(name) for n in episodes], name) for name in names}
    )


def _of_tables(folder: DatasetFolder, info: Info, episodes: Sequence[int]) -> EpisodeFields:
    pieces: list[pa.Table] = []
    left_out: dict[str, None] = {}
    for file in episode_files(folder):
        with ParquetTable(folder.path(file)) as table:
            unknown = [name for name in table.schema.names if name not in _WRITTEN_ANEW and not name.startswith("__")]
            kept = [name for name in unknown if _is_kept(name, info)]
            left_out |= dict.fromkeys(
                _short(name) for name in unknown if name not in kept and not _is_known(name, info)
            )
            pieces.append(table.read([_INDEX, *kept]))
    numbers = [number for piece in pieces for number in piece[_INDEX].to_pylist()]
    rows = {number: row for row, number in reversed([*enumerate(numbers)])}
    order = pa.array([rows.get(number) for number in episodes], pa.int64())
    columns = {}
    for name in dict.fromkeys(name for piece in pieces for name in piece.schema.names if name != _INDEX):
        columns[name] = stacked([_column(piece, name) for piece in pieces], name).take(order)
    return EpisodeFields(columns=columns, left_out=tuple(left_out))


def _column(table: pa.Table, name: str) -> Column:
    return table[name].combine_chunks() if name in table.schema.names else pa.nulls(table.num_rows)


def _is_known(name: str, info: Info) -> bool:
    """Statistics and places in files of declared features, which every version writes anew."""
    keys = [feature.key for feature in info.features]
    if name.startswith("stats/"):
        return any(name.startswith(f"stats/{key}/") for key in keys)
    return any(name == f"videos/{key}/{place}" for key in keys for place in CAMERA_PLACES)


def _is_kept(name: str, info: Info) -> bool:
    if name.startswith("stats/"):
        return False
    if name.startswith("videos/"):
        declared = any(name.startswith(f"videos/{camera.key}/") for camera in info.cameras)
        return declared and not _is_known(name, info)
    return True


def _short(name: str) -> str:
    """`stats/force/mean` and its sisters are told as one."""
    return name.rpartition("/")[0] or name


def together(parts: Iterator[tuple[EpisodeFields, int]]) -> dict[str, Column]:
    """The fields of all origins of a version, one after the other; the number is how many episodes each has."""
    found: dict[str, list[Column]] = {}
    done = 0
    for fields, count in parts:
        for name, column in fields.columns.items():
            found.setdefault(name, [pa.nulls(done)] if done else []).append(column)
        done += count
        for columns in found.values():
            lacking = done - sum(len(column) for column in columns)
            if lacking:
                columns.append(pa.nulls(lacking))
    return {name: stacked(columns, name) for name, columns in found.items()}
