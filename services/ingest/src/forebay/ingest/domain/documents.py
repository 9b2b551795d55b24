"""What ingest remembers: uploads, episodes, datasets, versions, tags, leases and the models it has heard of."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

import msgspec

from forebay.ingest.domain.verdict_values import Content, Told
from forebay.runtime.documents import Document


def place(project: str, name: str) -> str:
    """Keys of one project lie together, so that they can be paged."""
    return f"{project}/{name}"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Where an upload's list of files lies."""

    uri: str
    sha256: str
    bytes: int


class Upload(Document, frozen=True, kw_only=True):
    """One delivery of files into one dataset."""

    kind: ClassVar[str] = "upload"
    indexed: ClassVar[tuple[str, ...]] = ("dataset_key",)

    project: str
    id: str
    dataset: str
    source_ref: str = ""
    source_revision: str | None = None
    landing_uri: str = ""
    request: str | None = None
    """What was ordered, as JSON text."""
    expected_episodes: int = 0
    replaces: bool = False
    """Its version holds exactly its folder, instead of adding to the version before."""
    state: str = "ARRIVING"
    """ARRIVING, WAITING (for another upload of the dataset), VALIDATING, CONVERTING, COMMITTED, REFUSED."""
    uploaded: int = 0
    highest: int = -1
    """Highest source index that was heard of."""
    announced: int | None = None
    """Episodes that UploadFinished counted; None until it came."""
    manifest: Manifest | None = None
    accepted: int = 0
    held: int = 0
    rejected: int = 0
    version: int | None = None
    """The version that holds its accepted episodes, or will."""
    returning: int = 0
    """Held episodes whose acceptance is on its way, because their holds were waived."""
    late: tuple[int, ...] = ()
    """Source indices accepted after its first version, that the next one adds."""

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def dataset_key(self) -> str:
        return place(self.project, self.dataset)

    @property
    def judged(self) -> int:
        return self.accepted + self.held + self.rejected

    @property
    def complete(self) -> bool:
        """Everything that was announced has been heard of."""
        return self.announced is not None and self.uploaded >= self.announced


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that a person takes the responsibility for."""

    rule: str
    episodes: tuple[str, ...] = ()
    """Ids; empty: the whole dataset."""
    reason: str
    by: str
    until: datetime | None = None
    at: datetime | None = None
    """When the log stored it."""
    revoked: str | None = None
    """Why it no longer holds."""
    revoked_by: str | None = None
    revoked_at: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Whether verdicts of this moment are given with it."""
        return self.revoked is None and (self.until is None or now < self.until)


class Waivers(Document, frozen=True, kw_only=True):
    """Every waiver on a dataset, oldest first; its number is its place, counted from 1."""

    kind: ClassVar[str] = "waivers"

    project: str
    dataset: str
    all: tuple[Waiver, ...] = ()

    @property
    def key(self) -> str:
        return place(self.project, self.dataset)

    def of(self, rule: str, episode: str, now: datetime | None = None) -> Waiver | None:
        """The newest waiver of a rule for an episode; with `now`, one that still holds."""
        for waiver in reversed(self.all):
            valid = now is None or waiver.holds(now)
            if waiver.rule == rule and valid and (not waiver.episodes or episode in waiver.episodes):
                return waiver
        return None


class Episode(Document, frozen=True, kw_only=True):
    """One episode and its verdict."""

    kind: ClassVar[str] = "episode"
    indexed: ClassVar[tuple[str, ...]] = ("upload_key", "same_as_key")

    project: str
    id: str
    upload: str
    dataset: str
    source_index: int
    length: int
    tasks: tuple[str, ...] = ()
    state: str = "UPLOADED"
    """UPLOADED, ACCEPTED, HELD, REJECTED, WITHDRAWN."""
    rules_version: str | None = None
    rules: tuple[str, ...] = ()
    """Rules that its verdict names, worst first."""
    message: str | None = None
    """The first finding in words."""
    sha256: str | None = None
    """Digest of its rows."""
    same_as: str | None = None
    """An earlier episode with the same rows, whose id versions list it under."""
    accepted: bool = False
    """Its verdict was good, whatever became of it since: versions of that time hold it."""
    withdrawn: str | None = None
    """Why it must not be used any more."""
    withdrawn_by: str | None = None
    findings: tuple[Told, ...] = ()
    """While it is held: what its verdict found, to be judged again when a rule is waived."""
    freed: bool = False
    """Every hold on it is waived; its good verdict is on the way."""
    claimed: Content | None = None
    """Until it is judged: what its collector says, to be compared with the files."""
    as_read: Content | None = None
    """While it is held: what the files say, when the collector claimed something else."""

    @property
    def holds(self) -> tuple[str, ...]:
        """Rules that hold it."""
        return tuple(dict.fromkeys(told.rule for told in self.findings if told.severity == "hold"))

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def upload_key(self) -> str:
        return place(self.project, self.upload)

    @property
    def same_as_key(self) -> str | None:
        return None if self.same_as is None else place(self.project, self.same_as)

    @property
    def listed_id(self) -> str:
        """The id that versions list it under."""
        return self.same_as or self.id


