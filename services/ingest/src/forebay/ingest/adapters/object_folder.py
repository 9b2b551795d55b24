"""A dataset on S3, looked at like a folder: metadata and rows are fetched once, videos a few at a time.

The fetched files lie in a workspace that whoever made it removes.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from forebay.ingest.adapters.dataset_folder import POINTER_LIMIT, DatasetFolder, is_shadow
from forebay.ingest.adapters.obstore_objects import ListedObject, S3Objects
from forebay.ingest.domain.path_template import safe_relative
from forebay.ingest.errors import PlaceUnknownError, SourceChangedError, UnsafePathError

_HELD = ".held"


class ObjectFolder(DatasetFolder):
    """The objects below one prefix."""

    def __init__(self, objects: S3Objects, workspace: Path) -> None:
        self.root = workspace.resolve()
        self._blobs = None
        self.files = {}
        self.refused = {}
        self.shadows = []
        self._objects = objects
        self.listed: dict[str, ListedObject] = objects.list()
        if not self.listed:
            msg = f"there is no object below {objects.place.uri}; give the prefix that contains meta/info.json"
            raise PlaceUnknownError(msg)
        for name, entry in self.listed.items():
            if is_shadow(name):
                self.shadows.append(name)
                continue
            try:
                self.files[safe_relative(name)] = entry.size
            except UnsafePathError as error:
                self.refused[name] = str(error)
        near = {name for name, size in self.files.items() if _is_small(name, size)}
        self.far = frozenset(self.files.keys() - near)
        for name in sorted(near):
            objects.fetch(name, self.listed[name], self.root / name)

    def __getstate__(self) -> dict[str, Any]:
        """Decoders get the fetched files, not the connection."""
        return {key: value for key, value in self.__dict__.items() if key != "_objects"}

    def near(self, name: str) -> AbstractContextManager[Path]:
        return self._held(name) if name in self.far else super().near(name)

    @contextmanager
    def _held(self, name: str) -> Iterator[Path]:
        target = self.root / _HELD / uuid.uuid4().hex / Path(name).name
        target.parent.mkdir(parents=True)
        try:
            self._objects.fetch(name, self.listed[name], target)
            yield target
        finally:
            shutil.rmtree(target.parent, ignore_errors=True)

    def arriving(self) -> list[str]:
        """Objects appear whole."""
        return []

    def changed(self) -> list[str]:
        try:
            now = self._objects.list()
        except SourceChangedError:
            return sorted(self.files)
        return sorted(name for name in now.keys() | self.listed.keys() if now.get(name) != self.listed.get(name))


def _is_small(name: str, size: int) -> bool:
    """Needed more than once, or small enough to be a Git LFS pointer."""
    return name.startswith("meta/") or name.endswith(".parquet") or size <= POINTER_LIMIT
