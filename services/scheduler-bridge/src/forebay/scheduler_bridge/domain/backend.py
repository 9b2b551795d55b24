"""What commands and questions need from whichever backend carries the jobs: this machine, or a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.machine import Action, Pending
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.cluster_review import Review
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.domain.verdict import Rule, Situation


class Backend(Protocol):
    """One way to carry jobs. Pure."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The verdict's rules."""
        ...

    def decide(self, state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
        """Every action that follows from one event."""
        ...

    def situation(self, state: State, job: Job, now: datetime) -> Situation:
        """What the rules look at when somebody asks."""
        ...

    def review(self, spec: JobSpec, user: str) -> Review:
        """What this backend would not do with a job, and what its owner should know before."""
        ...
