"""Hostile bytes: whatever a manifest or the end of a data file says, planning ends in a plan within the files, or in words."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from forebay.cache.adapters import protobuf as pb
from forebay.cache.adapters.lance_format import Layouts
from forebay.cache.adapters.lance_manifest import find_manifest, read_manifest, resolve_version
from forebay.cache.adapters.lance_ranges import LanceTable
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.adapters.roaring import read_roaring
from forebay.cache.errors import DataChangedError, DataUnreadableError, FormatUnsupportedError, PlanError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import lance_histories as histories
from .lance_tables import Version

BY_HAND = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with a deletion file, an index and a data file of its own: everything a manifest can point at."""
    pool = tmp_path_factory.mktemp("pool")
    life = histories.Life(pool / "all.lance", ["texts", "lists_of_structs"], "2.2", stable_rows=True)
    life.write()
    histories.delete_some(life)
    histories.tree_index(life)
    life.table.shallow_clone(str(pool / "v1.lance"), life.table.version)
    return pool / "v1.lance"


@pytest.fixture(scope="module")
def manifest(table: Path) -> Path:
    path, _ = find_manifest(FolderOrigin(), str(table), None)
    return Path(path)


def refusal(table: Path, place: Path, content: bytes) -> str:
    """Plan with other bytes in one file: why not, or nothing and a plan within the table and the base it declares."""
    whole = place.read_bytes()
    place.write_bytes(content)
    try:
        opened = LanceTable(FolderOrigin(), str(table), layouts=Layouts())
        files = opened.ranges([name for name in opened.columns if name in {"texts", "lists_of_structs"}])
        assert all(Path(file.path).is_relative_to(table.parent) for file in files)
        assert all(end <= file.size for file in files for _, end in file.spans)
    except PlanError as error:
        return str(error) or "nothing"
    finally:
        place.write_bytes(whole)
    return ""


@BY_HAND
@given(st.data())
def test_a_cut_manifest_is_an_error(table: Path, manifest: Path, data: st.DataObject) -> None:
    """No prefix of a manifest plans."""
    content = manifest.read_bytes()
    assert "manifest" in refusal(table, manifest, content[: data.draw(st.integers(0, len(content) - 1))])


