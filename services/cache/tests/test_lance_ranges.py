"""The proof of planning: with every byte outside the plan zeroed, the planned columns read the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from forebay.cache.adapters.lance_format import TAIL_BYTES, read_layout
from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.domain.plan import PlannedFile, planned_file
from forebay.cache.errors import (
    ColumnUnknownError,
    DataChangedError,
    DataUnreadableError,
    FormatUnsupportedError,
)

from . import lance_tables as tables


def opened(table: Path, *, version: int | None = None) -> LanceTable:
    return LanceTable(FolderOrigin(), str(table), version=version)


def local(table: Path, files: tuple[PlannedFile, ...]) -> list[PlannedFile]:
    return [
        PlannedFile(path=str(Path(file.path).relative_to(table)), size=file.size, ranges=file.ranges) for file in files
    ]


def assert_enough(tmp_path: Path, table: Path, columns: list[str], *, rows: str | None = None) -> float:
    """Run the oracle; returns the planned share of the table's bytes."""
    files = local(table, opened(table).ranges(columns, rows=rows))
    copy = tables.fresh(tmp_path / "zeroed.lance")
    assert tables.zero_outside(table, copy, files) > 0
    expected = tables.read_columns(table, columns, rows=rows)
    assert tables.read_columns(copy, columns, rows=rows).equals(expected)
    whole = sum(path.stat().st_size for path in table.rglob("*") if path.is_file())
    return sum(file.planned_bytes for file in files) / whole


COLUMNS = [
    ["index"],
    ["observation_state", "action"],
    ["note"],
    ["blob"],
    ["lengths"],
    ["boxes"],
    ["pose"],
    ["pose.position.x"],
    ["maybe"],
]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize(
    "make", [tables.plain, tables.appended, tables.rows_deleted], ids=["written", "appended", "deleted"]
)
def test_zero_outside_reads_the_same(tmp_path: Path, make: tables.Change, version: tables.Version) -> None:
    """Each kind of column alone is planned exactly, in every file version and after appends and deletes."""
    table = tmp_path / "frames.lance"
    make(table, version)
    for columns in COLUMNS:
        assert_enough(tmp_path, table, columns)


def test_added_column_lies_in_a_second_file(tmp_path: Path) -> None:
    """A column added later is planned in its own data file, alone and with an old one."""
    table = tmp_path / "frames.lance"
    tables.column_added(table, "2.2")
    for columns in (["reward"], ["reward", "action"]):
        assert_enough(tmp_path, table, columns)


def test_rows_pick_pages(tmp_path: Path) -> None:
    """Of a column with many pages only those that hold the wanted rows are planned."""
    table = tmp_path / "frames.lance"
    big = pa.table({"index": range(60_000), "wide": pa.array([b"%08d" % row * 40 for row in range(60_000)])})
    lance.write_dataset(big, table, max_rows_per_file=40_000)
    rows = "index >= 50000 AND index < 50500"
    planned = opened(table).ranges(["wide"], keys=["index"], rows=rows)
    whole = opened(table).ranges(["wide"], keys=["index"])
    assert sum(file.planned_bytes for file in planned) < 0.7 * sum(file.planned_bytes for file in whole)
    copy = tables.fresh(tmp_path / "zeroed.lance")
    tables.zero_outside(table, copy, local(table, planned))
    assert tables.read_columns(copy, ["wide"], rows=rows).equals(tables.read_columns(table, ["wide"], rows=rows))


def test_index_is_planned_with_its_column(tmp_path: Path) -> None:
    """A filter that uses an index reads the same with only the planned bytes left."""
    table = tmp_path / "frames.lance"
    tables.plain(table, "2.2")
    lance.dataset(str(table)).create_scalar_index("episode_index", "BTREE")
    rows = "episode_index = 2"
    assert not any("/_indices/" in file.path for file in opened(table).ranges(["action", "episode_index"]))
    files = local(table, opened(table).ranges(["action"], rows=rows))
    assert any(file.path.startswith("_indices/") for file in files)
    copy = tables.fresh(tmp_path / "zeroed.lance")
    tables.zero_outside(table, copy, files)
    assert tables.read_columns(copy, ["action"], rows=rows).equals(tables.read_columns(table, ["action"], rows=rows))


