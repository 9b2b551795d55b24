"""Deletes the files of a save, or the folders of a job, once the log says that they go.

A folder disappears in one step, by its name; then its content is removed. A kill in
between leaves a folder that the next run finds and removes. Links are removed, never
followed, and nothing outside the job's own folders is touched.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from forebay.registry.workers.verify_checkpoint import Verdict, uri_folder
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

_JOB = "{job}"


class FileDeleter:
    """The worker. `roots` are the templates of the folders that checkpoints may lie in."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        job, uri = item.payload["job"], item.payload.get("uri")
        own = [_filled(root, item.project, job) for root in self._roots if root.rstrip("/").endswith(_JOB)]
        if uri is None:
            await context.in_process(delete_folders, own, item.key)
        else:
            roots = [_filled(root, item.project, job) for root in self._roots]
            await context.in_process(delete_save, uri, roots, item.key)
        return []


def _filled(root: str, project: str, job: str) -> Path:
    return Path(root.replace("{project}", project).replace(_JOB, job))


def delete_save(uri: str, roots: Sequence[Path], key: str, report: Callable[[None], None] = lambda _: None) -> None:
    """Remove one save and the second names that lead to it."""
    place = uri_folder(uri, roots)
    if isinstance(place, Verdict) or any(place == root.resolve() for root in roots):
        return  # nothing of this job lies there
    if place.parent.is_dir():
        for link in place.parent.iterdir():
            if link.is_symlink() and link.resolve() == place:
                link.unlink()
        report(None)
        _remove(place, key)


def delete_folders(folders: Sequence[Path], key: str, report: Callable[[None], None] = lambda _: None) -> None:
    """Remove the folders of a job: its saves, output and logs."""
    for folder in folders:
        if not folder.is_symlink():
            report(None)
            _remove(folder, key)


def _remove(place: Path, key: str) -> None:
    gone = place.with_name(f".{place.name}.{key}.deleted")
    with contextlib.suppress(FileNotFoundError):
        if place.is_symlink() or not place.is_dir():
            place.unlink()
        else:
            place.rename(gone)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(gone)
