"""Checkpoints, resume decisions, model versions, evaluations and releases."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from forebay.contracts.body import EventBody, Value
from forebay.contracts.identifiers import Id, Name, Sha256

Channel = Literal["candidate", "canary", "production", "retired"]


class CheckpointFile(Value):
    """One file of a checkpoint, path relative to the checkpoint's folder."""

    path: str
    sha256: Sha256
    bytes: int = Field(ge=0)


class Compatibility(Value):
    """What a checkpoint was made with; a resume needs the same, or says what differs."""

    datasets: tuple[str, ...] = ()
    """Pinned inputs, `dataset:<name>@v<number>`."""
    code_revision: str | None = None
    parameters_sha256: str | None = None
    optimizer: bool = False
    scheduler: bool = False
    rng: bool = False


class CheckpointWritten(EventBody):
    """The agent saw a complete save of the training process."""

    event: ClassVar[str] = "CheckpointWritten"
    checkpoint: Id
    """Made of job, attempt, step and file digests: an overwrite in place is another checkpoint."""
    job: Id
    attempt: int = Field(ge=1)
    step: int = Field(ge=0)
    uri: str
    files: tuple[CheckpointFile, ...]
    digest: Sha256
    """Over paths and file digests."""
    compatibility: Compatibility = Compatibility()
    metrics: dict[str, float] = Field(default_factory=dict)


class CheckpointVerified(EventBody):
    """The files were checked: header arithmetic and digests, without loading tensors."""

    event: ClassVar[str] = "CheckpointVerified"
    checkpoint: Id
    job: Id
    attempt: int
    step: int
    status: Literal["complete", "inexact", "weights-only", "corrupt", "missing"]
    findings: tuple[str, ...] = ()


class SkippedCheckpoint(Value):
    """A checkpoint the resume decision passed over, and why."""

    checkpoint: str
    step: int
    reason: str


class ResumeDecided(EventBody):
    """From where an attempt continues: training recovery, apart from process recovery."""

    event: ClassVar[str] = "ResumeDecided"
    job: Id
    attempt: int
    mode: Literal["cold", "resume", "warm-start", "refused"]
    checkpoint: Id | None = None
    step: int | None = None
    uri: str | None = None
    reasons: tuple[str, ...]
    skipped: tuple[SkippedCheckpoint, ...] = ()


class ModelVersionRegistered(EventBody):
    """A checkpoint became a model version; identities are copied so that they outlive their source."""

    event: ClassVar[str] = "ModelVersionRegistered"
    model: Name
    number: int = Field(ge=1)
    job: Id
    attempt: int
    checkpoint: Id
    step: int
    uri: str
    artefact_sha256: Sha256
    """The checkpoint's digest; evaluations and releases are bound to it."""
    datasets: tuple[str, ...] = ()
    base_models: tuple[str, ...] = ()
    by: str


class EvaluationRecorded(EventBody):
    """Metrics of exactly one artefact."""

    event: ClassVar[str] = "EvaluationRecorded"
    evaluation: Id
    model: Name
    number: int
    artefact_sha256: Sha256
    metrics: dict[str, float]
    source: str
    """File or tool the metrics came from."""
    by: str


class ModelReleased(EventBody):
    """A channel points at a model version from now on."""

    event: ClassVar[str] = "ModelReleased"
    model: Name
    number: int
    channel: Channel
    artefact_sha256: Sha256
    previous: int | None = None
    evaluation: Id | None = None
    forced_reason: str | None = None
    by: str


class ModelRolledBack(EventBody):
    """A channel points back at what it named before."""

    event: ClassVar[str] = "ModelRolledBack"
    model: Name
    channel: Channel
    from_number: int
    to_number: int
    reason: str
    by: str


class LineageContradictionFound(EventBody):
    """Two facts that cannot both be true and will not resolve themselves."""

    event: ClassVar[str] = "LineageContradictionFound"
    contradiction: Id
    code: str
    subject: str
    """The node it is about, e.g. `checkpoint:…`."""
    values: tuple[Any, ...] = ()
    events: tuple[str, ...] = ()
    message: str


class DeadlinePassed(EventBody):
    """A service's own alarm clock: it decides on this, not on a wall clock."""

    event: ClassVar[str] = "DeadlinePassed"
    part: Id
    entity: str
    condition: str
    deadline: AwareDatetime