SIZES = [10_000, 60_000, 70_000, 300_000, 1_500_000, 5_000_000, 0, -1]
KEYS = [f"observation.images.{'front' if row % 2 else 'wrist'}" for row in range(len(SIZES))]


@pytest.mark.parametrize("rows", [None, "video_key = 'observation.images.front'"])
def test_blobs_inline_packed_and_dedicated(tmp_path: Path, rows: str | None) -> None:
    """Payloads of every blob kind are planned, which neither pages nor tracked files would show."""
    table = tmp_path / "videos.lance"
    lance.write_dataset(tables.blob_table(SIZES, KEYS), table, data_storage_version="2.2")
    tracked = lance.dataset(str(table)).tracked_files().read_all().column("path").to_pylist()
    sidecars = sorted(path.relative_to(table).as_posix() for path in table.rglob("*.blob"))
    assert len(sidecars) == 2
    assert not set(sidecars) & set(tracked)
    files = local(table, opened(table).ranges(["video_bytes"], keys=["video_key"], payloads=rows))
    copy = tables.fresh(tmp_path / "zeroed.lance")
    tables.zero_outside(table, copy, files)
    assert tables.read_videos(copy, rows) == tables.read_videos(table, rows)
    planned = sum(file.planned_bytes for file in files)
    assert planned >= sum(size for size, key in zip(SIZES, KEYS, strict=True) if size > 0 and (not rows or key in rows))


def test_old_blob_encoding(tmp_path: Path) -> None:
    """Blobs of the first encoding lie between the pages of the data file and are planned too."""
    table = tmp_path / "videos.lance"
    blob: Any = pa.field("video_bytes", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("row", pa.int64()), blob])
    content = [b"a" * 1000, b"b" * 200_000, b"c" * 90_000]
    lance.write_dataset(
        pa.table({"row": [0, 1, 2], "video_bytes": content}, schema=schema), table, data_storage_version="2.1"
    )
    files = local(table, opened(table).ranges(["video_bytes"], payloads="row = 1"))
    copy = tables.fresh(tmp_path / "zeroed.lance")
    assert tables.zero_outside(table, copy, files) > 0
    (blob_file,) = lance.dataset(str(copy)).take_blobs("video_bytes", indices=[1])
    assert blob_file is not None
    assert blob_file.read() == content[1]


def test_shallow_clone_is_planned_where_its_bytes_are(tmp_path: Path) -> None:
    """A clone's data files, deletions and sidecars are planned in the table that really holds them."""
    source, clone = tmp_path / "all.lance", tmp_path / "v1" / "videos.lance"
    lance.write_dataset(tables.blob_table(SIZES, KEYS), source, data_storage_version="2.2")
    dataset = lance.dataset(str(source))
    dataset.delete("video_key = 'observation.images.wrist' AND file_index = 0")
    dataset.shallow_clone(str(clone), dataset.version)
    files = opened(clone).ranges(["video_bytes"])
    paths = {Path(file.path) for file in files}
    assert any(path.is_relative_to(clone) for path in paths)
    assert {path for path in paths if path.suffix == ".blob"} == set(source.rglob("*.blob"))
    assert {path for path in paths if path.parent.name == "_deletions"} == set((source / "_deletions").iterdir())
    assert opened(clone).whole_bytes > 6_000_000


