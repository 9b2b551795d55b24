"""Uploads in the pool: where they must lie, and whether they are what the collector announced."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from forebay.ingest.adapters.dataset_folder import walk
from forebay.ingest.domain.breach import printable
from forebay.ingest.domain.documents import Manifest
from forebay.ingest.domain.info_file import is_count, strict_json
from forebay.ingest.domain.path_template import safe_relative
from forebay.ingest.errors import LandingRefusedError, StorageUnavailableError, UnsafePathError
from forebay.runtime.regular_files import open_regular, read_regular

MAX_MANIFEST_BYTES = 1 << 30
_CHUNK = 1 << 20
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What a collector's manifest says."""

    files: dict[str, tuple[str, int]]
    """Path -> digest and size."""
    left_out: dict[str, str]
    """Path of a file at the source that was not uploaded -> why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLanding:
    """A landing folder compared with its manifest."""

    folder: Path
    sha256: dict[str, str]
    """Path -> announced digest."""
    distrusted: dict[str, str]
    """Path -> why the file there is not the announced one."""


class LandingFolders:
    """The landing part of the pool."""

    def __init__(self, pool: Path) -> None:
        self._pool = pool

    def folder(self, project: str, upload: str, uri: str) -> Path:
        """Where an upload lies; raises `LandingRefusedError` when it claims a place that is not its own."""
        if not self._pool.is_dir():
            msg = f"the pool {self._pool} is not there; check its mount with: forebay status"
            raise StorageUnavailableError(msg)
        own = self._pool / "landing" / project / upload
        claimed = _local(uri)
        if claimed is None or claimed.resolve() != own.resolve() or own.is_symlink():
            msg = f"upload {upload} claims {printable(uri, 200)!r}; ingest reads only {own}"
            raise LandingRefusedError(msg)
        return own

    def manifest(self, folder: Path, manifest: Manifest | None) -> Announced:
        """The manifest; raises `LandingRefusedError` when the manifest is not the announced one."""
        path = None if manifest is None else _local(manifest.uri)
        if manifest is None or path is None or not path.resolve().is_relative_to(folder.resolve()):
            uri = "none" if manifest is None else printable(manifest.uri, 200)
            msg = f"the manifest {uri!r} does not lie in the upload's own folder {folder}"
            raise LandingRefusedError(msg)
        if manifest.bytes > MAX_MANIFEST_BYTES:
            msg = f"the manifest is announced with {manifest.bytes} bytes, at most {MAX_MANIFEST_BYTES} are read"
            raise LandingRefusedError(msg)
        try:
            content = read_regular(path.resolve(), limit=manifest.bytes, links=False)
        except OSError as error:
            msg = f"the manifest {path} cannot be read: {error.strerror}; upload again"
            raise LandingRefusedError(msg) from error
        if len(content) != manifest.bytes or hashlib.sha256(content).hexdigest() != manifest.sha256:
            msg = f"the manifest {path} is not the one that was announced; upload again"
            raise LandingRefusedError(msg)
        return _announced(content, path)

    def check(
        self, folder: Path, entries: dict[str, tuple[str, int]], on_bytes: Callable[[int], None]
    ) -> CheckedLanding:
        """Compare every announced file with what lies there."""
        distrusted: dict[str, str] = {}
        for name, (digest, size) in entries.items():
            why = _difference(folder, name, digest, size, on_bytes)
            if why is not None:
                distrusted[name] = why
        for name, entry in walk(folder):
            if name not in entries and "/" in name and not Path(entry.path).is_dir():
                distrusted[name] = "it was not announced in the manifest"
        return CheckedLanding(
            folder=folder, sha256={name: digest for name, (digest, _) in entries.items()}, distrusted=distrusted
        )


def _local(uri: str) -> Path | None:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        text = unquote(parts.path)
    elif parts.scheme or parts.netloc:
        return None
    else:
        text = uri
    return None if "\x00" in text or not text.startswith("/") else Path(text)


def _announced(content: bytes, path: Path) -> Announced:
    try:
        document = strict_json(content)
        files = dict(_entry(entry) for entry in document["files"])
        left_out = dict(_left_out(entry) for entry in document.get("left_out", ()))
    except (ValueError, KeyError, TypeError, AttributeError, UnsafePathError) as error:
        msg = f"the manifest {path} is not usable: {error}; upload again"
        raise LandingRefusedError(msg) from error
    return Announced(files=files, left_out=left_out)


def _left_out(entry: Any) -> tuple[str, str]:
    name, why = entry["path"], entry["why"]
    if not isinstance(name, str) or not isinstance(why, str):
        msg = "an entry of left_out has the wrong types"
        raise TypeError(msg)
    return safe_relative(name), f"{printable(why, _SHOWN)} at the source, so it was not uploaded"


def _entry(entry: Any) -> tuple[str, tuple[str, int]]:
    name, digest, size = entry["path"], entry["sha256"], entry["bytes"]
    if not isinstance(name, str) or not isinstance(digest, str) or not is_count(size):
        msg = "an entry has the wrong types"
        raise TypeError(msg)
    return safe_relative(name), (digest, size)


def _difference(folder: Path, name: str, digest: str, size: int, on_bytes: Callable[[int], None]) -> str | None:
    path = folder.resolve() / name
    try:
        if path.resolve() != path:
            return "it is a link"
        with open_regular(path, links=False) as file:
            length = os.fstat(file.fileno()).st_size
            if length != size:
                return f"{size} bytes were announced, {length} are there"
            found, left = hashlib.sha256(), size
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                found.update(chunk)
                left -= len(chunk)
                on_bytes(len(chunk))
    except FileNotFoundError:
        return "it was announced, but it is not there"
    except RuntimeError:  # links that lead to each other
        return "it is a link"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return None if found.hexdigest() == digest else "its digest is not the announced one"
