"""Path templates of info.json, parsed by hand.

`str.format` would follow attributes of its arguments, and the text comes from outside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from forebay.ingest.errors import UnsafePathError

DATA_FIELDS = frozenset({"chunk_index", "file_index"})
VIDEO_FIELDS = frozenset({"chunk_index", "file_index", "video_key"})
DATA_FIELDS_V2 = frozenset({"episode_chunk", "episode_index"})
VIDEO_FIELDS_V2 = frozenset({"episode_chunk", "episode_index", "video_key"})
_OPTIONAL = frozenset({"episode_chunk"})
"""Without it all episodes lie in one folder, which LeRobot v2.x reads."""
DEFAULT_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DEFAULT_VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_DEFAULT_DATA_PATH_V2 = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
_FIELD = re.compile(r"\{([^{}:]*)(?::0?(\d{1,2})d)?\}")
_MAX_PATH = 1024


class TemplateError(ValueError):
    """The template cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """A parsed template."""

    text: str

    def fill(self, *, chunk: int, file: int, camera: str = "") -> str:
        """The path of one file; in v2.x `file` is the episode. Raises `UnsafePathError` when it leaves the folder."""
        values = {"chunk_index": chunk, "file_index": file, "episode_chunk": chunk, "episode_index": file}

        def put(found: re.Match[str]) -> str:
            name, width = found.group(1), found.group(2)
            return camera if name == "video_key" else str(values[name]).zfill(int(width or 0))

        return safe_relative(_FIELD.sub(put, self.text))

    def places(self, name: str) -> bool:
        """Whether a file lies as deep as the template puts its files; what lies deeper or higher is something else."""
        return name.count("/") == self.text.count("/")

    @property
    def folder(self) -> str:
        """The first folder of the template, e.g. `data`."""
        return self.text.partition("/")[0]


def fields_of(version: str) -> tuple[frozenset[str], frozenset[str]]:
    """Placeholders of data_path and of video_path."""
    return (DATA_FIELDS, VIDEO_FIELDS) if version == "v3.0" else (DATA_FIELDS_V2, VIDEO_FIELDS_V2)


def default_data_path(version: str) -> str:
    """What LeRobot itself writes as data_path."""
    return DEFAULT_DATA_PATH if version == "v3.0" else _DEFAULT_DATA_PATH_V2


def parse_template(text: str, allowed: frozenset[str], version: str = "v3.0") -> PathTemplate:
    """Check a template; raises `TemplateError` that names what is wrong."""
    if not text or len(text) > _MAX_PATH:
        msg = f"it has {len(text)} characters, expected 1 to {_MAX_PATH}"
        raise TemplateError(msg)
    names = [found.group(1) for found in _FIELD.finditer(text)]
    rest = _FIELD.sub("", text)
    foreign = sorted({name for name in names if name not in allowed})
    if foreign:
        wanted = ", ".join("{" + name + "}" for name in sorted(allowed))
        msg = f"the placeholder {{{foreign[0]}}} is not valid in {version}, which knows {wanted}"
        raise TemplateError(msg)
    if "{" in rest or "}" in rest:
        msg = f"its braces are not a placeholder of {version}"
        raise TemplateError(msg)
    missing = sorted(allowed - _OPTIONAL - set(names))
    if missing:
        msg = f"the placeholder {{{missing[0]}}} is missing, so different files would have one path"
        raise TemplateError(msg)
    template = PathTemplate(text)
    try:
        template.fill(chunk=0, file=0, camera="camera")
    except UnsafePathError as error:
        raise TemplateError(str(error)) from error
    if "{" in template.folder:
        msg = "it has no fixed first folder"
        raise TemplateError(msg)
    return template


def safe_relative(path: str) -> str:
    """Return `path` when it is a plain relative path that stays below its root, else raise `UnsafePathError`."""
    parts = path.split("/")
    bad = (
        not path
        or len(path) > _MAX_PATH
        or path.startswith("/")
        or "\\" in path
        or any(part in {"", ".", ".."} for part in parts)
        or any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in path)
        or re.match(r"[A-Za-z]:", path) is not None
    )
    if bad:
        msg = f"the path {path[:200]!r} leaves the dataset's folder or is not a plain relative path"
        raise UnsafePathError(msg)
    return path
