"""A Lance table once more, in another folder, without copying its data.

Data files never change once they are written, so both tables share them as hard
links: each table stands for itself, and deleting one leaves the other whole. What
Lance replaces (manifests, the hint at the latest one) is copied.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""The file system cannot link these two places; the bytes are copied instead."""


def share_table(source: Path, target: Path) -> Any:
    """Make `target` a table of its own with the latest rows of `source`; returns it open."""
    table = lance.dataset(str(source))
    for path in _immutable(source, table):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        share_file(path, place)
    for path in _latest(source, int(table.version)):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return lance.dataset(str(target))


def share_file(source: Path, target: Path) -> None:
    """One more name for the same bytes; a copy where there are no links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def forget_history(table: Any) -> None:
    """Leave only what the latest version refers to. Other tables keep their own names of shared files."""
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)


def _immutable(source: Path, table: Any) -> Iterator[Path]:
    for fragment in table.get_fragments():
        for data_file in fragment.data_files():
            path = source / "data" / data_file.path
            yield path
            yield from sorted(path.with_suffix("").glob("*.blob"))
        deletions = fragment.deletion_file()
        if deletions is not None:
            yield source / deletions
    for index in table.describe_indices():
        for segment in index.segments:
            folder = source / "_indices" / str(segment.uuid)
            yield from (path for path in sorted(folder.rglob("*")) if path.is_file())


def _latest(source: Path, version: int) -> Iterator[Path]:
    manifest = source / "_versions" / f"{2**64 - 1 - version:020d}.manifest"
    yield manifest
    hint = manifest.with_name("latest_version_hint.json")
    if hint.exists():
        yield hint
    yield from sorted((source / "_transactions").glob("*.txn"))
