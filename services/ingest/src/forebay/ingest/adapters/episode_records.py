"""Episode lists of versions as a part of the record: kept under their digest, whatever becomes of the versions."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from forebay.contracts.body import FileRef
from forebay.contracts.v1.datasets import EPISODE_LISTS
from forebay.ingest.adapters.version_check import local_path
from forebay.runtime.regular_files import read_regular


class EpisodeRecords:
    """`<pool>/records/episodes/<sha256>.json`; equal lists are one file."""

    def __init__(self, pool: Path) -> None:
        self._folder = pool / EPISODE_LISTS

    def keep(self, uri: str) -> FileRef | None:
        """Keep the list at a place, whole or not at all; None when there is none on this machine.

        Idempotent. Raises `OSError` when it cannot be read or written.
        """
        source = local_path(uri)
        if source is None or not source.is_file():
            return None
        content = read_regular(source)
        digest = hashlib.sha256(content).hexdigest()
        path = self._folder / f"{digest}.json"
        if not path.is_file() or path.stat().st_size != len(content):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        return FileRef(uri=path.as_uri(), sha256=digest, bytes=len(content))
