"""One Lance table -> the byte ranges that reading some of its columns touches.

Used by `version_root.py` for the tables of a dataset version and by `forebay plan --lance`.
What is enough was found by zeroing every other byte and reading again; the tests do the same.
Two things are easy to miss and would leave videos cold: blob payloads lie in no page
buffer, and blob sidecars are in no list of tracked files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from forebay.cache.adapters.lance_format import Column, DataFileLayout, Layouts, refuse_unknown_version
from forebay.cache.adapters.lance_manifest import DataFile, Fragment, Index, SchemaField, find_manifest, read_manifest
from forebay.cache.adapters.lance_rows import NO_ROWS, LanceRows, RowSpans
from forebay.cache.adapters.origin import Origin
from forebay.cache.domain.plan import ByteRange, PlannedFile, planned_file, unite_files
from forebay.cache.errors import ColumnUnknownError, DataChangedError, DataUnreadableError, FormatUnsupportedError

_INLINE, _PACKED, _DEDICATED = 0, 1, 2
_ROWS_EXACT_SINCE = (2, 1)
"""Before 2.1 the pages of a nested column count items, not rows, so they cannot be picked by row."""
_READERS = 16
_FEW_FILES = 8
_NARROW_ON_DISK, _NARROW_ON_OBJECTS = 10, 1000
"""A value narrower than this many bytes is read for every row together with the filter, not picked by row afterwards."""
_WIDTHS = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "halffloat": 2,
    "int32": 4,
    "uint32": 4,
    "float": 4,
    "int64": 8,
    "uint64": 8,
    "double": 8,
    "date32": 4,
    "date64": 8,
    "time32": 4,
    "time64": 8,
    "timestamp": 8,
    "duration": 8,
    "decimal:128": 16,
    "decimal:256": 32,
}
_BY_PAGE = ("string", "large_string", "binary", "large_binary", "list", "large_list", "struct", "map", "dict", "null")
"""Kinds without one width, which readers always pick by row."""

Of = TypeVar("Of")
To = TypeVar("To")


@dataclass(frozen=True, slots=True)
class _Field:
    """One node of the table's schema, flattened."""

    name: str
    short: str
    """The name without the nodes that only stand for "an item of the list"."""
    top: str
    family: frozenset[int]
    """Ids of the node, its ancestors and everything below it: all it takes to read it."""
    blob: bool
    blob_below: bool
    eager: frozenset[int]
    """Those of the family that readers take along for every row when they filter."""


