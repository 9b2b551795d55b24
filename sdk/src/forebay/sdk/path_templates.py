"""Path templates of info.json, read as data from strangers.

`str.format` would follow attributes of objects; here only the known placeholders
with a plain width are filled in, and the result must stay inside the dataset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from forebay.sdk.errors import NotADatasetError

_FIELD = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"(chunk_index|file_index|episode_chunk|episode_index)(?::0?(\d{1,2})d)?")


def fill(template: str, values: Mapping[str, int | str], *, what: str) -> str:
    """Fill a template; raises `NotADatasetError` for unknown fields and for paths that climb out."""

    def value(found: re.Match[str]) -> str:
        field = found.group(1)
        if field == "video_key" and "video_key" in values:
            return str(values["video_key"])
        number = _NUMBER.fullmatch(field)
        if number is None or number.group(1) not in values:
            msg = f"info.json: {what} {template!r} has the placeholder {{{field}}}, which this LeRobot version does not know"
            raise NotADatasetError(msg, f"use {', '.join(sorted(values))}")
        return (
            f"{values[number.group(1)]:0{number.group(2) or 0}d}" if number.group(2) else str(values[number.group(1)])
        )

    return inside(_FIELD.sub(value, template), what=what)


def inside(path: str, *, what: str) -> str:
    """Return `path` when it stays inside the folder it is relative to, else raise `NotADatasetError`."""
    pure = PurePosixPath(path)
    if (
        not path
        or pure.is_absolute()
        or ".." in pure.parts
        or "\\" in path
        or "\0" in path
        or "{" in path
        or "}" in path
    ):
        msg = f"info.json: {what} leads to {path!r}, which is not inside the dataset"
        raise NotADatasetError(msg, "paths must be relative and must not contain '..'")
    return pure.as_posix()
