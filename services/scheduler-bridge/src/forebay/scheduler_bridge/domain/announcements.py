"""What the bridge has already said about a job: the folded answer, or a newer one that is on its way.

Every decision compares with this, so nothing is announced twice while the first
announcement is still in the outbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from forebay.contracts.body import EventBody
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Action, Emit, Pending
from forebay.scheduler_bridge.domain.amounts import Amount, amount_of
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.readiness import Answer, answer

B = TypeVar("B", bound=EventBody)
_TERMINAL: tuple[type[EventBody], ...] = (jobs.JobSucceeded, jobs.JobFailed, jobs.JobCancelled)
_MOVES: tuple[type[EventBody], ...] = (
    *_TERMINAL,
    jobs.JobGated,
    jobs.JobGateOpened,
    jobs.WorkloadPending,
    jobs.WorkloadAdmitted,
    jobs.PreflightPassed,
    jobs.PreflightFailed,
)


class Decided:
    """Own events that are decided but not folded, by job; `more` adds what this very decision has given."""

    def __init__(self, pending: Pending, more: Iterable[Action] = ()) -> None:
        self._pending = pending
        self._more = [action for action in more if isinstance(action, Emit)]
        self._by_job: dict[tuple[type[EventBody], str], dict[str, list[EventBody]]] = {}

    def of(self, kind: type[B], job: Job) -> list[B]:
        place = (kind, job.project)
        if place not in self._by_job:
            grouped: dict[str, list[EventBody]] = {}
            self._by_job[place] = grouped
            added = [emit.body for emit in self._more if emit.project == job.project and isinstance(emit.body, kind)]
            for body in [*self._pending.of(kind, job.project), *added]:
                grouped.setdefault(str(getattr(body, "job", "")), []).append(body)
        return cast("list[B]", self._by_job[place].get(job.id, []))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSaid:
    gate: str
    generation: int
    answer: Answer


def gate_said(job: Job, decided: Decided) -> GateSaid:
    """The newest announcement about the gate."""
    newest = GateSaid(gate=job.gate, generation=job.gate_generation, answer=answer(job.conditions))
    said: list[jobs.JobGated | jobs.JobGateOpened] = [
        *decided.of(jobs.JobGated, job),
        *decided.of(jobs.JobGateOpened, job),
    ]
    for body in said:
        if body.generation > newest.generation:
            newest = GateSaid(
                gate="open" if isinstance(body, jobs.JobGateOpened) else "shut",
                generation=body.generation,
                answer=tuple((item.type.value, item.status, item.reason.value) for item in body.conditions),
            )
    return newest


def waiting_said(job: Job, decided: Decided) -> tuple[tuple[str, tuple[str, ...]] | None, int]:
    """The queue's newest answer (reason and what lacks) and its generation."""
    said = (job.waiting.reason, job.waiting.lacking) if job.waiting else None
    generation = job.waiting_generation
    for body in decided.of(jobs.WorkloadPending, job):
        if body.generation > generation:
            said = (body.reason.value, tuple(item.resource for item in body.lacking))
            generation = body.generation
    return said, generation


def verdict_said(job: Job, decided: Decided) -> tuple[dict[str, Any] | None, int]:
    """The newest announced verdict and its generation."""
    said, generation = job.verdict, job.verdict_generation
    for body in decided.of(jobs.VerdictChanged, job):
        if body.generation > generation:
            said, generation = body.verdict.model_dump(mode="json", exclude_none=True), body.generation
    return said, generation


def has_ended(job: Job, decided: Decided) -> bool:
    """The job's end is on record or decided."""
    return job.terminal is not None or any(decided.of(kind, job) for kind in _TERMINAL)


def is_moving(job: Job, decided: Decided) -> bool:
    """Something that changes the job's state is decided but not on record yet."""
    return any(decided.of(kind, job) for kind in _MOVES)


def pending_admission(job: Job, decided: Decided) -> jobs.WorkloadAdmitted | None:
    """An admission that is decided but not folded yet."""
    known = max((item.number for item in job.attempts if item.admitted_at is not None), default=0)
    for body in decided.of(jobs.WorkloadAdmitted, job):
        if body.attempt > known:
            return body
    return None


def holds(job: Job, decided: Decided) -> tuple[Amount, tuple[str, ...]] | None:
    """What a job holds, its decided admission included; None when it holds nothing."""
    admission = pending_admission(job, decided)
    if admission is not None:
        return amount_of(admission.resources), admission.devices
    for attempt in job.attempts:
        if attempt.holds:
            resources = jobs.Resources.model_validate(attempt.resources or {})
            return amount_of(resources), attempt.devices
    return None
