"""Turns uploaded rows into rows of the frames table, and compares the two bit by bit.

Writing and comparing share no code on purpose: the comparison looks at the flat
values of both sides, so that a mistake in the conversion cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.ingest.domain.recording import RENUMBERED, ROW_COLUMNS, Info
from forebay.ingest.domain.version_plan import PlannedEpisode
from forebay.ingest.errors import ConversionError, ReadBackError

Column = Any
"""A pyarrow array of any kind; its stubs do not know lists."""


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _storage(column: Column) -> Column:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def frame_columns(info: Info) -> list[tuple[str, str]]:
    """(uploaded name, name in the table) in the order of info.json."""
    kept = {feature.key for feature in (*info.row_features, *info.image_cameras)} | set(ROW_COLUMNS)
    return [(feature.key, feature.column) for feature in info.features if feature.key in kept]


def frame_schema(info: Info, uploaded: pa.Schema) -> pa.Schema:
    """The table's schema: names without dots, vectors with a fixed width."""
    widths = {feature.key: feature.width for feature in info.features}
    fields = []
    for key, column in frame_columns(info):
        kind = uploaded.field(key).type
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if _is_list(kind):
            inner = kind.value_type
            while _is_list(inner):
                inner = inner.value_type
            kind = pa.list_(inner, widths[key])
        fields.append(pa.field(column, pa.int64() if key in RENUMBERED else kind))
    return pa.schema(fields)


class FrameBuilder:
    """Makes table rows of the rows of one episode after the other."""

    def __init__(self, info: Info, schema: pa.Schema, tasks: dict[int, int]) -> None:
        self._columns = frame_columns(info)
        self._schema = schema
        self._tasks = tasks
        """Task number in the upload -> in the version."""

    def build(self, rows: pa.RecordBatch, episode: PlannedEpisode, done: int) -> pa.RecordBatch:
        """`rows` are the next rows of `episode`, of which `done` were built before."""
        count = rows.num_rows
        made: list[Column] = []
        for (key, _), field in zip(self._columns, self._schema, strict=True):
            if key == "episode_index":
                made.append(pa.array(np.full(count, episode.index, dtype=np.int64)))
            elif key == "index":
                made.append(pa.array(np.arange(episode.start + done, episode.start + done + count)))
            elif key == "task_index":
                made.append(pa.array(self._renumber(rows.column(key), episode)))
            else:
                made.append(self._fixed(rows.column(key), field, episode))
        return pa.RecordBatch.from_arrays(made, schema=self._schema)

    def _renumber(self, column: Column, episode: PlannedEpisode) -> Any:
        kinds, places = np.unique(_numbers(column), return_inverse=True)
        try:
            return np.array([self._tasks[int(number)] for number in kinds], dtype=np.int64)[places]
        except KeyError as error:
            msg = f"episode {episode.accepted.id}: task_index {error.args[0]} is not among its accepted tasks"
            raise ConversionError(msg) from error

    def _fixed(self, column: Column, field: pa.Field[Any], episode: PlannedEpisode) -> Column:
        column = _storage(column)
        if not pa.types.is_fixed_size_list(field.type):
            if column.type != field.type:
                msg = f"episode {episode.accepted.id}: {field.name} is {column.type}, the version has {field.type}"
                raise ConversionError(msg)
            return column
        count, width = len(column), field.type.list_size
        while _is_list(column.type):
            column = column.flatten()
        if len(column) != count * width or column.type != field.type.value_type:
            msg = f"episode {episode.accepted.id}: {field.name} has rows of another width or type than {field.type}"
            raise ConversionError(msg)
        return pa.FixedSizeListArray.from_arrays(column, width)


def compare_rows(
    uploaded: pa.RecordBatch,
    stored: pa.RecordBatch,
    *,
    episode: PlannedEpisode,
    done: int,
    info: Info,
    texts: dict[int, str],
    tasks: tuple[str, ...],
) -> None:
    """Raise `ReadBackError` unless `stored` is `uploaded`, bit by bit, with the version's numbers."""
    for key, column in frame_columns(info):
        before: Column = uploaded.column(key)
        after: Column = stored.column(column)
        if key == "episode_index":
            same = bool(np.all(_numbers(after) == episode.index))
        elif key == "index":
            same = bool(np.array_equal(_numbers(after), np.arange(len(after)) + episode.start + done))
        elif key == "task_index":
            pairs = np.unique(np.stack([_numbers(before), _numbers(after)]), axis=1).T
            same = all(texts.get(int(old)) == tasks[int(new)] for old, new in pairs)
        else:
            same = _same_bits(before, after)
        if not same:
            msg = f"episode {episode.accepted.id}, rows from {done}: {key} was read back differently from what was uploaded"
            raise ReadBackError(msg)


def _numbers(column: Column) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _same_bits(before: Column, after: Column) -> bool:
    before, after = _storage(before), _storage(after)
    if len(before) != len(after):
        return False
    if _is_list(before.type):
        flat = before
        lengths = np.ones(len(before), dtype=np.int64)
        while _is_list(flat.type):
            inner = pc.list_value_length(flat).to_numpy(zero_copy_only=False)
            ends = np.cumsum(lengths)
            totals = np.concatenate(([0], np.cumsum(inner)))
            lengths = totals[ends] - totals[ends - lengths] if flat is not before else inner
            flat = flat.flatten()
        if not np.all(lengths == after.type.list_size):
            return False
        before, after = flat, after.flatten()
    if before.type != after.type:
        return False
    if pa.types.is_floating(before.type) and not before.null_count and not after.null_count:
        left, right = _numbers(before), _numbers(after)
        return bool(left.tobytes() == right.tobytes())  # NaN and -0.0 count as what they are
    return bool(before.equals(after))


class Rows:
    """Cuts a stream of batches into the lengths that are asked for."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: pa.Table | None = None

    def take(self, count: int) -> pa.RecordBatch:
        """The next `count` rows; raises `ReadBackError` when the table ends before."""
        while self._held is None or self._held.num_rows < count:
            batch = next(self._batches, None)
            if batch is None:
                msg = f"the frames table ends {count - (self._held.num_rows if self._held else 0)} rows too early"
                raise ReadBackError(msg)
            table = pa.Table.from_batches([batch])
            self._held = table if self._held is None else pa.concat_tables([self._held, table])
        taken = self._held.slice(0, count).combine_chunks()
        self._held = self._held.slice(count)
        return taken.to_batches(max_chunksize=None)[0]

    @property
    def ended(self) -> bool:
        return not (self._held is not None and self._held.num_rows) and next(self._batches, None) is None
