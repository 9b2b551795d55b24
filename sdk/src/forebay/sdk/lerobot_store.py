"""Frames and videos of a plain LeRobot v3.0 folder (access plan A)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from forebay.sdk.errors import DataUnreadableError
from forebay.sdk.metadata import Metadata


class LeRobotFrames:
    """Parquet files under `data/`; only the files that hold the asked rows are opened."""

    def __init__(self, root: Path, metadata: Metadata) -> None:
        self._root = root
        self._template = str(metadata.info["data_path"])
        spans: dict[tuple[int, int], tuple[int, int]] = {}
        for episode in metadata.episodes:
            place = (episode.chunk, episode.file)
            first, last = spans.get(place, (episode.start, episode.stop))
            spans[place] = (min(first, episode.start), max(last, episode.stop))
        self._spans = sorted(spans.items(), key=lambda item: item[1])

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        import pyarrow.parquet as pq  # noqa: PLC0415 only who reads data pays for it

        parts = []
        for (chunk, file), (first, last) in self._spans:
            lower, upper = max(start, first), min(stop, last)
            if lower >= upper:
                continue
            path = self._root / self._template.format(chunk_index=chunk, file_index=file)
            try:
                table = pq.read_table(path, columns=list(columns), partitioning=None)
            except (OSError, pa.ArrowException) as error:
                msg = f"{path.name} cannot be read: {error}"
                raise DataUnreadableError(msg, "check that the pool is mounted: forebay status") from error
            parts.append(table.slice(lower - first, upper - lower))
        return pa.concat_tables(parts).select(list(columns))


class LeRobotVideos:
    """mp4 files under `videos/`."""

    def __init__(self, root: Path, metadata: Metadata) -> None:
        self._root = root
        self._template = str(metadata.info["video_path"])

    def open(self, camera: str, chunk: int, file: int) -> BinaryIO:
        path = self._root / self._template.format(video_key=camera, chunk_index=chunk, file_index=file)
        try:
            return path.open("rb")
        except OSError as error:
            msg = f"no video of camera {camera!r} in chunk {chunk}, file {file} ({error.strerror})"
            raise DataUnreadableError(msg, "check that the pool is mounted: forebay status") from error
