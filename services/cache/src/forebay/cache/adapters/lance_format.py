"""A Lance data file, taken apart from its last bytes: where each column's pages lie and how many rows they hold.

Read from the file itself, because the library shows neither the rows of a page nor what
it does not know. `tests/test_lance_ranges.py` holds it against the library.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from forebay.cache.adapters import protobuf as pb
from forebay.cache.adapters.lance_manifest import MAGIC, DataFile
from forebay.cache.adapters.origin import Origin
from forebay.cache.domain.plan import ByteRange
from forebay.cache.errors import DataChangedError, FormatUnsupportedError

TAIL_BYTES = 64 * 1024
"""What readers fetch first from the end of a data file on object stores; 4 KiB locally."""
_FIRST_READ = 8 * 1024
"""Of a file on a disk, where a second read costs little."""
FOOTER_BYTES = 40
MAX_METADATA_BYTES = 256 << 20
"""A million columns; beyond that a footer is damaged rather than large."""
KNOWN_FILE_VERSIONS = frozenset({(0, 3), (2, 0), (2, 1), (2, 2)})
_FILES_SAY = {(0, 3): (2, 0)}
"""Files of 2.0 call themselves 0.3 in their footer."""
_REMEMBERED_BYTES = 64 << 20
_LAYOUT_COSTS = 2 << 10
"""What a layout takes beside its bytes; most of the memory when tables are small."""

_COLUMN_ENCODING = "/lance.encodings.ColumnEncoding"
_ARRAY_ENCODING = "/lance.encodings.ArrayEncoding"
_PAGE_LAYOUT = "/lance.encodings21.PageLayout"
_KNOWN_PARTS = {
    _COLUMN_ENCODING: frozenset({1, 2, 3}),  # values, zone index, blob
    _ARRAY_ENCODING: frozenset(range(1, 18)),
    _PAGE_LAYOUT: frozenset({1, 2, 3, 4}),  # mini blocks, constant, full zip, blob
}
"""Encodings whose bytes all lie in the buffers that the metadata lists (a blob's payload is planned by its descriptors)."""


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
    """The metadata of a data file. Columns are taken apart when they are asked for: a table may have thousands."""

    path: str
    size: int
    tail: ByteRange
    """What every reader needs: metadata of the columns, tables of offsets, footer, and at least the last 64 KiB."""
    _places: tuple[ByteRange, ...]
    _metadata: bytes
    _metadata_at: int

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self._places)

    @property
    def metadata_bytes(self) -> int:
        return len(self._metadata)

    def column(self, place: int) -> Column:
        if place >= len(self._places):
            msg = f"{self.path} has {len(self._places)} columns, its manifest expects number {place}; it may be damaged"
            raise DataChangedError(msg)
        start, end = self._places[place]
        try:
            return self._column(self._metadata[start - self._metadata_at : end - self._metadata_at])
        except DataChangedError as error:
            msg = f"{self.path}, column {place}: {error}"
            raise DataChangedError(msg) from error

    def _column(self, message: bytes) -> Column:
        pages: list[Page] = []
        offsets: list[int] = []
        sizes: list[int] = []
        for number, value in pb.fields(message):
            if number == 1:
                self._check_encoding(pb.message(value))
            elif number == 2:
                pages.append(self._page(pb.message(value)))
            elif number == 3:
                offsets += pb.numbers(value)
            elif number == 4:
                sizes += pb.numbers(value)
        return Column(buffers=self._buffers(offsets, sizes), pages=tuple(pages))

    def _page(self, message: bytes) -> Page:
        offsets: list[int] = []
        sizes: list[int] = []
        rows = 0
        for number, value in pb.fields(message):
            if number == 1:
                offsets += pb.numbers(value)
            elif number == 2:
                sizes += pb.numbers(value)
            elif number == 3:
                rows = pb.number(value)
            elif number == 4:
                self._check_encoding(pb.message(value))
        return Page(buffers=self._buffers(offsets, sizes), rows=rows)

    def _buffers(self, offsets: list[int], sizes: list[int]) -> tuple[ByteRange, ...]:
        if len(offsets) != len(sizes):
            msg = f"{len(offsets)} buffer positions but {len(sizes)} sizes"
            raise DataChangedError(msg)
        buffers = tuple(ByteRange(start, start + length) for start, length in zip(offsets, sizes, strict=True))
        if any(end > self.size for _, end in buffers):
            msg = f"a buffer ends beyond the file's {self.size:,} bytes; it may be cut off"
            raise DataChangedError(msg)
        return buffers

    def _check_encoding(self, encoding: bytes) -> None:
        """Only encodings whose bytes are known to lie in the listed buffers can be planned."""
        for number, value in pb.fields(encoding):
            if number != 2:
                msg = f"{self.path} keeps an encoding outside its column metadata, which cannot be planned; rewrite the table"
                raise FormatUnsupportedError(msg)
            for _, described in pb.fields(pb.message(value)):
                self._check_any(pb.message(described))

    def _check_any(self, described: bytes) -> None:
        kind, body = "", b""
        for number, value in pb.fields(described):
            if number == 1:
                kind = pb.text(value)
            elif number == 2:
                body = pb.message(value)
        parts = _KNOWN_PARTS.get(kind)
        unknown = sorted({number for number, _ in pb.fields(body)} - parts) if parts is not None else []
        if parts is None or unknown:
            what = f"{kind or 'an encoding without a name'}{f', kind {unknown[0]}' if unknown else ''}"
            msg = (
                f"{self.path} is encoded with {what}, which this version of Forebay cannot plan byte by byte: "
                "update Forebay, or write the table with an older data format"
            )
            raise FormatUnsupportedError(msg)


