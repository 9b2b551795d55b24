"""What the bridge does about an event when jobs run on Kubernetes. Pure; called by the runtime after the fold.

The gate and the verdict are those of every backend. There is no queue of ours:
Kueue's answers arrive as facts, and `follow` says what they mean for attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.v1 import jobs
from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.machine import Action, Deadline, Pending, Work
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain import announcements
from forebay.scheduler_bridge.domain.announcements import Decided
from forebay.scheduler_bridge.domain.attempts import judge_preflight
from forebay.scheduler_bridge.domain.cluster.documents import ClusterObject
from forebay.scheduler_bridge.domain.cluster.follow import follow
from forebay.scheduler_bridge.domain.cluster.gang import pods_to_end, used_up
from forebay.scheduler_bridge.domain.cluster.past_webhook import may_be_stopped
from forebay.scheduler_bridge.domain.cluster.patience import OVERDUE, Patience, due_at
from forebay.scheduler_bridge.domain.cluster.rules import ClusterSituation
from forebay.scheduler_bridge.domain.cluster.view import view_of
from forebay.scheduler_bridge.domain.cluster_review import Review, review
from forebay.scheduler_bridge.domain.decide import (
    announce_gate,
    announce_verdict,
    fail_at_gate,
    known_of,
    touched_by,
)
from forebay.scheduler_bridge.domain.documents import Job, place
from forebay.scheduler_bridge.domain.job_file import Problem
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.domain.readiness import assess
from forebay.scheduler_bridge.domain.verdict import Rule, Situation, judge

RECONCILE = "reconcile"
EVICT = "evict-pod"
SENTENCE = "write-sentence"
_MOVERS = (
    jobs.JobGated,
    jobs.JobGateOpened,
    jobs.JobCancelled,
    jobs.JobFailed,
    jobs.WorkloadEvicted,
)
"""After these the cluster may not be as the job's state wants it. What is submitted is gated, or not, at once."""
_SENTENCE_WAITS = timedelta(seconds=3)
"""A verdict changes only the sentence on the Job: what is gone again in a moment is not worth a write."""
_SETTLED = (jobs.VerdictChanged,)
"""They change no cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBridge:
    """The decisions of the Kubernetes backend."""

    rules: tuple[Rule, ...]
    sites: Mapping[str, Site]
    """The cluster as each project sees it, by project."""

    def decide(self, state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
        """Every action that follows from one event."""
        now = recorded.stored_at
        decided = Decided(pending)
        touched = list(touched_by(state, recorded))
        given: list[Action] = []
        for job in touched:
            given += self._gate(state, decided, job, now)
            view = view_of(state, job)
            given += follow(job, view, decided, now)
            given += (_evict(job, pod) for pod in pods_to_end(job, view))
            if isinstance(recorded.body, jobs.PreflightReported):
                given += judge_preflight(job, recorded.body)
            seen = isinstance(recorded.body, jobs.RuntimeFactRecorded)
            if isinstance(recorded.body, _MOVERS) or used_up(job) or (seen and may_be_stopped(job, view)):
                given.append(reconcile(job, recorded.event.id))
            elif isinstance(recorded.body, jobs.VerdictChanged):
                given.append(_write(job, recorded.event.id, now + _SENTENCE_WAITS))
        yield from given
        if isinstance(recorded.body, _SETTLED):
            return
        decided = Decided(pending, given)
        for job in touched:
            if not announcements.is_moving(job, decided):
                verdict = judge(self.situation(state, job, now), self.rules)
                changed = list(announce_verdict(decided, job, verdict))
                yield from changed
                due = due_at(verdict, self._patience(job.project)) if changed else None
                if due is not None and due > now:
                    yield Deadline(project=job.project, entity=job.id, condition=OVERDUE, at=due)

    def situation(self, state: State, job: Job, now: datetime) -> Situation:
        """What the rules look at, the cluster's objects included."""
        conditions = assess(known_of(state, job, None), now)
        return ClusterSituation(
            job=job,
            conditions=conditions,
            now=now,
            objects=view_of(state, job).witnesses,
            patience=self._patience(job.project),
        )

    def _patience(self, project: str) -> Patience:
        site = self.sites.get(project)
        if site is None:
            return Patience()
        return Patience(
            contradiction=timedelta(minutes=site.project.contradiction_minutes),
            node=timedelta(minutes=site.project.node_grace_minutes),
            rounds=site.project.requeue_rounds,
        )

    def review(self, spec: JobSpec, user: str) -> Review:
        """What the project may not do on this cluster, and what would lose work."""
        site = self.sites.get(spec.project)
        if site is None:
            message = (
                f"no project file names {spec.project!r}; an operator puts one into the bridge's folder of projects"
            )
            return Review(problems=(Problem(field="project", message=message),), warnings=())
        return review(spec, user=user, project=site.project)

    def _gate(self, state: State, decided: Decided, job: Job, now: datetime) -> Iterator[Action]:
        """Unlike on one machine, a job whose quota was taken back is gated again when its data has gone."""
        if not job.held_by_us:
            return
        held = any(item.holds for item in job.attempts) or announcements.pending_admission(job, decided) is not None
        if not held and not announcements.has_ended(job, decided):
            conditions = assess(known_of(state, job, None), now)
            yield from announce_gate(decided, job, conditions)
            yield from fail_at_gate(job, conditions)


def reconcile(job: Job, cause: str) -> Work:
    """Look at the job's objects and mend them; one item per cause, so that none is missed while one runs."""
    key = f"{job.key}/{cause}"
    return Work(kind=RECONCILE, key=key, project=job.project, payload={"job": job.id}, group=job.key)


def _write(job: Job, cause: str, not_before: datetime) -> Work:
    """Put the sentence of the verdict on the Job."""
    return Work(
        kind=SENTENCE,
        key=f"{job.key}/{cause}",
        project=job.project,
        payload={"job": job.id},
        not_before=not_before,
        group=job.key,
    )


def _evict(job: Job, pod: ClusterObject) -> Work:
    """End a pod whose gang cannot go on; once for each pod."""
    metadata = pod.body["metadata"]
    return Work(
        kind=EVICT,
        key=f"{place(job.project, job.id)}/{pod.uid}",
        project=job.project,
        payload={"job": job.id, "namespace": metadata.get("namespace"), "pod": metadata.get("name"), "uid": pod.uid},
    )
