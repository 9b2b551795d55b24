"""The parts of Lance's file formats that planning needs: manifest flags, and where a column's bytes lie.

Read from the files themselves: the library does not show feature flags, nor how many
rows a page has. `tests/test_lance_format.py` holds it against the library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from forebay.cache.domain.plan import ByteRange
from forebay.cache.errors import DataChangedError, DataUnreadableError, FormatUnsupportedError

TAIL_BYTES = 64 * 1024
"""What readers fetch first from the end of a data file on object stores; 4 KiB locally."""
FOOTER_BYTES = 40
MAGIC = b"LANC"
KNOWN_READER_FLAGS = 1 | 2 | 4 | 8 | 16 | 32
"""Deletion files, stable row ids, (old) v2 format, table config, base paths, no transaction files."""
KNOWN_FILE_VERSIONS = frozenset({(0, 3), (2, 0), (2, 1), (2, 2)})

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VERSION = (1 << 64) - 1


def protobuf_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of one encoded protobuf message, in order."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif wire == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                msg = "a protobuf message ends in the middle of a field"
                raise DataChangedError(msg)
            yield number, message[at : at + length]
            at += length
        elif wire in {_FIXED64, _FIXED32}:
            width = 8 if wire == _FIXED64 else 4
            yield number, int.from_bytes(message[at : at + width], "little")
            at += width
        else:
            msg = f"a protobuf field has the wire type {wire}, which does not exist"
            raise DataChangedError(msg)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    msg = "a protobuf message ends in the middle of a number"
    raise DataChangedError(msg)


def _numbers(value: int | bytes) -> list[int]:
    """A repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def manifest_path(table: Path, version: int | None) -> tuple[Path, int]:
    """The manifest of `version`, or of the latest one, under either naming scheme."""
    folder = table / "_versions"
    found: dict[int, Path] = {}
    try:
        names = sorted(folder.glob("*.manifest"))
    except OSError as error:
        msg = f"{folder} cannot be listed: {error}"
        raise DataUnreadableError(msg) from error
    for path in names:
        if path.stem.isdigit():
            number = int(path.stem)
            found[_MAX_VERSION - number if len(path.stem) == 20 else number] = path
    if not found:
        msg = f"{table} is not a Lance table: it has no manifest under _versions/"
        raise DataUnreadableError(msg)
    wanted = max(found) if version is None else version
    if wanted not in found:
        msg = f"{table} has no version {wanted}; it has {min(found)} to {max(found)}"
        raise DataUnreadableError(msg)
    return found[wanted], wanted


