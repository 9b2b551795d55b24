"""Checks the files of one save against its event: digests, header arithmetic, layout.

Started by `decide` for each CheckpointWritten and CheckpointImported. It reads only inside the folders it
was given, because the event comes from a training job and may name anything. Every
answer is a status with findings; only trouble of the storage itself is retried.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import unquote, urlparse

from forebay.contracts.v1.models import (
    CheckpointFile,
    CheckpointImported,
    CheckpointVerified,
    CheckpointWritten,
    checkpoint_digest,
)
from forebay.registry.domain.checkpoint_layout import Status, in_progress_markers, judge, parts_of, unsafe_path
from forebay.registry.workers.save_files import faults_in, states_in
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.regular_files import LinkError, NotRegularError, open_regular
from forebay.runtime.work import WorkContext, WorkItem

_CHUNK = 1 << 20
_MAX_FINDINGS = 20
_MAX_FINDING = 400
_RETRY_S = 5.0
MAX_ENTRIES = 100_000
_MAX_MARKS = 5
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
    kind: str = field(default="", compare=False)
    """What wrote it, for a reader: `LeRobot, adapter`."""


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
    """Check one save, and list all its faults. Blocking, with a `report` now and then.

    Raises OSError only for trouble of the storage.
    """
    folder = uri_folder(body.uri, roots)
    if isinstance(folder, Verdict):
        return folder
    unsafe = tuple(f"{file.path}: {why}" for file in body.files if (why := unsafe_path(file.path)))
    if unsafe:
        return Verdict("corrupt", unsafe)
    if single_file(folder, body.files):
        folder, marks = folder.parent, in_progress_markers([folder.name])
    elif folder.is_dir():
        present = {path.relative_to(folder).as_posix() for path in islice(folder.rglob("*"), MAX_ENTRIES)}
        marks = in_progress_markers([folder.name, *present])
    else:
        return Verdict("missing", (f"{folder} is not there",))
    verdict = _changed(body, folder, report) or judge_files(folder, frozenset(f.path for f in body.files), body.step)
    return marked(verdict, marks)


class _Named(Protocol):
    @property
    def path(self) -> str: ...


def single_file(place: Path, files: Sequence[_Named]) -> bool:
    """Whether a save is one file, named by its own path, and not a folder."""
    return len(files) == 1 and files[0].path == place.name and place.is_file()


def marked(verdict: Verdict, marks: Sequence[str]) -> Verdict:
    """The same verdict for a save that its writer has marked as unfinished: every fault stays listed."""
    if not marks:
        return verdict
    status = verdict.status if verdict.status in {"corrupt", "missing"} else "incomplete"
    return Verdict(
        status, (*(f"marked in progress: {mark}" for mark in marks[:_MAX_MARKS]), *verdict.findings), verdict.kind
    )


def _changed(body: Saved, folder: Path, report: Callable[[None], None]) -> Verdict | None:
    """The files are not those of the event."""
    if checkpoint_digest(body.files) != body.digest:
        return Verdict("corrupt", ("the event's digest is not the digest of the files it lists",))
    problems = tuple(problem for file in body.files if (problem := _differs(folder, file, report)) is not None)
    if not problems:
        return None
    return Verdict("missing" if all("not there" in problem for problem in problems) else "corrupt", problems)


def judge_files(folder: Path, names: frozenset[str], step: int) -> Verdict:
    """Whether these files of a folder are a whole save of this step, what it holds, and all that is wrong with it."""
    faults, contents = faults_in(folder, names)
    parts = parts_of(names, states_in(folder, names), contents)
    status, findings = judge(parts, expected_step=step)
    said = tuple(one for one in findings if not any(one.startswith(fault.partition(": ")[0]) for fault in faults))
    return Verdict("corrupt" if faults else status, (*faults, *said), parts.kind)


def uri_folder(uri: str, roots: Sequence[Path]) -> Path | Verdict:
    """Where a save lies, inside the folders that may be read; else a verdict that says why not."""
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
