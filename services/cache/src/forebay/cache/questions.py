"""Answers: which plans exist, and how warm one of them is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forebay.cache.domain.documents import Job, Plan, place
from forebay.cache.domain.wording import show_bytes, show_share
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State

PAGE = 100
_MANY = 1000


def plans(state: State, request: Request) -> dict[str, Any]:
    """One page of a project's plans, by id; `next` is the `after` of the following page."""
    limit = max(1, min(int(request.args.get("limit", PAGE)), _MANY))
    first = place(request.project, str(request.args.get("after", "")))
    page = state.all(Plan, after=first, limit=limit)
    found = [plan for plan in page if plan.project == request.project]
    more = len(found) == limit
    return {"plans": [_show(plan) for plan in found], "next": found[-1].id if more else None}


def plan(state: State, request: Request) -> dict[str, Any]:
    """One plan by its id, or every plan of a job (`name-run`)."""
    wanted_plan, wanted_job = request.args.get("plan"), request.args.get("job")
    if wanted_job:
        return _of_job(state, request.project, str(wanted_job))
    if not wanted_plan:
        raise Refused("bad-request", "name a plan or a job", "ask with {'plan': ID} or {'job': NAME-RUN}")
    found = state.get(Plan, place(request.project, str(wanted_plan)))
    if found is None:
        raise Refused(
            "plan-unknown",
            f"no plan {wanted_plan!r} in project {request.project}",
            "list them with the question 'plans'",
        )
    return _show(found)


def _of_job(state: State, project: str, job_id: str) -> dict[str, Any]:
    job = state.get(Job, place(project, job_id))
    if job is None:
        known = [one.id for one in state.all(Job, after=place(project, ""), limit=_MANY) if one.project == project]
        close = difflib.get_close_matches(job_id, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "it has no lease yet; see: forebay why JOB"
        raise Refused("job-unknown", f"the cache knows no job {job_id!r} in project {project}", hint)
    found = (state.get(Plan, place(project, plan_id)) for plan_id in job.plans)
    return {
        "job": job.id,
        "inputs": len(job.inputs),
        "released": job.released,
        "plans": [_show(one) for one in found if one is not None],
        "refusals": [msgspec.to_builtins(one) for one in job.refusals],
    }


def _show(found: Plan) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(found)
    verified, total = show_share(found.verified_bytes, found.total_bytes), show_bytes(found.total_bytes)
    saved = show_share(found.total_bytes, found.whole_bytes)
    shown["summary"] = f"{found.state}: {verified} of {total} verified; the plan is {saved} of the version"
    return shown


QUESTIONS: Mapping[str, Callable[[State, Request], dict[str, Any]]] = {"plans": plans, "plan": plan}