def check_manifest(path: Path) -> None:
    """Refuse a manifest that asks its readers for a feature this planner does not know."""
    content = path.read_bytes()
    if len(content) < 16 or content[-4:] != MAGIC:
        msg = f"{path} is not a whole Lance manifest; it may be cut off"
        raise DataChangedError(msg)
    (start,) = struct.unpack_from("<Q", content, len(content) - 16)
    if start + 4 > len(content):
        msg = f"{path} points at byte {start} of {len(content)}; it may be cut off"
        raise DataChangedError(msg)
    (length,) = struct.unpack_from("<I", content, start)
    flags = 0
    for number, value in protobuf_fields(content[start + 4 : start + 4 + length]):
        if number == 9 and isinstance(value, int):
            flags = value
    unknown = flags & ~KNOWN_READER_FLAGS
    if unknown:
        bits = ", ".join(str(1 << bit) for bit in range(64) if unknown >> bit & 1)
        msg = (
            f"{path} needs reader feature {bits}, which this version of Forebay cannot plan byte by byte: "
            "update Forebay, or write the table with an older data format"
        )
        raise FormatUnsupportedError(msg)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a column: its buffers and how many rows it holds."""

    buffers: tuple[ByteRange, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class Column:
    """Where one leaf column lies in a data file."""

    buffers: tuple[ByteRange, ...]
    pages: tuple[Page, ...]

    @property
    def rows(self) -> int:
        return sum(page.rows for page in self.pages)


@dataclass(frozen=True, slots=True)
class DataFileLayout:
    """A data file taken apart: its tail, which every reader needs, and its columns."""

    size: int
    tail: ByteRange
    columns: tuple[Column, ...]


def read_layout(path: Path) -> DataFileLayout:
    """Read the tail of a data file (one read, two when the metadata is long)."""
    try:
        with path.open("rb") as file:
            return _layout(path, file, path.stat().st_size)
    except OSError as error:
        msg = f"{path} cannot be read: {error}"
        raise DataUnreadableError(msg) from error


def _layout(path: Path, file: BinaryIO, size: int) -> DataFileLayout:
    offset = max(0, size - TAIL_BYTES)
    file.seek(offset)
    tail = file.read()
    if len(tail) < FOOTER_BYTES or tail[-4:] != MAGIC:
        msg = f"{path} does not end like a Lance data file; it may be cut off"
        raise DataChangedError(msg)
    first_metadata, columns_at, globals_at, n_globals, n_columns, _, _ = struct.unpack_from(
        "<QQQIIHH", tail, len(tail) - FOOTER_BYTES
    )
    if max(first_metadata, columns_at + 16 * n_columns, globals_at + 16 * n_globals) > size:
        msg = f"{path}: its footer points beyond its {size} bytes; it may be cut off"
        raise DataChangedError(msg)
    needed = min(first_metadata, columns_at, globals_at)
    if needed < offset:
        offset = needed
        file.seek(offset)
        tail = file.read()
    global_buffers = _table(tail, globals_at - offset, n_globals)
    start = min([first_metadata, *(place.start for place in global_buffers)])
    columns = tuple(
        _column(path, size, tail[place.start - offset : place.end - offset])
        for place in _table(tail, columns_at - offset, n_columns)
    )
    return DataFileLayout(size=size, tail=ByteRange(max(0, min(start, size - TAIL_BYTES)), size), columns=columns)


def _table(content: bytes, at: int, count: int) -> list[ByteRange]:
    pairs = struct.unpack_from(f"<{2 * count}Q", content, at)
    return [ByteRange(start, start + length) for start, length in zip(pairs[::2], pairs[1::2], strict=True)]


def _column(path: Path, size: int, message: bytes) -> Column:
    pages: list[Page] = []
    offsets: list[int] = []
    sizes: list[int] = []
    for number, value in protobuf_fields(message):
        if number == 1 and isinstance(value, bytes):
            _refuse_indirect(path, value)
        elif number == 2 and isinstance(value, bytes):
            pages.append(_page(path, size, value))
        elif number == 3:
            offsets += _numbers(value)
        elif number == 4:
            sizes += _numbers(value)
    return Column(buffers=_buffers(path, size, offsets, sizes), pages=tuple(pages))


def _page(path: Path, size: int, message: bytes) -> Page:
    offsets: list[int] = []
    sizes: list[int] = []
    rows = 0
    for number, value in protobuf_fields(message):
        if number == 1:
            offsets += _numbers(value)
        elif number == 2:
            sizes += _numbers(value)
        elif number == 3 and isinstance(value, int):
            rows = value
        elif number == 4 and isinstance(value, bytes):
            _refuse_indirect(path, value)
    return Page(buffers=_buffers(path, size, offsets, sizes), rows=rows)


def _refuse_indirect(path: Path, encoding: bytes) -> None:
    """An encoding may be stored elsewhere in the file; no writer does so yet, and it is not planned."""
    if any(number == 1 for number, _ in protobuf_fields(encoding)):
        msg = f"{path} keeps an encoding outside its column metadata, which cannot be planned; rewrite the table"
        raise FormatUnsupportedError(msg)


def _buffers(path: Path, size: int, offsets: list[int], sizes: list[int]) -> tuple[ByteRange, ...]:
    if len(offsets) != len(sizes):
        msg = f"{path}: {len(offsets)} buffer positions but {len(sizes)} sizes"
        raise DataChangedError(msg)
    buffers = tuple(ByteRange(start, start + length) for start, length in zip(offsets, sizes, strict=True))
    if any(end > size for _, end in buffers):
        msg = f"{path}: a column's buffer ends beyond its {size} bytes; it may be cut off"
        raise DataChangedError(msg)
    return buffers
