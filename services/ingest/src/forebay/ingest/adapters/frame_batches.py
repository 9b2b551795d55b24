"""Turns uploaded rows into rows of the frames table, and compares the two bit by bit.

Writing and comparing share no code on purpose: the comparison looks at the flat
values of both sides, so that a mistake in the conversion cannot hide itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forebay.ingest.adapters.task_numbers import renumbered, same_tasks
from forebay.ingest.domain.labels import referring_columns
from forebay.ingest.domain.recording import COUNTED, RENUMBERED, ROW_COLUMNS, Feature, Info
from forebay.ingest.domain.version_plan import PlannedEpisode, Source
from forebay.ingest.errors import ConversionError, ReadBackError

Column = Any
"""A pyarrow array of any kind; its stubs do not know lists."""


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def storage_of(column: Column) -> Column:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def frame_columns(info: Info) -> list[tuple[str, str]]:
    """(uploaded name, name in the table) in the order of info.json."""
    kept = {feature.key for feature in (*info.row_features, *info.image_cameras)} | set(ROW_COLUMNS)
    return [(feature.key, feature.column) for feature in info.features if feature.key in kept]


def frame_schema(info: Info, uploaded: Iterable[pa.Schema]) -> pa.Schema:
    """The table's schema: names without dots, numbers in vectors of a fixed width, the widest type of all files.

    Raises `ConversionError` when the files store a column in types that do not go together.
    """
    features = {feature.key: feature for feature in info.features}
    kinds: dict[str, pa.DataType] = {}
    for schema in uploaded:
        for key, column in frame_columns(info):
            kind = (
                pa.int64() if key in RENUMBERED or key == COUNTED else _kind_of(features[key], schema.field(key).type)
            )
            known = kinds.setdefault(column, kind)
            if known != kind:
                kinds[column] = _wider(column, known, kind)
    return pa.schema([pa.field(column, kind) for column, kind in kinds.items()])


def _kind_of(feature: Feature, kind: pa.DataType) -> pa.DataType:
    """What one file's column becomes in the table."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if feature.is_free:
        return kind
    inner: Any = kind
    while _is_list(inner):
        inner = inner.value_type
    inner = inner.value_type if pa.types.is_dictionary(inner) else inner
    made: pa.DataType = inner
    if _is_list(kind) and pa.types.is_primitive(inner):
        made = pa.list_(inner, feature.width)
    elif _is_list(kind) and feature.width > 1:
        made = pa.list_(inner)  # Lance has vectors of a fixed width for numbers only
    return made


def _wider(column: str, left: Any, right: Any) -> pa.DataType:
    """The type that can hold the values of both."""
    if pa.types.is_fixed_size_list(left) and pa.types.is_fixed_size_list(right):
        vector: pa.DataType = pa.list_(_wider(column, left.value_type, right.value_type), left.list_size)
        return vector
    try:
        schemas = [pa.schema([pa.field(column, kind)]) for kind in (left, right)]
        wider: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(column).type
    except pa.ArrowException as error:
        msg = f"{column} is stored as {left} in one file and as {right} in another; write one type into all of them"
        raise ConversionError(msg) from error
    return wider


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNumbers:
    """What the task numbers of one origin become in the version, and the columns that hold some."""

    numbers: Mapping[int, int]
    columns: Mapping[str, bool]
    """Column -> whether all whole numbers in it are task numbers, as `referring_columns` gives them."""

    @property
    def mapped(self) -> Mapping[str, bool]:
        """Those whose numbers change."""
        return {} if all(old == new for old, new in self.numbers.items()) else self.columns


def task_numbers(source: Source, numbers: Mapping[int, int]) -> TaskNumbers:
    """Those of one origin of a version."""
    return TaskNumbers(numbers=numbers, columns=referring_columns(source.info, source.labels))


