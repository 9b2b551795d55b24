"""Where a version's rows and videos come from: the folder of an upload, or the root of an earlier version.

Both are read in the same words, so that writing and comparing do not know which it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import lance
import pyarrow as pa

from forebay.ingest.adapters.dataset_folder import blobs_of, locate
from forebay.ingest.adapters.episode_rows import EpisodeRows
from forebay.ingest.adapters.frame_batches import Rows, frame_columns
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain.recording import Info
from forebay.ingest.domain.version_plan import PlannedEpisode
from forebay.ingest.errors import ConversionError
from forebay.runtime.regular_files import read_regular

EPISODES_FILE = "episodes.json"
_READ_ROWS = 4096
_READ_BUFFER = 16 << 20
"""Lance reads ahead up to 2 GB when it is not told otherwise."""
_PICTURE_BYTES = 256 << 10
_TEXT_BYTES = 256
CHUNK = 1 << 20

EpisodePieces = Iterator[tuple[PlannedEpisode, Iterator[pa.RecordBatch]]]


class Origin(Protocol):
    """One place that episodes are read from."""

    @property
    def folder(self) -> Path:
        """Holds `meta/`."""
        ...

    def schema(self, file: str) -> pa.Schema:
        """Columns and types of the rows, under the names of info.json."""
        ...

    def rows(self, info: Info, episodes: Sequence[PlannedEpisode]) -> EpisodePieces:
        """The rows of these episodes, one after the other."""
        ...

    def video(self, path: str) -> Path:
        """A video file of its own on the disk."""
        ...

    def meta(self, name: str) -> Path:
        """A file below meta/."""
        ...


class UploadOrigin:
    """A landing folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._blobs = blobs_of(self.folder)

    def schema(self, file: str) -> pa.Schema:
        with ParquetTable(self._locate(file)) as table:
            return table.schema

    def rows(self, info: Info, episodes: Sequence[PlannedEpisode]) -> EpisodePieces:
        rows = EpisodeRows(self._locate, info)
        for episode in episodes:
            declared = episode.accepted.declared
            yield episode, rows.of(declared.data_file, declared.index)

    def video(self, path: str) -> Path:
        return self._locate(path)

    def meta(self, name: str) -> Path:
        return self._locate(name)

    def _locate(self, name: str) -> Path:
        return locate(self.folder, self._blobs, name)


class VersionOrigin:
    """The root of an earlier version; `videos` has its files encoded anew, where that was asked for."""

    def __init__(self, root: Path, info: Info, videos: Path | None = None) -> None:
        self.folder = root
        self._names = {column: key for key, column in frame_columns(info)}
        self._videos = videos

    def schema(self, file: str) -> pa.Schema:  # noqa: ARG002 the port's signature; its rows have one place
        stored = self._table().schema
        return pa.schema([field.with_name(self._names[field.name]) for field in stored])

    def rows(self, info: Info, episodes: Sequence[PlannedEpisode]) -> EpisodePieces:  # noqa: ARG002 the port's signature
        for run in _runs(episodes):
            start, stop = _rows_of(run[0])[0], _rows_of(run[-1])[1]
            stored = Rows(ordered_batches(self._table(), start, stop - start))
            for episode in run:
                yield episode, self._pieces(stored, episode.length)

    def _pieces(self, stored: Rows, count: int) -> Iterator[pa.RecordBatch]:
        while count:
            batch = stored.take(min(count, _READ_ROWS))
            count -= batch.num_rows
            yield batch.rename_columns([self._names[name] for name in batch.schema.names])

    def video(self, path: str) -> Path:
        if self._videos is None:
            msg = f"{path} is shared with {self.folder} and has no file of its own"
            raise ConversionError(msg)
        return self._videos / path

    def meta(self, name: str) -> Path:
        return locate(self.folder, None, name)

    def _table(self) -> Any:
        return lance.dataset(str(self.folder / "frames.lance"))


def _runs(episodes: Sequence[PlannedEpisode]) -> Iterator[list[PlannedEpisode]]:
    """Episodes whose rows lie side by side, so that each run is one read."""
    cuts = [
        number for number, (left, right) in enumerate(pairwise(episodes), 1) if _rows_of(left)[1] != _rows_of(right)[0]
    ]
    for start, stop in pairwise([0, *cuts, len(episodes)]):
        if episodes[start:stop]:
            yield list(episodes[start:stop])


def _rows_of(episode: PlannedEpisode) -> tuple[int, int]:
    """First row in the earlier version's table, and the row after the last."""
    start = episode.accepted.declared.from_index
    if start is None:
        msg = f"the version before does not say where the rows of episode {episode.accepted.id} are"
        raise ConversionError(msg)
    return start, start + episode.length


def ordered_batches(
    table: Any, offset: int = 0, limit: int | None = None, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows in their order, a few thousand at a time.

    Each block is a read of its own: one read over all of them holds tens of megabytes ahead.
    """
    step = _rows_at_once(table.schema, columns)
    stop = table.count_rows() if limit is None else offset + limit
    for start in range(offset, stop, step):
        scanner = table.scanner(
            columns=columns,
            offset=start,
            limit=min(step, stop - start),
            scan_in_order=True,
            batch_readahead=1,
            fragment_readahead=1,
            io_buffer_size=_READ_BUFFER,
        )
        yield from scanner.to_batches()


def _rows_at_once(schema: pa.Schema, columns: list[str] | None) -> int:
    width = sum(_width_of(field.type) for field in schema if columns is None or field.name in columns)
    return max(1, min(_READ_ROWS, _READ_BUFFER // max(width, 1)))


def _width_of(kind: Any) -> int:
    """Bytes of one value; what has no fixed width may be a picture."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width_of(kind.value_type)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _PICTURE_BYTES if pa.types.is_struct(kind) or pa.types.is_large_binary(kind) else _TEXT_BYTES


def read_episode_list(root: Path) -> dict[str, Any]:
    """episodes.json of a version root; raises `ConversionError` when it is not usable."""
    try:
        document = json.loads(read_regular(root / EPISODES_FILE))
        document["episodes"], document["content"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{root / EPISODES_FILE} cannot be read ({error}); restore the version's folder, then retry"
        raise ConversionError(msg) from error
    return dict(document)


def video_digests(root: Path, known: dict[tuple[str, int, int], str]) -> dict[tuple[str, int, int], str]:
    """(camera, chunk, file) -> SHA-256 of every video of a version; hashed only where it is not `known`."""
    table = lance.dataset(str(root / "videos.lance"))
    names = ["video_key", "chunk_index", "file_index"]
    rows = [tuple(row[name] for name in names) for row in table.to_table(columns=names).to_pylist()]
    return {row: known.get(row) or blob_digest(table, number) for number, row in enumerate(rows)}


def blob_digest(table: Any, row: int) -> str:
    """SHA-256 of one video, read through the call that trainers use."""
    digest = hashlib.sha256()
    with table.take_blobs("video_bytes", indices=[row])[0] as blob:
        while chunk := blob.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
