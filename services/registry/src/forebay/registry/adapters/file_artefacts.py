"""Whether a save's files are still there: names and sizes only, inside the folders that may be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from forebay.registry.domain.checkpoint_layout import unsafe_path
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
            problems = (_problem(folder, path, size) for path, size in files)
            return Look(seen=True, problem=next((one for one in problems if one is not None), None))
        except OSError:
            return Look(seen=False)


def _problem(folder: Path, path: str, size: int) -> str | None:
    """What is wrong with one file; raises OSError when the storage does not say."""
    if (why := unsafe_path(path)) is not None:
        return f"{path[:80]!r}: {why}"
    try:
        there = (folder / path).stat().st_size
    except FileNotFoundError:
        return f"{folder / path} is not there any more"
    return None if there == size else f"{path} has {there} bytes, {size} were recorded"
