"""A file of an origin as Python's readers want it: a stream that fetches what is asked for and nothing ahead."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from forebay.cache.adapters.origin import Origin
from forebay.cache.errors import DataChangedError


class OriginFile(io.RawIOBase):
    """Read-only and seekable."""

    def __init__(self, origin: Origin, path: str) -> None:
        super().__init__()
        self._origin = origin
        self._path = path
        self._size = origin.size(path)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        content = self._origin.read(self._path, self._at, end) if end > self._at else b""
        self._at += len(content)
        return content

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        content = self.read(view.nbytes)
        view[: len(content)] = content
        return len(content)


def open_parquet(origin: Origin, path: str) -> Any:
    """A Parquet file, opened by its footer; raises `DataChangedError` when it is none."""
    import pyarrow as pa  # noqa: PLC0415 only LeRobot files need it
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        stream: Any = OriginFile(origin, path)
        return pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as error:
        msg = f"{path} is no whole Parquet file ({error}); its writer was not closed, or the upload was cut"
        raise DataChangedError(msg) from error


def read_parquet(origin: Origin, path: str, columns: Sequence[str]) -> dict[str, list[Any]]:
    """The values of those of `columns` that a small Parquet file has."""
    import pyarrow as pa  # noqa: PLC0415 only LeRobot files need it

    file = open_parquet(origin, path)
    present = [name for name in columns if name in file.schema_arrow.names]
    try:
        table = file.read(columns=present)
    except (pa.ArrowException, OSError) as error:
        msg = f"{path} cannot be read: {error}"
        raise DataChangedError(msg) from error
    return {name: table.column(name).to_pylist() for name in present}
