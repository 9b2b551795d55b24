"""`resume-point`: where an attempt continues.

Protocol with the in-pod agent: it asks with `skip_unverified: false`. While a save
that could win has not been checked yet, or a later attempt's admission has not been
read from the log yet (so saves of the one before may be unread, too), the answer is
Refused("verification-pending") and the agent asks again; after its own deadline it
asks with `skip_unverified: true`: what is known then decides, and unchecked saves
are passed over with that reason. The decision is made once per (job, attempt):
asking again returns the recorded one.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from pydantic import ValidationError

from forebay.contracts.v1.models import Compatibility, ResumeDecided
from forebay.registry.domain.graph import attempts_of, checkpoints_of, children, get
from forebay.registry.domain.nodes import CHECKPOINT, attempt_id, job_id
from forebay.registry.domain.resume import (
    ResumePoint,
    Save,
    Wanted,
    decide_resume,
    save_of,
    suspects,
    unverified_ahead,
)
from forebay.registry.domain.view import first_fact, shown
from forebay.registry.questions.request_args import flag, invalid, number, optional_number, optional_text, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State


def resume_point(state: State, pending: Pending, request: Request) -> Outcome:
    """Args {job, attempt, allow_cold_start?, forbid_cold_start?, compatibility?, skip_unverified?, checkpoint?}."""
    project, job, attempt = request.project, text(request, "job"), number(request, "attempt", 0, least=1)
    if attempt < 1:
        raise Refused("bad-request", "the argument 'attempt' is missing")
    node = get(state, project, attempt_id(job, attempt))
    decided = first_fact(node, "ResumeDecided")
    if decided is not None:
        return Outcome(result=_recorded(state, request, decided.values))
    if any((one.job, one.attempt) == (job, attempt) for one in pending.of(ResumeDecided, project)):
        raise Refused("not-stored-yet", f"attempt {attempt} of {job} is being decided", "ask again in a moment")
    wanted = wanted_of(state, request, job, attempt)
    if attempt > 1 and node is None and not wanted.skip_unverified:
        raise Refused(
            "verification-pending",
            f"the log is not read up to the start of attempt {attempt} of {job}, so saves before it may be unread",
            "ask again in a moment, or with skip_unverified to decide on what is known",
        )
    wanted = replace(wanted, unread=attempt > 1 and node is None)
    saves = saves_of(state, project, job)
    waiting = None if wanted.skip_unverified else _waiting(saves, wanted)
    if waiting is not None:
        raise Refused(
            "verification-pending",
            f"checkpoint {waiting.id} (step {waiting.step}) of {job} was written, but its files are not checked yet",
            "ask again in a moment, or with skip_unverified to pass over it",
            {"checkpoint": waiting.id, "step": waiting.step},
        )
    point = decide_resume(saves, wanted, all_suspects(state, project, job, wanted))
    emit = Emit(project=project, body=event_of(job, attempt, point), dedupe=(job, attempt))
    return Outcome(result=result_of(job, attempt, point), actions=(emit,))


def _waiting(saves: list[Save], wanted: Wanted) -> Save | None:
    """The unchecked save that the answer depends on."""
    begin = wanted.start_from
    if begin is not None and begin.status is None:
        return begin
    return unverified_ahead(saves) or (None if saves else unverified_ahead(wanted.inherited))


def wanted_of(state: State, request: Request, job: str, attempt: int) -> Wanted:
    """What is asked, completed by what the job's owner wrote when it was submitted."""
    node = get(state, request.project, job_id(job))
    start = shown(node, "start_from")
    begin = None if start is None else get(state, request.project, f"{CHECKPOINT}:{start}")
    lineage = _continued(state, request.project, job)
    if start is not None and not lineage and (begin is None or save_of(begin) is None):
        raise Refused(
            "unknown-checkpoint",
            f"job {job} starts from {start}, which is neither a checkpoint nor a job of this project",
            "correct restart.start_from and submit again",
        )
    return Wanted(
        attempt=attempt,
        allow_cold_start=flag(request, "allow_cold_start"),
        forbid_cold_start=flag(request, "forbid_cold_start"),
        compatibility=_compatibility(request),
        skip_unverified=flag(request, "skip_unverified"),
        steps=optional_number(request, "steps") or _steps(shown(node, "parameters", {})),
        named=optional_text(request, "checkpoint"),
        start_from=None if begin is None else save_of(begin),
        continues=lineage[0] if lineage else None,
        inherited=tuple(
            replace(save, job=earlier) for earlier in lineage for save in saves_of(state, request.project, earlier)
        ),
    )


