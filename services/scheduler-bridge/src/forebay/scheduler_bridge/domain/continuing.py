"""A job that continues an earlier one: what that one left, and the request of its successor. Pure.

The registry decides from which checkpoint training goes on; here it is only known
whether there are any, so that nobody starts at step 0 without knowing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forebay.contracts.identifiers import parse_logical_name
from forebay.contracts.v1.jobs import JobSpec
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain.documents import Job, place

CHECKPOINT_ID = "ck-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Legacy:
    """The checkpoints that a job and the jobs that it continued have left."""

    count: int
    step: int | None
    """The furthest one."""
    job: str

    def __str__(self) -> str:
        plural = "" if self.count == 1 else "s"
        return f"{self.count} checkpoint{plural}, the furthest at step {self.step}" if self.count else "no checkpoint"


def job_continued(spec: JobSpec) -> str | None:
    """The job that a request continues; None: it continues none, or a single checkpoint."""
    start = spec.restart.start_from
    return None if start is None or start.startswith(CHECKPOINT_ID) else start


def jobs_continued(state: State, job: Job) -> Iterator[Job]:
    """The job, the one that it continues, and so on."""
    seen: set[str] = set()
    one: Job | None = job
    while one is not None and one.id not in seen:
        seen.add(one.id)
        yield one
        earlier = job_continued(one.request)
        one = state.get(Job, place(job.project, earlier)) if earlier else None


def legacy_of(state: State, job: Job) -> Legacy:
    """What could be continued after this job."""
    steps = [save for one in jobs_continued(state, job) for save in one.saved_steps]
    return Legacy(count=len(steps), step=max(steps, default=None), job=job.id)


def continued(state: State, job: Job) -> JobSpec:
    """The same request once more, from the newest run's checkpoints that has any, with the versions that it was pinned to."""
    start = next((one.id for one in jobs_continued(state, job) if one.saved_steps), job.id)
    pins = {str(parse_logical_name(item.logical, kind=item.kind)): item.number for item in job.lease.inputs}
    spec = job.request

    def version(kind: str, name: str, own: int | None) -> int | None:
        return pins.get(str(parse_logical_name(name, kind=kind)), own)

    return spec.model_copy(
        update={
            "restart": spec.restart.model_copy(update={"start_from": start}),
            "datasets": tuple(
                item.model_copy(update={"version": version("dataset", item.name, item.version)})
                for item in spec.datasets
            ),
            "models": tuple(
                item.model_copy(update={"version": version("model", item.name, item.version)}) for item in spec.models
            ),
        }
    )
