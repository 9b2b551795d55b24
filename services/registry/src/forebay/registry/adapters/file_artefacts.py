"""Whether a save's files are still there: names and sizes only, inside the folders that may be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from forebay.registry.ports import Look


class FileArtefacts:
    """`Artefacts` over the file system; `roots` are the same templates that the verifier has."""

    def __init__(self, roots: Sequence[str] = ()) -> None:
        self._roots = tuple(roots)

    def look(self, project: str, job: str, uri: str, files: Sequence[tuple[str, int]]) -> Look:
        parsed = urlparse(uri)
        if parsed.scheme not in {"", "file"} or "\0" in uri:
            return Look(seen=False)
        folder = Path(unquote(parsed.path) if parsed.scheme == "file" else uri).resolve()
        roots = (Path(root.replace("{project}", project).replace("{job}", job)).resolve() for root in self._roots)
        if not any(folder.is_relative_to(root) for root in roots):
            return Look(seen=False)
        try:
            for path, size in files:
                there = (folder / path).stat().st_size
                if there != size:
                    return Look(seen=True, problem=f"{path} has {there} bytes, {size} were recorded")
        except FileNotFoundError as error:
            return Look(seen=True, problem=f"{error.filename} is not there any more")
        except OSError:
            return Look(seen=False)
        return Look(seen=True)
