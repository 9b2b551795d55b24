"""Frames and videos of a version root written as Lance tables (LeRobot's Lance layout).

Column names have underscores where info.json has dots. The newest version of each
table *is* the dataset version, because every version has a root of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from forebay.sdk.errors import DataUnreadableError


def _open_table(path: Path) -> Any:
    try:
        import lance  # noqa: PLC0415 the agent works without Lance, and its import is slow
    except ImportError as error:
        msg = "this version is stored as Lance tables, and Lance is not installed"
        raise DataUnreadableError(msg, "install it with: pip install 'forebay[data]'") from error
    try:
        return lance.dataset(str(path))
    except (OSError, ValueError) as error:
        msg = f"the table {path.name} cannot be opened: {error}"
        raise DataUnreadableError(msg, "check that the pool is mounted: forebay status") from error


class LanceFrames:
    """`frames.lance`."""

    def __init__(self, root: Path) -> None:
        self._path = root / "frames.lance"
        self._table: Any = None

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        self._table = self._table or _open_table(self._path)
        stored = [name.replace(".", "_") for name in columns]
        found: pa.Table = self._table.to_table(columns=stored, offset=start, limit=stop - start)
        return found.select(stored).rename_columns(list(columns))


class LanceVideos:
    """`videos.lance`: one row per video file, its bytes as a blob that is read lazily."""

    def __init__(self, root: Path) -> None:
        self._path = root / "videos.lance"
        self._table: Any = None

    def open(self, camera: str, chunk: int, file: int) -> BinaryIO:
        self._table = self._table or _open_table(self._path)
        keys = self._table.to_table(columns=["video_key", "chunk_index", "file_index"]).to_pylist()
        for row, key in enumerate(keys):
            if (key["video_key"], key["chunk_index"], key["file_index"]) == (camera, chunk, file):
                blob = self._table.take_blobs("video_bytes", indices=[row])[0]
                return cast("BinaryIO", blob)
        msg = f"no video of camera {camera!r} in chunk {chunk}, file {file}"
        raise DataUnreadableError(msg, "the version is damaged: check it with forebay dataset show")
