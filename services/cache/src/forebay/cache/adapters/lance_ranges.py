"""One Lance table -> the byte ranges that reading some of its columns touches.

Used by `version_root.py` for the tables of a dataset version and by `forebay plan --lance`.
What is enough was found by zeroing every other byte and reading again; the tests do the same.
Two things are easy to miss and would leave videos cold: blob payloads lie in no page
buffer, and blob sidecars are in no list of tracked files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from forebay.cache.adapters.lance_format import (
    KNOWN_FILE_VERSIONS,
    Column,
    DataFileLayout,
    check_manifest,
    manifest_path,
    read_layout,
)
from forebay.cache.domain.plan import ByteRange, PlannedFile, planned_file, unite_files
from forebay.cache.errors import (
    ColumnUnknownError,
    DataChangedError,
    DataUnreadableError,
    FormatUnsupportedError,
)

_INLINE, _PACKED, _DEDICATED = 0, 1, 2
_ROWS_EXACT_SINCE = (2, 1)
"""Before 2.1 the pages of a nested column count items, not rows, so they cannot be picked by row."""

RowWindows = Mapping[int, tuple[int, int]]
"""Fragment -> first and last physical row that is wanted."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One node of the table's schema, flattened."""

    id: int
    name: str
    family: frozenset[int]
    """Ids of the node, its ancestors and everything below it: all it takes to read it."""
    blob: bool
    blob_below: bool
    top: str


