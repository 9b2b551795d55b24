"""One column of every kind that Lance stores, filled at random: what generated tables are made of."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Fill = Callable[[np.random.Generator, int], Any]


def _ints(kind: Any, top: int) -> Fill:
    return lambda random, rows: pa.array(random.integers(0, top, rows), kind)


def _vectors(kind: Any, width: int) -> Fill:
    def fill(random: np.random.Generator, rows: int) -> Any:
        values = random.random(rows * width) * 100
        return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(kind)), width)

    return fill


def _holes(fill: Fill, share: float = 0.3) -> Fill:
    """The same with nulls."""

    def holed(random: np.random.Generator, rows: int) -> Any:
        array = fill(random, rows)
        empty: Any = random.random(rows) < share
        return pa.array(
            [None if gone else value for gone, value in zip(empty, array.to_pylist(), strict=True)], array.type
        )

    return holed


def _each(kind: Any, make: Callable[[np.random.Generator, int], Any]) -> Fill:
    return lambda random, rows: pa.array([make(random, row) for row in range(rows)], kind)


def _text(random: np.random.Generator, row: int) -> str:
    return f"frame {row} {random.random()}"


_STRUCT = pa.struct([("x", pa.float64()), ("label", pa.string())])
_POSE = pa.struct([("position", pa.struct([("x", pa.float64()), ("y", pa.float32())])), ("frame", pa.string())])
_MIXED = pa.struct([("tags", pa.list_(pa.string())), ("n", pa.int32())])


def _point(random: np.random.Generator, row: int) -> dict[str, Any]:
    return {"x": random.random(), "label": f"b{row % 7}"}


KINDS: dict[str, Fill] = {
    "integers": _ints(pa.int64(), 1 << 60),
    "small_integers": _ints(pa.int16(), 50),
    "rising": lambda random, rows: pa.array(np.arange(rows) * 3),  # noqa: ARG005 every kind is filled alike
    "booleans": lambda random, rows: pa.array(random.random(rows) < 0.5),
    "floats": lambda random, rows: pa.array(random.random(rows, dtype=np.float32)),
    "halves": lambda random, rows: pa.array(random.random(rows).astype(np.float16)),
    "doubles_with_nulls": _holes(lambda random, rows: pa.array(random.random(rows))),
    "texts": _each(pa.string(), _text),
    "texts_with_nulls": _holes(_each(pa.string(), _text)),
    "few_texts": _each(pa.string(), lambda random, _: f"grasp the cup number {random.integers(5)}"),
    "long_texts": _each(pa.large_string(), lambda random, _: str(random.bytes(600))),
    "bytes": _each(pa.binary(), lambda random, _: random.bytes(int(random.integers(0, 60)))),
    "big_bytes": _each(pa.large_binary(), lambda random, _: random.bytes(3000)),
    "categories": lambda random, rows: pa.array([f"k{one}" for one in random.integers(0, 9, rows)]).dictionary_encode(),
    "vectors": _vectors(np.float32, 14),
    "vectors_with_nulls": _holes(_vectors(np.float32, 7)),
    "embeddings": _vectors(np.float64, 160),
    "pairs_of_bytes": lambda random, rows: pa.FixedSizeListArray.from_arrays(
        pa.array(random.integers(0, 100, rows * 2), pa.int8()), 2
    ),
    "lists": _each(pa.list_(pa.int64()), lambda random, _: random.integers(0, 1 << 40, random.integers(0, 6)).tolist()),
    "lists_with_nulls": _holes(
        _each(pa.list_(pa.int32()), lambda random, _: random.integers(0, 99, random.integers(0, 4)).tolist())
    ),
    "lists_of_texts": _each(pa.list_(pa.string()), lambda random, row: [_text(random, row)] * (row % 4)),
    "lists_of_lists": _each(
        pa.list_(pa.list_(pa.int32())), lambda random, row: [[int(random.integers(99))] * 3] * (row % 3)
    ),
    "lists_of_structs": _each(pa.list_(_STRUCT), lambda random, row: [_point(random, row)] * (row % 3)),
    "structs": _each(
        _POSE, lambda random, row: {"position": {"x": random.random(), "y": 1.5}, "frame": _text(random, row)}
    ),
    "structs_with_nulls": _holes(_each(_STRUCT, _point)),
    "structs_of_lists": _each(_MIXED, lambda random, row: {"tags": [_text(random, row)] * (row % 3), "n": row}),
    "packed": _each(
        pa.struct([("a", pa.int64()), ("b", pa.float64())]), lambda random, row: {"a": row, "b": random.random()}
    ),
    "decimals": _each(pa.decimal128(20, 4), lambda random, _: Decimal(int(random.integers(1 << 50))) / 10_000),
    "timestamps": _ints(pa.timestamp("us", "UTC"), 1 << 50),
    "dates": lambda random, rows: pa.array(random.integers(0, 20_000, rows).astype(np.int32), pa.date32()),
    "times": _ints(pa.time64("us"), 86_000_000_000),
    "durations": _ints(pa.duration("ns"), 1 << 50),
    "hashes": _each(pa.binary(16), lambda random, _: random.bytes(16)),
    "nothing": lambda random, rows: pa.nulls(rows),  # noqa: ARG005
    "no_texts": lambda random, rows: pa.nulls(rows, pa.string()),  # noqa: ARG005
    "constant": lambda random, rows: pa.array(np.full(rows, 7)),  # noqa: ARG005
    "constant_text": lambda random, rows: pa.array(["the same"] * rows),  # noqa: ARG005
    "empty_lists": lambda random, rows: pa.array([[]] * rows, pa.list_(pa.int64())),  # noqa: ARG005
    "empty_texts": lambda random, rows: pa.array([""] * rows),  # noqa: ARG005
}
ENTROPY = frozenset(KINDS) - {
    "rising",
    "nothing",
    "no_texts",
    "constant",
    "constant_text",
    "empty_lists",
    "empty_texts",
}
"""Kinds whose pages hold what cannot be guessed, so that a zeroed page shows."""


def table_of(names: list[str], rows: int, *, seed: int = 0, first: int = 0) -> pa.Table:
    """Those kinds beside the keys that every table of frames has; 50 rows are an episode."""
    random = np.random.default_rng(seed)
    index = np.arange(first, first + rows)
    columns: dict[str, Any] = {"index": pa.array(index), "episode_index": pa.array(index // 50)}
    columns |= {name: KINDS[name](random, rows) for name in names}
    fields = [pa.field(name, array.type, metadata=_metadata(name)) for name, array in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def _metadata(name: str) -> dict[str, str] | None:
    return {"lance-encoding:packed": "true"} if name == "packed" else None
