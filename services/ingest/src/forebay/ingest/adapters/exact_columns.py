"""Columns for values that somebody else invented: typed where that is exact, JSON text where it is not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from forebay.ingest.errors import ConversionError

Column = Any
"""A pyarrow array of any kind; its stubs do not know lists."""


def column_of(values: list[Any], name: str) -> Column:
    """A column that gives exactly these values back; as JSON text when no type of a table can hold all of them."""
    try:
        made = pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return _as_text(values, name)
    return made if _can_be_written(made.type) and equal(made.to_pylist(), values) else _as_text(values, name)


def stacked(pieces: Sequence[Column], name: str) -> Column:
    """The same column of several tables, one after the other, without losing a value."""
    values = [value for piece in pieces for value in piece.to_pylist()]
    schemas = [pa.schema([pa.field(name, piece.type)]) for piece in pieces]
    try:
        kind = pa.unify_schemas(schemas, promote_options="permissive").field(name).type
        made = pa.chunked_array([piece.cast(kind) for piece in pieces], kind).combine_chunks()
    except (pa.ArrowException, OverflowError, ValueError):
        return _as_text(values, name)
    return made if equal(made.to_pylist(), values) else _as_text(values, name)


def _can_be_written(kind: Any) -> bool:
    """Parquet has no structs without fields."""
    if pa.types.is_struct(kind):
        return bool(kind.num_fields) and all(_can_be_written(kind.field(n).type) for n in range(kind.num_fields))
    return _can_be_written(kind.value_type) if pa.types.is_list(kind) else True


def _as_text(values: list[Any], name: str) -> Column:
    try:
        texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
    except (TypeError, ValueError) as error:
        msg = f"the values of {name} have types that do not go together; write one type into all episodes"
        raise ConversionError(msg) from error
    return pa.array(texts, pa.string())


def equal(left: Any, right: Any) -> bool:
    """Equal values, NaN included; a missing field is not a field without a value."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right and isinstance(left, bool) == isinstance(right, bool))


def decoded(stored: Any, value: Any) -> Any:
    """A stored value as what `value` is: JSON text stands for what no type of a table could hold."""
    if not isinstance(stored, str) or isinstance(value, str):
        return stored
    try:
        return json.loads(stored)
    except ValueError:
        return stored
