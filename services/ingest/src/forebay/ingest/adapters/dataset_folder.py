"""Files of one dataset folder, opened only when they really lie inside it.

Links are followed only where their target stays inside the folder, or, in a snapshot
of a Hugging Face cache, inside that cache's own `blobs`; devices and pipes are not
files. Nothing outside is ever opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from forebay.ingest.domain.path_template import safe_relative
from forebay.ingest.domain.structure import Pointer
from forebay.ingest.errors import UnreadableFileError, UnsafePathError
from forebay.runtime.regular_files import kind_of, read_regular

_POINTER_HEAD = b"version https://git-lfs.github.com/spec/v1"
POINTER_LIMIT = 1024
MAX_JSON_BYTES = 256 << 20
_ARRIVING = re.compile(r".*\.(part|partial|incomplete|filepart|crdownload|tmp)")
"""Names that tools give to files until these are whole."""
_CONTENT = re.compile(r"meta/.*|.*\.(parquet|mp4)")
"""Names whose change is a change of the dataset; records of collectors and logs lie beside them."""


def is_content(name: str) -> bool:
    """Whether a file is part of the dataset, and no page, log or record beside it."""
    return _CONTENT.fullmatch(name) is not None


def is_shadow(name: str) -> bool:
    """What macOS writes beside a file on disks of other systems: `._file-000.parquet` holds no rows."""
    return name.rpartition("/")[2].startswith("._")


def blobs_of(root: Path) -> Path | None:
    """The blobs of the Hugging Face cache that `root` is a snapshot in; None for any other folder."""
    cache = root.parent.parent
    blobs = cache / "blobs"
    if root.parent.name != "snapshots" or blobs.is_symlink() or not blobs.is_dir():
        return None
    return blobs.resolve()


def locate(root: Path, blobs: Path | None, name: str) -> Path:
    """The resolved path of a file below `root`; raises `UnsafePathError` when it lies elsewhere."""
    try:
        path = (root / safe_relative(name)).resolve()
    except RuntimeError as error:  # what Python 3.11 says of links that lead to each other
        msg = f"{name!r} is a link that leads nowhere"
        raise UnsafePathError(msg) from error
    if not _is_inside(path, root, blobs):
        msg = f"{name!r} is a link out of the dataset's folder"
        raise UnsafePathError(msg)
    return path


def _is_inside(real: Path, root: Path, blobs: Path | None) -> bool:
    return real.is_relative_to(root) or (blobs is not None and real.is_relative_to(blobs))


class DatasetFolder:
    """The files below one root, as they were when the folder was opened."""

    far: frozenset[str] = frozenset()
    """Files that are not on this machine; `near` brings one here."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._blobs = blobs_of(self.root)
        self.stamps: dict[str, tuple[int, int]] = {}
        """Relative path -> size and time of the last change."""
        self.files: dict[str, int] = {}
        """Relative path -> size of every regular file."""
        self.refused: dict[str, str] = {}
        """Relative path -> why it is not read (a link that leaves the folder, a device)."""
        self.shadows: list[str] = []
        """Files that macOS wrote beside others; they are none of the dataset's."""
        for name, entry in sorted(walk(self.root), key=lambda found: found[0]):
            if is_shadow(name):
                self.shadows.append(name)
            else:
                self._take(name, entry)

    def _take(self, name: str, entry: os.DirEntry[str]) -> None:
        try:
            safe_relative(name)
            if entry.is_symlink() and not self._inside(Path(entry.path)):
                self.refused[name] = "it is a link out of the folder"
                return
            if self._blobs is not None and entry.is_symlink() and not Path(entry.path).exists():
                return  # the cache has its name, not yet its content: whoever needs it says that it is missing
            status = entry.stat()
        except UnsafePathError as error:
            self.refused[name] = str(error)
        except (OSError, RuntimeError) as error:
            self.refused[name] = f"it cannot be looked at ({type(error).__name__})"
        else:
            if stat.S_ISREG(status.st_mode):
                self.files[name] = status.st_size
                self.stamps[name] = (status.st_size, status.st_mtime_ns)
            elif stat.S_ISDIR(status.st_mode):
                self.refused[name] = "it is a link to a folder"
            else:
                kind = kind_of(status.st_mode)
                self.refused[name] = f"it is {kind}, not a regular file; put the file itself in its place"

    def _inside(self, path: Path) -> bool:
        return _is_inside(path.resolve(), self.root, self._blobs)

    def path(self, name: str) -> Path:
        """Where a file really lies; raises `UnsafePathError` when its name or a link leaves the folder."""
        return locate(self.root, self._blobs, name)

    def near(self, name: str) -> AbstractContextManager[Path]:
        """The file on this machine, for as long as the context is open."""
        return nullcontext(self.path(name))

    def arriving(self) -> list[str]:
        """Files that some tool is still bringing: they bear the names of unfinished ones."""
        found = [name for name in self.files if _ARRIVING.fullmatch(name)]
        if self._blobs is not None:
            found += [path.name for path in self._blobs.iterdir() if _ARRIVING.fullmatch(path.name)]
        return sorted(found)

    def changed(self) -> list[str]:
        """Files of the dataset that came, went, grew or shrank since it was opened: somebody is writing here."""
        now = DatasetFolder(self.root).stamps
        names = (name for name in now.keys() | self.stamps.keys() if is_content(name))
        return sorted(name for name in names if now.get(name) != self.stamps.get(name))

    def read(self, name: str, limit: int = MAX_JSON_BYTES) -> bytes:
        """A small file, whole."""
        try:
            return read_regular(self.path(name), limit=limit, links=False)
        except OSError as error:
            msg = f"{name} cannot be read: {error.strerror}"
            raise UnreadableFileError(msg) from error

    def pointers(self) -> list[Pointer]:
        """Every file of the dataset that is a Git LFS pointer instead of its content; what lies beside it is not asked for."""
        found: list[Pointer] = []
        for name, size in sorted(self.files.items()):
            if not is_content(name) or not len(_POINTER_HEAD) <= size <= POINTER_LIMIT:
                continue
            try:
                text = self.read(name)
            except UnreadableFileError:
                continue  # whoever needs the file says so
            if text.startswith(_POINTER_HEAD):
                oid = re.search(rb"^oid sha256:([0-9a-f]{64})$", text, re.MULTILINE)
                length = re.search(rb"^size (\d{1,18})$", text, re.MULTILINE)
                digest = oid.group(1).decode() if oid else "unknown"
                found.append(Pointer(file=name, sha256=digest, bytes=int(length.group(1)) if length else 0))
        return found


def walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every entry that is no folder, in order; without recursion, because depth comes from outside."""
    waiting = [("", os.fspath(root))]
    while waiting:
        prefix, folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append((f"{prefix}{entry.name}/", entry.path))
            else:
                yield prefix + entry.name, entry
