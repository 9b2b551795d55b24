"""A dataset version as a root of its own, in the layout that LeRobot's Lance reader opens.

    <root>/meta/           info.json (storage_format "lance"), episodes, tasks, stats; every other file as it came
    <root>/frames.lance    row N is frame N; names without dots, vectors of fixed width
    <root>/videos.lance    one row per mp4, its bytes verbatim in a blob
    <root>/meta.lance      meta/ once more, for readers of remote roots
    <root>/episodes.json   the stable episode ids behind the dense indices
    <root>/forebay-manifest.json   size and digest of every other file

A version that adds to another, or leaves some of its episodes out, shares the data
files of that one as hard links (decision 0005): nothing but what is new is written,
every root stands for itself, and deleting one never touches another.

Everything is written to a hidden folder beside the final place, read back and
compared with where it came from bit by bit, and only then renamed. So a root that
has its name is complete and verified, and a crash leaves at most a hidden folder,
which the next run removes. A root that an earlier run finished is found again by the
digest of its content, or by the request it answers.
Pixels of episodes that were left out stay inside shared mp4 files; the time windows
in meta/episodes select. Encoding the videos anew removes them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.v1.datasets import MANIFEST_FILE
from forebay.ingest.adapters.decoders import cores
from forebay.ingest.adapters.origins import EPISODES_FILE, Origin
from forebay.ingest.adapters.version_tables import VersionTables
from forebay.ingest.adapters.version_videos import Progress
from forebay.ingest.domain.version_plan import VersionPlan
from forebay.ingest.errors import ConversionError
from forebay.runtime.regular_files import open_regular, read_regular

FORMAT = "lerobot-v3.0-lance"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedVersion:
    """A version root that exists, complete and verified."""

    root: Path
    tables: dict[str, int]
    episodes: FileRef
    manifest: FileRef
    bytes: int
    carried: tuple[str, ...] = ()
    """Files below meta/ that were taken over byte for byte."""
    notes: tuple[str, ...] = ()
    """What is left out, or is not as it was in its origins, in words."""
    format: str = FORMAT
    adopted: bool
    """True when an earlier run had written it already."""


def commit_version(
    plan: VersionPlan,
    origins: Mapping[str, Origin],
    root: Path,
    progress: Progress,
    check_point: Callable[[str], None] = lambda _: None,
    *,
    request: str | None = None,
) -> CommittedVersion:
    """Write, read back, and give the root its name. Safe to run again after a crash at any point.

    `origins` has what each source of the plan is read through; `request` is whose wish
    the version is. `check_point` is called between steps, so that tests can stop there.
    """
    if root.exists():
        return _adopt(plan, root, progress)
    root.parent.mkdir(parents=True, exist_ok=True)
    for leftover in root.parent.glob(f".{glob.escape(root.name)}.draft-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = root.parent / f".{root.name}.draft-{uuid.uuid4().hex[:8]}"
    tables = VersionTables(plan, origins, draft, progress)
    try:
        tables.write(check_point)
        known = tables.read_back()
        check_point("compared")
        base = plan.base
        record = _Record(request=request, notes=(*plan.notes, *tables.left_out))
        _seal(plan, draft, None if base is None else origins[base.origin].folder, record, known, progress=progress)
        check_point("sealed")
        _rename(draft, root)
    except FileExistsError:
        return _adopt(plan, root, progress)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return _describe(root, adopted=False)


def find_answer(root: Path, request: str, progress: Progress) -> CommittedVersion | None:
    """The finished root that answers this very request, when an earlier run got that far."""
    try:
        document = json.loads(read_regular(root / EPISODES_FILE))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("request") != request:
        return None
    _check_files(root, progress)
    return _describe(root, adopted=True)


def _rename(draft: Path, root: Path) -> None:
    try:
        draft.rename(root)
    except OSError as error:
        if root.exists():
            raise FileExistsError(root) from error
        raise
    _sync(root.parent)


def _adopt(plan: VersionPlan, root: Path, progress: Progress) -> CommittedVersion:
    """Take over a root that an earlier run finished; its content must be the planned one and undamaged."""
    try:
        content = json.loads(read_regular(root / EPISODES_FILE))["content"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{root} exists but is no finished version ({error}); move it away, then retry"
        raise ConversionError(msg) from error
    if content != plan.digest:
        msg = f"{root} exists with other content than these episodes give; move it away, then retry"
        raise ConversionError(msg)
    _check_files(root, progress)
    return _describe(root, adopted=True)


def _check_files(root: Path, progress: Progress) -> None:
    """Raise `ConversionError` when a file is not the one that was sealed."""
    try:
        entries, broken = _entries(root), []
        for number, entry in enumerate(entries):
            progress("compared", number, len(entries))
            if _digest(root / entry["path"])[0] != entry["sha256"]:
                broken.append(entry["path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{root} exists but is no finished version ({error}); move it away, then retry"
        raise ConversionError(msg) from error
    if broken:
        msg = f"{root} exists but {broken[0]} is damaged; move the folder away, then retry"
        raise ConversionError(msg)


def _entries(root: Path) -> list[dict[str, Any]]:
    return list(json.loads(read_regular(root / MANIFEST_FILE))["files"])


def _describe(root: Path, *, adopted: bool) -> CommittedVersion:
    record = json.loads(read_regular(root / EPISODES_FILE))
    return CommittedVersion(
        root=root,
        tables={path.stem: int(lance.dataset(str(path)).version) for path in sorted(root.glob("*.lance"))},
        episodes=_reference(root / EPISODES_FILE),
        manifest=_reference(root / MANIFEST_FILE),
        bytes=sum(int(entry["bytes"]) for entry in _entries(root)),
        carried=tuple(record.get("carried", ())),
        notes=tuple(record.get("notes", ())),
        adopted=adopted,
    )


def _reference(path: Path) -> FileRef:
    digest, size = _digest(path)
    return FileRef(uri=path.as_uri(), sha256=digest, bytes=size)


def _digest(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _sync(path: Path) -> None:
    """Make a file or folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What the episode list says of the version as a whole."""

    request: str | None
    notes: tuple[str, ...]


def _seal(
    plan: VersionPlan,
    draft: Path,
    base: Path | None,
    record: _Record,
    known: Mapping[Path, str],
    *,
    progress: Progress,
) -> None:
    """Write the episode list and the manifest, and push everything to the disk."""
    document: dict[str, Any] = {
        "content": plan.digest,
        "episodes": [
            {
                "episode": episode.accepted.id,
                "index": episode.index,
                "length": episode.length,
                "upload": episode.accepted.upload,
                "source_index": episode.accepted.source_index,
            }
            for episode in plan.episodes
        ],
        "videos": [
            {"camera": video.camera, "chunk": video.chunk, "file": video.file, "sha256": video.sha256}
            for video in plan.videos
        ],
    }
    document |= {"carried": [file.path for file in plan.carried], "notes": list(record.notes)}
    if record.request is not None:
        document["request"] = record.request
    (draft / EPISODES_FILE).write_bytes(canonical_json(document))
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    entries = []
    for entry in _sealed(draft, files, base, known):
        entries.append(entry)
        progress("sealed", len(entries), len(files))
    entries.sort(key=lambda entry: str(entry["path"]))
    manifest = draft / MANIFEST_FILE
    manifest.write_bytes(canonical_json({"files": entries}))
    _sync(manifest)
    for folder in (path for path in draft.rglob("*") if path.is_dir()):
        _sync(folder)
    _sync(draft)


def _sealed(
    draft: Path, files: Iterable[Path], base: Path | None, known: Mapping[Path, str]
) -> Iterator[dict[str, Any]]:
    """Every file with its digest. One that is shared with the version before has the digest it got there."""
    before = {} if base is None else {entry["path"]: entry for entry in _entries(base)}

    def sealed(path: Path) -> dict[str, Any]:
        name = path.relative_to(draft).as_posix()
        if name in before and base is not None and path.samefile(base / name):
            return before[name]
        digest, size = (known[path], path.stat().st_size) if path in known else _digest(path)
        _sync(path)
        return {"path": name, "sha256": digest, "bytes": size}

    with ThreadPoolExecutor(cores()) as pool:
        yield from pool.map(sealed, files)