class Recording(Document, frozen=True, kw_only=True):
    """Which accepted episode of a dataset has these very rows."""

    kind: ClassVar[str] = "recording"

    project: str
    dataset: str
    sha256: str
    episode: str

    @property
    def key(self) -> str:
        return recording_key(self.project, self.dataset, self.sha256)


def recording_key(project: str, dataset: str, sha256: str) -> str:
    return f"{project}/{dataset}/{sha256}"


class Dataset(Document, frozen=True, kw_only=True):
    """A name that versions are committed under."""

    kind: ClassVar[str] = "dataset"

    project: str
    name: str
    latest: int = 0
    """Highest committed version number."""
    trunk: int = 0
    """The version that the next upload adds to: the newest of an upload, or what `train-ready` was moved to since."""
    active: str | None = None
    """The upload or derivation that is being worked on: one at a time, so that versions follow each other."""
    waiting: tuple[str, ...] = ()
    """Complete uploads and derivations that come after it, oldest first."""

    @property
    def key(self) -> str:
        return place(self.project, self.name)


class Version(Document, frozen=True, kw_only=True):
    """One committed version."""

    kind: ClassVar[str] = "version"
    indexed: ClassVar[tuple[str, ...]] = ("dataset_key",)

    project: str
    dataset: str
    number: int
    root: str
    access_plan: str
    manifest_sha256: str
    episodes_uri: str
    episode_count: int
    frame_count: int
    bytes: int
    accepted: bool = False
    """True once a tag named it, false again when `train-ready` was taken from it."""
    uploads: tuple[str, ...] = ()
    """Uploads whose accepted episodes it holds, in the order of its dense numbers."""
    left_out: dict[str, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)
    """Upload -> source indices `[first, last]` of accepted episodes that it does not hold."""
    parent: int | None = None
    reason: str | None = None
    """Why it was made of its parent."""
    filter: str | None = None
    withheld: str | None = None
    """Why `train-ready` did not move to it by itself."""
    carried: tuple[str, ...] = ()
    """Files below meta/ that were taken over byte for byte."""
    notes: tuple[str, ...] = ()
    """What was left out, or is not as it was in the sources."""
    checksums_uri: str = ""
    places: dict[str, str] = msgspec.field(default_factory=dict)
    """Access plan -> root of a second place that holds the same files."""
    placing: str | None = None
    """The newest request for one that was answered, and"""
    placing_problem: str | None = None
    """why it failed, if it did."""
    withdrawn: tuple[str, ...] = ()
    """Episodes that it holds and that must not be used any more."""
    broken: str | None = None
    """What the last check of its files found wrong."""
    broken_reason: str | None = None
    checked: str | None = None
    """The last check of its files."""
    checked_at: datetime | None = None
    """When its files were looked at last: when it was committed, or by the last check (the log's clock)."""
    removed: str | None = None
    """Why its files were deleted; None: they are there."""

    @property
    def key(self) -> str:
        return version_key(self.project, self.dataset, self.number)

    @property
    def dataset_key(self) -> str:
        return place(self.project, self.dataset)


def version_key(project: str, dataset: str, number: int) -> str:
    return f"{project}/{dataset}/{number:09d}"


class Check(Document, frozen=True, kw_only=True):
    """The answer to one check of a version that a person asked for."""

    kind: ClassVar[str] = "check"

    project: str
    id: str
    dataset: str
    number: int
    whole: bool
    message: str | None = None
    """What is wrong, and with which file."""
    at: datetime

    @property
    def key(self) -> str:
        return place(self.project, self.id)


