"""Which pool holds which files, and which folder a root names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from forebay.cache.adapters.folder_pool import CANNOT_PROVE, FolderPool
from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.domain.plan import PlannedFile
from forebay.cache.errors import FormatUnsupportedError
from forebay.cache.ports import ChoosePool, Pool

OUTSIDE = f"these files lie outside the JuiceFS mount; {CANNOT_PROVE}"


def local_folder(root: str) -> Path:
    """The folder of a version's root, written as a path or as a file URI."""
    parts = urlsplit(root)
    if parts.scheme in {"", "file"} and parts.netloc in {"", "localhost"}:
        return Path(unquote(parts.path) if parts.scheme else root).absolute()
    msg = f"{root} is no folder, and only folders can be planned and warmed yet"
    raise FormatUnsupportedError(msg)


def choose_between(kind: Literal["juicefs", "folder"], folder: Path, log: Path | None = None) -> ChoosePool:
    """The pool of an installation: its mount for what lies in it, else a plain folder.

    `log` is what the mount writes; it tells why its object storage gives no bytes.
    """
    mount = JuicefsPool(folder, log=log) if kind == "juicefs" else None

    def choose(root: Path, files: Sequence[PlannedFile]) -> Pool:
        if mount is not None and mount.holds(root) and all(mount.holds(root / file.path) for file in files):
            return mount
        return FolderPool(root, cannot_prove=OUTSIDE if mount is not None else CANNOT_PROVE)

    return choose
