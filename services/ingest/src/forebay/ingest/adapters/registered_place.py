"""What is kept of a dataset that stays where it lies: its files by size, digest or etag, and where they are.

    <root>/forebay-manifest.json   every file with size; sha256 and time of a file, etag of an object; the place
    <root>/episodes.json           stable episode ids behind the episodes' numbers
    <root>/meta, data, videos      links to the files themselves, where these are on a disk

The links make the root a folder that LeRobot, the cache and a job's preflight read
like any other version; nothing is copied. A dataset on S3 has no links, and its
version's root is the S3 URI. Later the same files are looked at again: another size,
another etag, or other content behind another time breaks the version by name.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.v1.datasets import MANIFEST_FILE
from forebay.ingest.adapters.dataset_folder import DatasetFolder, is_content
from forebay.ingest.adapters.object_folder import ObjectFolder
from forebay.ingest.adapters.obstore_objects import S3Objects
from forebay.ingest.domain.path_template import safe_relative
from forebay.ingest.domain.place_uri import S3Place, parse_place
from forebay.ingest.errors import (
    ObjectStoreError,
    PlaceUnknownError,
    SourceChangedError,
    StorageUnavailableError,
    UnsafePathError,
)
from forebay.ingest.settings import S3Settings
from forebay.runtime.regular_files import open_regular, read_regular

EPISODES_FILE = "episodes.json"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredRoot:
    """A root that exists, complete."""

    root: str
    """The folder of links, or the S3 URI."""
    episodes: FileRef
    manifest: FileRef
    bytes: int


def describe_files(folder: DatasetFolder, on_bytes: Callable[[int], None]) -> list[dict[str, Any]]:
    """Every file of the dataset as the manifest lists it. Raises `SourceChangedError` when it is written to meanwhile."""
    entries: list[dict[str, Any]] = []
    for name in sorted(folder.files):
        if not is_content(name):
            continue
        if isinstance(folder, ObjectFolder):
            entry: dict[str, Any] = {"etag": folder.listed[name].etag, "bytes": folder.files[name]}
        else:
            digest, size = _digest(folder.path(name), on_bytes)
            entry = {"sha256": digest, "bytes": size, "mtime_ns": folder.path(name).stat().st_mtime_ns}
        entries.append({"path": name, **entry})
    changed = folder.changed()
    if changed:
        msg = f"{changed[0]} changed while the dataset was looked at; register it when nobody writes there"
        raise SourceChangedError(msg)
    return entries


def write_root(
    folder: DatasetFolder,
    files: list[dict[str, Any]],
    episodes: list[dict[str, Any]],
    root: Path,
    place: dict[str, Any],
) -> RegisteredRoot:
    """Give the root its name once everything is in it. Run again with the same content it is taken over."""
    manifest = canonical_json({"files": files, "place": place})
    listing = canonical_json({"episodes": episodes})
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        for leftover in root.parent.glob(f".{root.name}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        draft = root.parent / f".{root.name}.{uuid.uuid4().hex[:8]}"
        draft.mkdir()
        (draft / MANIFEST_FILE).write_bytes(manifest)
        (draft / EPISODES_FILE).write_bytes(listing)
        if not isinstance(folder, ObjectFolder):
            _link_all(folder, (str(entry["path"]) for entry in files), draft)
        draft.rename(root)
    if read_regular(root / MANIFEST_FILE) != manifest:
        msg = f"{root} belongs to another state of the dataset; register it again"
        raise SourceChangedError(msg)
    return RegisteredRoot(
        root=str(place["uri"]) if isinstance(folder, ObjectFolder) else str(root),
        episodes=_reference(root / EPISODES_FILE),
        manifest=_reference(root / MANIFEST_FILE),
        bytes=sum(int(entry["bytes"]) for entry in files),
    )


def _link_all(folder: DatasetFolder, names: Iterable[str], draft: Path) -> None:
    for name in names:
        link = draft / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder.path(name).resolve())


def find_change(root: Path, manifest_sha256: str, settings: S3Settings) -> str | None:
    """What is not as it was registered, in words; None when all is. `root` has the manifest.

    Raises `StorageUnavailableError` when the object store does not answer: then nothing is known.
    """
    content = read_regular(root / MANIFEST_FILE)
    if hashlib.sha256(content).hexdigest() != manifest_sha256:
        return f"its manifest {root / MANIFEST_FILE} has another digest"
    document = json.loads(content)
    place = document["place"]
    try:
        found = parse_place(str(place["uri"]), place.get("endpoint"))
        if isinstance(found, S3Place):
            return _changed_object(S3Objects(found, settings), document["files"])
    except ObjectStoreError as error:
        raise StorageUnavailableError(str(error)) from error
    except (PlaceUnknownError, SourceChangedError) as error:
        return str(error)
    return next((text for entry in document["files"] if (text := _changed_file(root, entry)) is not None), None)


def _changed_object(objects: S3Objects, files: list[dict[str, Any]]) -> str | None:
    there = objects.list()
    for entry in files:
        name, now = str(entry["path"]), there.get(str(entry["path"]))
        if now is None:
            return f"{objects.place.uri}/{name} is not there any more"
        if now.etag != entry["etag"]:
            return f"{objects.place.uri}/{name} has etag {now.etag}, {entry['etag']} was registered"
        if now.size != entry["bytes"]:
            return f"{objects.place.uri}/{name} has {now.size} bytes, {entry['bytes']} were registered"
    return None


def _changed_file(root: Path, entry: dict[str, Any]) -> str | None:
    try:
        path = (root / safe_relative(str(entry["path"]))).resolve()
        status = path.stat()
    except FileNotFoundError:
        return f"{entry['path']} is not there any more"
    except (OSError, RuntimeError, UnsafePathError) as error:
        return f"{entry['path']} cannot be looked at ({error})"
    if status.st_size != entry["bytes"]:
        return f"{path} has {status.st_size} bytes, {entry['bytes']} were registered"
    if status.st_mtime_ns != entry["mtime_ns"] and _digest(path)[0] != entry["sha256"]:
        return f"{path} has another content than was registered, of the same size"
    return None


def _digest(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            on_bytes(len(chunk))
    return digest.hexdigest(), size


def _reference(path: Path) -> FileRef:
    digest, size = _digest(path)
    return FileRef(uri=path.as_uri(), sha256=digest, bytes=size)
