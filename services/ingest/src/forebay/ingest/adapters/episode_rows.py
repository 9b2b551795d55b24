"""Rows of accepted episodes out of the uploaded data files, as a stream in the version's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain.recording import COUNTED, ROW_COLUMNS, Info
from forebay.ingest.errors import ConversionError


class EpisodeRows:
    """Reads episode after episode; a file is read on from where the last episode ended."""

    def __init__(self, locate: Callable[[str], Path], info: Info) -> None:
        self._locate = locate
        self._columns = [*ROW_COLUMNS, *(feature.key for feature in (*info.row_features, *info.image_cameras))]
        self._file: str | None = None
        self._pieces: Iterator[tuple[int, pa.RecordBatch]] = iter(())
        self._next: tuple[int, pa.RecordBatch] | None = None

    def of(self, file: str, episode: int) -> Iterator[pa.RecordBatch]:
        """The rows of one episode; raises `ConversionError` when the file has none."""
        if file != self._file:
            self._open(file)
        if not self._seek(episode):
            self._open(file)  # it may lie before the point that was reached
            if not self._seek(episode):
                msg = (
                    f"{file} has no row of episode {episode}, although it was accepted; the landing folder has changed"
                )
                raise ConversionError(msg)
        done = 0
        while self._next is not None and self._next[0] == episode:
            yield _counted(self._next[1], done)
            done += self._next[1].num_rows
            self._next = next(self._pieces, None)

    def _open(self, file: str) -> None:
        self._file = file
        self._pieces = self._read(file)
        self._next = next(self._pieces, None)

    def _seek(self, episode: int) -> bool:
        while self._next is not None and self._next[0] != episode:
            self._next = next(self._pieces, None)
        return self._next is not None

    def _read(self, file: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        with ParquetTable(self._locate(file)) as table:
            for batch in table.blocks(self._columns):
                episodes = batch.column("episode_index").to_numpy(zero_copy_only=False)
                cuts = [0, *(int(cut) for cut in np.flatnonzero(np.diff(episodes)) + 1), batch.num_rows]
                for start, stop in pairwise(cuts):
                    yield int(episodes[start]), batch.slice(start, stop - start)


def _counted(rows: pa.RecordBatch, done: int) -> pa.RecordBatch:
    """The rows with their frame_index, of which validation let only those without a declared one pass."""
    if COUNTED in rows.schema.names:
        return rows
    return rows.append_column(COUNTED, pa.array(np.arange(done, done + rows.num_rows, dtype=np.int64)))
