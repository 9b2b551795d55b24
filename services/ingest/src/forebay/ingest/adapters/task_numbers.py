"""Task numbers inside columns of any shape: mapped to the numbers of a version, and compared by the texts that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from forebay.ingest.domain.labels import is_task_number
from forebay.ingest.errors import ConversionError

Column = Any
"""A pyarrow array of any kind; its stubs do not know lists."""


def renumbered(column: Column, numbers: Mapping[int, int], name: str, *, named: bool) -> Column:
    """The column with every task number mapped.

    `named`: its whole numbers are task numbers; in structs only fields that are named so are.
    Negative numbers mean "no task" and stay.
    """
    if named and pa.types.is_integer(column.type) and not column.null_count:
        kinds, places = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
        mapped = np.array([_mapped(int(number), numbers, name, named=True) for number in kinds], dtype=np.int64)
        return pa.array(mapped[places]).cast(column.type)
    values = [_mapped(value, numbers, name, named=named) for value in column.to_pylist()]
    return pa.array(values, column.type)


def _mapped(value: Any, numbers: Mapping[int, int], name: str, *, named: bool) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(v, numbers, name, named=is_task_number(key)) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(entry, numbers, name, named=named) for entry in value]
    if not named or not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return value
    if value not in numbers:
        msg = (
            f"{name} names task {value}, which the task table does not list; the dataset's other uploads have tasks of"
            " other numbers, so it is not known which one is meant: add it to the table, or use another dataset name"
        )
        raise ConversionError(msg)
    return numbers[value]


def numbers_in(column: Column, *, named: bool) -> set[int]:
    """Every task number that the column holds; `named` as for `renumbered`."""
    if named and pa.types.is_integer(column.type) and not column.null_count:
        return {int(number) for number in np.unique(column.to_numpy(zero_copy_only=False)) if number >= 0}
    return {number for value in column.to_pylist() for number in _numbers_in(value, named=named)}


def _numbers_in(value: Any, *, named: bool) -> Iterator[int]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers_in(inner, named=is_task_number(key))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _numbers_in(entry, named=named)
    elif named and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        yield value


def same_tasks(before: Any, after: Any, texts: Mapping[int, str], tasks: Sequence[str], *, named: bool) -> bool:
    """Whether two values are equal, and their task numbers mean the same texts. `texts` has those of `before`."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            same_tasks(value, after[key], texts, tasks, named=is_task_number(key)) for key, value in before.items()
        )
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(
            same_tasks(one, other, texts, tasks, named=named) for one, other in zip(before, after, strict=True)
        )
    if named and isinstance(before, int) and before >= 0 and isinstance(after, int) and not isinstance(before, bool):
        return 0 <= after < len(tasks) and texts.get(before) == tasks[after]
    return before is after or bool(before == after) or (before != before and after != after)  # noqa: PLR0124 NaN
