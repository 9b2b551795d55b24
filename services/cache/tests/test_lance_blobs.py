"""Blobs of every kind, in every encoding and after any history: payloads read the same from the plan alone, and all are needed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import lance
import numpy as np
import pyarrow as pa
import pytest
from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.domain.plan import PlannedFile
from forebay.cache.errors import FormatUnsupportedError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from . import lance_tables as tables

Encoding = Literal["v1 in 2.0", "v1 in 2.1", "v2"]
INLINE, PACKED, DEDICATED = 9_000, 150_000, 5_000_000
SIZES = (0, 1, INLINE, 60_000, PACKED, 1_500_000)
EACH = 6


def blobs(encoding: Encoding, sizes: list[int | None], seed: int) -> pa.Table:
    """One row per size; None: no video."""
    random = np.random.default_rng(seed)
    values = [None if size is None else random.bytes(size) for size in sizes]
    field: Any = lance.blob_field("video") if encoding == "v2" else None
    if field is None:
        field = pa.field("video", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    array: Any = lance.blob_array(values) if encoding == "v2" else pa.array(values, pa.large_binary())
    rows = pa.array([seed * 100 + row for row in range(len(values))])
    return pa.table([rows, array], schema=pa.schema([pa.field("row", pa.int64()), field]))


def write(path: Path, encoding: Encoding, sizes: list[int | None], seed: int, mode: str = "create") -> None:
    options: dict[str, Any] = (
        {} if mode == "append" else {"data_storage_version": encoding[-3:] if "in" in encoding else "2.2"}
    )
    lance.write_dataset(blobs(encoding, sizes, seed), path, mode=mode, **options)


def payloads(path: Path, rows: str | None) -> list[tuple[int, str | None]]:
    """(row, digest) of the videos that a filter selects."""
    dataset = lance.dataset(str(path))
    found = dataset.scanner(columns=["row"], filter=rows, with_row_address=True).to_table()
    addresses: list[Any] = found.column("_rowaddr").to_pylist()
    numbers: list[Any] = found.column("row").to_pylist()
    files: list[Any] = dataset.take_blobs("video", addresses=addresses) if addresses else []
    contents = [None if file is None else hashlib.sha256(file.readall()).hexdigest() for file in files]
    return sorted(zip(numbers, contents, strict=False), key=lambda one: one[0])


def plan_of(path: Path, rows: str | None) -> list[PlannedFile]:
    files = LanceTable(FolderOrigin(), str(path)).ranges(["video"], keys=["row"], payloads=rows)
    return [PlannedFile(path=os.path.relpath(file.path, path), size=file.size, ranges=file.ranges) for file in files]


STEPS = ("append", "delete", "compact", "update")


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(("v1 in 2.0", "v1 in 2.1", "v2")),
    st.lists(st.one_of(st.sampled_from(SIZES), st.none()), min_size=1, max_size=EACH),
    st.lists(st.sampled_from(STEPS), max_size=4),
    st.sampled_from((None, "row = 101", "row % 2 = 0", "row >= 200", "row < 0")),
)
@example("v2", [DEDICATED, PACKED, INLINE, None, 0], ["append", "delete", "compact"], "row % 2 = 0")
@example("v1 in 2.1", [DEDICATED, PACKED, None], ["append", "delete", "compact"], None)
def test_payloads_after_any_history(
    encoding: Encoding, sizes: list[int | None], steps: list[str], rows: str | None
) -> None:
    """Payloads of the chosen rows, and of no other, are planned wherever they lie."""
    with TemporaryDirectory() as folder:
        path, copy = Path(folder) / "videos.lance", Path(folder) / "copy.lance"
        write(path, encoding, sizes, 1)
        for number, step in enumerate(steps, start=2):
            dataset: Any = lance.dataset(str(path))
            if step == "append":
                write(path, encoding, sizes[::-1], number, mode="append")
            elif step == "delete":
                dataset.delete("row % 5 = 1")
            elif step == "compact":
                dataset.optimize.compact_files()
            elif encoding == "v2":
                dataset.update({"row": "row + 2"}, where="row % 3 = 0")
        tables.zero_outside(path, copy, plan_of(path, rows))
        assert payloads(copy, rows) == payloads(path, rows)


def test_no_planned_payload_is_padding(tmp_path: Path) -> None:
    """With one payload zeroed, inline, packed or dedicated, another video comes out."""
    path = tmp_path / "videos.lance"
    write(path, "v2", [INLINE, PACKED, PACKED, DEDICATED], 1)
    expected, plan = payloads(path, None), plan_of(path, None)
    spots = [(file.path, span) for file in plan if file.path.endswith(".blob") for span in file.spans]
    (data,) = [file for file in plan if file.path.endswith(".lance")]
    content = (path / data.path).read_bytes()
    start = content.index(np.random.default_rng(1).bytes(INLINE))
    assert len(spots) == 2  # the packed ones lie behind each other
    for number, (name, (first, last)) in enumerate([*spots, (data.path, (start, start + INLINE))]):
        broken = tmp_path / f"broken-{number}.lance"
        tables.copy_with_zeros(path, broken, name, [(first, last)])
        assert payloads(broken, None) != expected


def test_blobs_that_lie_elsewhere_are_refused(tmp_path: Path) -> None:
    """A blob that is only a reference cannot be planned as part of the table, and is named."""
    path, video = tmp_path / "videos.lance", tmp_path / "video.mp4"
    video.write_bytes(b"x" * 1000)
    field: Any = lance.blob_field("video")
    array: Any = lance.blob_array([lance.Blob.from_uri(video.as_uri())])
    lance.write_dataset(
        pa.table([pa.array([1]), array], schema=pa.schema([pa.field("row", pa.int64()), field])),
        path,
        data_storage_version="2.2",
        allow_external_blob_outside_bases=True,
    )
    with pytest.raises(FormatUnsupportedError, match="outside the table"):
        plan_of(path, None)
