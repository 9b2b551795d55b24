"""Documents of the Kubernetes backend: each object of a job as last seen, and what binds pods to attempts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from forebay.runtime.documents import Document
from forebay.scheduler_bridge.domain.documents import place


class ClusterObject(Document, frozen=True, kw_only=True):
    """One object of a cluster as it was last seen for one job; `body` is trimmed and masked."""

    kind: ClassVar[str] = "cluster-object"
    indexed: ClassVar[tuple[str, ...]] = ("of", "live")
    project: str
    job: str
    uid: str
    body: dict[str, Any]
    digest: str
    gone: bool = False
    """It was deleted; `body` is its last state."""
    unseen: str = ""
    """... while nobody watched: between when and when."""
    at: datetime
    event: str

    @property
    def key(self) -> str:
        return f"{self.project}/{self.job}/{self.uid}"

    @property
    def of(self) -> str:
        return place(self.project, self.job)

    @property
    def live(self) -> str | None:
        """Index: what exists, by kind, so that what went unseen is noticed by the next list."""
        return None if self.gone else self.type

    @property
    def type(self) -> str:
        return str(self.body.get("kind", ""))


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The API server would not take the Job; its own words."""

    reason: str
    message: str
    event: str


class Carrier(Document, frozen=True, kw_only=True):
    """What carries a job on the cluster: its Job object, and which pod is which attempt."""

    kind: ClassVar[str] = "carrier"
    project: str
    job: str
    uid: str | None = None
    """Of the Job object; once known, no other object is ever created for this job."""
    workload: str | None = None
    """Name of Kueue's newest Workload of it."""
    pods: dict[str, int] = msgspec.field(default_factory=dict)
    """Pod uid -> attempt, for the pods of every rank."""
    refusal: Refusal | None = None
    """The newest answer to an attempt to make the Job, while there is no Job."""

    @property
    def key(self) -> str:
        return place(self.project, self.job)


CLUSTER_DOCUMENTS: tuple[type[Document], ...] = (ClusterObject, Carrier)
