"""The landing folder of one upload: files copied whole, a manifest, and a record of what was said.

Every file appears under its name only after its digest matched, so a kill at any
moment leaves nothing half-written, and the next run goes on where this one stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.runtime.regular_files import open_regular, read_regular
from forebay.sdk.errors import SourceChangedError
from forebay.sdk.lerobot_folder import LeftOut, SourceFile
from forebay.sdk.outbox import sync_folder

MANIFEST = "forebay-manifest.json"
RECORD = "forebay-upload.json"
_CHUNK = 1 << 20

Count = Callable[[int], None]
"""Told how many bytes were just done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """A source file with its digest."""

    source: SourceFile
    sha256: str


class UploadRecord(BaseModel):
    """What this upload told the log first; a repeat says the same words."""

    model_config = ConfigDict(frozen=True)

    upload: str
    source_ref: str
    source_revision: str | None = None
    collection_request: str | None = None
    replaces: bool = False
    delivered: bool = False


def hash_files(files: Iterable[SourceFile], count: Count) -> list[Hashed]:
    """Digest every file at the source."""
    found = []
    for file in files:
        digest = hashlib.sha256()
        with open_regular(file.real, links=False) as source:
            left = file.bytes  # a file that grows meanwhile is not read for ever
            while left > 0 and (block := source.read(min(_CHUNK, left))):
                left -= len(block)
                digest.update(block)
                count(len(block))
        found.append(Hashed(source=file, sha256=digest.hexdigest()))
    return found


def manifest_bytes(files: Iterable[Hashed], left_out: Iterable[LeftOut] = ()) -> bytes:
    """The manifest's one byte string: equal folders give equal bytes."""
    entries = [{"path": f.source.path, "sha256": f.sha256, "bytes": f.source.bytes} for f in files]
    manifest: dict[str, list[Any]] = {"files": sorted(entries, key=lambda entry: str(entry["path"]))}
    refused = sorted(left_out, key=lambda one: one.path)
    if refused:
        manifest["left_out"] = [{"path": one.path, "why": one.why} for one in refused]
    return canonical_json(manifest)


def upload_id(project: str, dataset: str, manifest: bytes, *, replaces: bool = False) -> str:
    """Equal content for one dataset is the same upload, however often and from wherever it comes."""
    kind = ("replaces",) if replaces else ()
    return "up-" + stable_id(project, dataset, hashlib.sha256(manifest).hexdigest(), *kind)[:24]


class Landing:
    """Where one upload arrives: `pool/landing/<project>/<upload>/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def record(self) -> UploadRecord | None:
        """What an earlier run of this upload said, if there was one."""
        path = self.folder / RECORD
        return UploadRecord.model_validate_json(read_regular(path)) if path.exists() else None

    def write_record(self, record: UploadRecord) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(self.folder / RECORD, record.model_dump_json().encode())

    def write_manifest(self, content: bytes) -> FileRef:
        path = self.folder / MANIFEST
        _write_atomically(path, content)
        return FileRef(uri=path.resolve().as_uri(), sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))

    def missing_bytes(self, files: Iterable[Hashed]) -> int:
        """How much is still to be copied."""
        return sum(file.source.bytes for file in files if not self._is_here(file))

    def _is_here(self, file: Hashed) -> bool:
        """A file that is here is complete, because it got its name only then."""
        target = self.folder / file.source.path
        return target.exists() and target.stat().st_size == file.source.bytes

    def copy(self, file: Hashed, count: Count) -> None:
        """Bring one file here; raises `SourceChangedError` when it is not what was digested."""
        target = self.folder / file.source.path
        if self._is_here(file):
            count(file.source.bytes)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        digest = hashlib.sha256()
        try:
            with open_regular(file.source.real, links=False) as source, part.open("wb") as out:
                left = file.source.bytes
                while left > 0 and (block := source.read(min(_CHUNK, left))):
                    left -= len(block)
                    digest.update(block)
                    out.write(block)
                    count(len(block))
                out.flush()
                os.fsync(out.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # a full disk needs the room of half a file
                part.unlink(missing_ok=True)
            raise
        if digest.hexdigest() != file.sha256:
            part.unlink()
            msg = f"{file.source.real} changed while it was uploaded"
            raise SourceChangedError(msg, "wait until nobody writes to the dataset, then upload it again")
        part.rename(target)
        sync_folder(target.parent)

    def sweep(self) -> None:
        """Remove what killed runs left half-copied."""
        for part in self.folder.rglob(".*.part"):
            part.unlink(missing_ok=True)


def _write_atomically(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    sync_folder(path.parent)