class LanceTable:
    """One version of one table, opened for planning. Reads metadata and tails only."""

    def __init__(self, path: Path, *, version: int | None = None) -> None:
        import lance  # noqa: PLC0415 takes longer than everything else together

        self.path = path.absolute()
        self._manifest, self.version = manifest_path(self.path, version)
        check_manifest(self._manifest)
        try:
            self._dataset = lance.dataset(str(self.path), version=self.version)
        except (ValueError, OSError) as error:
            msg = f"{path} version {self.version} does not open: {error}"
            raise DataUnreadableError(msg) from error
        self._fields = {field.name: field for field in _flatten(self._dataset.lance_schema.fields())}
        self._bases = {base_id: _base(base) for base_id, base in self._dataset.base_paths().items()}
        self._layouts: dict[Path, DataFileLayout] = {}

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the top-level columns."""
        return tuple(field.name for field in self._fields.values() if field.name == field.top)

    @cached_property
    def blob_columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if self._fields[name].blob)

    def find_column(self, wanted: str) -> str | None:
        """The table's own spelling of a column; dots and underscores are the same at the top."""
        if wanted in self._fields:
            return wanted
        plain = wanted.replace(".", "_")
        return next((name for name in self._fields if name.replace(".", "_") == plain), None)

    def resolve(self, wanted: str) -> str:
        found = self.find_column(wanted)
        if found is None:
            raise ColumnUnknownError(wanted, self.columns, self.path.name)
        return found

    def values(self, column: str) -> tuple[str, ...]:
        """The different values of one small text column."""
        found = self._dataset.to_table(columns=[column]).column(column).unique().to_pylist()
        return tuple(sorted(str(value) for value in found))

    def count(self, rows: str) -> int:
        """How many rows an SQL filter selects."""
        return int(self._dataset.count_rows(rows))

    # plans

    def everything(self) -> tuple[PlannedFile, ...]:
        """Every file that this version refers to, whole."""
        files = [*self._always(), *self._index_files(None)]
        for fragment in self._dataset.get_fragments():
            for data_file in fragment.data_files():
                path, stem = self._data_path(data_file)
                files.append(self._whole(path))
                files += [self._whole(blob) for blob in sorted(stem.glob("*.blob"))]
        return unite_files(files)

    def ranges(
        self,
        columns: Iterable[str],
        *,
        keys: Iterable[str] = (),
        rows: str | None = None,
        payloads: str | None = None,
    ) -> tuple[PlannedFile, ...]:
        """What reading `columns` touches.

        `rows` (an SQL filter) narrows `columns` to the pages that hold those rows; `keys`
        are columns that readers need for every row to find them. `payloads` narrows blob
        payloads only and defaults to `rows`.
        """
        narrow = {self.resolve(name) for name in columns}
        full = {self.resolve(name) for name in keys}
        windows = None if rows is None else self._windows(rows)
        files = [*self._always(), *self._index_files({self._fields[name].top for name in narrow | full})]
        for fragment in self._dataset.get_fragments():
            window = None if windows is None else windows.get(fragment.fragment_id, (0, -1))
            for data_file in fragment.data_files():
                files += self._data_ranges(data_file, narrow - full, full, window)
        blobs = {name for name in narrow | full if self._fields[name].blob}
        if any(self._fields[name].blob_below for name in narrow | full):
            msg = f"{self.path.name} keeps blobs inside a nested column, which cannot be planned yet"
            raise FormatUnsupportedError(msg)
        for name in sorted(blobs):
            files += self._payloads(name, rows if payloads is None else payloads)
        return unite_files(files)

    def outside_bytes(self, root: Path) -> int:
        """Bytes of this version that lie outside `root`, as in a shallow clone."""
        return sum(file.size for file in self.everything() if not Path(file.path).is_relative_to(root))

    # pieces

    def _always(self) -> Iterator[PlannedFile]:
        """What every reader of this version opens first."""
        yield self._whole(self._manifest)
        hint = self.path / "_versions" / "latest_version_hint.json"
        if hint.exists():
            yield self._whole(hint)
        for fragment in self._dataset.get_fragments():
            details = fragment.metadata
            if details.overlays:
                msg = f"{self.path.name} has data overlays, which cannot be planned; compact the table"
                raise FormatUnsupportedError(msg)
            for part in (details.row_id_meta, details.created_at_version_meta, details.last_updated_at_version_meta):
                if part is not None and "xternal" in repr(part):
                    msg = f"{self.path.name} keeps row ids in files of their own, which cannot be planned yet"
                    raise FormatUnsupportedError(msg)
            deletions = fragment.deletion_file()
            if details.deletion_file is not None and deletions is not None:
                base, _ = self._base_of(details.deletion_file.base_id)
                yield self._whole(_inside(base, deletions))

    def _index_files(self, columns: set[str] | None) -> Iterator[PlannedFile]:
        """Indexes that a filter on these columns may use; None: all of them."""
        for index in self._dataset.describe_indices():
            if columns is None or set(index.field_names) <= columns:
                for segment in index.segments:
                    base, _ = self._base_of(segment.base_id)
                    folder = _inside(base, f"_indices/{segment.uuid}")
                    yield from (self._whole(path) for path in sorted(folder.rglob("*")) if path.is_file())

    def _data_ranges(
        self, data_file: Any, narrow: set[str], full: set[str], window: tuple[int, int] | None
    ) -> Iterator[PlannedFile]:
        version = (data_file.file_major_version, data_file.file_minor_version)
        path, _ = self._data_path(data_file)
        if version not in KNOWN_FILE_VERSIONS:
            msg = (
                f"{path.name} has the data format {version[0]}.{version[1]}, which cannot be planned; rewrite the table"
            )
            raise FormatUnsupportedError(msg)
        narrow_ids = frozenset[int]().union(*(self._fields[name].family for name in narrow))
        full_ids = frozenset[int]().union(*(self._fields[name].family for name in full))
        places = {
            field: place
            for field, place in zip(data_file.fields, data_file.column_indices, strict=True)
            if place >= 0 and field in narrow_ids | full_ids
        }
        if not places:
            return
        layout = self._layout(path, data_file.file_size_bytes)
        ranges = [layout.tail]
        for field, place in places.items():
            column = layout.columns[place]
            pick = window if field not in full_ids and version >= _ROWS_EXACT_SINCE else None
            ranges += column.buffers
            ranges += _page_buffers(column, pick)
        yield planned_file(str(path), layout.size, ranges)

    def _payloads(self, column: str, rows: str | None) -> Iterator[PlannedFile]:
        """Blob payloads, found by reading the descriptors."""
        field = self._fields[column]
        homes = {
            fragment.fragment_id: self._data_path(data_file)
            for fragment in self._dataset.get_fragments()
            for data_file in fragment.data_files()
            if any(one in field.family for one in data_file.fields)
        }
        ranges: dict[Path, list[ByteRange]] = {}
        for address, blob in self._descriptors(column, rows):
            path, stem = homes[address >> 32]
            kind, start, size = blob.get("kind", _INLINE), blob["position"], blob["size"]
            if size == 0:
                continue
            if kind in {_PACKED, _DEDICATED}:
                path = stem / f"{_reversed_bits(blob['blob_id'])}.blob"
            elif kind != _INLINE:
                msg = f"{self.path.name}: {column} points at {blob['blob_uri']!r} outside the table, which cannot be planned"
                raise FormatUnsupportedError(msg)
            ranges.setdefault(path, []).append(ByteRange(start, start + size))
        for path, wanted in ranges.items():
            size = self._size(path)
            if max(end for _, end in wanted) > size:
                msg = f"{path} has {size:,} bytes, fewer than its table says; it may be cut off"
                raise DataChangedError(msg)
            yield planned_file(str(path), size, wanted)

    def _descriptors(self, column: str, rows: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
        scanner = self._dataset.scanner(
            columns=[column], filter=rows, with_row_address=True, blob_handling="blobs_descriptions"
        )
        for batch in scanner.to_batches():
            addresses: list[Any] = batch.column("_rowaddr").to_pylist()
            blobs: list[Any] = batch.column(column).to_pylist()
            for address, blob in zip(addresses, blobs, strict=True):
                if blob is not None and blob["position"] is not None:
                    yield address, blob

    def _windows(self, rows: str) -> RowWindows:
        scanner = self._dataset.scanner(columns=[], filter=rows, with_row_address=True)
        windows: dict[int, tuple[int, int]] = {}
        for batch in scanner.to_batches():
            addresses: list[Any] = batch.column("_rowaddr").to_pylist()
            for address in addresses:
                fragment, row = address >> 32, address & 0xFFFFFFFF
                first, last = windows.get(fragment, (row, row))
                windows[fragment] = (min(first, row), max(last, row))
        return windows

    # files

    def _layout(self, path: Path, promised: int | None) -> DataFileLayout:
        if path not in self._layouts:
            layout = read_layout(path)
            if promised and promised != layout.size:
                msg = f"{path} has {layout.size:,} bytes, its manifest says {promised:,}"
                raise DataChangedError(msg)
            self._layouts[path] = layout
        return self._layouts[path]

    def _data_path(self, data_file: Any) -> tuple[Path, Path]:
        """A data file, and the folder that holds its blob sidecars."""
        base, is_root = self._base_of(data_file.base_id)
        path = _inside(base / "data" if is_root else base, data_file.path)
        return path, path.with_suffix("")

    def _base_of(self, base_id: int | None) -> tuple[Path, bool]:
        if base_id is None:
            return self.path, True
        try:
            return self._bases[base_id]
        except KeyError:
            msg = f"{self.path.name} refers to the base path {base_id}, which its manifest does not define"
            raise DataChangedError(msg) from None

    def _whole(self, path: Path) -> PlannedFile:
        return planned_file(str(path), self._size(path))

    @staticmethod
    def _size(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError as error:
            msg = f"{path} is part of the table but cannot be read: {error}"
            raise DataUnreadableError(msg) from error


def _page_buffers(column: Column, window: tuple[int, int] | None) -> Iterator[ByteRange]:
    first = 0
    for page in column.pages:
        if window is None or (first <= window[1] and first + page.rows > window[0]):
            yield from page.buffers
        first += page.rows


def _flatten(fields: Iterable[Any], above: tuple[Any, ...] = ()) -> Iterator[_Field]:
    for field in fields:
        chain = (*above, field)
        below = list(_below(field))
        yield _Field(
            id=field.id(),
            name=".".join(one.name() for one in chain),
            family=frozenset(one.id() for one in (*chain, *below)),
            blob=not above and _is_blob(field),
            blob_below=any(_is_blob(one) for one in below) or (bool(above) and _is_blob(field)),
            top=chain[0].name(),
        )
        yield from _flatten(field.children(), chain)


def _below(field: Any) -> Iterator[Any]:
    for child in field.children():
        yield child
        yield from _below(child)


def _is_blob(field: Any) -> bool:
    metadata: Mapping[str, str] = field.metadata
    return metadata.get("ARROW:extension:name") == "lance.blob.v2" or metadata.get("lance-encoding:blob") == "true"


def _base(base: Any) -> tuple[Path, bool]:
    url = urlparse(base.path)
    if url.scheme not in {"", "file"}:
        msg = f"the table refers to {url.scheme}://{url.netloc}, and only folders can be planned yet"
        raise FormatUnsupportedError(msg)
    return Path(url.path).absolute(), bool(base.is_dataset_root)


def _inside(base: Path, relative: str) -> Path:
    """A path that a manifest names; it may not climb out of its base."""
    if Path(relative).is_absolute() or ".." in Path(relative).parts:
        msg = f"a manifest names the path {relative!r}, which leaves {base}"
        raise DataChangedError(msg)
    return base / relative


def _reversed_bits(blob_id: int) -> str:
    """How blob sidecars are named: 32 binary digits, lowest first."""
    return f"{blob_id:032b}"[::-1]