class FrameBuilder:
    """Makes table rows of the rows of one episode after the other."""

    def __init__(self, info: Info, schema: pa.Schema, numbers: TaskNumbers) -> None:
        self._columns = frame_columns(info)
        self._schema = schema
        self._tasks = numbers.numbers
        self._mapped = numbers.mapped

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
            elif key in self._mapped:
                name = f"episode {episode.accepted.id}: {key}"
                column = renumbered(storage_of(rows.column(key)), self._tasks, name, named=self._mapped[key])
                made.append(self._fixed(column, field, episode))
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
        column = storage_of(column)
        fixed = pa.types.is_fixed_size_list(field.type)
        if column.type == field.type and not fixed:
            return column
        count, width = len(column), field.type.list_size if fixed else 1
        flat = column
        while _is_list(flat.type):
            flat = flat.flatten()
        if pa.types.is_list(field.type):
            return _exactly(column, field.type, field.name, episode)
        if len(flat) != count * width:
            msg = f"episode {episode.accepted.id}: {field.name} has rows of another width than {field.type}"
            raise ConversionError(msg)
        flat = _exactly(flat, field.type.value_type if fixed else field.type, field.name, episode)
        return pa.FixedSizeListArray.from_arrays(flat, width) if fixed else flat


def _exactly(column: Column, kind: pa.DataType, name: str, episode: PlannedEpisode) -> Column:
    """The same values in another type, where that type can hold them."""
    if column.type == kind:
        return column
    try:
        made = column.cast(kind)
        if _same_values(column, made):
            return made
    except pa.ArrowException:
        pass
    msg = f"episode {episode.accepted.id}: {name} is {column.type}, and the version's {kind} cannot hold its values exactly"
    raise ConversionError(msg)


def _same_values(before: Column, after: Column) -> bool:
    """Equal to the last bit when `after` is put back into the type of `before`."""
    if pa.types.is_dictionary(before.type):
        before = before.dictionary_decode()
    if before.type != after.type:
        try:
            after = after.cast(before.type)
        except pa.ArrowException:
            return False
    if pa.types.is_floating(before.type) and not before.null_count and not after.null_count:
        return bool(_numbers(before).tobytes() == _numbers(after).tobytes())  # NaN and -0.0 count as what they are
    return bool(before.equals(after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What the numbers of an origin's rows mean there, and in the version that was read back."""

    info: Info
    texts: Mapping[int, str]
    tasks: Sequence[str]
    """Read back out of the version's own task table."""
    mapped: Mapping[str, bool]


def compare_rows(
    uploaded: pa.RecordBatch,
    stored: pa.RecordBatch,
    *,
    episode: PlannedEpisode,
    done: int,
    meaning: Meaning,
) -> None:
    """Raise `ReadBackError` unless `stored` is `uploaded`, bit by bit, with the version's numbers."""
    texts, tasks = meaning.texts, meaning.tasks
    for key, column in frame_columns(meaning.info):
        before: Column = uploaded.column(key)
        after: Column = stored.column(column)
        if key == "episode_index":
            same = bool(np.all(_numbers(after) == episode.index))
        elif key == "index":
            same = bool(np.array_equal(_numbers(after), np.arange(len(after)) + episode.start + done))
        elif key == "task_index":
            pairs = np.unique(np.stack([_numbers(before), _numbers(after)]), axis=1).T
            same = all(same_tasks(int(old), int(new), texts, tasks, named=True) for old, new in pairs)
        elif key in meaning.mapped:
            same = same_tasks(before.to_pylist(), after.to_pylist(), texts, tasks, named=meaning.mapped[key])
        else:
            same = _same_bits(before, after)
        if not same:
            msg = f"episode {episode.accepted.id}, rows from {done}: {key} was read back differently from what was uploaded"
            raise ReadBackError(msg)


def _numbers(column: Column) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _same_bits(before: Column, after: Column) -> bool:
    before, after = storage_of(before), storage_of(after)
    if len(before) != len(after):
        return False
    if _is_list(before.type) and not pa.types.is_fixed_size_list(after.type):
        if _is_list(after.type):
            return _same_values(before, after)
        while _is_list(before.type):
            if not np.all(pc.list_value_length(before).to_numpy(zero_copy_only=False) == 1):
                return False
            before = before.flatten()
        return _same_values(before, after)
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
    return _same_values(before, after)


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
