"""Which pool holds which files, and which place a root names.

A root is a folder, or `s3://bucket/prefix`; as a `Path` the latter keeps its scheme as
first part, so that files lie below it like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from forebay.cache.adapters.folder_pool import CANNOT_PROVE, FolderPool
from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.adapters.object_pool import ObjectPool, is_on_object_storage, uri_of
from forebay.cache.adapters.object_store import ObjectOrigin, ObjectStores
from forebay.cache.domain.plan import PlannedFile, ReadPlan
from forebay.cache.errors import DataUnreadableError, FormatUnsupportedError, OriginError
from forebay.cache.ports import ChoosePool, Planner, Pool

OUTSIDE = f"these files lie outside the JuiceFS mount; {CANNOT_PROVE}"


def local_folder(root: str) -> Path:
    """The place of a version's root, written as a path, a file URI or `s3://bucket/prefix`."""
    parts = urlsplit(root)
    if parts.scheme in {"", "file"} and parts.netloc in {"", "localhost"}:
        return Path(unquote(parts.path) if parts.scheme else root).absolute()
    if parts.scheme == "s3" and parts.netloc:
        return Path("s3:", parts.netloc, parts.path.strip("/"))
    msg = f"{root} is neither a folder nor s3://bucket/prefix, and only those can be planned and warmed"
    raise FormatUnsupportedError(msg)


def choose_between(
    kind: Literal["juicefs", "folder"], folder: Path, log: Path | None = None, home: Path = Path(".forebay")
) -> ChoosePool:
    """The pool of an installation: its mount for what lies in it, the object store itself, else a plain folder.

    `log` is what the mount writes; it tells why its object storage gives no bytes. `home` has the keys of object stores.
    """
    mount = JuicefsPool(folder, log=log) if kind == "juicefs" else None
    stores = ObjectStores(home)

    def choose(root: Path, files: Sequence[PlannedFile]) -> Pool:
        if is_on_object_storage(root):
            return ObjectPool(ObjectOrigin(stores))
        if mount is not None and (mount.holds(root) or files) and all(mount.holds(root / file.path) for file in files):
            return mount
        return FolderPool(root, cannot_prove=OUTSIDE if mount is not None else CANNOT_PROVE)

    return choose


def planner_at(home: Path) -> Planner:
    """Plans folders, and versions on object storage with the keys that `home` has."""
    from forebay.cache.adapters.version_root import plan_folder  # noqa: PLC0415 Lance would slow every command's start

    stores = ObjectStores(home)

    def plan(
        root: Path,
        *,
        columns: tuple[str, ...] = (),
        episodes: tuple[int, int] | None = None,
        source: str = "",
    ) -> ReadPlan:
        if not is_on_object_storage(root):
            return plan_folder(root, columns=columns, episodes=episodes, source=source)
        try:
            origin = ObjectOrigin(stores)
            return plan_folder(uri_of(root), columns=columns, episodes=episodes, source=source, origin=origin)
        except OriginError as error:
            if error.trouble != "refused":
                raise
            raise DataUnreadableError(str(error)) from error  # keys do not get better by waiting

    return plan
