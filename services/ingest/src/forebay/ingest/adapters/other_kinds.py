"""Paths that are not a dataset, and what they are instead: a file, a recording of another kind, a folder inside a dataset."""

from __future__ import annotations

import stat
from pathlib import Path

from forebay.ingest.domain.breach import listed
from forebay.runtime.regular_files import kind_of, open_regular
from forebay.runtime.wording import counted

_HEAD_BYTES = 512
_LOOKED_AT = 1000
_CONVERT = "Convert it to a LeRobot dataset first, then give its folder."
_UNPACK = "Unpack it, then give the folder that contains meta/info.json."
_PARENT = "Give the folder that contains meta/info.json."
_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x89MCAP0\r\n", "an MCAP recording", _CONVERT),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file", _CONVERT),
    (0, b"#ROSBAG V", "a recording of ROS 1 (rosbag)", _CONVERT),
    (0, b"SQLite format 3\x00", "an SQLite file, as recordings of ROS 2 are", _CONVERT),
    (
        0,
        b"version https://git-lfs",
        "a Git LFS pointer without its content",
        "Run `git lfs pull` there, then give the folder that contains meta/info.json.",
    ),
    (0, b"PK\x03\x04", "a ZIP archive", _UNPACK),
    (0, b"\x1f\x8b", "a gzip archive", _UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"PAR1", "one Parquet file", _PARENT),
    (4, b"ftyp", "one video file", _PARENT),
)
"""Offset, bytes, what it is, what to do."""
_RECORDINGS = {".mcap": "MCAP", ".h5": "HDF5", ".hdf5": "HDF5", ".bag": "rosbag", ".db3": "ROS 2"}
_INNER = frozenset({"meta", "data", "videos"})


def describe_other(path: Path) -> tuple[str, str] | None:
    """What a local path is that cannot be the folder of a dataset, and what to do; None: nothing gives it away.

    Looks at the first bytes of a file and at the names in a folder. Raises `OSError`.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return _of_file(path)
    if not stat.S_ISDIR(mode):
        return kind_of(mode), _PARENT
    if path.name in _INNER and (path.parent / "meta" / "info.json").exists():
        return f"the {path.name} folder of a dataset", f"Give the folder above it: {path.parent}"
    return _of_recordings(path)


def _of_file(path: Path) -> tuple[str, str]:
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    for offset, magic, what, advice in _MAGIC:
        if head[offset:].startswith(magic):
            return what, advice
    return "a file", _PARENT


def _of_recordings(folder: Path) -> tuple[str, str] | None:
    found: dict[str, list[str]] = {}
    for entry in sorted(folder.iterdir())[:_LOOKED_AT]:
        if kind := _RECORDINGS.get(entry.suffix.lower()):
            found.setdefault(kind, []).append(entry.name)
    if not found:
        return None
    what = " and ".join(f"{counted(len(names), f'{kind} file')} ({listed(names)})" for kind, names in found.items())
    return f"a folder with {what}", _CONVERT