def _continued(state: State, project: str, job: str) -> list[str]:
    """The job that a job continues, the one that that one continues, and so on."""
    found: list[str] = []
    start = shown(get(state, project, job_id(job)), "start_from")
    while isinstance(start, str) and start not in {job, *found}:
        node = get(state, project, job_id(start))
        if first_fact(node, "JobSubmitted") is None:
            break
        found.append(start)
        start = shown(node, "start_from")
    return found


def all_suspects(state: State, project: str, job: str, wanted: Wanted) -> frozenset[str]:
    """Of the job itself, and of the jobs whose checkpoints it may continue from."""
    jobs = {job, *(save.job for save in wanted.inherited if save.job is not None)}
    return frozenset[str]().union(*(suspects_of(state, project, one) for one in sorted(jobs)))


_STEP_NAMES = ("steps", "total_steps", "max_steps", "num_train_steps")


def _steps(parameters: dict[str, Any]) -> int | None:
    """The length of the whole training, where a parameter of a usual name says it."""
    found = [parameters[name] for name in _STEP_NAMES if name in parameters]
    return found[0] if found and isinstance(found[0], int) and not isinstance(found[0], bool) else None


def saves_of(state: State, project: str, job: str) -> list[Save]:
    """Every save of a job that can be spoken of, imported ones included."""
    return [save for one in checkpoints_of(state, project, job) if (save := save_of(one)) is not None]


def _compatibility(request: Request) -> Compatibility:
    try:
        return Compatibility.model_validate(request.args.get("compatibility") or {})
    except ValidationError as error:
        raise invalid("compatibility", error) from None


def suspects_of(state: State, project: str, job: str) -> frozenset[str]:
    attempts = [
        (node, sum(1 for _ in children(state, project, attempt, CHECKPOINT)))
        for _, attempt in attempts_of(state, project, job)
        if (node := get(state, project, attempt)) is not None
    ]
    return suspects(attempts)


def event_of(job: str, attempt: int, point: ResumePoint) -> ResumeDecided:
    """The decision as it goes into the log."""
    save = point.save
    return ResumeDecided(
        job=job,
        attempt=attempt,
        mode=point.mode,
        checkpoint=None if save is None else save.id,
        step=None if save is None else save.step,
        uri=None if save is None else save.uri,
        reasons=point.reasons,
        skipped=point.skipped,
    )


def result_of(job: str, attempt: int, point: ResumePoint) -> dict[str, Any]:
    save: Save | None = point.save
    return {
        "job": job,
        "attempt": attempt,
        "mode": point.mode,
        "checkpoint": None if save is None else save.id,
        "step": None if save is None else save.step,
        "uri": None if save is None else save.uri,
        "digest": None if save is None else save.digest,
        "reasons": list(point.reasons),
        "skipped": [one.model_dump(mode="json") for one in point.skipped],
        "conflicts": [asdict(one) for one in point.conflicts],
        "already": False,
    }


def _recorded(state: State, request: Request, values: dict[str, Any]) -> dict[str, Any]:
    """The decision that is on record, in the form of a fresh one."""
    checkpoint = values.get("resume_checkpoint")
    node = None if checkpoint is None else get(state, request.project, f"{CHECKPOINT}:{checkpoint}")
    save = None if node is None else save_of(node)
    return {
        "job": request.args["job"],
        "attempt": request.args["attempt"],
        "mode": values["resume_mode"],
        "checkpoint": checkpoint,
        "step": values.get("resume_step"),
        "uri": None if save is None else save.uri,
        "digest": None if save is None else save.digest,
        "reasons": values.get("resume_reasons", []),
        "skipped": [
            {"checkpoint": one, "step": step, "reason": reason}
            for one, step, reason in values.get("resume_skipped", [])
        ],
        "conflicts": [],
        "already": True,
    }
