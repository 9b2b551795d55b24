"""`checkpoint-delete` and `job-delete`: files that nothing needs any more go; what is known about them stays.

The decision is in the log before a file is touched. What a model, a release or a job
needs is refused and named; a person may override only what is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from forebay.contracts.identifiers import stable_id
from forebay.contracts.v1.models import CheckpointDeleted, JobFilesDeleted
from forebay.registry.commands.model_versions import job_in, named_save
from forebay.registry.domain.deleting import DELETE, Need, has_ended, needs_of
from forebay.registry.domain.graph import checkpoints_of, get
from forebay.registry.domain.nodes import CHECKPOINT, job_id
from forebay.registry.domain.resume import DELETED, Save, save_of
from forebay.registry.domain.view import first_fact, shown
from forebay.registry.questions.request_args import flag, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Action, Emit, Outcome, Pending, Request, Work
from forebay.runtime.state import State

_NAMED = 20


def checkpoint_delete(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 a command's signature
    """Args {checkpoint, job?, reason, force?, dry_run?}: the files of one save, by id, or by step with its job."""
    project, wanted, reason = request.project, text(request, "checkpoint"), text(request, "reason")
    job = _job_of(state, request, wanted)
    saves = _saves(state, project, job)
    save = named_save(state, project, job, saves, wanted)
    if save.status == DELETED:
        return Outcome(result=_result(state, project, job, [save], already=True))
    _refuse_needed(
        request, f"checkpoint {save.id} (step {save.step}) of {job}", needs_of(state, project, save, saves, job)
    )
    result = _result(state, project, job, [save], already=False)
    if flag(request, "dry_run"):
        return Outcome(result=result)
    return Outcome(result=result, actions=tuple(_of_save(state, request, job, save, reason)))


def job_delete(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 as above
    """Args {job, reason, force?, dry_run?}: every save, the output and the logs of a job that has ended."""
    project, reason = request.project, text(request, "reason")
    job = job_in(state, project, text(request, "job"))
    saves = [save for save in _saves(state, project, job) if save.status != DELETED]
    already = first_fact(get(state, project, job_id(job)), "JobFilesDeleted") is not None
    result = _result(state, project, job, saves, already=already)
    if already:
        return Outcome(result=result)
    if not has_ended(state, project, job):
        raise Refused("job-not-ended", f"job {job} has not ended", f"cancel it first, with: forebay cancel {job}")
    needs = [need for save in saves for need in needs_of(state, project, save, saves, job) if not _own(need, saves)]
    _refuse_needed(request, f"job {job}", needs)
    if flag(request, "dry_run"):
        return Outcome(result=result)
    body = JobFilesDeleted(job=job, checkpoints=len(saves), reason=reason, by=request.by)
    actions: list[Action] = [one for save in saves for one in _of_save(state, request, job, save, reason)]
    actions.append(Emit(project=project, body=body, dedupe=(job,)))
    actions.append(_work(project, job, None))
    return Outcome(result=result, actions=tuple(actions))


def _own(need: Need, saves: Sequence[Save]) -> bool:
    """Two saves of one folder do not keep each other when both go."""
    return need.who in {f"checkpoint {save.id}" for save in saves}


def _job_of(state: State, request: Request, wanted: str) -> str:
    given = optional_text(request, "job")
    if given is not None:
        return job_in(state, request.project, given)
    node = get(state, request.project, f"{CHECKPOINT}:{wanted.removeprefix(f'{CHECKPOINT}:')}")
    job = shown(node, "job")
    if job is None:
        raise Refused(
            "unknown-checkpoint",
            f"there is no checkpoint {wanted!r}",
            "name it by its id, or by its step with --job JOB",
        )
    return str(job)


def _saves(state: State, project: str, job: str) -> list[Save]:
    return [save for node in checkpoints_of(state, project, job) if (save := save_of(node)) is not None]


def _refuse_needed(request: Request, what: str, needs: Iterable[Need]) -> None:
    found = [need for need in needs if not (need.overridable and flag(request, "force"))]
    if not found:
        return
    said = "; ".join(dict.fromkeys(f"{need.who}: {need.why}" for need in found[:_NAMED]))
    hint = "delete another one"
    if all(need.overridable for need in found):
        hint = "to delete only the job's own copy, whose content the model store keeps, add --force"
    details = {"needed_by": [{"who": need.who, "why": need.why} for need in found[:_NAMED]]}
    raise Refused("still-needed", f"{what} is still needed: {said}", hint, details)


def _of_save(state: State, request: Request, job: str, save: Save, reason: str) -> Iterable[Action]:
    body = CheckpointDeleted(
        checkpoint=save.id,
        job=job,
        attempt=save.attempt,
        step=save.step,
        uri=save.uri,
        bytes=_bytes(state, request.project, save),
        reason=reason,
        by=request.by,
    )
    yield Emit(project=request.project, body=body, dedupe=(save.id,))
    yield _work(request.project, job, save.uri)


def _work(project: str, job: str, uri: str | None) -> Work:
    """Delete one save, or (None) the folders of the job."""
    key = "df-" + stable_id(project, job, uri or "")[:24]
    return Work(kind=DELETE, key=key, project=project, payload={"job": job, "uri": uri}, again=True)


def _bytes(state: State, project: str, save: Save) -> int:
    files: list[Any] = shown(get(state, project, f"{CHECKPOINT}:{save.id}"), "files", [])
    return sum(size for _, _, size in files)


def _result(state: State, project: str, job: str, saves: Sequence[Save], *, already: bool) -> dict[str, Any]:
    return {
        "job": job,
        "checkpoints": [{"checkpoint": save.id, "step": save.step, "uri": save.uri} for save in saves],
        "bytes": sum(_bytes(state, project, save) for save in saves),
        "already": already,
    }
