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

from typing import Any

from pydantic import ValidationError

from forebay.contracts.v1.models import Compatibility, ResumeDecided
from forebay.registry.domain.graph import attempts_of, checkpoints_of, children, get
from forebay.registry.domain.nodes import CHECKPOINT, attempt_id
from forebay.registry.domain.resume import (
    ResumePoint,
    Save,
    Wanted,
    decide_resume,
    save_of,
    suspects,
    unverified_ahead,
)
from forebay.registry.domain.view import first_fact
from forebay.registry.questions.request_args import flag, invalid, number, text
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State


def resume_point(state: State, pending: Pending, request: Request) -> Outcome:
    """Args {job, attempt, allow_cold_start?, compatibility?, skip_unverified?}."""
    project, job, attempt = request.project, text(request, "job"), number(request, "attempt", 0, least=1)
    if attempt < 1:
        raise Refused("bad-request", "the argument 'attempt' is missing")
    node = get(state, project, attempt_id(job, attempt))
    decided = first_fact(node, "ResumeDecided")
    if decided is not None:
        return Outcome(result=_recorded(state, request, decided.values))
    if any((one.job, one.attempt) == (job, attempt) for one in pending.of(ResumeDecided, project)):
        raise Refused("not-stored-yet", f"attempt {attempt} of {job} is being decided", "ask again in a moment")
    wanted = Wanted(
        attempt=attempt,
        allow_cold_start=flag(request, "allow_cold_start"),
        compatibility=_compatibility(request),
        skip_unverified=flag(request, "skip_unverified"),
    )
    if attempt > 1 and node is None and not wanted.skip_unverified:
        raise Refused(
            "verification-pending",
            f"the log is not read up to the start of attempt {attempt} of {job}, so saves before it may be unread",
            "ask again in a moment, or with skip_unverified to decide on what is known",
        )
    saves = [save for one in checkpoints_of(state, project, job) if (save := save_of(one)) is not None]
    waiting = None if wanted.skip_unverified else unverified_ahead(saves)
    if waiting is not None:
        raise Refused(
            "verification-pending",
            f"checkpoint {waiting.id} (step {waiting.step}) of {job} was written, but its files are not checked yet",
            "ask again in a moment, or with skip_unverified to pass over it",
            {"checkpoint": waiting.id, "step": waiting.step},
        )
    point = decide_resume(saves, wanted, _suspects(state, project, job))
    emit = Emit(project=project, body=event_of(job, attempt, point), dedupe=(job, attempt))
    return Outcome(result=_result(job, attempt, point), actions=(emit,))


def _compatibility(request: Request) -> Compatibility:
    try:
        return Compatibility.model_validate(request.args.get("compatibility") or {})
    except ValidationError as error:
        raise invalid("compatibility", error) from None


def _suspects(state: State, project: str, job: str) -> frozenset[str]:
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


def _result(job: str, attempt: int, point: ResumePoint) -> dict[str, Any]:
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
        "already": True,
    }
