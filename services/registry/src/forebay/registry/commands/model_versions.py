"""`model-register`: a verified checkpoint becomes a version of a model."""

from __future__ import annotations

from typing import Any

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_name
from forebay.contracts.v1.models import ModelVersionRegistered
from forebay.registry.domain.contradictions import TERMINAL
from forebay.registry.domain.graph import checkpoints_of, children, get
from forebay.registry.domain.names import known, top, unknown
from forebay.registry.domain.nodes import CHECKPOINT, JOB, MODEL, job_id, local_id, model_id, name_and_number
from forebay.registry.domain.resume import Save, find_save, overwritten, save_of, unverified_ahead
from forebay.registry.domain.view import facts_named, shown
from forebay.registry.questions.request_args import optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State

_USABLE = ("complete", "inexact", "weights-only")
_MAX_METRICS = 200


def model_register(state: State, pending: Pending, request: Request) -> Outcome:
    """Args {model, job, checkpoint?}: the named save of that job, or its latest complete one."""
    project = request.project
    name = _model_name(text(request, "model"))
    job = job_in(state, project, text(request, "job"))
    saves = _saves(state, project, job)
    wanted = optional_text(request, "checkpoint")
    if wanted is None:
        _refuse_while_running(state, project, job)
    save = _latest(job, saves) if wanted is None else named_save(state, project, job, saves, wanted)
    _refuse_unusable(job, save, saves)
    if (known_number := _registered(state, project, name, save)) is not None:
        return Outcome(result=_version(name, known_number, save, job, already=True))
    waiting = [one for one in pending.of(ModelVersionRegistered, project) if one.model == name]
    if any(one.checkpoint == save.id for one in waiting):
        raise Refused("not-stored-yet", f"{save.id} is being registered as {name}", "ask again in a moment")
    number = max([top(state, project, MODEL, name) or 0, *(one.number for one in waiting)]) + 1
    inputs = shown(get(state, project, job_id(job)), "inputs", [])
    body = ModelVersionRegistered(
        model=name,
        number=number,
        job=job,
        attempt=save.attempt,
        checkpoint=save.id,
        step=save.step,
        uri=save.uri,
        artefact_sha256=save.digest,
        datasets=tuple(one["pinned"] for one in inputs if one["kind"] == "dataset") or save.compatibility.datasets,
        base_models=tuple(one["pinned"] for one in inputs if one["kind"] == "model"),
        by=request.by,
    )
    emit = Emit(project=project, body=body, dedupe=(name, number))
    return Outcome(result=_version(name, number, save, job, already=False), actions=(emit,))


def _model_name(name: str) -> str:
    try:
        return check_name(name)
    except InvalidNameError as error:
        raise Refused("bad-name", str(error), "choose another name") from None


def job_in(state: State, project: str, wanted: str) -> str:
    """The id of a job that exists: `pick-7`, or the latest run of `pick`."""
    exact = job_id(wanted.removeprefix(f"{JOB}:"))
    if known(state, project, exact):
        return local_id(exact)
    latest = top(state, project, JOB, local_id(exact))
    if latest is None:
        raise unknown(state, project, wanted, JOB)
    return f"{local_id(exact)}-{latest}"


def _refuse_while_running(state: State, project: str, job: str) -> None:
    """The latest checkpoint of a job is known when its end has been read from the log, not before."""
    if not facts_named(get(state, project, job_id(job)), *TERMINAL, "CheckpointImported"):
        raise Refused(
            "verification-pending",
            f"job {job} has not ended, as far as the log is read here, so which checkpoint is its latest is not known",
            "wait for its end, or name one with --checkpoint",
        )


def _saves(state: State, project: str, job: str) -> list[Save]:
    return [save for node in checkpoints_of(state, project, job) if (save := save_of(node)) is not None]


def _latest(job: str, saves: list[Save]) -> Save:
    if not saves:
        raise Refused(
            "no-checkpoint", f"job {job} has written no checkpoint", f"see what happened with: forebay why {job}"
        )
    waiting = unverified_ahead(saves)
    if waiting is not None:
        return waiting
    gone = overwritten(saves)
    for status in _USABLE:
        usable = [save for save in saves if save.status == status and save.id not in gone]
        if usable:
            return max(usable, key=lambda save: save.order)
    return max(saves, key=lambda save: save.order)


def named_save(state: State, project: str, job: str, saves: list[Save], wanted: str) -> Save:
    """A checkpoint by id, by step, or by its folder; it must belong to the job."""
    found = find_save(saves, wanted)
    if found is not None:
        return found
    elsewhere = get(state, project, f"{CHECKPOINT}:{wanted.removeprefix(f'{CHECKPOINT}:')}")
    if elsewhere is not None:
        raise Refused(
            "foreign-checkpoint",
            f"checkpoint {wanted} belongs to job {shown(elsewhere, 'job')}, not to {job}",
            f"register it from job {shown(elsewhere, 'job')}",
        )
    have = [f"{save.id} (step {save.step})" for save in sorted(saves, key=lambda save: save.order)[-5:]]
    hint = f"the latest of {job} are {', '.join(have)}" if have else f"job {job} has written no checkpoint"
    raise Refused("unknown-checkpoint", f"job {job} has no checkpoint {wanted!r}", hint)


def _refuse_unusable(job: str, save: Save, saves: list[Save]) -> None:
    if (why := overwritten(saves).get(save.id)) is not None:
        raise Refused("overwritten", f"checkpoint {save.id} of {job}: {why}", "register the save that is there now")
    if save.status is None:
        raise Refused(
            "verification-pending",
            f"checkpoint {save.id} (step {save.step}) of {job} was written, but its files are not checked yet",
            "ask again in a moment",
        )
    if save.status not in _USABLE:
        found = "; ".join(save.findings) or "no details"
        raise Refused(
            "unusable-checkpoint",
            f"checkpoint {save.id} (step {save.step}) of {job} is {save.status}: {found}",
            "name another checkpoint with --checkpoint",
        )


def _registered(state: State, project: str, name: str, save: Save) -> int | None:
    """The number under which exactly this save is a version of this model already."""
    for child in children(state, project, f"{CHECKPOINT}:{save.id}", MODEL):
        model, number = name_and_number(child)
        if model == name and shown(get(state, project, child), "artefact_sha256") == save.digest:
            return number
    return None


def _version(name: str, number: int, save: Save, job: str, *, already: bool) -> dict[str, Any]:
    return {
        "id": model_id(name, number),
        "model": name,
        "number": number,
        "job": job,
        "checkpoint": save.id,
        "step": save.step,
        "uri": save.uri,
        "artefact_sha256": save.digest,
        "status": save.status,
        "already": already,
    }
