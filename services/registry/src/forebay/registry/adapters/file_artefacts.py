"""Whether a save's files are still there as they were: names, sizes and contents, inside the folders that may be read.

A content that was read is remembered by what the file system says of the file (inode,
size, both times), so that asking again costs nothing and goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from forebay.registry.domain.checkpoint_layout import unsafe_path
from forebay.registry.ports import Look
from forebay.registry.workers.keep_model import ModelStore
from forebay.runtime.file_delivery import object_path
from forebay.runtime.regular_files import open_regular

_CHUNK = 1 << 20
_KEEP = 10_000
_Stamp = tuple[int, int, int, int, int]


class FileArtefacts:
    """`Artefacts` over the file system; `roots` are the same templates that the verifier has."""

    def __init__(self, roots: Sequence[str] = (), store: ModelStore | None = None) -> None:
        self._roots = tuple(roots)
        self._store = store
        self._known: OrderedDict[_Stamp, str] = OrderedDict()

    def look(
        self, project: str, job: str, uri: str, files: Sequence[tuple[str, str, int]], *, may_read: int = 0
    ) -> Look:
        parsed = urlparse(uri)
        if parsed.scheme not in {"", "file"} or "\0" in uri:
            return Look(seen=False)
        try:
            folder = Path(unquote(parsed.path) if parsed.scheme == "file" else uri).resolve()
        except RuntimeError:  # links that lead to each other
            return Look(seen=False)
        roots = (Path(root.replace("{project}", project).replace("{job}", job)).resolve() for root in self._roots)
        if not any(folder.is_relative_to(root) for root in roots):
            return Look(seen=False)
        if len(files) == 1 and files[0][0] == folder.name and folder.is_file():  # a save of one file
            folder = folder.parent
        return self._look(folder, files, may_read)

    def look_at_kept(self, project: str, files: Sequence[tuple[str, str, int]], *, may_read: int = 0) -> Look:
        if self._store is None:
            return Look(seen=False)
        objects = self._store.objects(project).resolve()
        places = [(object_path(objects, one[1]).relative_to(objects).as_posix(), *one[1:]) for one in files]
        return self._look(objects, places, may_read)

    def _look(self, folder: Path, files: Sequence[tuple[str, str, int]], may_read: int) -> Look:
        try:
            problems = (_problem(folder, path, size) for path, _, size in files)
            problem = next((one for one in problems if one is not None), None)
            return Look(seen=True, problem=problem) if problem else self._contents(folder, files, may_read)
        except OSError:
            return Look(seen=False)

    def _contents(self, folder: Path, files: Sequence[tuple[str, str, int]], may_read: int) -> Look:
        """Small files first: what says the step and the shards is compared even when the weights are too large."""
        read = unread = 0
        for path, sha256, size in sorted(files, key=lambda file: file[2]):
            found, cost = self._sha256(folder / path, size, may_read - read)
            read += cost
            if found is None:
                unread += size
            elif found != sha256:
                problem = (
                    f"the content of {path} is not what was recorded (sha256 {found[:12]} instead of {sha256[:12]})"
                )
                return Look(seen=True, problem=problem, changed=True, read=read, unread=unread)
        return Look(seen=True, read=read, unread=unread)

    def _sha256(self, path: Path, size: int, may_read: int) -> tuple[str | None, int]:
        """The digest and what it cost to read; None when it would cost more than it may."""
        with open_regular(path) as file:
            stamp = _stamp(os.fstat(file.fileno()))
            if (known := self._known.get(stamp)) is not None:
                self._known.move_to_end(stamp)
                return known, 0
            if size > may_read:
                return None, 0
            digest, left = hashlib.sha256(), size
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                digest.update(chunk)
                left -= len(chunk)
            if _stamp(os.fstat(file.fileno())) == stamp:
                self._known[stamp] = digest.hexdigest()
                while len(self._known) > _KEEP:
                    self._known.popitem(last=False)
            return digest.hexdigest(), size


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _problem(folder: Path, path: str, size: int) -> str | None:
    """What is wrong with one file; raises OSError when the storage does not say."""
    if (why := unsafe_path(path)) is not None:
        return f"{path[:80]!r}: {why}"
    try:
        there = (folder / path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return f"{folder / path} is not there any more"
    if not stat.S_ISREG(there.st_mode):
        return f"{path} is not a plain file any more"
    if not (folder / path).resolve().is_relative_to(folder):
        return f"{path} is a link out of the checkpoint now"
    return None if there.st_size == size else f"{path} has {there.st_size} bytes, {size} were recorded"
