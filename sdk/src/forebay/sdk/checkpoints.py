"""Sees complete saves of a training process in its `checkpoints` folder.

A save is a folder of files, or one file as Lightning writes it. It counts only when nothing says that it is still being
written, its files have stopped changing, and the arithmetic of every safetensors
header holds. Tensors are never loaded. Called by the agent; does no messaging.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.contracts.save_files import HOLDS_DATA
from forebay.contracts.v1.models import CheckpointFile, checkpoint_digest
from forebay.runtime.regular_files import open_regular, read_regular

_IN_PROGRESS = re.compile(
    r"(^|.*[._-])(tmp|temp|part|partial|incomplete|in[_-]?progress|writing|unfinished|lock)$"
    r"|^(tmp|temp)[._-].*|.*[._-]tmp[._-]\w+$|.*~$"
)
FILE_SAVES = (".ckpt", ".pt", ".pth")
_NAMED_STEP = re.compile(r"(?:step|iter)[=_-]?(\d{1,15})", re.IGNORECASE)
_DCP_METADATA = ".metadata"
_STEP_FILES = ("state.json", "training_state/training_step.json", "trainer_state.json")
_STEP_KEYS = ("step", "global_step")
_TRAILING_NUMBER = re.compile(r"(\d+)\Z")
_LARGEST_HEADER = 100 * 1024 * 1024
_BLOCK = 1 << 20
_LONGEST_NAME, _MAX_METRICS = 200, 100
MAX_FILES = 400
"""More do not fit into one event."""

Listing = tuple[tuple[str, int, int], ...]
"""Path, size and change time of every file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A complete checkpoint."""

    folder: Path
    step: int
    files: tuple[CheckpointFile, ...]
    digest: str
    metrics: Mapping[str, float]
    optimizer: bool
    scheduler: bool
    rng: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A folder that is no complete checkpoint (yet), and why."""

    folder: Path
    reason: str


class CheckpointWatcher:
    """Looks at one `checkpoints` folder again and again."""

    def __init__(self, root: Path, *, published: Callable[[Path], bool] | None = None) -> None:
        """With `published` a folder is looked at only once that says so, whatever it looks like before."""
        self._root = root
        self._published = published or (lambda _: True)
        self._before: dict[str, Listing] = {}
        self._judged: dict[str, Listing] = {}

    def scan(self, *, final: bool = False) -> Iterator[Save | Unfinished]:
        """Judge what is new. Without `final` a folder must look the same twice before it is read.

        An unchanged folder is judged once only; a changed one is another save.
        """
        for folder in _candidates(self._root):
            if not self._published(folder):
                continue
            listing = _listing(folder)
            stable = final or self._before.get(folder.name) == listing
            self._before[folder.name] = listing
            if not listing or self._judged.get(folder.name) == listing:
                continue
            if stable:
                judged = inspect(folder)
                if _listing(folder) == listing:
                    self._judged[folder.name] = listing
                    yield judged


def up_to_last(folder: Path) -> bool:
    """LeRobot's rule: a save is finished when the link `last` beside it names it, or a later one."""
    try:
        last = (folder.parent / "last").readlink().name
    except OSError:
        return False
    own, newest = _TRAILING_NUMBER.search(folder.name), _TRAILING_NUMBER.search(last)
    return folder.name == last or (own is not None and newest is not None and int(own[1]) <= int(newest[1]))


def in_progress(name: str) -> bool:
    """Whether a name says that what bears it is still being written."""
    return _IN_PROGRESS.match(name) is not None


def inspect(place: Path) -> Save | Unfinished:
    """Judge one save, a folder or a single file, and digest its files."""
    paths = files_of(place)
    folder = place.parent if place.is_file() else place
    if not paths:
        return Unfinished(folder=place, reason="it holds no file")
    if len(paths) > MAX_FILES:
        return Unfinished(folder=place, reason=f"it holds {len(paths)} files, more than {MAX_FILES}")
    if reason := next((why for path in paths if (why := _unfinished(path, folder))), None):
        return Unfinished(folder=place, reason=reason)
    shards = {path.parent for path in paths if path.suffix == ".distcp"}
    if unnamed := sorted(shards - {path.parent for path in paths if path.name == _DCP_METADATA}):
        return Unfinished(folder=place, reason=f"{unnamed[0].name} has no .metadata yet, which torch writes last")
    step = _step(place)
    if step is None:
        return Unfinished(folder=place, reason="neither a state file nor its name says the step")
    files = tuple(_digested(path, folder) for path in paths)
    names = " ".join(file.path.lower() for file in files)
    state = _state(place)
    return Save(
        folder=place,
        step=step,
        files=files,
        digest=checkpoint_digest(files),
        metrics=_metrics(state),
        optimizer="optim" in names,
        scheduler="scheduler" in names or any("scheduler" in key or key.startswith("lr") for key in state),
        rng="rng" in names or any("rng" in key or "random" in key for key in state),
    )


