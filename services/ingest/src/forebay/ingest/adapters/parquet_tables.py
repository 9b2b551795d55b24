"""Parquet files of a LeRobot dataset through pyarrow: metadata tables whole, rows in blocks.

Every failure of the library becomes an `UnreadableFileError` that says what the
file looks like; what the tables say is judged elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from forebay.ingest.errors import UnreadableFileError
from forebay.runtime.regular_files import open_regular, path_of

MAGIC = b"PAR1"
BLOCK_ROWS = 8192
BLOCK_BYTES = 32 << 20
"""What a block of rows takes at most, as far as the footer tells."""
_MAX_ROWS_PER_BYTE = 100
"""Real recordings have about one row per 100 bytes; a file with more unpacks to something that nobody recorded."""
_FREE_ROWS = 1_000_000


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError) as error:
        raise UnreadableFileError(describe(path, error)) from error


def describe(path: Path, error: Exception) -> str:
    """What a broken parquet file looks like."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(4)
            file.seek(max(size - 4, 0))
            tail = file.read(4)
    except OSError as problem:
        return f"it cannot be opened: {problem.strerror}"
    if size == 0:
        return "empty file (0 bytes)"
    if head == MAGIC and tail != MAGIC:
        return f"{size} bytes, starts with PAR1, does not end with PAR1: writer not closed or upload cut"
    if head != MAGIC:
        return f"{size} bytes, does not start with PAR1: no parquet file"
    if isinstance(error, MemoryError):
        return f"{size} bytes, unpacking it takes more memory than a file may take"
    first = str(error).strip().splitlines()
    return f"{size} bytes, damaged inside ({first[0][:160] if first else type(error).__name__})"


class ParquetTable:
    """One open parquet file."""

    def __init__(self, path: Path, *, links: bool = False) -> None:
        self._path = path
        with _translated(path):
            with open_regular(path, links=links) as file:
                size = os.fstat(file.fileno()).st_size
                self._file = pq.ParquetFile(path_of(file))
            self.schema: pa.Schema = self._file.schema_arrow
        rows = self.rows
        if rows > _FREE_ROWS + _MAX_ROWS_PER_BYTE * size:
            self._file.close()
            msg = f"{size} bytes, but its footer promises {rows} rows"
            raise UnreadableFileError(msg)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def rows(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def doubled(self) -> list[str]:
        """Column names that occur more than once."""
        names = self.schema.names
        return sorted({name for name in names if names.count(name) > 1})

    def read(self, columns: list[str]) -> pa.Table:
        """Some columns, whole; for metadata tables."""
        with _translated(self._path):
            return self._file.read(columns=columns)

    def blocks(self, columns: list[str], rows: int = BLOCK_ROWS) -> Iterator[pa.RecordBatch]:
        """Some columns, a block of rows at a time; of wide rows fewer."""
        rows = max(1, min(rows, BLOCK_BYTES // max(1, self._row_bytes(columns))))
        for groups in self._windows(rows):
            with _translated(self._path):
                batches = self._file.iter_batches(batch_size=rows, row_groups=groups, columns=columns)
            while True:
                with _translated(self._path):
                    batch = next(batches, None)
                if batch is None:
                    break
                if batch.num_rows:
                    yield batch

    def _windows(self, rows: int) -> Iterator[list[int]]:
        """Row groups that make a block together: one reader over all of them would keep every byte it has read."""
        window: list[int] = []
        held = 0
        for number in range(self._file.num_row_groups):
            window.append(number)
            held += self._file.metadata.row_group(number).num_rows
            if held >= rows:
                yield window
                window, held = [], 0
        if window:
            yield window

    def _row_bytes(self, columns: list[str]) -> int:
        """How wide the widest rows are on average in a row group: 8 bytes per value, or what the footer says."""
        wanted, widest = set(columns), 0
        with _translated(self._path):
            footer = self._file.metadata
            for number in range(footer.num_row_groups):
                group = footer.row_group(number)
                parts = [group.column(at) for at in range(group.num_columns)]
                size = sum(
                    max(8 * part.num_values, part.total_uncompressed_size)
                    for part in parts
                    if any(part.path_in_schema == name or part.path_in_schema.startswith(f"{name}.") for name in wanted)
                )
                widest = max(widest, size // max(1, group.num_rows))
        return widest


def plain_columns(table: pa.Table) -> dict[str, list[Any]]:
    """A metadata table as Python lists; text that is not UTF-8 is refused."""
    try:
        return {name: table[name].to_pylist() for name in table.column_names}
    except (UnicodeDecodeError, pa.ArrowException, OverflowError, ValueError) as error:
        msg = f"its values cannot be read ({type(error).__name__})"
        raise UnreadableFileError(msg) from error
