"""Dataset versions, tags and the leases that keep a version alive while a job needs it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from forebay.contracts.body import EventBody, FileRef, Value
from forebay.contracts.identifiers import Id, Name, Sha256
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.episodes import Finding

MANIFEST_FILE = "forebay-manifest.json"
"""In a version's root: canonical JSON `{"files": [{"path", "sha256", "bytes"}]}` of every other file
of the version, sorted by path. Its own SHA-256 is the version's `manifest_sha256`, so a reader can
check what it sees without asking anybody. Of files that were registered in place it also has `mtime_ns`;
of objects on S3 it has `etag` instead of `sha256`."""


EPISODE_LISTS = "records/episodes"
"""Folder in the pool: the episode list of every version, `<sha256>.json`. Lists belong to the record and outlive the
versions: nothing deletes them, because the log refers to them for ever."""


class DatasetVersionCommitted(EventBody):
    """A version exists, was read back and compared bit by bit, and will not change."""

    event: ClassVar[str] = "DatasetVersionCommitted"
    dataset: Name
    number: int = Field(ge=1)
    root: str
    """The version's own folder (or URI): `meta/`, `frames.lance`, `videos.lance`, `meta.lance`."""
    access_plan: Literal["A", "B", "C"]
    """A LeRobot files on a mount, B Lance on object storage, C Lance on a mount (DESIGN section 6)."""
    format: str
    tables: dict[str, int] = Field(default_factory=dict)
    """The version vector: Lance version of each table."""
    episodes: FileRef
    """JSON: `{"episodes": [{"episode": id, "index": dense index, "length", "upload", "source_index"}]}`."""
    episode_count: int = Field(ge=0)
    frame_count: int = Field(ge=0)
    bytes: int = Field(ge=0)
    manifest_sha256: Sha256
    """Digest over every file of the version; a job's preflight compares it."""
    checksums: FileRef
    uploads: tuple[Id, ...] = ()
    parent: int | None = None
    parent_reason: str | None = None
    filter: str | None = None
    source_ref: str | None = None
    source_revision: str | None = None
    rules_version: str
    source_name: str | None = None
    """The name as the owner wrote it, when it was no id."""
    left_out: dict[Id, tuple[tuple[int, int], ...]] | None = None
    """Upload -> source indices `[first, last]` of accepted episodes that this version does not hold; None: it holds all."""
    derivation: Id | None = None
    """The request that this version answers, when a person asked for it."""
    withheld: str | None = None
    """Why `train-ready` does not move to it by itself; None: it does."""
    carried: tuple[str, ...] | None = None
    """Files below meta/ that were taken over byte for byte; the first 100, all of them are in the episode list."""
    notes: tuple[str, ...] | None = None
    """What was left out or is not as it was in the sources, in sentences."""


class DatasetDerivationRequested(EventBody):
    """A person asked for a version with fewer episodes; it is written when its turn comes."""

    event: ClassVar[str] = "DatasetDerivationRequested"
    derivation: Id
    dataset: Name
    base: int = Field(ge=1)
    """The version it starts from."""
    left_out: dict[Id, tuple[tuple[int, int], ...]]
    """Everything that the new version shall not hold, what the base lacks included."""
    filter: str
    """What was asked for, in words."""
    rewrite: bool = False
    """Encode videos anew, so that the pixels of episodes left out are gone."""
    crf: int | None = Field(default=None, ge=0, le=51)
    """Quality of videos that are encoded anew; lower is better."""
    by: str
    reason: str


class DatasetDerivationFailed(EventBody):
    """The version that a person asked for cannot be written; nothing was left behind."""

    event: ClassVar[str] = "DatasetDerivationFailed"
    derivation: Id
    dataset: Name
    message: str


class DatasetRegistrationRequested(EventBody):
    """A person asked for a version of data that stays where it lies; it is validated there, and nothing is copied."""

    event: ClassVar[str] = "DatasetRegistrationRequested"
    registration: Id
    dataset: Name
    uri: str
    """A folder, or `s3://bucket/prefix`."""
    endpoint: str | None = None
    """URL of the S3 server; keys never travel in events."""
    revision: str | None = None
    """Revision at the source, as the person named it."""
    by: str


class DatasetRegistrationFailed(EventBody):
    """The data cannot be registered: it is not good enough, cannot be read, or changed meanwhile."""

    event: ClassVar[str] = "DatasetRegistrationFailed"
    registration: Id
    dataset: Name
    message: str
    outcome: str | None = None
    """What validation said, when it came to that."""
    findings: tuple[Finding, ...] = ()
    """The worst of them; the report has all."""
    report: FileRef | None = None


class DatasetVersionChecked(EventBody):
    """A version's root was opened and compared with what was committed."""

    event: ClassVar[str] = "DatasetVersionChecked"
    dataset: Name
    number: int = Field(ge=1)
    check: Id
    whole: bool
    reason: Reason | None = None
    message: str | None = None
    """What is wrong, and with which file."""


class DatasetVersionRemoved(EventBody):
    """A version that nobody uses may not be leased any more; its files are deleted after this."""

    event: ClassVar[str] = "DatasetVersionRemoved"
    dataset: Name
    number: int = Field(ge=1)
    by: str
    reason: str


class DatasetVersionPlaced(EventBody):
    """A version lies in a second place now, file by file the same, or could not be put there."""

    event: ClassVar[str] = "DatasetVersionPlaced"
    dataset: Name
    number: int = Field(ge=1)
    placing: Id
    """The request that this answers."""
    access_plan: Literal["A", "B", "C"]
    """How it can be read from there."""
    root: str
    manifest_sha256: Sha256
    bytes: int = Field(default=0, ge=0)
    by: str
    problem: str | None = None
    """Why it is not there; None: every file was read back and compared."""


class DatasetTagged(EventBody):
    """A tag names a version from now on. Jobs pinned before keep theirs."""

    event: ClassVar[str] = "DatasetTagged"
    dataset: Name
    tag: Name
    number: int
    previous: int | None = None
    by: str
    reason: str | None = None
    forced: bool | None = None
    """True: it was moved without naming the version that it pointed at before; the reason says why."""


class DatasetUntagged(EventBody):
    """The tag no longer names that version, and jobs that pinned it through the tag are held again."""

    event: ClassVar[str] = "DatasetUntagged"
    dataset: Name
    tag: Name
    number: int
    by: str
    reason: str | None = None


class PinnedInput(Value):
    """One input of a job, resolved once and never again."""

    kind: Literal["dataset", "model"]
    logical: str
    """As the job wrote it: `dataset:pick-place@train-ready`."""
    name: Name
    number: int
    root: str
    access_plan: Literal["A", "B", "C"] = "C"
    manifest_sha256: Sha256
    columns: tuple[str, ...] = ()
    """Empty: every column."""
    episodes: tuple[int, int] | None = None
    """Dense indices `[first, last)`; None: every episode."""
    episode_count: int | None = None
    bytes: int | None = None


class LeaseGranted(EventBody):
    """Every input of the job is resolved, accepted and protected from clean-up."""

    event: ClassVar[str] = "LeaseGranted"
    job: Id
    inputs: tuple[PinnedInput, ...]


class LeaseRefused(EventBody):
    """At least one input is not there yet (the job waits) or never will be (say so)."""

    event: ClassVar[str] = "LeaseRefused"
    job: Id
    input: str
    reason: Reason
    message: str
    permanent: bool = False


class LeaseReleased(EventBody):
    """The job has ended; its versions may be cleaned up when nobody else holds them."""

    event: ClassVar[str] = "LeaseReleased"
    job: Id
    reason: str
