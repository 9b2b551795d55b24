"""Checks the files of one save against its event: digests, header arithmetic, layout.

Started by `decide` for each CheckpointWritten and CheckpointImported. It reads only inside the folders it
was given, because the event comes from a training job and may name anything. Every
answer is a status with findings; only trouble of the storage itself is retried.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlparse

from forebay.contracts.v1.models import (
    CheckpointFile,
    CheckpointImported,
    CheckpointVerified,
    CheckpointWritten,
    checkpoint_digest,
)
from forebay.registry.domain.checkpoint_layout import (
    STATE_FILES,
    Status,
    in_progress_marker,
    judge,
    parts_of,
    unsafe_path,
)
from forebay.registry.domain.safetensors_header import LENGTH_BYTES, HeaderError, header_length, tensors_of
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.regular_files import LinkError, NotRegularError, TooLargeError, open_regular, read_regular
from forebay.runtime.work import WorkContext, WorkItem

_CHUNK = 1 << 20
_MAX_JSON_BYTES = 64 << 20
"""A state file may hold the order of all samples."""
_MAX_INDEX_BYTES = 50_000_000
_MAX_FINDINGS = 20
_MAX_FINDING = 400
_RETRY_S = 5.0
MAX_ENTRIES = 100_000
_HOLDS_DATA = (".safetensors", ".json", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".npz", ".npy", ".msgpack")
"""Files that say nothing when they are empty; others may be marks."""
_NOT_JSON = object()
_STORAGE_TROUBLE = frozenset({errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN})


Saved = CheckpointWritten | CheckpointImported


def saved_in(payload: Mapping[str, Any]) -> Saved:
    """The event that the work item was made from; only an import says where its files lay before."""
    body = CheckpointImported if "source" in payload else CheckpointWritten
    return body.model_validate(payload)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the files are, and why."""

    status: Status
    findings: tuple[str, ...] = ()


