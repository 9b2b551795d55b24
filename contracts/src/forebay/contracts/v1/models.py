"""Checkpoints, resume decisions, model versions, evaluations and releases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from forebay.contracts.body import EventBody, Value
from forebay.contracts.identifiers import Id, Name, Sha256, content_digest

Channel = Literal["candidate", "canary", "production", "retired"]


class CheckpointFile(Value):
    """One file of a checkpoint, path relative to the checkpoint's folder."""

    path: str
    sha256: Sha256
    bytes: int = Field(ge=0)


def checkpoint_digest(files: Iterable[CheckpointFile]) -> str:
    """The identity of a save: over the sorted paths, digests and sizes of its files."""
    return content_digest(sorted([file.path, file.sha256, file.bytes] for file in files))


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
    version: ClassVar[int] = 2
    """2 stands under its job's key, so that the bus can hold an attempt to its own job."""
    checkpoint: Id
    """Made of job, attempt, step and file digests: an overwrite in place is another checkpoint."""
    job: Id
    attempt: int = Field(ge=1)
    step: int = Field(ge=0)
    uri: str
    files: tuple[CheckpointFile, ...]
    digest: Sha256
    """`checkpoint_digest(files)`."""
    compatibility: Compatibility = Compatibility()
    metrics: dict[str, float] = Field(default_factory=dict)


class CheckpointVerified(EventBody):
    """The files were checked: header arithmetic and digests, without loading tensors."""

    event: ClassVar[str] = "CheckpointVerified"
    checkpoint: Id
    job: Id
    attempt: int
    step: int
    status: Literal["complete", "inexact", "weights-only", "incomplete", "corrupt", "missing"]
    """`inexact`: resumable, but the scheduler or the random state is not there. `incomplete`: an
    unfinished save (marked in progress, or optimizer state without a step)."""
    findings: tuple[str, ...] = ()


class CheckpointImported(EventBody):
    """A save of training that Forebay did not see was brought in by a person; what is unknown is named."""

    event: ClassVar[str] = "CheckpointImported"
    checkpoint: Id
    job: Id
    """A job of Forebay that it belongs to, or the name of an old run that exists only by imports."""
    run: Name | None = None
    """Set for an old run: this event is then all that is known about `job`."""
    step: int = Field(ge=0)
    uri: str
    source: str
    """Where the files lay before."""
    files: tuple[CheckpointFile, ...]
    digest: Sha256
    """`checkpoint_digest(files)`."""
    compatibility: Compatibility = Compatibility()
    unknown: tuple[str, ...] = ()
    """Parts of `compatibility` that nobody could say."""
    use: Literal["warm-start", "resume"] = "warm-start"
    reason: str | None = None
    """Why a resume from it is right; required for `resume`."""
    by: str


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


class ModelFilesKept(EventBody):
    """The files of a model version are in the model store, verified; they outlive the folder that they were copied from."""

    event: ClassVar[str] = "ModelFilesKept"
    model: Name
    number: int = Field(ge=1)
    artefact_sha256: Sha256
    store: str
    """Folder of the store; a file lies there under the first two digits of its sha256 and its whole sha256."""
    files: tuple[CheckpointFile, ...]
    bytes: int = Field(ge=0)
    added_bytes: int = Field(ge=0)
    """What the store did not hold before."""


class ModelFilesChecked(EventBody):
    """The files of a model version were looked at, every byte: for a release, or because keeping them failed."""

    event: ClassVar[str] = "ModelFilesChecked"
    model: Name
    number: int = Field(ge=1)
    artefact_sha256: Sha256
    check: Id
    """Which request it answers."""
    status: Literal["whole", "changed", "missing"]
    findings: tuple[str, ...] = ()


class CheckpointDeleted(EventBody):
    """A person had the files of a save deleted; what is known about it stays. Decided before a file is touched."""

    event: ClassVar[str] = "CheckpointDeleted"
    checkpoint: Id
    job: Id
    attempt: int = Field(ge=0)
    step: int = Field(ge=0)
    uri: str
    bytes: int = Field(ge=0)
    reason: str
    by: str


class JobFilesDeleted(EventBody):
    """A person had the files of a job deleted: its saves, output and logs; what is known about it stays."""

    event: ClassVar[str] = "JobFilesDeleted"
    job: Id
    checkpoints: int = Field(ge=0)
    """Saves that were deleted with it; each has its own CheckpointDeleted."""
    reason: str
    by: str


class EvaluationEvidence(Value):
    """Where the metrics of an evaluation come from."""

    kind: Literal["job", "file", "typed"]
    """`job`: a file that a job of Forebay wrote; `file`: any other file; `typed`: given by hand."""
    file: str | None = None
    sha256: Sha256 | None = None
    job: Id | None = None
    typed: tuple[str, ...] = ()
    """Metrics that were given by hand beside the file."""


class EvaluationRecorded(EventBody):
    """Metrics of exactly one artefact."""

    event: ClassVar[str] = "EvaluationRecorded"
    evaluation: Id
    model: Name
    number: int
    artefact_sha256: Sha256
    metrics: dict[str, float]
    source: str
    """File or tool the metrics came from, in the words of whoever recorded them."""
    evidence: EvaluationEvidence | None = None
    """None: recorded before sources were kept; counts as typed by hand."""
    by: str


class GateResult(Value):
    """One rule of a release gate and what it found."""

    metric: str
    rule: str
    """As a person reads it: `>= 0.8`, or `>= production - 0.02`."""
    found: float | None = None
    needed: float | None = None
    passed: bool
    message: str


class PolicyRule(Value):
    """One metric and its bound; with `compared_with` the bound is added to that channel's own value."""

    metric: str
    at_least: float | None = None
    at_most: float | None = None
    compared_with: Literal["candidate", "canary", "production"] | None = None


class ReleasePolicySet(EventBody):
    """From now on a channel takes only versions that meet these rules; without rules, it asks for none."""

    event: ClassVar[str] = "ReleasePolicySet"
    channel: Channel
    model: Name | None = None
    """The model it holds for; None: every model of the project. Both hold where both are set."""
    rules: tuple[PolicyRule, ...] = ()
    evidence: Literal["file", "job"] | None = None
    """What an evaluation must come from at least; None: numbers typed by hand will do."""
    number: int = Field(ge=1)
    """How many times this policy has been set, this one included: its order, without any clock."""
    reason: str
    by: str


class ModelReleased(EventBody):
    """A channel points at a model version from now on."""

    event: ClassVar[str] = "ModelReleased"
    model: Name
    number: int
    channel: Channel
    artefact_sha256: Sha256
    previous: int | None = None
    move: int | None = Field(default=None, ge=1)
    """How many times this channel has been moved, this one included: its order, without any clock."""
    evaluation: Id | None = None
    forced_reason: str | None = None
    gate: tuple[GateResult, ...] | None = None
    """What the policy found, failed rules included when the release was forced."""
    policy_sha256: str | None = None
    by: str


class ModelRolledBack(EventBody):
    """A channel points back at what it named before."""

    event: ClassVar[str] = "ModelRolledBack"
    model: Name
    channel: Channel
    from_number: int
    to_number: int
    move: int | None = Field(default=None, ge=1)
    """Counted together with the channel's releases."""
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