def test_layout_agrees_with_the_library(tmp_path: Path) -> None:
    """Our reading of a data file's tail names the same buffers as Lance's own reader, and rows add up."""
    from lance.file import LanceFileReader  # noqa: PLC0415 only this test compares

    versions: tuple[tables.Version, ...] = ("2.0", "2.1", "2.2")
    for version in versions:
        table = tmp_path / f"v{version}.lance"
        tables.many_pages(table, version)
        (path,) = (table / "data").iterdir()
        layout, theirs = read_layout(FolderOrigin(), str(path)), LanceFileReader(str(path)).metadata()
        ours = [[list(page.buffers) for page in column.pages] for column in map(layout.column, range(layout.width))]
        expected = [
            [[(one.position, one.position + one.size) for one in page.buffers] for page in column.pages]
            for column in theirs.columns
        ]
        assert ours == expected
        assert layout.tail.end == path.stat().st_size
        assert layout.tail.length >= min(TAIL_BYTES, layout.size)
        if version != "2.0":
            assert {layout.column(place).rows for place in range(layout.width)} == {4000}


def test_version_is_planned_as_it_was(tmp_path: Path) -> None:
    """An older version of a table is planned with its own files, not the latest ones."""
    table = tmp_path / "frames.lance"
    tables.appended(table, "2.2")
    old, new = opened(table, version=1).ranges(["index"]), opened(table).ranges(["index"])
    assert len([file for file in old if "/data/" in file.path]) == 1
    assert len([file for file in new if "/data/" in file.path]) == 2


def test_unknown_column_names_the_close_ones(tmp_path: Path) -> None:
    """A misspelt column is refused with what was probably meant."""
    table = tmp_path / "frames.lance"
    tables.plain(table, "2.2")
    with pytest.raises(ColumnUnknownError, match="observation_state") as refused:
        opened(table).ranges(["observation.stat"])
    assert refused.value.close == ("observation_state",)
    assert opened(table).find_column("observation.state") == "observation_state"


def test_unknown_feature_flag_is_refused(tmp_path: Path) -> None:
    """A manifest that asks for an unknown reader feature is refused, not guessed at."""
    table = tmp_path / "frames.lance"
    tables.rows_deleted(table, "2.2")
    flags = b"\x48\x01\x50\x01"  # reader flags = 1, writer flags = 1
    (manifest,) = (path for path in (table / "_versions").glob("*.manifest") if flags in path.read_bytes())
    content = bytearray(manifest.read_bytes())
    place = content.rindex(flags)
    content[place : place + 4] = b"\x48\x40\x50\x40"
    manifest.write_bytes(content)
    with pytest.raises(FormatUnsupportedError, match="reader feature 64"):
        opened(table)


def test_old_data_format_is_refused(tmp_path: Path) -> None:
    """Files of the first Lance format have no page table that could be planned."""
    table = tmp_path / "frames.lance"
    lance.write_dataset(pa.table({"index": range(5)}), table, data_storage_version="legacy")
    with pytest.raises(FormatUnsupportedError, match=r"data format 0\.2"):
        opened(table).ranges(["index"])


def test_damaged_files_are_told_apart(tmp_path: Path) -> None:
    """A cut data file, a cut manifest and a missing table are named as what they are."""
    table = tmp_path / "frames.lance"
    tables.plain(table, "2.2")
    (data,) = (table / "data").iterdir()
    content = data.read_bytes()
    data.write_bytes(content[:-100])
    with pytest.raises(DataChangedError, match="cut off"):
        opened(table).ranges(["index"])
    data.write_bytes(content + bytes(10))
    with pytest.raises(DataChangedError):
        opened(table).ranges(["index"])
    data.unlink()
    with pytest.raises(DataUnreadableError, match="cannot be read"):
        opened(table).ranges(["index"])
    (manifest,) = (table / "_versions").glob("*.manifest")
    manifest.write_bytes(manifest.read_bytes()[:40])
    with pytest.raises(DataChangedError, match="cut off"):
        opened(table)
    manifest.unlink()
    with pytest.raises(DataUnreadableError, match="no manifest"):
        opened(table)


def test_planned_file_normalizes() -> None:
    """Ranges that cover a file are the whole file, so that equal plans have equal digests."""
    assert planned_file("a", 10, []).ranges == ()
    assert planned_file("a", 0, []).ranges is None
