"""Whole validation reports as files in the pool; a verdict carries the first findings and a reference."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import canonical_json


class ReportFiles:
    """`<pool>/reports/<project>/<upload>.json`."""

    def __init__(self, pool: Path) -> None:
        self._folder = pool / "reports"

    def write(self, project: str, upload: str, report: dict[str, Any]) -> FileRef:
        """Write one report, whole or not at all; equal reports give equal files."""
        path = self._folder / project / f"{upload}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = canonical_json(report)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_bytes(content)
        draft.replace(path)
        return FileRef(uri=path.as_uri(), sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
