"""Uploads and episodes: what collectors say, and the verdict that ingest gives on each episode."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from forebay.contracts.body import EventBody, FileRef, Value
from forebay.contracts.identifiers import Id, Name


class UploadStarted(EventBody):
    """A collector begins to deliver files; says what to expect, so that a missing part is seen."""

    event: ClassVar[str] = "UploadStarted"
    upload: Id
    dataset: Name
    source_ref: str
    """The name or path at the collector, as the collector wrote it."""
    source_format: Literal["lerobot-v3.0", "lerobot-v2.1", "lerobot-v2.0", "unknown"]
    landing_uri: str
    """Folder where the files arrive; ingest reads there and nowhere else."""
    expected_episodes: int = Field(ge=0)
    expected_files: int = Field(ge=0)
    expected_bytes: int = Field(ge=0)
    source_revision: str | None = None
    collection_request: str | None = Field(default=None, max_length=16_384)
    """What was ordered, as JSON text; ingest compares the result with it."""
    replaces: bool | None = None
    """True: its version holds exactly this folder, instead of adding to the version before."""


class RowWindow(Value):
    """Rows `[start, stop)` of one data file."""

    file: str
    start: int = Field(ge=0)
    stop: int = Field(ge=0)


class TimeWindow(Value):
    """Seconds `[start, stop)` of one video file, for one camera."""

    camera: str
    file: str
    start: float
    stop: float


class EpisodeUploaded(EventBody):
    """One episode's files have arrived whole; says where in them it lies."""

    event: ClassVar[str] = "EpisodeUploaded"
    episode: Id
    """Stable id, made of project, dataset, upload and source index; never reused."""
    upload: Id
    dataset: Name
    source_index: int = Field(ge=0)
    length: int
    tasks: tuple[str, ...] = ()
    rows: RowWindow
    videos: tuple[TimeWindow, ...] = ()
    robot: str | None = None


class UploadFinished(EventBody):
    """All files are there. The manifest lists each with its digest; ingest checks before it believes."""

    event: ClassVar[str] = "UploadFinished"
    upload: Id
    dataset: Name
    episodes: int = Field(ge=0)
    files: int = Field(ge=0)
    bytes: int = Field(ge=0)
    manifest: FileRef
    """JSON: `{"files": [{"path", "sha256", "bytes"}]}` under the landing folder."""


class Finding(Value):
    """One broken rule: which, where, what was expected and what was found."""

    rule: str
    severity: Literal["error", "hold", "warning", "info"]
    message: str
    episode: int | None = None
    """Source index of the episode; None when the finding is about the whole dataset."""
    feature: str | None = None
    file: str | None = None
    frame: int | None = None
    """Frame within the episode, or row within the file where no episode is known."""
    expected: str | None = None
    found: str | None = None


class EpisodeContent(Value):
    """What the files hold of one episode."""

    tasks: tuple[str, ...] = ()
    rows: RowWindow
    videos: tuple[TimeWindow, ...] = ()
    robot: str | None = None


class EpisodeAccepted(EventBody):
    """The episode may enter a dataset version."""

    event: ClassVar[str] = "EpisodeAccepted"
    episode: Id
    upload: Id
    dataset: Name
    source_index: int
    length: int
    rules_version: str
    tasks: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()
    sha256: str | None = None
    """Digest of the episode's rows, so that the same recording is recognised again."""
    as_read: EpisodeContent | None = None
    """What the files hold, when the collector claimed something else in EpisodeUploaded; it counts instead."""
    same_as: Id | None = None
    """An episode of the dataset with these very rows, when the upload replaces others: versions list this one under that id."""


class EpisodeHeld(EventBody):
    """The episode waits for a person: kept, in no version."""

    event: ClassVar[str] = "EpisodeHeld"
    episode: Id
    upload: Id
    dataset: Name
    source_index: int
    length: int
    rules_version: str
    findings: tuple[Finding, ...]
    tasks: tuple[str, ...] | None = None
    """As EpisodeAccepted has them, for when it is accepted after all; so the digest of its rows."""
    sha256: str | None = None
    as_read: EpisodeContent | None = None
    """As EpisodeAccepted has it."""


class EpisodeRejected(EventBody):
    """The episode stays where it was, untouched, with its findings."""

    event: ClassVar[str] = "EpisodeRejected"
    episode: Id
    upload: Id
    dataset: Name
    source_index: int
    length: int
    rules_version: str
    findings: tuple[Finding, ...]
    report: FileRef | None = None
    as_read: EpisodeContent | None = None
    """As EpisodeAccepted has it."""


class EpisodeWithdrawn(EventBody):
    """The episode must not be used any more; models that it reached are found through lineage."""

    event: ClassVar[str] = "EpisodeWithdrawn"
    episode: Id
    dataset: Name
    reason: str
    by: str


class WaiverRevoked(EventBody):
    """A waiver no longer holds: later verdicts are given without it. Verdicts that it led to stay."""

    event: ClassVar[str] = "WaiverRevoked"
    dataset: Name
    number: int = Field(ge=1)
    """Which waiver of the dataset, counted from 1 in the order of the log."""
    rule: str
    reason: str
    by: str


class RuleWaived(EventBody):
    """A person took responsibility for ignoring a rule on named episodes."""

    event: ClassVar[str] = "RuleWaived"
    dataset: Name
    rule: str
    episodes: tuple[Id, ...] = ()
    """Empty: the whole dataset."""
    reason: str
    by: str
    until: AwareDatetime | None = None