class CheckpointVerifier:
    """The worker. `roots` are templates of the only folders it may read: `{project}` and `{job}` are filled in."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(roots)

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        body = saved_in(item.payload)
        roots = [Path(root.replace("{project}", item.project).replace("{job}", body.job)) for root in self._roots]
        try:
            verdict = await context.in_process(verify, body, roots)
        except OSError as error:
            if error.errno in _STORAGE_TROUBLE:
                raise RetryLater(_RETRY_S, f"storage of {body.uri}: {error.strerror}") from error
            verdict = Verdict("missing", (f"cannot be read: {error.strerror or error}",))
        return [emit_of(item.project, body, verdict)]


def emit_of(project: str, body: Saved, verdict: Verdict) -> Emit:
    """CheckpointVerified for one save; said once for one content."""
    found = tuple(finding[:_MAX_FINDING] for finding in verdict.findings[:_MAX_FINDINGS])
    verified = CheckpointVerified(
        checkpoint=body.checkpoint,
        job=body.job,
        attempt=body.attempt if isinstance(body, CheckpointWritten) else 0,
        step=body.step,
        status=verdict.status,
        findings=found,
    )
    return Emit(project=project, body=verified, dedupe=(body.checkpoint, body.uri, body.digest))


def verify(body: Saved, roots: Sequence[Path], report: Callable[[None], None] = lambda _: None) -> Verdict:
    """Check one save. Blocking, with a `report` now and then; raises OSError only for trouble of the storage."""
    folder = _folder(body.uri, roots)
    if isinstance(folder, Verdict):
        return folder
    return _unfinished(body, folder) or _changed(body, folder, report) or _judged(body, folder)


def _unfinished(body: Saved, folder: Path) -> Verdict | None:
    """Not there, not safe to look at, or still being written."""
    unsafe = tuple(f"{file.path}: {why}" for file in body.files if (why := unsafe_path(file.path)))
    if unsafe:
        return Verdict("corrupt", unsafe)
    if not folder.is_dir():
        return Verdict("missing", (f"{folder} is not there",))
    present = {path.relative_to(folder).as_posix() for path in islice(folder.rglob("*"), MAX_ENTRIES)}
    marker = in_progress_marker([folder.name, *present])
    return None if marker is None else Verdict("incomplete", (f"marked in progress: {marker}",))


def _changed(body: Saved, folder: Path, report: Callable[[None], None]) -> Verdict | None:
    """The files are not those of the event."""
    if checkpoint_digest(body.files) != body.digest:
        return Verdict("corrupt", ("the event's digest is not the digest of the files it lists",))
    problems = tuple(problem for file in body.files if (problem := _differs(folder, file, report)) is not None)
    if not problems:
        return None
    return Verdict("missing" if all("not there" in problem for problem in problems) else "corrupt", problems)


def _judged(body: Saved, folder: Path) -> Verdict:
    """The files are those of the event; say whether they are whole and what they hold."""
    return judge_files(folder, frozenset(file.path for file in body.files), body.step)


def judge_files(folder: Path, names: frozenset[str], step: int) -> Verdict:
    """Whether these files of a folder are a whole save of this step, and what it holds."""
    broken = _broken(folder, names)
    if broken:
        return Verdict("corrupt", tuple(broken))
    status, findings = judge(parts_of(names, states_in(folder, names)), expected_step=step)
    return Verdict(status, findings)


def _folder(uri: str, roots: Sequence[Path]) -> Path | Verdict:
    parsed = urlparse(uri)
    if parsed.scheme not in {"", "file"} or "\0" in uri:
        return Verdict("missing", (f"{uri[:200]!r} is not a path that this registry can read",))
    try:
        folder = Path(unquote(parsed.path) if parsed.scheme == "file" else uri).resolve()
    except RuntimeError:  # what Python says of links that lead to each other
        return Verdict("missing", (f"{uri[:200]!r} is a link that leads nowhere",))
    if not any(folder.is_relative_to(root.resolve()) for root in roots):
        return Verdict("missing", (f"{folder} lies outside the folders of this job; nothing there was read",))
    return folder


def _differs(folder: Path, file: CheckpointFile, report: Callable[[None], None]) -> str | None:
    """Why a file is not the one that the event describes."""
    try:
        path = (folder / file.path).resolve(strict=True)
        if not path.is_relative_to(folder):
            return f"{file.path} is a link out of the checkpoint"
        with open_regular(path, links=False) as stream:
            return _other_content(stream, file, report)
    except (FileNotFoundError, NotADirectoryError):
        return f"{file.path} is not there"
    except RuntimeError:  # links that lead to each other
        return f"{file.path} is a link that leads nowhere"
    except (NotRegularError, LinkError) as error:
        return f"{file.path} cannot be used: {error.strerror}"


def _other_content(stream: BinaryIO, file: CheckpointFile, report: Callable[[None], None]) -> str | None:
    left = size = os.fstat(stream.fileno()).st_size
    if size != file.bytes:
        return f"{file.path} has {size} bytes, {file.bytes} were recorded"
    digest = hashlib.sha256()
    while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
        report(None)
    if digest.hexdigest() != file.sha256:
        return f"{file.path}: its content is not what was recorded (sha256 {digest.hexdigest()[:12]} instead of {file.sha256[:12]})"
    return None


def _broken(folder: Path, names: frozenset[str]) -> list[str]:
    found: list[str] = []
    tensors: dict[str, frozenset[str]] = {}
    for name in sorted(names):
        if name.endswith(".safetensors"):
            try:
                tensors[name] = tensors_in(folder / name)
            except HeaderError as error:
                found.append(f"{name}: {error}")
        elif name.endswith(_HOLDS_DATA) and (why := _empty_or_torn(folder / name)) is not None:
            found.append(f"{name}: {why}")
    if not found:
        for name in sorted(names):
            if name.endswith(".safetensors.index.json"):
                found += _shards(folder, name, tensors)
    return found


def tensors_in(path: Path) -> frozenset[str]:
    """Tensor names of a whole safetensors file; raises `HeaderError` when it cannot be whole."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        length = header_length(stream.read(LENGTH_BYTES), size)
        return tensors_of(stream.read(length), size)


def _shards(folder: Path, index: str, tensors: dict[str, frozenset[str]]) -> list[str]:
    """Every tensor of the index must lie in the shard it names."""
    said = _json(folder / index, _MAX_INDEX_BYTES)
    weight_map = said.get("weight_map") if isinstance(said, dict) else None
    if not isinstance(weight_map, dict):
        return [f"{index} has no weight_map"]
    base = index.rpartition("/")[0]
    found: set[str] = set()
    for tensor, shard in weight_map.items():
        name = f"{base}/{shard}" if base else str(shard)
        if name not in tensors:
            found.add(f"{index} names {shard!r}, which is not among the files")
        elif tensor not in tensors[name]:
            found.add(f"{index} places {tensor!r} in {shard!r}, which does not hold it")
    return sorted(found)


def _empty_or_torn(path: Path) -> str | None:
    """What is wrong with a file of state whose format has no header to do sums with."""
    size = path.stat().st_size
    if size == 0:
        return "empty file"
    if path.suffix == ".json" and size <= _MAX_JSON_BYTES and _json(path, _MAX_JSON_BYTES) is _NOT_JSON:
        return "not whole JSON"
    return None


def states_in(folder: Path, names: frozenset[str]) -> dict[str, Any]:
    """The parsed files that say the step."""
    return {name: _json(folder / name, _MAX_JSON_BYTES) for name in STATE_FILES if name in names}


def _json(path: Path, limit: int) -> Any:
    """Parsed JSON, or `_NOT_JSON` when it is none or too long to be believed."""
    try:
        return json.loads(read_regular(path, limit=limit))
    except (ValueError, RecursionError, TooLargeError):
        return _NOT_JSON
