"""Find the job that a person means: by id (`pick-7`) or by name (its newest run)."""

from __future__ import annotations

import difflib

from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.documents import Job, place


def text_argument(request: Request, name: str) -> str:
    """A required text argument of a question or command."""
    value = request.args.get(name)
    if not isinstance(value, str) or not value:
        raise Refused("bad-request", f"argument {name!r} is missing or not a text", f"send {{{name!r}: '…'}}")
    return value


def number_argument(request: Request, name: str, *, default: int, highest: int) -> int:
    """A whole number between 1 and `highest`."""
    value = request.args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        raise Refused("bad-request", f"argument {name!r} must be a whole number from 1 to {highest}, not {value!r}")
    return value


def jobs_of(state: State, project: str, *, after: str = "", limit: int = 100) -> list[Job]:
    """One page of a project's jobs, by id."""
    prefix = place(project, "")
    found = state.all(Job, after=prefix + after, limit=limit)
    return [job for job in found if job.key.startswith(prefix)]


def job_named(state: State, project: str, text: str) -> Job:
    """The job with this id, else the newest run of this name; raises `Refused` with what comes close."""
    job = state.get(Job, place(project, text))
    if job is not None:
        return job
    runs = state.find(Job, "named", place(project, text))
    if runs:
        return max(runs, key=lambda item: item.run)
    near = [item.id for item in jobs_of(state, project, limit=500)]
    close = difflib.get_close_matches(text, [*near, *{item.rpartition("-")[0] for item in near}], n=3)
    hint = f"; did you mean {' or '.join(sorted(close))}?" if close else ""
    raise Refused(
        "unknown-job",
        f"project {project} has no job {text!r}{hint}",
        "see them with `forebay jobs`",
        {"job": text, "close": sorted(close)},
    )