class Layouts:
    """Reads the tails of data files, and remembers the last ones."""

    def __init__(self, remembered_bytes: int = _REMEMBERED_BYTES) -> None:
        self._room = remembered_bytes
        self._known: OrderedDict[tuple[str, int, str], DataFileLayout] = OrderedDict()
        self._lock = Lock()

    def read(self, origin: Origin, file: DataFile) -> DataFileLayout:
        """The layout of a file that a manifest names; raises a `PlanError` when it is not what that says."""
        refuse_unknown_version(file)
        # An object is never changed under the name that Lance gave it, so asking for its etag would be a request for nothing.
        key = (file.path, file.size or -1, "")
        if "://" not in file.path:
            key = (file.path, *origin.identity(file.path))
        with self._lock:
            layout = self._known.get(key)
            if layout is not None:
                self._known.move_to_end(key)
        if layout is None:
            layout = read_layout(origin, file.path)
            self._remember(key, layout)
        if file.size is not None and file.size != layout.size:
            msg = f"{file.path} has {layout.size:,} bytes, its manifest says {file.size:,}; it may be cut off"
            raise DataChangedError(msg)
        return layout

    def _remember(self, key: tuple[str, int, str], layout: DataFileLayout) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = layout
                self._room -= layout.metadata_bytes + _LAYOUT_COSTS
            while self._room < 0:
                _, gone = self._known.popitem(last=False)
                self._room += gone.metadata_bytes + _LAYOUT_COSTS


def refuse_unknown_version(file: DataFile) -> None:
    if file.version in KNOWN_FILE_VERSIONS:
        return
    name = ".".join(str(part) for part in file.version)
    old = file.version < (0, 3)
    msg = (
        f"{file.path} has the {'legacy' if old else 'unknown'} data format {name if any(file.version) else '0.1'}, "
        f"which cannot be planned byte by byte: {'rewrite the table with Lance 2.0 or later' if old else 'update Forebay'}"
    )
    raise FormatUnsupportedError(msg)


def read_layout(origin: Origin, path: str) -> DataFileLayout:
    """Read the tail of a data file (one read, two when the metadata is long)."""
    size, tail = origin.tail(path, TAIL_BYTES if "://" in path else _FIRST_READ)
    if len(tail) < FOOTER_BYTES or tail[-4:] != MAGIC:
        msg = f"{path} does not end like a Lance data file; it may be cut off"
        raise DataChangedError(msg)
    first_metadata, columns_at, globals_at, n_globals, n_columns, major, minor = struct.unpack_from(
        "<QQQIIHH", tail, len(tail) - FOOTER_BYTES
    )
    if _FILES_SAY.get((major, minor), (major, minor)) not in KNOWN_FILE_VERSIONS:
        msg = f"{path} has the data format {major}.{minor}, which cannot be planned byte by byte: update Forebay"
        raise FormatUnsupportedError(msg)
    end = size - FOOTER_BYTES
    if max(first_metadata, columns_at + 16 * n_columns, globals_at + 16 * n_globals) > end:
        msg = f"{path}: its footer points beyond its {size:,} bytes; it may be cut off"
        raise DataChangedError(msg)
    needed = min(first_metadata, columns_at, globals_at)
    if size - needed > MAX_METADATA_BYTES:
        msg = f"{path}: its footer claims {size - needed:,} bytes of metadata; it may be damaged"
        raise DataChangedError(msg)
    at = size - len(tail)
    if needed < at:
        tail = origin.read(path, needed, at) + tail
        at = needed
    if len(tail) != size - at:
        msg = f"{path} became shorter while it was read"
        raise DataChangedError(msg)
    global_buffers = list(_table(tail, globals_at - at, n_globals))
    places = tuple(_table(tail, columns_at - at, n_columns))
    if any(place.start < needed or place.end > end for place in places) or any(one.end > end for one in global_buffers):
        msg = f"{path}: its footer points outside its metadata; it may be damaged"
        raise DataChangedError(msg)
    start = min([needed, *(one.start for one in global_buffers)])
    kept_end = max((place.end for place in places), default=needed)
    return DataFileLayout(
        path=path,
        size=size,
        tail=ByteRange(max(0, min(start, size - TAIL_BYTES)), size),
        _places=places,
        _metadata=tail[needed - at : kept_end - at],
        _metadata_at=needed,
    )


def _table(content: bytes, at: int, count: int) -> Iterator[ByteRange]:
    pairs = struct.unpack_from(f"<{2 * count}Q", content, at)
    for start, length in zip(pairs[::2], pairs[1::2], strict=True):
        yield ByteRange(start, start + length)