@settings(BY_HAND, max_examples=150)
@given(st.data())
def test_a_changed_manifest_is_a_plan_or_an_error(table: Path, manifest: Path, data: st.DataObject) -> None:
    """Any bytes at any place of a manifest: never another exception, never a path elsewhere, never a range beyond a file."""
    content = bytearray(manifest.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    new = data.draw(st.binary(min_size=1, max_size=9))
    content[at : at + len(new)] = new
    assert refusal(table, manifest, bytes(content)) != "nothing"


@settings(BY_HAND, max_examples=150)
@given(st.data())
def test_a_changed_tail_is_a_plan_or_an_error(table: Path, data: st.DataObject) -> None:
    """The same for the metadata and footer of a data file, where numbers are positions and sizes."""
    path = Path(read_manifest(FolderOrigin(), str(table), None).fragments[0].files[0].path)
    content = bytearray(path.read_bytes())
    (metadata,) = struct.unpack_from("<Q", content, len(content) - 40)
    at = data.draw(st.one_of(st.integers(len(content) - 40, len(content) - 1), st.integers(metadata, len(content) - 1)))
    new = data.draw(st.one_of(st.binary(min_size=1, max_size=9), st.just(b"\xff" * 8), st.just(bytes(8))))
    content[at : at + len(new)] = new[: len(content) - at]
    said = refusal(table, path, bytes(content))
    assert not said or path.name in said


@given(st.binary(max_size=200))
def test_any_bytes_are_fields_or_an_error(content: bytes) -> None:
    """The decoder ends on any bytes, with fields or in words."""
    try:
        found = list(pb.fields(content))
    except DataChangedError:
        return
    assert all(isinstance(value, bytes | int) for _, value in found)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_bitmap_or_an_error(content: bytes) -> None:
    """The same for bitmaps of fragments."""
    try:
        assert all(0 <= number < 1 << 32 for number in read_roaring(content))
    except DataChangedError:
        return


def test_which_fragments_an_index_covers(tmp_path: Path) -> None:
    """As the library says it, for few, many and all of them in a row."""
    life = histories.Life(tmp_path / "frames.lance", [], "2.2", stable_rows=False)
    small = [pa.table({"index": np.arange(3), "episode_index": np.arange(3)})] * 12
    for rows in small:
        lance.write_dataset(rows, life.path, mode="append")
    for step in (histories.tree_index, histories.delete_all, histories.append):
        step(life)
        (index,) = read_manifest(FolderOrigin(), str(life.path), None).indexes
        (described,) = life.table.describe_indices()
        assert index.fragments == {one for segment in described.segments for one in segment.fragment_ids}


def field(number: int, value: int | bytes) -> bytes:
    """One encoded protobuf field."""
    if isinstance(value, int):
        return bytes(_varint(number << 3)) + bytes(_varint(value))
    return bytes(_varint(number << 3 | 2)) + bytes(_varint(len(value))) + value


def _varint(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def write_manifest(table: Path, *parts: bytes) -> None:
    """A manifest of version 1 made by hand."""
    (table / "_versions").mkdir(parents=True, exist_ok=True)
    body = field(1, field(2, b"index") + field(4, (1 << 64) - 1) + field(5, b"int64")) + field(3, 1) + b"".join(parts)
    content = struct.pack("<I", len(body)) + body
    (table / "_versions" / "1.manifest").write_bytes(content + struct.pack("<QHH", 0, 0, 2) + b"LANC")


def data_file(path: bytes, *more: bytes) -> bytes:
    return field(2, field(1, path) + field(2, b"\0") + field(3, b"\0") + field(4, 2) + field(5, 2) + b"".join(more))


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (field(9, 64), "reader feature 64"),
        (field(9, 512 | 1), "reader feature 512"),
        (field(2, field(1, 0) + field(11, b"overlay")), "a fragment has the part 11"),
        (field(2, data_file(b"x.lance", field(9, 1))), "a data file has the part 9"),
        (field(2, data_file(b"../../etc/passwd")), "leaves"),
        (field(2, data_file(b"/etc/passwd")), "leaves"),
        (field(2, data_file(b"a\0b.lance")), "leaves"),
        (field(2, data_file(b"x.lance", field(7, 3))), "base path 3, which it does not define"),
        (field(18, field(3, 1) + field(4, b"gs://bucket/x")), "only folders and s3://"),
        (field(2, data_file(b"x.lance").replace(field(4, 2), field(4, 3))), "unknown data format 3.2"),
        (field(2, field(3, field(1, 7))), "deletion file is of the kind 7"),
        (field(3, 2), "its name says 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_known_is_refused(tmp_path: Path, part: bytes, words: str) -> None:
    """Unknown features and structures, paths that climb out and undeclared bases are refused by name."""
    write_manifest(tmp_path / "t.lance", part)
    with pytest.raises(PlanError, match=words):
        LanceTable(FolderOrigin(), str(tmp_path / "t.lance")).ranges(["index"])


def test_an_unknown_encoding_is_refused(tmp_path: Path) -> None:
    """A page in a way that this version does not know may keep bytes anywhere."""
    table = tmp_path / "frames.lance"
    lance.write_dataset(pa.table({"text": [f"t{row}" for row in range(1000)]}), table, data_storage_version="2.2")
    (path,) = (table / "data").iterdir()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"/lance.encodings21.PageLayout", b"/lance.encodings29.PageLayout"))
    with pytest.raises(FormatUnsupportedError, match=r"encoded with /lance\.encodings29\.PageLayout"):
        LanceTable(FolderOrigin(), str(table)).ranges(["text"])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_tables_without_rows(tmp_path: Path, version: Version) -> None:
    """A table without fragments plans its manifest alone, with and without columns."""
    table = tmp_path / "empty.lance"
    lance.write_dataset(pa.table({"index": pa.array([], pa.int64())}), table, data_storage_version=version)
    for columns in (["index"], []):
        files = LanceTable(FolderOrigin(), str(table)).ranges(columns)
        assert [Path(file.path).suffix for file in files] == [".manifest"]


def test_damaged_tags_are_named(tmp_path: Path) -> None:
    """A tag that is no tag is an error in words, and a branch cannot climb out."""
    life = histories.Life(tmp_path / "frames.lance", [], "2.2", stable_rows=False)
    life.write()
    life.table.tags.create("golden", 1)
    place = life.path / "_refs" / "tags" / "golden.json"
    tag = json.loads(place.read_text())
    for content in ("{", "[]", json.dumps(tag | {"version": None}), json.dumps(tag | {"branch": "../.."})):
        place.write_text(content)
        with pytest.raises(DataChangedError):
            resolve(life.path, "golden")
    with pytest.raises(DataUnreadableError, match="there are: golden"):
        resolve(life.path, "zzz")


def resolve(table: Path, tag: str) -> None:
    resolve_version(FolderOrigin(), str(table), tag)