def files_of(place: Path) -> list[Path]:
    """Every file of a save, sorted."""
    return [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())


def _unfinished(path: Path, folder: Path) -> str | None:
    """Why a file keeps the save from counting."""
    relative = path.relative_to(folder)
    if not _is_text(str(relative)):
        return f"the name {str(relative)!a} is not UTF-8"
    if any(in_progress(part) for part in relative.parts):
        return f"{relative} is still being written"
    reason = _broken(path)
    return f"{relative}: {reason}" if reason else None


def safetensors_problem(path: Path) -> str | None:
    """Say what is wrong with a safetensors file's header arithmetic; None when it holds."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or not 2 <= length <= min(size - 8, _LARGEST_HEADER):
            return f"the file has {size} bytes and no whole header"
        try:
            header = json.loads(file.read(length))
            ends = sorted(_span(v["data_offsets"]) for k, v in header.items() if k != "__metadata__")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return "the header is not that of safetensors"
    position = 0
    for start, stop in ends:
        if start != position or stop < start:
            return f"the header leaves a hole at byte {position}"
        position = stop
    expected = 8 + length + position
    return None if expected == size else f"the header promises {expected} bytes, the file has {size}"


def _span(offsets: Any) -> tuple[int, int]:
    start, stop = offsets
    if type(start) is not int or type(stop) is not int:
        raise ValueError(offsets)
    return start, stop


def _candidates(root: Path) -> list[Path]:
    """Folders and files that may be saves; links such as `last` are second names of one."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if may_be_save(path) and not path.name.startswith("."))


def may_be_save(path: Path) -> bool:
    """Whether a name beside others is a save by its kind: no link, nothing that is being written."""
    if path.is_symlink() or in_progress(path.name):
        return False
    return path.is_dir() or (path.suffix in FILE_SAVES and path.is_file() and named_step(path) is not None)


def named_step(path: Path) -> int | None:
    """The step that a name says: `step=400` of `epoch=3-step=400.ckpt`, else the number at its end."""
    name = path.name.removesuffix(path.suffix) if path.suffix in FILE_SAVES else path.name
    found = _NAMED_STEP.findall(name) or _TRAILING_NUMBER.findall(name)
    return int(found[-1]) if found and len(found[-1]) < 16 else None


def _listing(place: Path) -> Listing:
    found = []
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        try:
            status = path.stat()
        except OSError:
            continue  # renamed while we look, and the next look sees the change; or a link to nowhere
        if path.is_file():
            name = path.name if path == place else path.relative_to(place).as_posix()
            found.append((name, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _broken(path: Path) -> str | None:
    if path.suffix == ".safetensors":
        return safetensors_problem(path)
    if path.stat().st_size == 0:
        return "the file is empty" if {path.suffix, path.name} & HOLDS_DATA else None
    if path.suffix == ".json":
        try:
            json.loads(read_regular(path))
        except (ValueError, RecursionError):
            return "the file is no whole JSON"
    return None


def _state(folder: Path) -> Mapping[str, Any]:
    for name in _STEP_FILES:
        path = folder / name
        if path.is_file():
            content = json.loads(read_regular(path))
            if isinstance(content, dict):
                return content
    return {}


def _step(folder: Path) -> int | None:
    state = _state(folder)
    for key in _STEP_KEYS:
        value = state.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return named_step(folder)


def _metrics(state: Mapping[str, Any]) -> dict[str, float]:
    metrics = state.get("metrics")
    if not isinstance(metrics, dict):
        return {}
    numbers = {
        key: float(value)
        for key, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    }
    named = [key for key in sorted(numbers) if len(key) <= _LONGEST_NAME and _is_text(key)]
    return {key: numbers[key] for key in named[:_MAX_METRICS]}


def _is_text(name: str) -> bool:
    """Whether it can stand in an event: no halves of characters, as broken file names have."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _digested(path: Path, folder: Path) -> CheckpointFile:
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return CheckpointFile(path=path.relative_to(folder).as_posix(), sha256=digest.hexdigest(), bytes=size)
