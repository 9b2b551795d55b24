"""`resume-preview`: where an attempt would continue, with every reason; decides and publishes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forebay.registry.commands.resume_point import all_suspects, result_of, saves_of, wanted_of
from forebay.registry.domain.graph import attempts_of, get
from forebay.registry.domain.names import known, top, unknown
from forebay.registry.domain.nodes import CHECKPOINT, JOB, job_id
from forebay.registry.domain.resume import Save, decide_resume, save_of
from forebay.registry.domain.view import first_fact, shown
from forebay.registry.questions.as_of import as_of
from forebay.registry.questions.request_args import optional_number, text
from forebay.runtime.machine import Request
from forebay.runtime.state import State


def resume_preview(state: State, request: Request) -> dict[str, Any]:
    """Args {job, attempt?, checkpoint?, compatibility?, allow_cold_start?, as_of?}."""
    state, moment = as_of(state, request)
    project = request.project
    job = _job(state, project, text(request, "job"))
    numbers = [number for number, _ in attempts_of(state, project, job)]
    attempt = optional_number(request, "attempt") or max(numbers, default=0) + 1
    saves = _with_foreign(state, project, saves_of(state, project, job), request.args.get("checkpoint"))
    wanted = wanted_of(state, replace(request, args=_completed(state, request, job)), job, attempt)
    point = decide_resume(saves, wanted, all_suspects(state, project, job, wanted))
    waiting = sorted(save.id for save in saves if save.status is None)
    return {
        **result_of(job, attempt, point),
        "as_of": moment,
        "attempts": _attempts(state, project, job, saves),
        "saves": [_brief(save) for save in sorted(saves, key=lambda save: save.order, reverse=True)[:200]],
        "wanted": wanted.compatibility.model_dump(mode="json", exclude_defaults=True),
        "complete": not waiting,
        "missing": [{"id": f"{CHECKPOINT}:{one}", "reason": "its files are not checked yet"} for one in waiting],
    }


def _completed(state: State, request: Request, job: str) -> dict[str, Any]:
    """What the job itself would ask with, where the question does not say otherwise."""
    node = get(state, request.project, job_id(job))
    pinned = [one["pinned"] for one in shown(node, "inputs", []) if one["kind"] == "dataset"]
    own = {"datasets": pinned, "code_revision": shown(node, "code_revision")}
    given = request.args.get("compatibility") or {}
    return {**request.args, "compatibility": {**own, **given} if isinstance(given, dict) else given}


def _job(state: State, project: str, wanted: str) -> str:
    name = wanted.removeprefix(f"{JOB}:")
    if known(state, project, job_id(name)):
        return name
    latest = top(state, project, JOB, name)
    if latest is None:
        raise unknown(state, project, wanted, JOB)
    return f"{name}-{latest}"


def _with_foreign(state: State, project: str, saves: list[Save], named: object) -> list[Save]:
    """A checkpoint asked for by its id may be another job's: it can be judged all the same."""
    if not isinstance(named, str) or any(save.id == named for save in saves):
        return saves
    node = get(state, project, f"{CHECKPOINT}:{named.removeprefix(f'{CHECKPOINT}:')}")
    save = None if node is None else save_of(node)
    return saves if save is None else [*saves, save]


def _brief(save: Save) -> dict[str, Any]:
    return {
        "checkpoint": save.id,
        "step": save.step,
        "attempt": save.attempt,
        "status": save.status or "not verified",
        "uri": save.uri,
        "imported": save.imported,
    }


def _attempts(state: State, project: str, job: str, saves: list[Save]) -> list[dict[str, Any]]:
    """Two recoveries, apart: whether the process came back, and whether training went on."""
    found: list[dict[str, Any]] = []
    for number, attempt in attempts_of(state, project, job):
        node = get(state, project, attempt)
        decided = first_fact(node, "ResumeDecided")
        mine = [save.step for save in saves if save.attempt == number]
        before = [save.step for save in saves if save.attempt < number]
        resumed = None if decided is None else decided.values["resume_mode"] == "resume"
        if mine and before and min(mine) < (shown(node, "resume_step") or max(before)):
            resumed = False  # whatever was decided, its steps began again
        found.append(
            {
                "attempt": number,
                "restarted": number > 1 and first_fact(node, "AttemptStarted") is not None,
                "resumed": resumed,
                "from_step": shown(node, "resume_step"),
            }
        )
    return found
