"""How long a state may last that should pass by itself, and how often a job may be queued again in vain. Pure.

A contradiction between objects, or a node that does not answer, often resolves within
minutes. After that nothing resolves it by itself: the advice changes and says so. A job
that is given quota and loses it again and again is held, so that others get the quota.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from forebay.contracts.reasons import Layer, Reason
from forebay.contracts.v1.jobs import Verdict
from forebay.scheduler_bridge.domain.documents import Attempt, Job
from forebay.scheduler_bridge.domain.kubernetes.diagnosis import Diagnosis
from forebay.scheduler_bridge.domain.kubernetes.facts import Object, condition, moment, name_of
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


_PRESENT = re.compile(r"node-not-ready|old-pod|pinned-to-node|admitted-and-evicted|mount-pod|mount-dead")
"""Rules about a state that lasts. Others tell of an end: it is past, and does not age."""


def due_at(verdict: Verdict, patience: Patience) -> datetime | None:
    """When a verdict must be judged again even if nothing happens."""
    limit = patience.limit(verdict.cause) if _PRESENT.search(verdict.rule) else None
    return None if limit is None else verdict.since + limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """What the time that a state has lasted changes about a verdict."""

    said: str
    """Put behind the sentence; "" while it may still pass."""
    next_action: str

    @property
    def overdue(self) -> bool:
        return bool(self.said)


def age_of(found: Verdict, now: datetime, patience: Patience, again: str) -> Age | None:
    """How a verdict ages; None: it does not. `again`: how the job is started once more."""
    cause, next_action, since = found.cause, found.next_action, found.since
    limit = patience.limit(cause)
    if limit is None or not _PRESENT.search(found.rule):
        return None
    until = since + limit
    if now < until:
        if cause == Reason.NODE_LOST:
            wait = f"no action needed before {until:%H:%M:%S}: the node may come back; after that: {next_action}"
            return Age(said="", next_action=wait)
        return None
    minutes = f"{limit.total_seconds() / 60:g} minutes"
    said = f"it has been so since {since:%H:%M:%S}, for more than {minutes}, and does not pass by itself"
    return Age(said=said, next_action=f"{_STEP_IN[cause]} {again}; {_WAITING.sub('', next_action)}")


_WAITING = re.compile(r"^(?:nothing if [^;]*; else |wait until [^;]*; )")
"""Advice to wait, in front of other advice."""
_GIVE_UP = (
    "give the node up: make sure that it is off, then delete it or taint it node.kubernetes.io/out-of-service, which"
)
_GIVE_UP += " releases its pods; or"
_STEP_IN = {
    Reason.NODE_LOST: _GIVE_UP,
    Reason.OLD_POD_NOT_CONFIRMED_DEAD: "find out on its node whether the old pod is dead, since two must never write at once; or",
    Reason.MOUNT_LOST: "repair the mount and start the job again, since a running process does not get it back:",
    Reason.CONTRADICTORY: "an operator must look at both objects; or",
}


def aged(verdict: Verdict, situation: Situation, patience: Patience) -> Verdict:
    """The same verdict, with its deadline while it may still pass, and with other advice when it has not."""
    job = situation.job.id
    again = f"`forebay cancel {job}`, then `forebay retry {job}` continues it from its last checkpoint"
    age = age_of(verdict, situation.now, patience, again)
    if age is None:
        return verdict
    overdue = {"message": f"{verdict.message}; {age.said}", "rule": f"{verdict.rule}+{OVERDUE}"} if age.overdue else {}
    return verdict.model_copy(update={"next_action": age.next_action, **overdue})


_OF_NODES = frozenset({Reason.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD})


def _heartbeat(node: str | None, objects: Sequence[Object]) -> datetime | None:
    """When a node that is not ready was last heard."""
    for item in objects:
        if item.get("kind") == "Node" and name_of(item) == node:
            ready = condition(item, "Ready") or {}
            return moment(ready.get("lastHeartbeatTime")) if ready.get("status") != "True" else None
    return None


def aged_diagnosis(found: Diagnosis, now: datetime, objects: Sequence[Object] = ()) -> Diagnosis:
    """The same for objects out of a file, by the default policy, with the last heartbeat of a node that does not answer."""
    beat = _heartbeat(found.where, objects) if found.reason in _OF_NODES else None
    if beat is not None and beat <= now:
        minutes = int((now - beat).total_seconds() // 60)
        said = f"its last heartbeat was at {beat:%H:%M:%S}, {minutes} min before"
        found = replace(found, sentence=f"{found.sentence}; {said}")
    again = "stop the job and start it again from its last checkpoint"
    age = age_of(found.verdict(), now, Patience(), again)
    if age is None:
        return found
    found = replace(found, next_action=age.next_action)
    if not age.overdue:
        return found
    return replace(found, sentence=f"{found.sentence}; {age.said}", rule=f"{found.rule}+{OVERDUE}")


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
