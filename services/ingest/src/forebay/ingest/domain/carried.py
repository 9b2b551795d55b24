"""Which files below meta/ a version carries along byte for byte, and where they lie in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.labels import Labels, other_notes, own_table
from forebay.ingest.domain.recording import Info

_WRITTEN = frozenset({INFO_FILE, "meta/tasks.parquet", "meta/stats.json"})
_EPISODES = "meta/episodes"
UPLOADS = "meta/uploads"
"""Below it lies what an upload says otherwise than the dataset: `meta/uploads/<upload>/…`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What one origin says below meta/ beside its tables."""

    origin: str
    info: Info
    labels: Labels = field(default_factory=Labels)
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> SHA-256; info.json too, which a version does not carry unless it says something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedFile:
    """One file that is copied as it is."""

    path: str
    origin: str
    source: str
    """Its name there."""
    sha256: str


def carry(parts: Sequence[Described]) -> tuple[tuple[CarriedFile, ...], tuple[str, ...]]:
    """The files of a version, and what the origins say differently. The first one's files keep their places."""
    found: dict[str, CarriedFile] = {}
    notes: list[str] = []
    for number, part in enumerate(parts):
        for name, digest in sorted(part.files.items()):
            if name == INFO_FILE:
                continue
            before = found.get(name)
            if before is not None and before.sha256 == digest:
                continue
            if before is not None and _adds_labels(part, parts[:number], name):
                found[name] = CarriedFile(path=name, origin=part.origin, source=name, sha256=digest)
                continue
            path = name if _is_free(name, found) else _aside(part.origin, name, found)
            if path != name:
                notes.append(f"{name} of {part.origin} differs from the version's; it is kept as {path}")
            found[path] = CarriedFile(path=path, origin=part.origin, source=name, sha256=digest)
        notes += _carry_notes(part, parts[:1] if number else (), found)
    return tuple(found[path] for path in sorted(found)), tuple(notes)


def _carry_notes(part: Described, first: Sequence[Described], found: dict[str, CarriedFile]) -> Iterator[str]:
    """info.json of an upload that says something else than the first one."""
    digest = part.files.get(INFO_FILE)
    for base in first:
        differ = other_notes(base.info, part.info)
        if not differ:
            continue
        where = ""
        if digest is not None:
            path = _aside(part.origin, INFO_FILE, found)
            found[path] = CarriedFile(path=path, origin=part.origin, source=INFO_FILE, sha256=digest)
            where = f"; it is kept as {path}"
        yield f"{INFO_FILE} of {part.origin} says otherwise: {', '.join(differ)}{where}"


def _adds_labels(part: Described, before: Sequence[Described], name: str) -> bool:
    """Whether this table of labels has every label that the others have, and more."""
    for column, labels in part.labels.tables.items():
        if own_table(column, part.files) == name:
            known = [other.labels.tables[column] for other in before if column in other.labels.tables]
            return bool(known) and all(labels.keys() >= table.keys() for table in known)
    return False


def _is_free(name: str, found: Mapping[str, CarriedFile]) -> bool:
    if name in found or name in _WRITTEN or name == _EPISODES or name.startswith(_EPISODES + "/"):
        return False
    parents = {name.rsplit("/", depth)[0] for depth in range(1, name.count("/"))}
    return not parents & (found.keys() | _WRITTEN) and not any(path.startswith(name + "/") for path in found)


def _aside(origin: str, name: str, found: Mapping[str, CarriedFile]) -> str:
    path = f"{UPLOADS}/{origin}/{name.removeprefix('meta/')}"
    while not _is_free(path, found):
        path += "-"
    return path