class LanceTable:
    """One version of one table, opened for planning. Reads its manifest, and tails as they are needed."""

    def __init__(
        self, origin: Origin, path: str, *, version: int | None = None, layouts: Layouts | None = None
    ) -> None:
        self.path = path.rstrip("/")
        self._origin = origin
        self._layouts = layouts or Layouts()
        self._manifest = read_manifest(origin, self.path, version)
        self.version = self._manifest.version
        limit = _NARROW_ON_OBJECTS if "://" in path else _NARROW_ON_DISK
        self._fields = {field.name: field for field in _flatten(self._manifest.fields, self.path, limit)}
        self._rows = LanceRows(origin, self.path, self.version)

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]

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
        spelled = (
            name for name, one in self._fields.items() if plain in {name.replace(".", "_"), one.short.replace(".", "_")}
        )
        return next(spelled, None)

    def resolve(self, wanted: str) -> str:
        found = self.find_column(wanted)
        if found is None:
            raise ColumnUnknownError(wanted, self.columns, self.name)
        return found

    def values(self, column: str) -> tuple[str, ...]:
        """The different values of one small text column."""
        return self._rows.values(column)

    def holds_rows(self, rows: str) -> bool:
        """Whether an SQL filter selects any row."""
        return bool(self._rows.spans(rows))

    def columns_in(self, rows: str) -> tuple[str, ...]:
        """The top-level columns that an SQL filter names. A word inside a string counts too: better one more than one less."""
        return tuple(
            name for name in self.columns if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", rows, re.IGNORECASE)
        )

    @cached_property
    def whole_bytes(self) -> int:
        """Size of everything this version refers to, as far as that is known without reading."""
        return sum(file.planned_bytes for file in self.everything())

    # plans

    def everything(self) -> tuple[PlannedFile, ...]:
        """Every file that this version refers to, whole."""
        return unite_files([*self._always, *self._index_files(lambda _: True), *self._data_whole()])

    def ranges(
        self,
        columns: Iterable[str],
        *,
        keys: Iterable[str] = (),
        rows: str | None = None,
        payloads: str | None = None,
        lookups: bool = False,
    ) -> tuple[PlannedFile, ...]:
        """What reading `columns` touches.

        `rows` (an SQL filter) narrows `columns` to the pages that hold those rows; `keys`
        are columns that readers need for every row to find them, the filter's own among
        them. `payloads` narrows blob payloads only and defaults to `rows`. Indexes on the
        keys are planned when there is a filter, or `lookups`.
        """
        narrow = {self.resolve(name) for name in columns}
        full = {self.resolve(name) for name in keys} | set(self.columns_in(rows) if rows else ())
        searched = self._ids(full) if rows is not None or lookups else frozenset[int]()
        if any(self._fields[name].blob_below for name in narrow | full):
            msg = f"{self.name} keeps blobs inside a nested column, which cannot be planned yet; leave that column out"
            raise FormatUnsupportedError(msg)
        blobs = {name for name in narrow | full if self._fields[name].blob}
        full |= blobs
        spans = None if rows is None else self._rows.spans(rows)
        files = [*self._always, *self._index_files(lambda index: set(index.fields) <= searched)]
        without_index = self._not_indexed(rows or "")
        wanted = [
            (file, None if spans is None or fragment.id in without_index else spans.get(fragment.id, NO_ROWS))
            for fragment in self._manifest.fragments
            for file in fragment.files
        ]
        narrow_ids = self._ids(narrow)
        full_ids = self._ids(full).union(*(self._fields[name].eager for name in narrow))
        for found in self._each(lambda one: self._data_ranges(one[0], narrow_ids, full_ids, one[1]), wanted):
            files += found
        for name in sorted(blobs):
            files += self._payloads(name, rows if payloads is None else payloads)
        return unite_files(files)

    def _not_indexed(self, rows: str) -> frozenset[int]:
        """Fragments that an index of the filter does not cover: readers scan all of their rows beside the index."""
        searched = self._ids(self.columns_in(rows))
        covered: dict[str, set[int]] = {}
        for index in self._manifest.indexes:
            if index.fields and set(index.fields) <= searched:
                covered.setdefault(index.name, set()).update(index.fragments)
        everywhere = {fragment.id for fragment in self._manifest.fragments}
        return frozenset[int]().union(*(everywhere - known for known in covered.values()))

    def _ids(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset[int]().union(*(self._fields[name].family for name in names))

    # pieces

    @cached_property
    def _always(self) -> tuple[PlannedFile, ...]:
        """What every reader of this version opens first."""
        return tuple(self._find_always())

    def _find_always(self) -> Iterator[PlannedFile]:
        yield planned_file(self._manifest.path, self._manifest.size)
        for base in self._manifest.bases:
            yield from self._base_manifest(base)
        yield from self._index_files(lambda index: not index.fields)
        deletions = [one.deletions for one in self._manifest.fragments if one.deletions is not None]
        yield from self._each(self._whole, deletions)
        for fragment in self._manifest.fragments:
            for rows in fragment.external:
                yield planned_file(rows.path, self._origin.size(rows.path), [ByteRange(rows.start, rows.end)])

    def _base_manifest(self, base: str) -> Iterator[PlannedFile]:
        """The manifest that a clone or branch was made of; a clone starts with its number. It may be gone by now."""
        for version in (self.version, _first_version(self._origin, self.path)):
            try:
                path, _ = find_manifest(self._origin, base, version)
            except DataUnreadableError:
                continue
            yield self._whole(path)
            return

    def _index_files(self, wanted: Callable[[Index], bool]) -> Iterator[PlannedFile]:
        for index in self._manifest.indexes:
            if wanted(index):
                files = index.files or tuple(self._origin.tree(index.folder))
                if not files:
                    msg = f"{index.folder}, the index {index.name!r} of {self.name}, is not there"
                    raise DataUnreadableError(msg)
                yield from (planned_file(path, size) for path, size in files)

    def _data_whole(self) -> Iterator[PlannedFile]:
        files = [file for fragment in self._manifest.fragments for file in fragment.files]
        for file in files:
            refuse_unknown_version(file)
            yield planned_file(file.path, file.size or self._origin.size(file.path))
        if any(field.blob or field.blob_below for field in self._fields.values()):
            stems = {_stem(file.path) for file in files}
            for folder in sorted({_folder(file.path) for file in files}):
                for path, size in self._origin.tree(folder):
                    if path.endswith(".blob") and _folder(path) in stems:
                        yield planned_file(path, size)

    def _data_ranges(
        self, file: DataFile, narrow_ids: frozenset[int], full_ids: frozenset[int], rows: RowSpans | None
    ) -> list[PlannedFile]:
        refuse_unknown_version(file)
        places = [(field, place) for field, place in file.places if field in narrow_ids or field in full_ids]
        if not places:
            return []
        layout: DataFileLayout = self._layouts.read(self._origin, file)
        ranges = [layout.tail]
        for field, place in places:
            column = layout.column(place)
            ranges += column.buffers
            ranges += _page_buffers(column, None if field in full_ids or file.version < _ROWS_EXACT_SINCE else rows)
        return [planned_file(file.path, layout.size, ranges)]

    def _payloads(self, column: str, rows: str | None) -> Iterator[PlannedFile]:
        """Blob payloads, found by reading the descriptors."""
        family = self._fields[column].family
        homes = {fragment.id: _home(fragment, family) for fragment in self._manifest.fragments}
        ranges: dict[str, list[ByteRange]] = {}
        for fragment, blob in self._rows.descriptors(column, rows):
            home = homes.get(fragment)
            kind, start, size = blob.get("kind", _INLINE), blob["position"], blob["size"]
            if kind not in {_INLINE, _PACKED, _DEDICATED}:
                where = (
                    f" at {blob['blob_uri']!r} outside the table" if blob.get("blob_uri") else f" of the kind {kind}"
                )
                msg = f"{self.name}: {column} has a blob{where}, which cannot be planned; copy it into the table"
                raise FormatUnsupportedError(msg)
            if size == 0:
                continue
            if home is None:
                msg = f"{self.path}: fragment {fragment} has blobs of {column} but no file for them"
                raise DataChangedError(msg)
            if kind != _INLINE:
                home = f"{_stem(home)}/{_reversed_bits(blob['blob_id'])}.blob"
            ranges.setdefault(home, []).append(ByteRange(start, start + size))
        yield from self._each(lambda one: self._checked(*one), list(ranges.items()))

    def _checked(self, path: str, wanted: list[ByteRange]) -> PlannedFile:
        size = self._origin.size(path)
        if max(end for _, end in wanted) > size:
            msg = f"{path} has {size:,} bytes, fewer than its table says; it may be cut off"
            raise DataChangedError(msg)
        return planned_file(path, size, wanted)

    def _whole(self, path: str) -> PlannedFile:
        return planned_file(path, self._origin.size(path))

    @staticmethod
    def _each(function: Callable[[Of], To], wanted: list[Of]) -> Iterator[To]:
        """One call per file, some at once: what takes time is waiting for the origin."""
        if len(wanted) <= _FEW_FILES:
            yield from map(function, wanted)
            return
        shares = [wanted[start : start + _FEW_FILES] for start in range(0, len(wanted), _FEW_FILES)]
        with ThreadPoolExecutor(_READERS) as pool:
            for found in pool.map(lambda share: [function(one) for one in share], shares):
                yield from found


def _first_version(origin: Origin, table: str) -> int | None:
    names = [
        name.removesuffix(".manifest") for name in origin.names(f"{table}/_versions") if name.endswith(".manifest")
    ]
    numbers = [int(name) for name in names if name.isdigit()]
    return min(((1 << 64) - 1 - one if one > 1 << 62 else one for one in numbers), default=None)


def _home(fragment: Fragment, family: frozenset[int]) -> str | None:
    return next((file.path for file in fragment.files if any(field in family for field, _ in file.places)), None)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _stem(path: str) -> str:
    """The folder beside a data file that holds its blob sidecars."""
    return path.removesuffix(".lance")


def _page_buffers(column: Column, rows: RowSpans | None) -> Iterator[ByteRange]:
    first = 0
    for page in column.pages:
        if rows is None or rows.touches(first, first + page.rows):
            yield from page.buffers
        first += page.rows


def _flatten(fields: Iterable[SchemaField], table: str, limit: int) -> Iterator[_Field]:
    known: dict[int, SchemaField] = {field.id: field for field in fields}
    below: dict[int, list[SchemaField]] = {}
    for field in known.values():
        below.setdefault(field.parent, []).append(field)
    for field in known.values():
        chain = _chain(field, known, table)
        under = list(_below(field, below))
        nested = len(chain) > 1
        yield _Field(
            name=".".join(one.name for one in chain),
            short=".".join(one.name for one in chain if one.parent < 0 or not _is_list(known[one.parent])),
            top=chain[0].name,
            family=frozenset(one.id for one in (*chain, *under)),
            blob=field.blob and not nested,
            blob_below=any(one.blob for one in under) or (field.blob and nested),
            eager=frozenset(one for leaf in (field, *under) for one in _eager(leaf, known, below, limit)),
        )


def _chain(field: SchemaField, known: Mapping[int, SchemaField], table: str) -> tuple[SchemaField, ...]:
    chain = [field]
    while chain[0].parent >= 0:
        if chain[0].parent not in known or len(chain) > len(known):
            msg = f"{table}: the column {field.name!r} hangs below {chain[0].parent}, which is no other column"
            raise DataChangedError(msg)
        chain.insert(0, known[chain[0].parent])
    return tuple(chain)


def _below(field: SchemaField, below: Mapping[int, list[SchemaField]]) -> Iterator[SchemaField]:
    for child in below.get(field.id, []):
        yield child
        yield from _below(child, below)


def _eager(leaf: SchemaField, known: Mapping[int, SchemaField], below: Mapping[int, object], limit: int) -> list[int]:
    """A narrow leaf with the structs it lies in; none when it is wide, or lies in a list, which is always picked by row."""
    if leaf.id in below or not _is_narrow(leaf.logical_type, limit):
        return []
    found, parent = [leaf.id], leaf.parent
    while parent >= 0:
        if not known[parent].logical_type.startswith("struct"):
            return []
        found.append(parent)
        parent = known[parent].parent
    return found


def _is_list(field: SchemaField) -> bool:
    return field.logical_type.startswith(("list", "large_list"))


def _is_narrow(logical: str, limit: int) -> bool:
    """Whether readers take a column along for every row when they filter; unknown kinds are read whole."""
    kind, *rest = logical.split(":")
    if kind in _BY_PAGE or logical.startswith(_BY_PAGE):
        return False
    width = _WIDTHS.get(kind) or _WIDTHS.get(":".join([kind, *rest[:1]]))
    if kind == "fixed_size_binary" and len(rest) == 1 and rest[0].isdigit():
        width = int(rest[0])
    elif kind == "fixed_size_list" and len(rest) >= 2 and rest[-1].isdigit():
        item = _WIDTHS.get(rest[0]) or _WIDTHS.get(":".join(rest[:2]))
        width = None if item is None else item * int(rest[-1])
    return width is None or width < limit


def _reversed_bits(blob_id: int) -> str:
    """How blob sidecars are named: 32 binary digits, lowest first."""
    return f"{blob_id:032b}"[::-1]
