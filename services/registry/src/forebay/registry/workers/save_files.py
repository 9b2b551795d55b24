"""Reads what the files of one save say about themselves: headers, indexes, archives. Loads no tensor, runs no pickle.

Every fault of every file is listed; one does not hide another. Called by the verifier
and by the offline commands, on files that anybody may have written.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from forebay.contracts.save_files import HOLDS_DATA
from forebay.registry.domain.checkpoint_layout import DCP_METADATA, STATE_FILES, Contents
from forebay.registry.domain.pickle_contents import (
    MAX_PICKLE_BYTES,
    TornPickleError,
    atoms,
    keys_in,
    shard_sizes,
    step_in,
)
from forebay.registry.domain.safetensors_header import LENGTH_BYTES, HeaderError, header_length, tensors_of
from forebay.runtime.regular_files import TooLargeError, open_regular, read_regular

_MAX_JSON_BYTES = 64 << 20
"""A state file may hold the order of all samples."""
_MAX_INDEX_BYTES = 50_000_000
_MAX_ARCHIVE_FILES = 200_000
_ARCHIVES = frozenset({".pt", ".pth", ".bin", ".ckpt", ".npz"})
_NOT_JSON = object()


def faults_in(folder: Path, names: frozenset[str]) -> tuple[list[str], Contents]:
    """(everything that is empty, torn or missing though another file names it, what opaque files hold)."""
    look = _Look(folder, names)
    for name in sorted(names):
        look.at(name)
    for name in sorted(names):
        if name.endswith(".index.json") and _json(folder / name, _MAX_INDEX_BYTES) is not _NOT_JSON:
            look.faults += _shards(folder, name, names, look.tensors)
    return look.faults, Contents(keys=look.keys, step=look.step)


class _Look:
    """One look at every file of a save."""

    def __init__(self, folder: Path, names: frozenset[str]) -> None:
        self._folder, self._names = folder, names
        self.faults: list[str] = []
        self.tensors: dict[str, frozenset[str]] = {}
        self.keys: dict[str, frozenset[str]] = {}
        self.step: int | None = None

    def at(self, name: str) -> None:
        try:
            why = self._torn(self._folder / name, name)
        except (HeaderError, _TornError) as error:
            why = str(error)
        if why is not None:
            self.faults.append(f"{name}: {why}")

    def _torn(self, path: Path, name: str) -> str | None:
        """Why a file cannot be whole, as far as its kind shows it; what it holds is noted."""
        if (why := _empty(path)) is not None:
            return why
        if name.endswith(".safetensors"):
            self.tensors[name] = tensors_in(path)
        elif path.name == DCP_METADATA:
            said, faults = _metadata(self._folder, name, self._names)
            self.faults += faults
            self.keys[PurePosixPath(name).parent.as_posix()] = said
        elif path.suffix in _ARCHIVES:
            self.keys[name], stated = _archive(path)
            self.step = self.step if stated is None else stated
        else:
            return _torn_text(path)
        return None


class _TornError(ValueError):
    """A file cannot be whole; the message says why."""


def tensors_in(path: Path) -> frozenset[str]:
    """Tensor names of a whole safetensors file; raises `HeaderError` when it cannot be whole."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = header_length(stream.read(LENGTH_BYTES), size)
        return tensors_of(stream.read(length), size)


def states_in(folder: Path, names: frozenset[str]) -> dict[str, Any]:
    """The parsed files that say the step, and what the training has."""
    return {name: _json(folder / name, _MAX_JSON_BYTES) for name in STATE_FILES if name in names}


def _empty(path: Path) -> str | None:
    holds_data = path.suffix in HOLDS_DATA or path.name == DCP_METADATA
    return "empty file" if holds_data and path.stat().st_size == 0 else None


def _torn_text(path: Path) -> str | None:
    if path.suffix == ".json" and path.stat().st_size <= _MAX_JSON_BYTES:
        return "not whole JSON" if _json(path, _MAX_JSON_BYTES) is _NOT_JSON else None
    if path.suffix == ".pkl":
        with open_regular(path) as stream:
            first = stream.read(1)
            stream.seek(-1, os.SEEK_END)
            if first == b"\x80" and stream.read(1) != b".":
                return "truncated: a pickle that does not end as one"
    return None


def _archive(path: Path) -> tuple[frozenset[str], int | None]:
    """(keys, step) of a file in PyTorch's zip format; nothing of other formats. Raises `_TornError`."""
    with open_regular(path) as stream:
        if stream.read(4) != b"PK\x03\x04":
            return frozenset(), None
        try:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                pickled = next((one for one in members if one.filename.endswith("/data.pkl")), None)
                if len(members) > _MAX_ARCHIVE_FILES or pickled is None or pickled.file_size > MAX_PICKLE_BYTES:
                    return frozenset(), None
                with archive.open(pickled) as inner:
                    found = atoms(inner.read(MAX_PICKLE_BYTES))
        except zipfile.BadZipFile:
            size = os.fstat(stream.fileno()).st_size
            raise _TornError(f"truncated: {size} bytes of a zip archive without the directory at its end") from None
        except (TornPickleError, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            if isinstance(error, OSError):
                raise
            raise _TornError(f"its data.pkl cannot be read: {str(error)[:100]}") from None
    return keys_in(found), step_in(found)


def _metadata(folder: Path, name: str, names: frozenset[str]) -> tuple[frozenset[str], list[str]]:
    """(keys of the state, shards that are missing or too short) of a torch distributed checkpoint."""
    try:
        found = atoms(read_regular(folder / name, limit=MAX_PICKLE_BYTES))
    except TooLargeError:
        return frozenset(), []
    except TornPickleError as error:
        return frozenset(), [f"{name}: truncated: {error}"]
    base = name.removesuffix(DCP_METADATA)
    faults: list[str] = []
    for shard, needed in sorted(shard_sizes(found).items()):
        there = f"{base}{shard}"
        if there not in names:
            faults.append(f"{name} names {shard!r:.200}, which is not among the files")
        elif (size := (folder / there).stat().st_size) < needed:
            faults.append(f"{there}: truncated: {name} places {needed} bytes in it, the file has {size}")
    return keys_in(found), faults


def _shards(folder: Path, index: str, names: frozenset[str], tensors: Mapping[str, frozenset[str]]) -> list[str]:
    """Every tensor of the index must lie in the shard it names; one line for each shard."""
    said = _json(folder / index, _MAX_INDEX_BYTES)
    weight_map = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(weight_map, dict):
        return [f"{index} has no weight_map"]
    base = index.rpartition("/")[0]
    absent: set[str] = set()
    wrong: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        name = f"{base}/{shard}" if base else str(shard)
        if not isinstance(shard, str) or name not in names:
            absent.add(f"{index} names {str(shard)[:200]!r}, which is not among the files")
        elif name in tensors and tensor not in tensors[name]:
            wrong.setdefault(shard, []).append(tensor)
    lacking = [
        f"{index} places {len(missing)} tensors in {shard!r} that it does not hold, the first is {missing[0][:200]!r}"
        if len(missing) > 1
        else f"{index} places {missing[0][:200]!r} in {shard!r}, which does not hold it"
        for shard, missing in sorted(wrong.items())
    ]
    return [*sorted(absent), *lacking]


def _json(path: Path, limit: int) -> Any:
    """Parsed JSON, or `_NOT_JSON` when it is none or too long to be believed."""
    try:
        return json.loads(read_regular(path, limit=limit))
    except (ValueError, RecursionError, TooLargeError):
        return _NOT_JSON
