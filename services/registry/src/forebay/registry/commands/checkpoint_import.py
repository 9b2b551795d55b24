"""`checkpoint-import`: a save of training that Forebay did not see enters the lineage.

The person's machine has digested the files and put them where the registry may read
them; a worker here reads them again. What nobody knows about it is named, not guessed.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_name, stable_id
from forebay.contracts.v1.models import CheckpointFile, CheckpointImported, Compatibility, checkpoint_digest
from forebay.registry.domain.graph import get
from forebay.registry.domain.names import known, unknown
from forebay.registry.domain.nodes import CHECKPOINT, JOB, job_id
from forebay.registry.domain.view import first_fact
from forebay.registry.questions.request_args import invalid, number, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State

_FILES: TypeAdapter[tuple[CheckpointFile, ...]] = TypeAdapter(tuple[CheckpointFile, ...])
_MAX_FILES = 400
_PARTS = ("datasets", "code_revision", "parameters_sha256")


def checkpoint_import(state: State, pending: Pending, request: Request) -> Outcome:
    """Args {job | run, step, uri, source, files, compatibility?, use?, reason?}."""
    project = request.project
    job, run = _owner(state, request)
    use = optional_text(request, "use") or "warm-start"
    reason = optional_text(request, "reason")
    _refuse_use(use, reason)
    files = _files(request)
    compatibility = _compatibility(state, request)
    step, digest = number(request, "step", -1, most=1 << 53), checkpoint_digest(files)
    if step < 0:
        raise Refused("bad-request", "the argument 'step' is missing")
    checkpoint = "ck-" + stable_id(job, 0, step, digest)[:24]
    node = get(state, project, f"{CHECKPOINT}:{checkpoint}")
    if first_fact(node, "CheckpointImported") is not None:
        return Outcome(result=_result(checkpoint, job, step, use, already=True))
    if any(one.checkpoint == checkpoint for one in pending.of(CheckpointImported, project)):
        raise Refused("not-stored-yet", f"{checkpoint} is being imported", "ask again in a moment")
    body = CheckpointImported(
        checkpoint=checkpoint,
        job=job,
        run=run,
        step=step,
        uri=text(request, "uri"),
        source=text(request, "source"),
        files=files,
        digest=digest,
        compatibility=compatibility,
        unknown=tuple(part for part in _PARTS if not getattr(compatibility, part)),
        use=cast("Literal['warm-start', 'resume']", use),
        reason=reason,
        by=request.by,
    )
    emit = Emit(project=project, body=body, dedupe=(checkpoint,))
    result = _result(checkpoint, job, step, use, already=False) | {"unknown": list(body.unknown)}
    return Outcome(result=result, actions=(emit,))


def _owner(state: State, request: Request) -> tuple[str, str | None]:
    """(job, run): a job that exists, or the name of an old run that no job of Forebay may have."""
    project, job, run = request.project, optional_text(request, "job"), optional_text(request, "run")
    if (job is None) == (run is None):
        raise Refused("bad-request", "an import belongs to a job or to an old run: give 'job' or 'run'")
    if job is not None:
        job = job.removeprefix(f"{JOB}:")
        if not known(state, project, job_id(job)):
            raise unknown(state, project, job, JOB)
        return job, None
    try:
        name = check_name(run or "")
    except InvalidNameError as error:
        raise Refused("bad-name", str(error), "choose another name for the old run with --name") from None
    node = get(state, project, job_id(name))
    if first_fact(node, "JobSubmitted") is not None:
        raise Refused("name-taken", f"{name} is a job of Forebay", f"import into it with: --job {name}")
    return name, name


def _refuse_use(use: str, reason: str | None) -> None:
    if use not in {"warm-start", "resume"}:
        raise Refused("bad-request", f"'use' is {use!r}; it may be warm-start or resume")
    if use == "resume" and reason is None:
        raise Refused(
            "reason-needed",
            "Forebay did not see this training, so that it can be resumed is a person's word",
            "say why with --reason, or import it for a warm start",
        )


def _files(request: Request) -> tuple[CheckpointFile, ...]:
    try:
        files = _FILES.validate_python(request.args.get("files"))
    except ValidationError as error:
        raise invalid("files", error) from None
    if not 1 <= len(files) <= _MAX_FILES:
        raise Refused("bad-request", f"a checkpoint has 1 to {_MAX_FILES} files, not {len(files)}")
    return files


def _compatibility(state: State, request: Request) -> Compatibility:
    try:
        found = Compatibility.model_validate(request.args.get("compatibility") or {})
    except ValidationError as error:
        raise invalid("compatibility", error) from None
    for one in found.datasets:
        if not known(state, request.project, one):
            raise unknown(state, request.project, one)
    return found


def _result(checkpoint: str, job: str, step: int, use: str, *, already: bool) -> dict[str, Any]:
    return {
        "id": f"{CHECKPOINT}:{checkpoint}",
        "checkpoint": checkpoint,
        "job": job,
        "step": step,
        "use": use,
        "already": already,
    }
