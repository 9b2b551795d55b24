"""The business state machine: CREATED, QUEUED, RUNNING, then one of three ends that nothing leaves.

The state is derived from a job's facts, not from the last message, so attempt
events in any order end in the same state. Runtime facts never set it directly.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from forebay.contracts.reasons import Condition as ConditionType
from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.documents import Attempt, Condition, Job, Span

_ORDER = tuple(item.value for item in ConditionType)


class Standing(NamedTuple):
    """Where a job stands: its state, what it is queued for, and the layer whose time is running."""

    state: str
    queued_for: Layer | None
    clock: Layer | None


def dominant(conditions: tuple[Condition, ...]) -> Condition | None:
    """The condition that decides why a gate is shut: a request that cannot be met, then data in its own order."""
    shut = [condition for condition in conditions if condition.status != "True"]
    if not shut:
        return None

    def rank(condition: Condition) -> tuple[bool, bool, int]:
        is_request = condition.type == ConditionType.REQUEST_VALID and condition.status == "False"
        return (not is_request, condition.status != "False", _ORDER.index(condition.type))

    return min(shut, key=rank)


def gate_layer(conditions: tuple[Condition, ...]) -> Layer:
    """Which layer owns the wait before the gate."""
    cause = dominant(conditions)
    if cause is None or cause.reason == Reason.NOT_EVALUATED_YET:
        return Layer.NOT_EVALUATED
    return Layer.CONFIG if cause.type == ConditionType.REQUEST_VALID else Layer.DATA


def standing(job: Job) -> Standing:
    """The state that a job's facts amount to."""
    if job.terminal is not None:
        return Standing(job.terminal.state, None, None)
    if job.last is not None:
        return _attempting(job, job.last)
    if job.gate == "unset":
        return Standing("CREATED", None, Layer.NOT_EVALUATED)
    layer = (_seen_layer(job) or Layer.QUOTA) if job.gate == "open" else gate_layer(job.conditions)
    return Standing("QUEUED", layer, layer)


def _attempting(job: Job, last: Attempt) -> Standing:
    """With quota held: RUNNING once the checks have passed and the command runs, and then until the end."""
    if last.evicted is not None and last.ending is not None:
        # Its quota was taken back: it queues again, as a job that has run before.
        layer = _seen_layer(job) or Layer.QUOTA
        return Standing("QUEUED", layer, layer)
    if not last.has_run and not any(attempt.has_run for attempt in _since_eviction(job)):
        layer = _seen_layer(job) or Layer.PREFLIGHT
        return Standing("QUEUED", layer, layer)
    if (doubt := _nobody_runs(job)) is not None:
        return Standing("QUEUED", doubt, doubt)
    # An attempt rebuilt under the same quota is a recovery of a running job, not a new wait in a queue.
    return Standing("RUNNING", None, Layer.PREFLIGHT if last.state == "PREFLIGHT" else None)


def _since_eviction(job: Job) -> tuple[Attempt, ...]:
    """The attempts under the quota that is held now."""
    evicted = [attempt.number for attempt in job.attempts if attempt.evicted is not None]
    return tuple(attempt for attempt in job.attempts if attempt.number > max(evicted, default=0))


_IN_DOUBT = frozenset({Reason.NODE_LOST, Reason.OLD_POD_NOT_CONFIRMED_DEAD, Reason.CONTRADICTORY})


def _nobody_runs(job: Job) -> Layer | None:
    """The layer that a job on a cluster waits in while nobody can say that its processes run; None: they do."""
    verdict = job.verdict or {}
    if not job.on_cluster or verdict.get("cause") not in _IN_DOUBT:
        return None
    return _seen_layer(job) or Layer.NODE


_WAITING = frozenset(Layer) - {Layer.DATA, Layer.PROCESS, Layer.NONE}


def _seen_layer(job: Job) -> Layer | None:
    """On a cluster, the layer that the last verdict found; which it is, is not in the job's own facts."""
    layer = (job.verdict or {}).get("layer") if job.on_cluster else None
    return Layer(layer) if layer in _WAITING else None


def recovering(job: Job) -> bool:
    """The job has run before, keeps its quota, and its next attempt is not running yet."""
    return job.state == "RUNNING" and job.last is not None and job.last.state == "PREFLIGHT"


def settle(job: Job, now: datetime) -> Job:
    """Store the derived state, and stop and start the clocks of the layers."""
    found = standing(job)
    return msgspec.structs.replace(
        job, state=found.state, queued_for=found.queued_for, spans=_clocked(job.spans, found.clock, now)
    )


def _clocked(spans: tuple[Span, ...], layer: Layer | None, now: datetime) -> tuple[Span, ...]:
    last = spans[-1] if spans else None
    running = last.layer if last is not None and last.until is None else None
    if running == layer:
        return spans
    if last is not None and running is not None:
        spans = (*spans[:-1], msgspec.structs.replace(last, until=max(last.since, now)))
    if layer is None:
        return spans
    return (*spans, Span(layer=layer.value, since=now))


def waited(job: Job, now: datetime) -> dict[str, float]:
    """Seconds of waiting per layer, up to `now`; never negative."""
    totals: dict[str, float] = {}
    for span in job.spans:
        seconds = max(0.0, ((span.until or now) - span.since).total_seconds())
        totals[span.layer] = totals.get(span.layer, 0.0) + seconds
    return totals
