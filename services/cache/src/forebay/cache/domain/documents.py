"""The cache's state: which plans exist, which jobs lease them, and how warm they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from forebay.runtime.documents import Document

PLANNED, PARTIAL, READY, LOST, FAILED, EVICTED = "planned", "partial", "ready", "lost", "failed", "evicted"
HOLDING_ROOM = (PLANNED, PARTIAL, READY, LOST)
"""States in which a leased plan has a claim on cache space."""


def place(project: str, key: str) -> str:
    """The key of a document: ids are unique within a project."""
    return f"{project}/{key}"


class Plan(Document, frozen=True, kw_only=True):
    """One read plan of one version. Jobs with equal plans share it, and its one warm-up."""

    kind: ClassVar[str] = "plan"
    indexed: ClassVar[tuple[str, ...]] = ("state",)

    project: str
    id: str
    digest: str
    name: str
    number: int
    root: str
    columns: tuple[str, ...]
    files: int
    total_bytes: int
    aligned_bytes: int
    whole_bytes: int
    ranges_uri: str
    ranges_sha256: str
    jobs: tuple[str, ...] = ()
    """Unfinished jobs that lease it."""
    state: str = PLANNED
    generation: int = 0
    """How often warmth was lost or refused; each generation can be ready, lost and failed once."""
    verified_bytes: int = 0
    origin_bytes: int = 0
    place: str | None = None
    adapter: str | None = None
    proof: str | None = None
    cannot_prove: str | None = None
    reason: str | None = None
    message: str | None = None
    since: datetime

    @property
    def key(self) -> str:
        return place(self.project, self.id)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why an input of a job has no plan."""

    plan: str
    name: str
    number: int
    reason: str
    message: str


class Job(Document, frozen=True, kw_only=True):
    """A job as far as the cache cares: its pinned inputs and their plans."""

    kind: ClassVar[str] = "job"

    project: str
    id: str
    inputs: tuple[dict[str, Any], ...]
    """`PinnedInput` as it stood in the lease."""
    plans: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    released: bool = False

    @property
    def key(self) -> str:
        return place(self.project, self.id)


DOCUMENTS: tuple[type[Document], ...] = (Plan, Job)
