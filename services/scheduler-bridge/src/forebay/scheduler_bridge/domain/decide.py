"""What the bridge does about an event: open or shut the gate, give quota, judge, end a job.

Pure; called by the runtime after the event is folded. `LocalBridge` carries the one
thing that is not in the log: what this machine has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import cache, datasets, jobs, models
from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.machine import Action, Emit, NothingPending, Pending, Work
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain import announcements, readiness
from forebay.scheduler_bridge.domain.amounts import Amount, asked_by
from forebay.scheduler_bridge.domain.announcements import Decided
from forebay.scheduler_bridge.domain.attempts import after_attempt, judge_preflight, start_after
from forebay.scheduler_bridge.domain.cluster_review import Review
from forebay.scheduler_bridge.domain.documents import Condition, Job, Plan, place
from forebay.scheduler_bridge.domain.local_limits import local_refusals, refuse_too_large
from forebay.scheduler_bridge.domain.queue import Applicant, Holder, QueueAnswer, Wait, serve
from forebay.scheduler_bridge.domain.readiness import GATE_FAILURES
from forebay.scheduler_bridge.domain.sentence import sentence
from forebay.scheduler_bridge.domain.verdict import Rule, Situation, cause_of, judge

_CACHE = (
    cache.CachePlanned,
    cache.CacheReady,
    cache.CachePartial,
    cache.CacheFailed,
    cache.CacheLost,
    cache.CacheEvicted,
)
_QUEUE_MOVES = (
    jobs.JobGated,
    jobs.JobGateOpened,
    jobs.AttemptEnded,
    jobs.JobSucceeded,
    jobs.JobFailed,
    jobs.JobCancelled,
)
_NO_VERDICT = (jobs.VerdictChanged, jobs.RuntimeFactRecorded)
"""They change no cause."""


def known_of(state: State, job: Job, total: Amount | None) -> readiness.Known:
    """Everything the readiness conditions of a job depend on."""
    plans = {}
    for plan_id in job.plans:
        plan = state.get(Plan, place(job.project, plan_id))
        if plan is not None:
            plans[plan.key] = plan
    return readiness.Known(job=job, plans=plans, total=total)


def queue_of(state: State, decided: Decided, total: Amount) -> tuple[QueueAnswer, dict[str, Job]]:
    """Ask the queue about everybody; also the jobs it speaks of, by key."""
    holders, applicants, by_key = [], [], {}
    for standing in ("holding", "between", "waiting"):
        for job in state.find(Job, "standing", standing):
            held = announcements.holds(job, decided)
            if held is not None:
                holders.append(Holder(key=job.key, amount=held[0], devices=held[1]))
            elif standing == "waiting" and _applies(job, decided):
                by_key[job.key] = job
                applicants.append(
                    Applicant(
                        key=job.key,
                        amount=asked_by(job.spec),
                        priority=int(job.spec.get("priority", 0)),
                        since=job.submitted_at,
                    )
                )
    return serve(total, holders, applicants), by_key


def _applies(job: Job, decided: Decided) -> bool:
    gate = announcements.gate_said(job, decided)
    return gate.gate == "open" and not announcements.has_ended(job, decided)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBridge:
    """The decisions of the local backend: what the machine has, and the rules that judge."""

    total: Amount
    rules: tuple[Rule, ...]

    def decide(self, state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
        """Every action that follows from one event."""
        now = recorded.stored_at
        decided = Decided(pending)
        touched = list(touched_by(state, recorded))
        given = [action for job in touched for action in self._gate(state, decided, job, now)]
        given += [action for job in touched for action in _attempt(decided, job, recorded.body, now)]
        if isinstance(recorded.body, _QUEUE_MOVES):
            given += self._queue(state, Decided(pending, given))
        yield from given
        if isinstance(recorded.body, _NO_VERDICT):
            return
        # A job about which something is decided is judged when that is on record.
        decided = Decided(pending, given)
        for job in touched:
            if not announcements.is_moving(job, decided):
                yield from self._verdict(state, decided, job, now)

    def _gate(self, state: State, decided: Decided, job: Job, now: datetime) -> Iterator[Action]:
        """A job that holds quota is never gated again, only flagged by its verdict."""
        if not (announcements.has_ended(job, decided) or job.attempts or announcements.holds(job, decided)):
            conditions = readiness.assess(known_of(state, job, self.total), now)
            yield from announce_gate(decided, job, conditions)
            yield from fail_at_gate(job, conditions)

    def _queue(self, state: State, decided: Decided) -> Iterator[Action]:
        answer, by_key = queue_of(state, decided, self.total)
        for admission in answer.admitted:
            job = by_key[admission.key]
            admitted = jobs.WorkloadAdmitted(
                job=job.id, attempt=1, resources=job.resources, devices=admission.devices, queue=job.request.queue
            )
            yield Emit(project=job.project, body=admitted, dedupe=(job.id, 1))
        for wait in answer.waiting:
            job = by_key[wait.key]
            said, generation = announcements.waiting_said(job, decided)
            if said == (wait.reason.value, wait.short):
                continue
            body = jobs.WorkloadPending(
                job=job.id,
                reason=wait.reason,
                message=wait.message,
                lacking=wait.lacking,
                generation=generation + 1,
            )
            yield Emit(project=job.project, body=body, dedupe=(job.id, body.generation))

    def _verdict(self, state: State, decided: Decided, job: Job, now: datetime) -> Iterator[Action]:
        conditions = readiness.assess(known_of(state, job, self.total), now)
        yield from announce_verdict(decided, job, judge(Situation(job=job, conditions=conditions, now=now), self.rules))

    def situation(self, state: State, job: Job, now: datetime) -> Situation:
        """With the queue's answer of this moment."""
        conditions = readiness.assess(known_of(state, job, self.total), now)
        return Situation(job=job, conditions=conditions, now=now, wait=self._wait(state, job))

    def _wait(self, state: State, job: Job) -> Wait | None:
        if job.standing != "waiting":
            return None
        answer, _ = queue_of(state, Decided(NothingPending()), self.total)
        return next((wait for wait in answer.waiting if wait.key == job.key), None)

    def review(self, spec: JobSpec, user: str) -> Review:  # noqa: ARG002 every user may do the same here
        """What only a cluster has, and what is larger than this machine."""
        problems = tuple(local_refusals(spec))
        if not problems:
            refuse_too_large(spec, self.total)
        return Review(problems=problems, warnings=())