class Derivation(Document, frozen=True, kw_only=True):
    """A version that a person asked for, made of another one."""

    kind: ClassVar[str] = "derivation"

    project: str
    id: str
    dataset: str
    base: int
    state: str = "WAITING"
    """WAITING (for its turn), WRITING, COMMITTED, FAILED."""
    left_out: dict[str, tuple[tuple[int, int], ...]] = msgspec.field(default_factory=dict)
    filter: str = ""
    rewrite: bool = False
    crf: int | None = None
    by: str = ""
    reason: str = ""
    version: int | None = None
    message: str | None = None
    """Why it failed."""

    @property
    def key(self) -> str:
        return place(self.project, self.id)


class Registration(Document, frozen=True, kw_only=True):
    """Data that a person wants to use where it lies."""

    kind: ClassVar[str] = "registration"
    indexed: ClassVar[tuple[str, ...]] = ("dataset_key",)

    project: str
    id: str
    dataset: str
    uri: str
    endpoint: str | None = None
    revision: str | None = None
    by: str = ""
    state: str = "WAITING"
    """WAITING (for its turn), WRITING, COMMITTED, FAILED."""
    version: int | None = None
    outcome: str | None = None
    """What validation said when it failed."""
    message: str | None = None
    findings: tuple[dict[str, str | int | None], ...] = ()

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def dataset_key(self) -> str:
        return place(self.project, self.dataset)


class Tag(Document, frozen=True, kw_only=True):
    """A movable name for one version."""

    kind: ClassVar[str] = "tag"
    indexed: ClassVar[tuple[str, ...]] = ("dataset_key",)

    project: str
    dataset: str
    name: str
    number: int
    by: str = ""
    reason: str | None = None
    at: datetime | None = None
    """When the log stored it."""

    @property
    def key(self) -> str:
        return f"{self.project}/{self.dataset}/{self.name}"

    @property
    def dataset_key(self) -> str:
        return place(self.project, self.dataset)


class Model(Document, frozen=True, kw_only=True):
    """A registered model version, as an input of jobs."""

    kind: ClassVar[str] = "model"
    indexed: ClassVar[tuple[str, ...]] = ("job_key",)

    project: str
    name: str
    number: int
    uri: str
    artefact_sha256: str
    job: str = ""
    """The job that trained it."""

    @property
    def key(self) -> str:
        return version_key(self.project, self.name, self.number)

    @property
    def job_key(self) -> str:
        return place(self.project, self.job)


class ModelName(Document, frozen=True, kw_only=True):
    """A model's name with its newest version, and what its release channels point at."""

    kind: ClassVar[str] = "model-name"

    project: str
    name: str
    latest: int = 0
    channels: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return place(self.project, self.name)


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a job. `number` is set the first time the name resolves and never again."""

    kind: str
    logical: str
    name: str
    selector: str
    columns: tuple[str, ...] = ()
    episodes: tuple[int, int] | None = None
    number: int | None = None
    access: str | None = None
    """The access plan that the job asked for; None: the version's own."""


class Lease(Document, frozen=True, kw_only=True):
    """What a job holds, or waits to hold."""

    kind: ClassVar[str] = "lease"
    indexed: ClassVar[tuple[str, ...]] = ("waits_for", "uses")

    project: str
    job: str
    state: str = "WAITING"
    """WAITING, GRANTED, RELEASED (after a grant), OVER (the job ended without one)."""
    pins: tuple[Pin, ...] = ()
    checked: tuple[str, ...] = ()
    """Dataset versions (as in `uses`) whose files were found whole for this job."""
    ended: str | None = None
    """Why the job is over."""

    @property
    def key(self) -> str:
        return place(self.project, self.job)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """`dataset:<project>/<name>` of every input, while the job waits."""
        if self.state != "WAITING":
            return ()
        return tuple(dict.fromkeys(waiting_for(self.project, pin.kind, pin.name) for pin in self.pins))

    @property
    def uses(self) -> tuple[str, ...]:
        """`<project>/<dataset>/<number>` of every dataset version it ever pinned, also when the job is over: lineage."""
        pinned = [pin for pin in self.pins if pin.kind == "dataset" and pin.number is not None]
        return tuple(dict.fromkeys(use_of(self.project, pin.name, pin.number or 0) for pin in pinned))


def use_of(project: str, name: str, number: int) -> str:
    return f"{project}/{name}/{number}"


def waiting_for(project: str, kind: str, name: str) -> str:
    return f"{kind}:{project}/{name}"


DOCUMENTS: tuple[type[Document], ...] = (
    Upload,
    Episode,
    Waivers,
    Recording,
    Dataset,
    Version,
    Check,
    Derivation,
    Registration,
    Tag,
    Model,
    ModelName,
    Lease,
)
