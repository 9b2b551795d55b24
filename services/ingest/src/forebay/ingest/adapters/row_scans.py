"""Feeds the rows of one data file, block by block, to the scans of their episodes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.recording import CLOCK_COLUMN, COUNTED, INDEX_COLUMNS, RENUMBERED, ROW_COLUMNS, Feature, Info
from forebay.ingest.domain.rules import Severity
from forebay.ingest.domain.signals import EpisodeScan, RowBlock, VectorBlock

MAX_EPISODES = 5_000_000
_PLAIN = frozenset({"float32", "float64", "int64", "int32", "bool"})
_ADVICE = {
    "no such column": "Write the column into every data file, or take it out of info.json when nothing needs it.",
}
"""What to do about columns, where it is not the rule's own advice."""
Column = Any
"""A pyarrow array of any kind; its stubs do not know lists."""


def check_columns(schema: pa.Schema, doubled: list[str], info: Info, name: str, users: list[int]) -> list[Breach]:
    """Columns of a data file against info.json."""
    found: list[Breach] = []
    where = f" (episodes {listed(users)})" if users else ""

    def tell(feature: str | None, text: str, expected: str, actual: str, lowered: Severity | None = None) -> None:
        found.append(
            Breach(
                rule=rules.COLUMNS,
                lowered=lowered,
                episodes=tuple(users),
                feature=feature,
                file=name,
                expected=expected,
                found=actual,
                message=f"{name}: {text}{where}",
                advice=_ADVICE.get(actual),
            )
        )

    if doubled:
        tell(None, f"columns {listed(doubled)} occur more than once", "each column once", listed(doubled))
    declared = {*(feature.key for feature in info.features), *info.unknown}
    for key in schema.names:
        if key not in declared and not key.startswith("__"):  # of pandas' own there is nothing to say
            tell(key, f"column {key!r} is not in info.json and is left out", "a feature", "no such feature", "info")
    for feature in info.features:
        if feature.is_video or feature.key in doubled:
            continue
        if feature.key not in schema.names:
            if feature.key == COUNTED and COUNTED in info.undeclared:
                continue  # nobody promised it, and it follows from the order of the rows
            tell(feature.key, f"column {feature.key!r} is missing", "the column", "no such column")
            continue
        wrong = _wrong_kind(feature, schema.field(feature.key).type)
        if wrong is not None:
            expected, actual, slight = wrong
            verb = "holds" if slight else "is"
            tell(
                feature.key, f"column {feature.key!r} {verb} {actual}", expected, actual, "warning" if slight else None
            )
    return found


def _wrong_kind(feature: Feature, stored: pa.DataType) -> tuple[str, str, bool] | None:
    """(expected, found, whether it is only worth a word) of a column that is stored as something else."""
    if feature.is_image:
        return None if _holds_pictures(stored) else ("struct of bytes and path", str(stored), False)
    if feature.key in ROW_COLUMNS:  # of any width: readers convert them, and versions count most of them anew
        if feature.key == CLOCK_COLUMN:
            return None if pa.types.is_floating(stored) else (feature.dtype, str(stored), False)
        # pandas makes floats of whole numbers when one was missing on the way
        return None if pa.types.is_integer(stored) else (feature.dtype, str(stored), _is_float(stored))
    inner = _inner(stored)
    if feature.dtype not in _PLAIN or _same_kind(inner, feature.dtype):
        return None
    return feature.dtype, str(inner), True


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


def _is_whole(column: Column) -> bool:
    values = column.to_numpy(zero_copy_only=False)
    return bool(np.all(np.isfinite(values) & (values == np.trunc(values))))


