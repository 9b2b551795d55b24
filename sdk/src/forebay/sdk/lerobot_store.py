"""Frames and videos of a plain LeRobot v3.0 folder (access plan A)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from forebay.sdk.metadata import Metadata

if TYPE_CHECKING:
    from forebay.sdk.roots import Root


class LeRobotFrames:
    """Parquet files under `data/`; only the files that hold the asked rows are opened."""

    def __init__(self, root: Root, metadata: Metadata) -> None:
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
            name = self._template.format(chunk_index=chunk, file_index=file)
            try:
                table = pq.read_table(self._root.source(name), columns=list(columns), partitioning=None)
            except (OSError, pa.ArrowException) as error:
                raise self._root.failed(name, error) from None
            parts.append(table.slice(lower - first, upper - lower))
        return pa.concat_tables(parts).select(list(columns))


class LeRobotVideos:
    """mp4 files under `videos/`."""

    def __init__(self, root: Root, metadata: Metadata) -> None:
        self._root = root
        self._template = str(metadata.info["video_path"])

    def open(self, camera: str, chunk: int, file: int) -> BinaryIO:
        return self._root.open(self._template.format(video_key=camera, chunk_index=chunk, file_index=file))
