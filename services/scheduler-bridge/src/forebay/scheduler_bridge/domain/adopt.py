"""An annotated Job that somebody applied becomes a job of ours when it is seen on the cluster. Pure.

The webhook gave it a gate, our containers and an id; one that came while the webhook was
away has none of these, runs as its owner wrote it, and is said to. Called by `workers/observe.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forebay.contracts.identifiers import ID_PATTERN
from forebay.contracts.v1.jobs import AppliedObject, JobSpec, JobSubmitted
from forebay.runtime.machine import Emit
from forebay.runtime.state import State
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.admission import site_of
from forebay.scheduler_bridge.domain.applied import MARK, NotInstrumentableError, described, job_id, name_of
from forebay.scheduler_bridge.domain.documents import Job, place
from forebay.scheduler_bridge.domain.gate import gates_of
from forebay.scheduler_bridge.domain.kubernetes.facts import is_true, uid_of
from forebay.scheduler_bridge.domain.manifest import Site
from forebay.scheduler_bridge.domain.specification import spec_digest

Json = dict[str, Any]
NOBODY = "unknown (kubectl apply)"
"""Who submitted a Job that the webhook has not seen."""
_MARKED = re.compile(rf"(?=.{{3,63}}$){ID_PATTERN}-[0-9a-f]{{{MARK}}}")
_TEXT = 1_000
"""Of annotations, which may be as long as whoever writes them likes."""


class AnotherJobError(ValueError):
    """The id that a Job carries belongs to another one: this one is a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A Job object as a job of ours, but for the number of its run."""

    project: str
    body: JobSubmitted
    ended: bool
    """It was over when it was first seen: nothing is left to follow."""

    @property
    def uid(self) -> str:
        return self.body.applied.uid if self.body.applied else ""


def adoption_of(item: Mapping[str, Any], sites: Mapping[str, Site]) -> Adoption | None:
    """What an annotated Job says; None when it is none, already ours, or of no project."""
    metadata = item["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if layout.DATASET_ANNOTATION not in annotations or labels.get(layout.MANAGED_BY) == "forebay":
        return None
    try:
        site = site_of(item, str(metadata.get("namespace") or ""), sites)
        name = name_of(item)
    except NotInstrumentableError:
        return None  # there is no project, or no name, under which anything could be said
    uid, problem = uid_of(item), None
    known = _marked(labels, annotations)
    try:
        spec = described(item, user="", site=site, mark="").spec
    except NotInstrumentableError as error:
        spec, problem = JobSpec(name=name, project=site.project.project, command=("as-applied",)), str(error)[:_TEXT]
    body = JobSubmitted(
        job=known or job_id(name, uid[:MARK]),
        run=1,
        spec=spec,
        spec_sha256=spec_digest(spec),
        submitted_by=(str(annotations.get(layout.OWNER, "")) if known else "")[:_TEXT] or NOBODY,
        applied=AppliedObject(name=str(metadata["name"]), uid=uid, gated=_is_gated(item, known), problem=problem),
    )
    return Adoption(project=site.project.project, body=body, ended=is_true(item, "Complete") or is_true(item, "Failed"))


def _marked(labels: Mapping[str, Any], annotations: Mapping[str, Any]) -> str | None:
    """The id that the webhook gave it, which its pods carry too."""
    text = str(labels.get(layout.JOB_LABEL) or "")
    return text if layout.INSTRUMENTED in annotations and _MARKED.fullmatch(text) else None


def _is_gated(item: Mapping[str, Any], known: str | None) -> bool:
    """Our name holds it back, or the webhook had it wait without Kueue."""
    if layout.GATE in gates_of(item["metadata"]):
        return True
    if known is None:
        return False
    started = bool((item.get("status") or {}).get("startTime"))
    return layout.KUEUE_QUEUE not in (item["metadata"].get("labels") or {}) and not started


def submission(state: State, found: Adoption) -> Emit | None:
    """What goes on record about it, with the number of its run; None when it is there. Raises `AnotherJobError`."""
    body = found.body
    known = state.get(Job, place(found.project, body.job))
    if known is not None:
        if known.applied is None or known.applied.uid != found.uid:
            msg = f"Job {body.applied and body.applied.name} carries the marks of {body.job}, of which it is a copy"
            raise AnotherJobError(msg)
        return None
    runs = [job.run for job in state.find(Job, "named", place(found.project, body.spec.name))]
    numbered = body.model_copy(update={"run": max(runs, default=0) + 1})
    return Emit(project=found.project, body=numbered, dedupe=("applied", found.uid))
