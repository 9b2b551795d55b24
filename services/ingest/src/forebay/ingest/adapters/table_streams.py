"""Streams of rows into a Lance table. Used by everything that writes a version's tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import lance
import pyarrow as pa

from forebay.ingest.errors import IngestError

_STORAGE_VERSION: Literal["2.2"] = "2.2"
"""The first file version with blobs as LeRobot's reader expects them."""
_PAGE_BYTES = 1 << 20
"""What a column holds back before it is written. Lance's own 8 MiB per column is much for tables of many columns."""


def add_rows(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Any:
    """Stream into a table. An error of ours inside the stream comes out as itself, not as Lance's words about it."""
    failures: list[BaseException] = []

    def watched() -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except (IngestError, OSError) as error:
            failures.append(error)
            raise

    mode: Literal["append", "create"] = "append" if path.exists() else "create"
    rows = pa.RecordBatchReader.from_batches(schema, watched())
    try:
        return lance.write_dataset(
            rows,
            str(path),
            mode=mode,
            data_storage_version=_STORAGE_VERSION,
            data_cache_bytes=_PAGE_BYTES,
            external_blob_mode="ingest",
        )
    except (OSError, ValueError, RuntimeError):
        if failures:
            raise failures[0] from None
        raise
