"""Ports of `Dataset`: where frames and videos of one version come from.

Adapters: `lance_store` (access plans B and C) and `lerobot_store` (access plan A).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Protocol

import pyarrow as pa


class FrameStore(Protocol):
    """Rows of the frame table, row N being frame N of the version."""

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        """Read rows `[start, stop)` of columns named as in info.json."""
        ...


class VideoStore(Protocol):
    """Video files by camera and place."""

    def open(self, camera: str, chunk: int, file: int) -> BinaryIO:
        """Open one encoded file for reading; it is seekable."""
        ...
