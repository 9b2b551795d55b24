"""A Lance table's manifest, read from its bytes: fields, fragments, indexes, and where their files lie.

The library does not show feature flags, and of structures that it does not know it says
nothing. Here everything unknown that could move bytes elsewhere is refused by name, and
damaged bytes are an error in words, whatever they are: `tests/test_lance_manifest.py`.
"""

from __future__ import annotations

import difflib
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from forebay.cache.adapters import protobuf as pb
from forebay.cache.adapters.origin import Origin
from forebay.cache.adapters.roaring import read_roaring
from forebay.cache.errors import DataChangedError, DataUnreadableError, FormatUnsupportedError

MAGIC = b"LANC"
KNOWN_READER_FLAGS = 1 | 2 | 4 | 8 | 16 | 32
"""Deletion files, stable row ids, (old) v2 format, table config, base paths, no transaction files."""
MAX_MANIFEST_BYTES = 1 << 30
_MAX_VERSION = (1 << 64) - 1
_UNKNOWN_BASE = -1
_TAG_BYTES = 64 * 1024
TOMBSTONE = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaField:
    """One node of the schema."""

    id: int
    name: str
    parent: int
    logical_type: str
    blob: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    path: str
    """Absolute."""
    places: tuple[tuple[int, int], ...]
    """(field id, column of the file)."""
    version: tuple[int, int]
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalRows:
    """Row ids or row versions of a fragment that lie in a file of their own."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    id: int
    files: tuple[DataFile, ...]
    deletions: str | None
    rows: int
    external: tuple[ExternalRows, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """One segment of an index."""

    name: str
    fields: tuple[int, ...]
    folder: str
    files: tuple[tuple[str, int], ...]
    """Absolute path and size of each file; empty when the manifest does not list them."""
    fragments: frozenset[int]
    """Which ones it covers; rows of others are looked for without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One version of one table."""

    path: str
    size: int
    version: int
    fields: tuple[SchemaField, ...]
    fragments: tuple[Fragment, ...]
    indexes: tuple[Index, ...]
    bases: tuple[str, ...]
    """Other tables that this one, a shallow clone or a branch, has files in."""


def find_manifest(origin: Origin, table: str, version: int | None) -> tuple[str, int]:
    """The manifest of `version`, or of the latest one, under either naming scheme."""
    found: dict[int, str] = {}
    for name in origin.names(f"{table}/_versions"):
        match = re.fullmatch(r"(\d{1,20})\.manifest", name)
        if match:
            number = int(match[1])
            found[_MAX_VERSION - number if len(match[1]) == 20 else number] = name
    if not found:
        msg = f"{table} is not a Lance table: it has no manifest under _versions/"
        raise DataUnreadableError(msg)
    wanted = max(found) if version is None else version
    if wanted not in found:
        msg = f"{table} has no version {wanted}; it has {_spans(sorted(found))}"
        raise DataUnreadableError(msg)
    return f"{table}/_versions/{found[wanted]}", wanted


def resolve_version(origin: Origin, table: str, wanted: int | str | None) -> tuple[str, int | None]:
    """The table, or the branch below it, and the number of a version that is given as a number or a tag."""
    if wanted is None or isinstance(wanted, int) or wanted.isdigit():
        return table, None if wanted is None else int(wanted)
    tags = [name.removesuffix(".json") for name in origin.names(f"{table}/_refs/tags") if name.endswith(".json")]
    if wanted not in tags:
        close = difflib.get_close_matches(wanted, tags, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(sorted(tags)) or 'none'}"
        msg = f"{table} has no version or tag {wanted!r}; {hint}"
        raise DataUnreadableError(msg)
    path = f"{table}/_refs/tags/{wanted}.json"
    try:
        tag = json.loads(origin.read(path, 0, _TAG_BYTES))
        number, branch = int(tag["version"]), tag.get("branch")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is no tag of a Lance table ({error}); it may be damaged"
        raise DataChangedError(msg) from error
    return inside(f"{table}/tree", str(branch)) if branch else table, number


def _spans(versions: list[int]) -> str:
    """`1 to 3, 7`: versions in the middle may have been cleaned up."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and version == spans[-1][1] + 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    said = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    return ", ".join([*said[:3], "…", said[-1]] if len(said) > 5 else said)


def read_manifest(origin: Origin, table: str, version: int | None) -> Manifest:
    """Read and check one manifest; raises a `PlanError` for everything that it is not."""
    path, number = find_manifest(origin, table, version)
    size = origin.size(path)
    if size > MAX_MANIFEST_BYTES:
        msg = (
            f"{path} has {size:,} bytes, more than a manifest can have here ({MAX_MANIFEST_BYTES:,}); compact the table"
        )
        raise FormatUnsupportedError(msg)
    content = origin.read(path, 0, size)
    if len(content) < 16 or content[-4:] != MAGIC:
        msg = f"{path} is not a whole Lance manifest; it may be cut off"
        raise DataChangedError(msg)
    (start,) = struct.unpack_from("<Q", content, len(content) - 16)
    body = pb.section(content, start, path)
    try:
        return _Parser(table, path, content).parse(body, number)
    except DataChangedError as error:
        msg = f"{path} is damaged: {error}"
        raise DataChangedError(msg) from error


