"""The cache's state: plans and how warm each is on each node, who wants them, and how data was used."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from forebay.runtime.documents import Document

LOCAL_NODE = "local"
"""The node of events that name none: a machine of its own."""
PLANNED, RESERVED, WARMING, VERIFYING = "planned", "reserved", "warming", "verifying"
READY, PARTIAL, LOST, FAILED, EXPIRED, EVICTED = "ready", "partial", "lost", "failed", "expired", "evicted"
UNDER_WAY = (RESERVED, WARMING, VERIFYING, PARTIAL)
"""Room is reserved and bytes are being brought in."""
CLAIMING = (*UNDER_WAY, READY, LOST)
"""States in which a plan that somebody wants has a claim on cache space."""
RESIDENT = (*UNDER_WAY, READY, EXPIRED)
"""States in which bytes of a plan may lie in the cache, wanted or not."""
_BEST_FIRST = (READY, VERIFYING, WARMING, RESERVED, PARTIAL, LOST, PLANNED, FAILED, EXPIRED, EVICTED)


def place(project: str, key: str) -> str:
    """The key of a document: ids are unique within a project."""
    return f"{project}/{key}"


def version_place(project: str, kind: str, name: str, number: int) -> str:
    """The key of one version of a dataset or model."""
    return place(project, f"{kind}/{name}@v{number}")


class Warmth(msgspec.Struct, frozen=True, kw_only=True):
    """How warm a plan is on one node."""

    state: str = PLANNED
    generation: int = 0
    """How often warmth was lost, refused or given up; each generation can be ready, lost and failed once."""
    verified_bytes: int = 0
    origin_bytes: int = 0
    reused_bytes: int = 0
    """Verified bytes that the last warm-up found there."""
    freed_bytes: int = 0
    """What its last eviction gave back."""
    place: str | None = None
    adapter: str | None = None
    proof: str | None = None
    cannot_prove: str | None = None
    reason: str | None = None
    message: str | None = None
    since: datetime


class Plan(Document, frozen=True, kw_only=True):
    """One read plan of one version. Whoever wants equal bytes shares it, and its one warm-up."""

    kind: ClassVar[str] = "plan"
    indexed: ClassVar[tuple[str, ...]] = ("live", "version", "series")

    project: str
    id: str
    digest: str
    what: str = "dataset"
    """`dataset` or `model`."""
    name: str
    number: int
    root: str
    columns: tuple[str, ...]
    episodes: tuple[int, int] | None = None
    files: int
    total_bytes: int
    aligned_bytes: int
    whole_bytes: int
    ranges_uri: str
    ranges_sha256: str
    previous: str | None = None
    """Plan made earlier, of an older version or of other columns, whose bytes it shares."""
    new_aligned_bytes: int | None = None
    """Room it takes beside the previous plan."""
    shared_bytes: int = 0
    """Planned bytes that the previous plan has too."""
    jobs: tuple[str, ...] = ()
    """Unfinished jobs that lease it."""
    wishes: tuple[str, ...] = ()
    """Open requests to have it warm, which no job has made."""
    nodes: dict[str, Warmth] = msgspec.field(default_factory=dict)
    used_at: datetime
    """When it was last wanted or read."""
    since: datetime

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def version(self) -> str:
        return version_place(self.project, self.what, self.name, self.number)

    @property
    def series(self) -> str:
        """The same columns of any version."""
        return series(self.project, self.what, self.name, self.columns)

    @property
    def wanted(self) -> bool:
        return bool(self.jobs or self.wishes)

    @property
    def live(self) -> str | None:
        """Indexed: whether it can matter for room at all."""
        resident = any(warmth.state in RESIDENT for warmth in self.nodes.values())
        return "live" if resident or self.wanted else None

    def on(self, node: str) -> Warmth:
        """Its warmth on a node; of one that never spoke of it, that it is only planned."""
        return self.nodes.get(node) or Warmth(since=self.since)

    @property
    def best(self) -> Warmth:
        """Its warmth where it is warmest."""
        found = sorted(self.nodes.items(), key=lambda one: (_BEST_FIRST.index(one[1].state), one[0]))
        return found[0][1] if found else Warmth(since=self.since)

    @property
    def state(self) -> str:
        return self.best.state


def series(project: str, what: str, name: str, columns: tuple[str, ...]) -> str:
    """What plans of several versions have in common when they read the same columns."""
    return f"{project}/{what}/{name}/{','.join(sorted(columns))}"


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


class Wish(Document, frozen=True, kw_only=True):
    """Somebody, or a rule of the project's policy, wants a version warm before a job needs it."""

    kind: ClassVar[str] = "wish"
    indexed: ClassVar[tuple[str, ...]] = ("standing",)

    project: str
    id: str
    input: dict[str, Any]
    by: str
    why: str
    state: str = "open"
    """open, warm, failed or cancelled."""
    plan: str | None = None
    message: str | None = None
    at: datetime

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def standing(self) -> str | None:
        """Indexed: open wishes of a project."""
        return self.project if self.state == "open" else None


class Version(Document, frozen=True, kw_only=True):
    """A committed dataset version: what `forebay warm NAME@TAG` finds by its name."""

    kind: ClassVar[str] = "version"
    indexed: ClassVar[tuple[str, ...]] = ("dataset_key",)

    project: str
    dataset: str
    number: int
    root: str
    access_plan: str
    manifest_sha256: str
    episode_count: int
    bytes: int
    committed_at: datetime
    removed: bool = False

    @property
    def key(self) -> str:
        return version_place(self.project, "dataset", self.dataset, self.number)

    @property
    def dataset_key(self) -> str:
        return place(self.project, self.dataset)


class Tags(Document, frozen=True, kw_only=True):
    """The tags of one dataset."""

    kind: ClassVar[str] = "tags"

    project: str
    dataset: str
    tags: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return place(self.project, self.dataset)


class Usage(Document, frozen=True, kw_only=True):
    """On which days a version was used, and by how many jobs."""

    kind: ClassVar[str] = "usage"

    project: str
    what: str
    name: str
    number: int
    first: str
    """The day that its age is counted from: when it was committed, else when it was first used."""
    days: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return version_place(self.project, self.what, self.name, self.number)


class Histogram(Document, frozen=True, kw_only=True):
    """How old data was when a project's jobs used it: days of age -> uses."""

    kind: ClassVar[str] = "histogram"

    project: str
    ages: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.project


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What is warmed without being asked, and when."""

    on: str
    tag: str
    datasets: tuple[str, ...]
    columns: tuple[str, ...]


class Policy(Document, frozen=True, kw_only=True):
    """How a project uses the cache."""

    kind: ClassVar[str] = "policy"

    project: str
    budget_bytes: int | None = None
    ttl_days: int | None = None
    warm: tuple[Rule, ...] = ()
    by: str = ""

    @property
    def key(self) -> str:
        return self.project


class PoolState(Document, frozen=True, kw_only=True):
    """The cache of one node as it was last seen."""

    kind: ClassVar[str] = "pool"

    node: str
    adapter: str
    limit_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    concerns: tuple[tuple[str, str], ...] = ()
    """Kind and sentence."""
    at: datetime

    @property
    def key(self) -> str:
        return self.node


DOCUMENTS: tuple[type[Document], ...] = (
    Plan,
    Job,
    Wish,
    Version,
    Tags,
    Usage,
    Histogram,
    Policy,
    PoolState,
)