def announce_gate(decided: Decided, job: Job, conditions: tuple[Condition, ...]) -> Iterator[Action]:
    """Announce a changed answer of the conditions."""
    said = announcements.gate_said(job, decided)
    ready = readiness.is_ready(conditions)
    if ready and said.gate == "open":
        return
    if not ready and said.gate == "shut" and said.answer == readiness.answer(conditions):
        return
    kind = jobs.JobGateOpened if ready else jobs.JobGated
    body = kind(job=job.id, conditions=readiness.announced(conditions), generation=said.generation + 1)
    yield Emit(project=job.project, body=body, dedupe=(job.id, body.generation))


def fail_at_gate(job: Job, conditions: tuple[Condition, ...]) -> Iterator[Action]:
    """A job that can never run, because the versions that it is pinned to never change, does not wait for ever."""
    never = next((item for item in conditions if item.status == "False" and item.reason in GATE_FAILURES), None)
    if never is not None:
        body = jobs.JobFailed(job=job.id, reason=Reason(never.reason), message=never.message, attempts=0)
        yield Emit(project=job.project, body=body, dedupe=(job.id,))


def announce_verdict(decided: Decided, job: Job, verdict: jobs.Verdict) -> Iterator[Action]:
    """Announce a verdict whose cause has changed."""
    said, generation = announcements.verdict_said(job, decided)
    if cause_of(said) == cause_of(verdict.model_dump(mode="json", exclude_none=True)):
        return
    told = sentence(job, verdict.model_dump(mode="json", exclude_none=True))
    body = jobs.VerdictChanged(job=job.id, verdict=verdict, generation=generation + 1, sentence=told)
    yield Emit(project=job.project, body=body, dedupe=(job.id, body.generation))


def touched_by(state: State, recorded: Recorded[EventBody]) -> Iterator[Job]:
    """The jobs whose answer an event may change."""
    body, project = recorded.body, recorded.project
    if isinstance(body, datasets.DatasetTagged | datasets.DatasetUntagged):
        yield from state.find(Job, "pinned", place(project, f"dataset/{body.dataset}"))
        return
    if isinstance(body, models.DeadlinePassed):
        job = state.get(Job, place(project, body.entity)) if body.part == Part.BRIDGE.value else None
        if job is not None and job.terminal is None:
            yield job
        return
    keys: dict[str, Job] = {}
    if isinstance(body, _CACHE):
        keys = {job.key: job for job in state.find(Job, "planned", place(project, body.plan))}
    job_id = getattr(body, "job", None)
    job = state.get(Job, place(project, job_id)) if isinstance(job_id, str) else None
    if job is not None:
        keys[job.key] = job
    yield from keys.values()


def _attempt(decided: Decided, job: Job, body: EventBody, now: datetime) -> Iterator[Action]:
    """What follows for the job's attempt."""
    match body:
        case jobs.WorkloadAdmitted(attempt=number):
            yield Work(
                kind="attempt",
                key=f"{place(job.project, job.id)}/{number}",
                project=job.project,
                payload={"job": job.id, "attempt": number},
                not_before=start_after(job, number, now),
            )
        case jobs.PreflightReported():
            yield from judge_preflight(job, body)
        case jobs.AttemptEnded() if not announcements.has_ended(job, decided):
            yield from after_attempt(job, body)
        case _:
            pass
