"""Frames and videos of a version root written as Lance tables (LeRobot's Lance layout).

Column names have underscores where info.json has dots. The newest version of each
table *is* the dataset version, because every version has a root of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, cast

import pyarrow as pa

from forebay.sdk.errors import DataUnreadableError

if TYPE_CHECKING:
    from forebay.sdk.roots import Root

FRAMES, VIDEOS = "frames.lance", "videos.lance"


class LanceFrames:
    """`frames.lance`."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        stored = [name.replace(".", "_") for name in columns]
        table = self._root.table(FRAMES)
        try:
            found: pa.Table = table.to_table(columns=stored, offset=start, limit=stop - start)
        except (OSError, ValueError, RuntimeError) as error:
            raise self._root.failed(FRAMES, error) from None
        return found.select(stored).rename_columns(list(columns))


class LanceVideos:
    """`videos.lance`: one row per video file, its bytes as a blob that is read lazily."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def open(self, camera: str, chunk: int, file: int) -> BinaryIO:
        table = self._root.table(VIDEOS)
        try:
            keys = table.to_table(columns=["video_key", "chunk_index", "file_index"]).to_pylist()
            for row, key in enumerate(keys):
                if (key["video_key"], key["chunk_index"], key["file_index"]) == (camera, chunk, file):
                    blob = table.take_blobs("video_bytes", indices=[row])[0]
                    return self._root.guarded(VIDEOS, cast("BinaryIO", blob))
        except (OSError, RuntimeError) as error:
            raise self._root.failed(VIDEOS, error) from None
        msg = f"no video of camera {camera!r} in chunk {chunk}, file {file}"
        raise DataUnreadableError(msg, "the version is damaged: check it with forebay dataset show")