class _Parser:
    def __init__(self, table: str, path: str, content: bytes) -> None:
        self._table = table
        self._path = path
        self._content = content
        self._bases: dict[int, tuple[str, bool]] = {}

    def parse(self, body: bytes, number: int) -> Manifest:
        parts = list(pb.fields(body))
        self._check_flags(sum(pb.number(value) for field, value in parts if field == 9))
        said = [pb.number(value) for field, value in parts if field == 3]
        if said != [number]:
            msg = f"it says version {said}, its name says {number}"
            raise DataChangedError(msg)
        for field, value in parts:
            if field == 18:
                self._add_base(pb.message(value))
        indexes: list[Index] = []
        for field, value in parts:
            if field == 6:
                section = pb.section(self._content, pb.number(value), "its index section")
                indexes += [self._index(pb.message(one)) for kind, one in pb.fields(section) if kind == 1]
        return Manifest(
            path=self._path,
            size=len(self._content),
            version=number,
            fields=tuple(_schema_field(pb.message(value)) for field, value in parts if field == 1),
            fragments=tuple(self._fragment(pb.message(value)) for field, value in parts if field == 2),
            indexes=tuple(indexes),
            bases=tuple(base for base, is_root in self._bases.values() if is_root),
        )

    def _check_flags(self, flags: int) -> None:
        unknown = flags & ~KNOWN_READER_FLAGS
        if unknown:
            bits = ", ".join(str(1 << bit) for bit in range(64) if unknown >> bit & 1)
            msg = (
                f"{self._path} needs reader feature {bits}, which this version of Forebay cannot plan byte by byte: "
                "update Forebay, or write the table with an older data format"
            )
            raise FormatUnsupportedError(msg)

    def _add_base(self, message: bytes) -> None:
        identity, is_root, path = 0, False, ""
        for field, value in pb.fields(message):
            if field == 1:
                identity = pb.number(value)
            elif field == 3:
                is_root = bool(pb.number(value))
            elif field == 4:
                path = pb.text(value)
        self._bases[identity] = (base_folder(path), is_root)

    def _base(self, identity: int) -> tuple[str, bool]:
        if identity == _UNKNOWN_BASE:
            return self._table, True
        if identity not in self._bases:
            msg = f"it refers to the base path {identity}, which it does not define"
            raise DataChangedError(msg)
        return self._bases[identity]

    def _fragment(self, message: bytes) -> Fragment:
        identity = rows = 0
        files: list[DataFile] = []
        deletions: bytes | None = None
        external: list[ExternalRows] = []
        for field, value in pb.fields(message):
            match field:
                case 1:
                    identity = pb.number(value)
                case 2:
                    files.append(self._data_file(pb.message(value)))
                case 3:
                    deletions = pb.message(value)
                case 4:
                    rows = pb.number(value)
                case 6 | 8 | 10:
                    external.append(self._external(pb.message(value)))
                case 5 | 7 | 9:
                    pb.message(value)
                case _:
                    msg = (
                        f"{self._path}: a fragment has the part {field}, which this version of Forebay does not know "
                        "(data overlays, perhaps): update Forebay, or compact the table"
                    )
                    raise FormatUnsupportedError(msg)
        return Fragment(
            id=identity,
            files=tuple(files),
            deletions=None if deletions is None else self._deletions(identity, deletions),
            rows=rows,
            external=tuple(external),
        )

    def _data_file(self, message: bytes) -> DataFile:
        path, size, base = "", 0, _UNKNOWN_BASE
        fields: list[int] = []
        columns: list[int] = []
        major = minor = 0
        for field, value in pb.fields(message):
            match field:
                case 1:
                    path = pb.text(value)
                case 2:
                    fields += [pb.signed(one) for one in pb.numbers(value)]
                case 3:
                    columns += [pb.signed(one) for one in pb.numbers(value)]
                case 4:
                    major = pb.number(value)
                case 5:
                    minor = pb.number(value)
                case 6:
                    size = pb.number(value)
                case 7:
                    base = pb.number(value)
                case _:
                    msg = f"{self._path}: a data file has the part {field}, which this version of Forebay does not know"
                    raise FormatUnsupportedError(msg)
        if columns and len(columns) != len(fields):
            msg = f"its data file {path!r} has {len(fields)} fields in {len(columns)} columns"
            raise DataChangedError(msg)
        folder, is_root = self._base(base)
        return DataFile(
            path=inside(f"{folder}/data" if is_root else folder, path),
            places=tuple((one, place) for one, place in zip(fields, columns, strict=False) if place >= 0),
            version=(major, minor),
            size=size or None,
        )

    def _deletions(self, fragment: int, message: bytes) -> str | None:
        kind = version = identity = 0
        base = _UNKNOWN_BASE
        for field, value in pb.fields(message):
            match field:
                case 1:
                    kind = pb.number(value)
                case 2:
                    version = pb.number(value)
                case 3:
                    identity = pb.number(value)
                case 4:
                    pb.number(value)
                case 7:
                    base = pb.number(value)
                case _:
                    msg = f"{self._path}: a deletion file has the part {field}, which Forebay does not know; update it"
                    raise FormatUnsupportedError(msg)
        if kind not in {0, 1}:
            msg = f"{self._path}: a deletion file is of the kind {kind}, which Forebay does not know; update it"
            raise FormatUnsupportedError(msg)
        folder, _ = self._base(base)
        return f"{folder}/_deletions/{fragment}-{version}-{identity}.{'bin' if kind else 'arrow'}"

    def _external(self, message: bytes) -> ExternalRows:
        path, start, size = "", 0, 0
        for field, value in pb.fields(message):
            if field == 1:
                path = pb.text(value)
            elif field == 2:
                start = pb.number(value)
            elif field == 3:
                size = pb.number(value)
        return ExternalRows(path=inside(self._table, path), start=start, end=start + size)

    def _index(self, message: bytes) -> Index:
        uuid, name, base = b"", "", _UNKNOWN_BASE
        covered = frozenset[int]()
        fields: list[int] = []
        listed: list[bytes] = []
        for field, value in pb.fields(message):
            if field == 1:
                uuid = next((pb.message(one) for kind, one in pb.fields(pb.message(value)) if kind == 1), b"")
            elif field == 2:
                fields += [pb.signed(one) for one in pb.numbers(value)]
            elif field == 3:
                name = pb.text(value)
            elif field == 5:
                covered = read_roaring(pb.message(value))
            elif field == 9:
                base = pb.number(value)
            elif field == 10:
                listed.append(pb.message(value))
        if len(uuid) != 16:
            msg = f"its index {name!r} has an id of {len(uuid)} bytes"
            raise DataChangedError(msg)
        folder = f"{self._base(base)[0]}/_indices/{UUID(bytes=uuid)}"
        files = tuple(_index_files(folder, listed))
        return Index(name=name, fields=tuple(fields), folder=folder, files=files, fragments=covered)


