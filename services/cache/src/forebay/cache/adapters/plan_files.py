"""Plans as files: what `CachePlanned.ranges` refers to, one JSON object each, never changed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from forebay.cache.domain.plan import ReadPlan, plan_from_json
from forebay.contracts.body import FileRef


class PlanFiles:
    """`<folder>/<plan id>.json`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, plan: ReadPlan, *, block_bytes: int) -> FileRef:
        """Keep a plan; a crash leaves either the whole file or none."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{plan.id}.json"
        content = json.dumps(plan.to_json(block_bytes), separators=(",", ":")).encode()
        draft = path.with_suffix(f".{os.getpid()}.part")
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        return FileRef(uri=path.as_uri(), sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))

    def read(self, plan_id: str) -> ReadPlan | None:
        """The plan as it was made; None when the file is gone or damaged and it has to be made again."""
        try:
            return plan_from_json(json.loads((self._folder / f"{plan_id}.json").read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
