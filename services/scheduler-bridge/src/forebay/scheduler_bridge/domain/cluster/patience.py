"""How long a state may last that should pass by itself, and how often a job may be queued again in vain. Pure.

A contradiction between objects, or a node that does not answer, often resolves within
minutes. After that nothing resolves it by itself: the advice changes and says so. A job
that is given quota and loses it again and again is held, so that others get the quota.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.contracts.v1.jobs import Verdict
from forebay.scheduler_bridge.domain.documents import Attempt, Job
from forebay.scheduler_bridge.domain.verdict import Situation

OVERDUE = "overdue"
"""Condition of the deadline after which a verdict is judged again."""
_LOOP_FROM = 3
"""So many rounds in vain make a loop worth naming."""


_NO_FAULT = frozenset({"Preempted"})
"""Reasons for which no job is held: it would have started, had it been let."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The policy of one project."""

    contradiction: timedelta = timedelta(minutes=5)
    node: timedelta = timedelta(minutes=10)
    rounds: int = 5
    """Rounds in vain after which a job is held; 0: never."""

    def limit(self, cause: str) -> timedelta | None:
        """How long a verdict of this cause may last; None: as long as it likes."""
        if cause in {Reason.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD}:
            return self.node
        return self.contradiction if cause in {Reason.CONTRADICTORY, Reason.MOUNT_LOST} else None


def due_at(verdict: Verdict, patience: Patience) -> datetime | None:
    """When a verdict must be judged again even if nothing happens."""
    limit = patience.limit(verdict.cause)
    return None if limit is None else verdict.since + limit


def aged(verdict: Verdict, situation: Situation, patience: Patience) -> Verdict:
    """The same verdict, with its deadline while it may still pass, and with other advice when it has not."""
    limit = patience.limit(verdict.cause)
    if limit is None:
        return verdict
    minutes, until = f"{limit.total_seconds() / 60:g} minutes", verdict.since + limit
    if situation.now < until:
        if verdict.cause != Reason.NODE_LOST:
            return verdict
        action = f"no action needed before {until:%H:%M:%S}: the node may come back; after that: {verdict.next_action}"
        return verdict.model_copy(update={"next_action": action})
    said = f"it has been so since {verdict.since:%H:%M:%S}, for more than {minutes}, and does not pass by itself"
    return verdict.model_copy(
        update={
            "message": f"{verdict.message}; {said}",
            "next_action": _overdue_action(verdict, situation.job),
            "rule": f"{verdict.rule}+overdue",
        }
    )


def _overdue_action(verdict: Verdict, job: Job) -> str:
    again = f"`forebay cancel {job.id}`, then `forebay retry {job.id}` continues it from its last checkpoint"
    node = verdict.where or "the node"
    if verdict.cause in {Reason.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD}:
        return (
            f"make sure that {node} is off, then delete the node object or taint it"
            f" node.kubernetes.io/out-of-service: its pods are released and the job continues elsewhere; or {again}"
        )
    if verdict.cause == Reason.MOUNT_LOST:
        return f"repair the mount on {node}; a running process does not get it back: {again}"
    return f"give an operator the objects under evidence; {again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Rounds in which a job got quota and lost it before its command ran."""

    rounds: int
    reason: str
    """The most frequent one, in the words of whoever took the quota back."""
    of_reason: int
    cause: str
    """What kept its pods from starting, as it was known before the last eviction."""
    since: datetime
    events: tuple[str, ...]

    def __str__(self) -> str:
        times = f"{self.of_reason} times for reason {self.reason}"
        if self.of_reason < self.rounds:
            times = f"{self.rounds} times, {self.of_reason} of them for reason {self.reason}"
        return f"requeue loop: {times}" + (f", cause: {self.cause}" if self.cause else "")


def loop_of(job: Job) -> Loop | None:
    """The rounds since the command last ran; None: it does not go round in circles."""
    rounds: list[Attempt] = []
    for attempt in reversed(job.attempts):
        if attempt.has_run or attempt.start is not None:
            break
        if attempt.evicted is not None:
            rounds.append(attempt)
    evictions = [one.evicted for one in reversed(rounds) if one.evicted is not None]
    if len(evictions) < _LOOP_FROM:
        return None
    reason, of_reason = Counter(one.reason for one in evictions).most_common(1)[0]
    cause = next((one.cause for one in reversed(evictions) if one.cause), "")
    return Loop(
        rounds=len(evictions),
        reason=reason,
        of_reason=of_reason,
        cause=cause,
        since=evictions[0].at,
        events=tuple(one.event for one in evictions),
    )


def is_held(job: Job, rounds: int) -> bool:
    """Its loop has used up the project's patience: it is kept out of the queue."""
    loop = loop_of(job) if rounds else None
    return loop is not None and loop.rounds >= rounds and loop.reason not in _NO_FAULT


def judge_loop(situation: Situation, patience: Patience, rule: str) -> Verdict | None:
    """A loop is named with its count and cause, before and after the job is held."""
    job = situation.job
    loop = loop_of(job) if job.terminal is None else None
    if loop is None:
        return None
    held = is_held(job, patience.rounds) and job.held_by_us
    left = patience.rounds - loop.rounds
    message, action = str(loop), "fix the cause, or change what the job asks for"
    if held:
        message += "; the job is held, and its quota was given back"
        action = f"fix the cause, then run `forebay cancel {job.id}` and `forebay retry {job.id}`"
    elif patience.rounds and job.held_by_us and left > 0:
        action += f"; after {left} more round{'' if left == 1 else 's'} the job is held and gives its quota back"
    return Verdict(
        layer=Layer.QUOTA,
        cause=Reason.REQUEUE_LOOP,
        message=message,
        have=f"{loop.rounds} rounds",
        need=f"at most {patience.rounds} rounds" if held else f"round {loop.rounds + 1}",
        since=loop.since,
        evidence=loop.events,
        next_action=action,
        rule=rule,
    )
