"""The work `place`: copy a version's files to object storage and read them back.

Idempotent: an object that is there with the right size and digest is left alone, and the
manifest comes last, so that a place without it is unfinished. What an object store may
cure by itself is tried again; everything else ends the request with a sentence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.contracts.v1.datasets import MANIFEST_FILE, DatasetVersionPlaced
from forebay.ingest.adapters.placed_objects import PlacedObjects
from forebay.ingest.adapters.version_check import local_path
from forebay.ingest.domain.breach import printable
from forebay.ingest.domain.documents import Version, version_key
from forebay.ingest.domain.placing import OBJECTS
from forebay.ingest.errors import IngestError, SourceChangedError, StorageUnavailableError
from forebay.ingest.workers.telling import Teller, from_thread
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.regular_files import read_regular
from forebay.runtime.work import WorkContext, WorkItem

_WAIT_S = 5.0
_TRIES = 5
"""Times that an object store which does not answer is asked."""


@dataclass(frozen=True, slots=True)
class Placer:
    """Copies one version."""

    home: Path
    """Where the keys of object stores are."""

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        dataset, number = str(item.payload["dataset"]), int(item.payload["number"])
        version = await context.get(Version, version_key(item.project, dataset, number))
        if version is None or version.placing == item.key:
            return ()
        root, placed, problem = str(item.payload["root"]), 0, None
        try:
            placed = await context.in_thread(self._copy, version, root, from_thread(context))
        except StorageUnavailableError as error:
            if item.tries < _TRIES:
                raise RetryLater(_WAIT_S, str(error)) from error
            problem = str(error)
        except (IngestError, OSError) as error:
            problem = str(error)
        body = DatasetVersionPlaced(
            dataset=dataset,
            number=number,
            placing=item.key,
            access_plan=OBJECTS,
            root=root,
            manifest_sha256=version.manifest_sha256,
            bytes=placed,
            by=str(item.payload["by"]),
            problem=None if problem is None else printable(problem, 1000),
        )
        return [Emit(project=item.project, body=body, dedupe=(item.key,))]

    def _copy(self, version: Version, root: str, tell: Teller) -> int:
        folder = local_path(version.root)
        if folder is None or not (folder / MANIFEST_FILE).is_file():
            msg = f"{version.root} is no folder that can be read from here"
            raise SourceChangedError(msg)
        manifest = read_regular(folder / MANIFEST_FILE)
        if hashlib.sha256(manifest).hexdigest() != version.manifest_sha256:
            msg = f"{folder / MANIFEST_FILE} is not the one that was committed; see: forebay dataset check"
            raise SourceChangedError(msg)
        entries: list[dict[str, Any]] = json.loads(manifest)["files"]
        objects = PlacedObjects(root, self.home)
        there = objects.sizes()
        strange = sorted(set(there) - {str(entry["path"]) for entry in entries} - {MANIFEST_FILE})
        if strange:  # a manifest among them would be taken for a newer version of a table
            msg = f"{root} holds {len(strange)} objects that are not of this version, first {strange[0]}; name a prefix of its own"
            raise SourceChangedError(msg)
        for number, entry in enumerate(entries):
            tell.stage("copied", number, len(entries))
            name, digest, size = str(entry["path"]), str(entry["sha256"]), int(entry["bytes"])
            if there.get(name) != size or objects.digest(name) != digest:
                objects.put(name, folder / name)
                if objects.digest(name) != digest:
                    msg = f"{name} reads back from {root} with another content than it has in the pool"
                    raise SourceChangedError(msg)
        objects.put(MANIFEST_FILE, folder / MANIFEST_FILE)
        return sum(int(entry["bytes"]) for entry in entries)
