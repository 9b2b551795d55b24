"""Keeps the files of a model version in the model store, and reads every byte of them before a release.

The store is a folder of contents named by their sha256, so equal files of several
versions are there once. Files are cloned or copied, never linked: nobody who can write
to a job's folder can change what is kept. A kill at any line leaves whole files or none;
the next run goes on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from forebay.contracts.v1.models import CheckpointFile, ModelFilesChecked, ModelFilesKept
from forebay.registry.domain.checkpoint_layout import unsafe_path
from forebay.registry.domain.keeping import AT_REGISTRATION
from forebay.registry.workers.verify_checkpoint import Verdict, single_file, uri_folder
from forebay.runtime.disk_room import DISK_FLOOR_BYTES, disk_problem
from forebay.runtime.errors import RetryLater
from forebay.runtime.file_delivery import ContentError, WantedFile, object_path, problem_of, put
from forebay.runtime.machine import Emit
from forebay.runtime.regular_files import open_regular
from forebay.runtime.work import WorkContext, WorkItem

_RETRY_S = 5.0
_MAX_FINDINGS, _MAX_FINDING = 20, 400
_REPORT_EVERY = 64 << 20
_STORAGE_TROUBLE = frozenset({errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStore:
    """Where the files of models are kept."""

    folder: Path
    mount: Path | None = None
    """What must be mounted before anything is written there."""
    floor: int = DISK_FLOOR_BYTES
    """Bytes that stay free on its disk."""

    def objects(self, project: str) -> Path:
        return self.folder / project


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepOrder:
    """What one run shall have in the store, and where it may take it from."""

    files: tuple[WantedFile, ...]
    uri: str
    roots: tuple[Path, ...]
    objects: Path
    floor: int
    """Bytes that stay free on the store's disk."""
    owner: str
    """Names its unfinished files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one run found and did."""

    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added_bytes: int = 0

    @property
    def status(self) -> str:
        if self.changed:
            return "changed"
        return "missing" if self.missing else "whole"


class ModelKeeper:
    """The worker. `roots` are the templates of the folders that checkpoints may lie in."""

    def __init__(self, roots: Sequence[str], store: ModelStore) -> None:
        self._roots = tuple(roots)
        self._store = store

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        said, store = item.payload, self._store
        if store.mount is not None and not await context.in_thread(store.mount.is_mount):
            raise RetryLater(_RETRY_S, f"the data pool {store.mount} is not mounted")
        roots = [Path(root.replace("{project}", item.project).replace("{job}", said["job"])) for root in self._roots]
        files = [WantedFile(path, sha256, size) for path, sha256, size in said["files"]]
        objects = store.objects(item.project)
        try:
            order = KeepOrder(
                files=tuple(files),
                uri=said["uri"],
                roots=tuple(roots),
                objects=objects,
                floor=store.floor,
                owner=item.key,
            )
            kept = await context.in_process(keep_files, order)
        except OSError as error:
            if error.errno in _STORAGE_TROUBLE:
                raise RetryLater(_RETRY_S, f"storage of {said['model']}: {error.strerror}") from error
            raise
        return list(_emits(item.project, said, files, kept, objects))


def _emits(
    project: str, said: Mapping[str, Any], files: Sequence[WantedFile], kept: Kept, objects: Path
) -> Iterable[Emit]:
    about = {name: said[name] for name in ("model", "number", "artefact_sha256")}
    if kept.status == "whole":
        body = ModelFilesKept(
            **about,
            store=objects.as_uri(),
            files=tuple(CheckpointFile(path=one.path, sha256=one.sha256, bytes=one.bytes) for one in files),
            bytes=sum(one.bytes for one in files),
            added_bytes=kept.added_bytes,
        )
        yield Emit(project=project, body=body, dedupe=(said["model"], said["number"], said["artefact_sha256"]))
        if said["check"] == AT_REGISTRATION:
            return
    findings = tuple(one[:_MAX_FINDING] for one in (*kept.changed, *kept.missing)[:_MAX_FINDINGS])
    checked = ModelFilesChecked(**about, check=said["check"], status=kept.status, findings=findings)
    yield Emit(project=project, body=checked, dedupe=(said["model"], said["number"], said["check"]))


def keep_files(order: KeepOrder, report: Callable[[None], None] = lambda _: None) -> Kept:
    """Have every file in the store and read it. Blocking; raises OSError for trouble of the storage."""
    tell, objects = _telling(report), order.objects
    stored = {one.path: problem_of(object_path(objects, one.sha256), one, tell) for one in order.files}
    lacking = [one for one in order.files if stored[one.path] is not None]
    if not lacking:
        return Kept()
    needed = sum({one.sha256: one.bytes for one in lacking}.values())
    if problem := disk_problem("model store", objects, order.floor, needed):
        raise OSError(errno.ENOSPC, problem)
    folder = uri_folder(order.uri, order.roots)
    if isinstance(folder, Verdict):
        return Kept(missing=tuple(f"in the store, {stored[one.path]}; {folder.findings[0]}" for one in lacking[:1]))
    if single_file(folder, lacking):
        folder = folder.parent
    missing: list[str] = []
    changed: list[str] = []
    added = 0
    for one in lacking:
        try:
            with _opened(folder, one.path) as source:
                added += put(source, one, objects, order.owner, tell)
        except ContentError as error:
            changed.append(f"in the store, {stored[one.path]}; at its source, {error.message}")
        except _GoneError as error:
            missing.append(f"in the store, {stored[one.path]}; {error}")
    return Kept(missing=tuple(missing), changed=tuple(changed), added_bytes=added)


class _GoneError(Exception):
    """A source cannot be used; the message says why."""


def _opened(folder: Path, path: str) -> BinaryIO:
    if (why := unsafe_path(path)) is not None:
        raise _GoneError(f"its path {why}")
    try:
        place = (folder / path).resolve(strict=True)
        if not place.is_relative_to(folder):
            raise _GoneError("its source is a link out of the checkpoint")
        return open_regular(place, links=False)
    except (FileNotFoundError, NotADirectoryError):
        raise _GoneError(f"{folder / path} is not there any more") from None
    except RuntimeError:  # links that lead to each other
        raise _GoneError("its source is a link that leads nowhere") from None
    except OSError as error:
        if error.errno in _STORAGE_TROUBLE:
            raise
        raise _GoneError(f"its source cannot be read: {error.strerror or os.strerror(error.errno or 0)}") from error


def _telling(report: Callable[[None], None]) -> Callable[[int], None]:
    """A sign of progress now and then, and not for every block."""
    read = 0

    def tell(count: int) -> None:
        nonlocal read
        read += count
        if read >= _REPORT_EVERY:
            read = 0
            report(None)

    return tell