def _holds_pictures(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_pictures(kind.storage_type)
    if isinstance(kind, pa.StructType):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        return "bytes" in names and _holds_pictures(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _inner(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _inner(kind.storage_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _inner(kind.value_type)
    return kind


def _same_kind(kind: pa.DataType, dtype: str) -> bool:
    return str(kind) == {"float32": "float", "float64": "double"}.get(dtype, dtype)


class RowReader:
    """Reads one data file into the scans; keeps nothing but the digests of the episode that is open."""

    def __init__(self, info: Info, scans: dict[int, EpisodeScan], on_rows: Callable[[int], None]) -> None:
        self._info = info
        self._scans = scans
        self._on_rows = on_rows
        self._open: int | None = None
        self._row = 0
        """Of the file that is read."""
        self._digests: dict[str, Any] = {}

    def read(self, path: Path, name: str, users: list[int]) -> list[Breach]:
        """Scan one file; raises `UnreadableFileError` when it breaks, with what came before already counted."""
        with ParquetTable(path) as table:
            found = check_columns(table.schema, table.doubled, self._info, name, users)
            wrong = {breach.feature for breach in found if breach.severity == "error"} | set(table.doubled)
            if "episode_index" in wrong:
                return found
            # one column that cannot be used hides nothing of the others
            columns = [key for key in (*ROW_COLUMNS, *(f.key for f in self._info.row_features)) if key not in wrong]
            nulls = 0
            floats = [
                key
                for key in INDEX_COLUMNS
                if key in columns and key in table.schema.names and _is_float(table.schema.field(key).type)
            ]
            torn: set[str] = set()
            try:
                for batch in table.blocks(columns):
                    nulls += sum(batch.column(key).null_count for key in ROW_COLUMNS if key in batch.schema.names)
                    torn.update(key for key in floats if not _is_whole(batch.column(key)))
                    self._take(batch, name)
                    self._on_rows(batch.num_rows)
            finally:
                self._close()
        found = [breach for breach in found if breach.feature not in torn]
        for key in sorted(torn):
            where = f" (episodes {listed(users)})" if users else ""
            text = f"{name}: column {key!r} holds numbers that are not whole{where}"
            found.append(
                Breach(
                    rule=rules.COLUMNS,
                    episodes=tuple(users),
                    feature=key,
                    file=name,
                    expected="whole numbers",
                    found="fractions or missing numbers",
                    message=text,
                )
            )
        if nulls:
            found.append(
                Breach(
                    rule=rules.FRAME_ORDER,
                    episodes=tuple(users),
                    file=name,
                    expected="a number in every row",
                    found=f"{nulls} missing",
                    message=f"{name}: {nulls} values of {listed(list(ROW_COLUMNS))} are missing",
                )
            )
        return found

    def _take(self, batch: pa.RecordBatch, name: str) -> None:
        episodes = _whole(batch.column("episode_index"))
        cuts = [0, *(int(cut) for cut in np.flatnonzero(np.diff(episodes)) + 1), batch.num_rows]
        for start, stop in pairwise(cuts):
            self._take_episode(int(episodes[start]), batch.slice(start, stop - start), name)

    def _take_episode(self, episode: int, rows: pa.RecordBatch, name: str) -> None:
        if episode not in self._scans and len(self._scans) >= MAX_EPISODES:
            return
        scan = self._scans.setdefault(episode, EpisodeScan())
        scan.places.setdefault(name, self._row)
        self._row += rows.num_rows
        if episode != self._open:
            self._close()
            self._open = episode
            scan.pieces += 1
        elif name not in scan.files:
            scan.pieces += 1
        there = COUNTED in rows.schema.names
        counted = _whole(rows.column(COUNTED)) if there else np.arange(scan.rows, scan.rows + rows.num_rows)
        names = rows.schema.names
        vectors = {
            f.key: _vector(rows.column(f.key)) for f in self._info.row_features if not f.is_free and f.key in names
        }
        vectors |= {key: _vector(rows.column(key)) for key in ROW_COLUMNS if key in names}
        scan.add(
            RowBlock(
                file=name,
                times=_times(rows.column(CLOCK_COLUMN)) if CLOCK_COLUMN in names else None,
                frame_index=counted,
                index=_whole(rows.column("index")) if "index" in names else None,
                task_index=_whole(rows.column("task_index")) if "task_index" in names else None,
                vectors=vectors,
            ),
            self._info.fps,
        )
        self._digest(rows)

    def _digest(self, rows: pa.RecordBatch) -> None:
        for key in rows.schema.names:
            if key not in RENUMBERED:
                for level, piece in enumerate(_content(rows.column(key))):
                    self._digests.setdefault(f"{key}/{level}", hashlib.sha256()).update(piece)

    def _close(self) -> None:
        """Seal the digest of the episode whose rows end here."""
        if self._open is not None and self._digests:
            whole = hashlib.sha256(self._scans[self._open].digest.encode())
            for key in sorted(self._digests):
                whole.update(f"{key}={self._digests[key].hexdigest()};".encode())
            self._scans[self._open].digest = whole.hexdigest()
        self._open = None
        self._digests = {}


def _times(column: Column) -> npt.NDArray[np.float64]:
    filled: npt.NDArray[np.float64] = column.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    return filled


def _whole(column: Column) -> npt.NDArray[np.int64]:
    filled: npt.NDArray[np.int64] = column.cast(pa.int64(), safe=False).fill_null(-1).to_numpy(zero_copy_only=False)
    return filled


def _vector(column: Column) -> VectorBlock:
    """Lengths and values of a feature's rows, whatever kind of list it is stored in."""
    nulls = column.null_count
    lengths = np.ones(len(column), dtype=np.int64)
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        column, kind = column.storage, column.storage.type
    outer: npt.NDArray[np.int64] | None = None
    listed_type = False
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        if listed_type:
            outer = lengths if outer is None else outer
            ends = np.cumsum(lengths)
            totals = np.concatenate(([0], np.cumsum(inner)))
            lengths = totals[ends] - totals[ends - lengths]
        else:
            lengths, listed_type = inner, True
        column, kind = column.flatten(), column.type.value_type
        nulls += column.null_count if len(column) else 0
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        filled = column.cast(pa.float64(), safe=False).fill_null(0.0)
        values = filled.to_numpy(zero_copy_only=False)
        floating = pa.types.is_floating(kind)
        return VectorBlock(lengths=lengths, values=values, nulls=nulls, floating=floating, outer=outer)
    return VectorBlock(lengths=lengths, values=None, nulls=nulls, floating=False, outer=outer)


def _content(column: Column) -> list[bytes]:
    """The values of a column as byte strings, one per level of nesting, that continue across blocks."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
        return [lengths.astype(np.int64).tobytes(), *_content(column.flatten())]
    if pa.types.is_primitive(kind) and not column.null_count and not pa.types.is_boolean(kind):
        return [column.to_numpy(zero_copy_only=False).tobytes()]
    return ["".join(f"{value!r}\x1f" for value in column.to_pylist()).encode("utf-8", "surrogatepass")]
