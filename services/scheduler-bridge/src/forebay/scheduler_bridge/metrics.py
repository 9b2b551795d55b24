"""What operators measure about jobs: where they waited, which conditions shut gates, how soon a verdict follows a fact.

Fed with every event that the bridge decides on; a rebuild decides nothing, so it counts
nothing. The runtime serves them on /metrics beside its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime

from prometheus_client import Counter, Histogram

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1 import jobs
from forebay.runtime.machine import Action, Decide, Pending
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.decide import touched_by
from forebay.scheduler_bridge.domain.documents import Job

_MINUTE, _HOUR = 60, 3600
WAITED = Histogram(
    "forebay_job_wait_seconds",
    "Time that a job waited in one layer, when that wait ended",
    ["layer"],
    buckets=(1, 10, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, 24 * _HOUR, 72 * _HOUR),
)
GATES = Counter(
    "forebay_gates_shut", "Readiness conditions that did not hold when a gate was shut", ["condition", "reason"]
)
JUDGED = Histogram(
    "forebay_verdict_seconds",
    "Time from a fact about a cluster to the stored verdict that follows from it",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, _MINUTE),
)
_KEPT = 4096
"""Facts whose verdict may still come."""


class Measured:
    """A backend's decisions, with what they say about time measured on the way."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._facts: OrderedDict[str, datetime] = OrderedDict()

    def __call__(self, state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
        # All that may have to be loaded first comes before anything is counted: until it is there this runs again.
        actions = tuple(self._decide(state, pending, recorded))
        waits = [wait for job in touched_by(state, recorded) for wait in _ended_waits(job, recorded.stored_at)]
        for layer, seconds in waits:
            WAITED.labels(layer).observe(seconds)
        match recorded.body:
            case jobs.JobGated(conditions=conditions):
                for condition in conditions:
                    if condition.status != "True":
                        GATES.labels(condition.type.value, condition.reason.value).inc()
            case jobs.VerdictChanged() if (said := self._fact_behind(recorded)) is not None:
                JUDGED.observe(max(0.0, (recorded.stored_at - said).total_seconds()))
            case _:
                self._remember(recorded)
        return actions

    def _remember(self, recorded: Recorded[EventBody]) -> None:
        """When the fact was said that an event is, or follows from: a verdict may come only after several events."""
        fact = isinstance(recorded.body, jobs.RuntimeFactRecorded)
        said = recorded.event.time if fact else self._fact_behind(recorded)
        if said is not None:
            self._facts[recorded.identity] = said
            while len(self._facts) > _KEPT:
                self._facts.popitem(last=False)

    def _fact_behind(self, recorded: Recorded[EventBody]) -> datetime | None:
        return self._facts.get(recorded.event.causation or "")


def _ended_waits(job: Job, now: datetime) -> Iterable[tuple[str, float]]:
    """(layer, seconds) of the wait that this very moment has ended."""
    for span in job.spans[-2:]:
        if span.until == now:
            yield span.layer, (span.until - span.since).total_seconds()