def _index_files(folder: str, listed: list[bytes]) -> Iterator[tuple[str, int]]:
    for message in listed:
        path, size = "", 0
        for field, value in pb.fields(message):
            if field == 1:
                path = pb.text(value)
            elif field == 2:
                size = pb.number(value)
        yield inside(folder, path), size


def _schema_field(message: bytes) -> SchemaField:
    identity, parent, name, logical, extension = 0, -1, "", "", ""
    metadata: dict[str, bytes] = {}
    for field, value in pb.fields(message):
        match field:
            case 2:
                name = pb.text(value)
            case 3:
                identity = pb.signed(pb.number(value))
            case 4:
                parent = pb.signed(pb.number(value))
            case 5:
                logical = pb.text(value)
            case 9:
                extension = pb.text(value)
            case 10:
                entry = dict(pb.fields(pb.message(value)))
                metadata[pb.text(entry.get(1, b""))] = pb.message(entry.get(2, b""))
            case _:
                pass
    kinds = {extension, metadata.get("ARROW:extension:name", b"").decode(errors="replace")}
    blob = "lance.blob.v2" in kinds or metadata.get("lance-encoding:blob") == b"true"
    return SchemaField(id=identity, name=name, parent=parent, logical_type=logical, blob=blob)


def base_folder(path: str) -> str:
    """The folder that a base path names; only folders and, for tables on object storage, objects."""
    try:
        url = urlsplit(path)
    except ValueError as error:
        msg = f"it names the base path {path!r}, which is no place: {error}"
        raise DataChangedError(msg) from error
    if not path or not path.isprintable():
        msg = f"it names the base path {path!r}, which is no place"
        raise DataChangedError(msg)
    if url.scheme in {"", "file", "file-object-store"}:
        return str(Path(unquote(url.path) if url.scheme else path).absolute())
    if url.scheme == "s3":
        return path.rstrip("/")
    msg = f"the table refers to {url.scheme}://{url.netloc}, and only folders and s3:// can be planned"
    raise FormatUnsupportedError(msg)


def inside(folder: str, relative: str) -> str:
    """A path that a manifest names; it may not climb out of its folder."""
    parts = relative.split("/")
    if not relative or "\0" in relative or "\\" in relative or any(part in {"", ".", ".."} for part in parts):
        msg = f"it names the path {relative!r}, which leaves {folder}"
        raise DataChangedError(msg)
    return f"{folder}/{relative}"
