"""The documents that the bridge folds: jobs with their attempts, cache plans, known names, history.

A `Job` keeps facts and what was announced about them; its business state is
derived by `business.py` on every change and stored beside them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import JobSpec, Resources
from forebay.runtime.documents import Document

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


def place(project: str, name: str) -> str:
    """Key of anything that is unique within a project only."""
    return f"{project}/{name}"


STOPS = frozenset(
    {
        Reason.STOPPED,
        Reason.CANCELLED,
        Reason.PREEMPTED,
        Reason.EVICTED,
        Reason.EVICTED_DRAIN,
        Reason.EVICTED_MEMORY,
        Reason.NODE_LOST,
    }
)
"""Ends that came from outside: no failure of the training, so they cost no attempt."""


def is_success(*, ran: bool, exit_code: int | None, signal: int | None, reason: str) -> bool:
    """The command ran to its own end. One that was told to stop has not, whatever its exit code."""
    return ran and exit_code == 0 and not signal and reason != Reason.STOPPED


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One readiness condition as it was last announced."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime
    evidence: tuple[str, ...] = ()


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One input of a job at the version it was pinned to. `body` is the whole `PinnedInput`."""

    kind: str
    logical: str
    name: str
    number: int
    columns: tuple[str, ...] = ()
    body: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.name}@v{self.number}"

    @property
    def selector(self) -> str:
        return self.logical.partition("@")[2] or "train-ready"


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """Why one input cannot be used now: a refused lease, a taken tag, a withdrawal."""

    input: str
    reason: str
    message: str
    permanent: bool = False
    at: datetime
    event: str


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """What ingest has answered about a job's inputs."""

    state: str = "unanswered"
    """unanswered, refused, granted or released"""
    inputs: tuple[Pinned, ...] = ()
    objections: dict[str, Objection] = msgspec.field(default_factory=dict)
    at: datetime | None = None
    event: str | None = None


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent found before the command was started."""

    passed: bool | None = None
    """None: reported, but not judged yet."""
    checks: tuple[dict[str, Any], ...] = ()
    at: datetime
    event: str


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Process recovery: the command was started, where, and after which attempt."""

    host: str
    process: str
    recovers: int | None = None
    at: datetime
    event: str


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt's process went away."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str
    message: str
    ran: bool = True
    output: tuple[str, ...] = ()
    """The last lines that the command printed."""
    at: datetime
    event: str

    @property
    def completed(self) -> bool:
        return is_success(ran=self.ran, exit_code=self.exit_code, signal=self.signal, reason=self.reason)


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Training recovery: from which checkpoint the attempt continues, as the registry decided."""

    mode: str
    checkpoint: str | None = None
    step: int | None = None
    reasons: tuple[str, ...] = ()
    skipped: tuple[dict[str, Any], ...] = ()
    at: datetime
    event: str


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """Quota that was taken back while an attempt held it."""

    message: str
    reason: str = ""
    """In the words of whoever took it back."""
    cause: str = ""
    """What kept its pods from starting, by the verdict that stood then."""
    at: datetime
    event: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the training process, put together from its events in any order."""

    number: int
    resources: dict[str, Any] | None = None
    devices: tuple[str, ...] = ()
    admitted_at: datetime | None = None
    preflight: Preflight | None = None
    start: Start | None = None
    ending: Ending | None = None
    resume: Resume | None = None
    evicted: Eviction | None = None

    @property
    def state(self) -> str:
        """PREFLIGHT, RUNNING, SUCCEEDED, STOPPED or FAILED: an ended attempt never runs again."""
        if self.ending is not None:
            stopped = "STOPPED" if self.ending.reason in STOPS else "FAILED"
            return "SUCCEEDED" if self.ending.completed else stopped
        return "RUNNING" if self.has_run else "PREFLIGHT"

    @property
    def has_run(self) -> bool:
        """The command was started and the checks before it are known to have passed."""
        return self.start is not None and self.preflight is not None and self.preflight.passed is True

    @property
    def holds(self) -> bool:
        return self.admitted_at is not None and self.ending is None


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job; whatever comes later is history only."""

    state: str
    reason: str
    message: str
    at: datetime
    event: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The queue's last announced answer about a job that waits for quota."""

    reason: str
    message: str
    lacking: tuple[str, ...] = ()
    at: datetime
    event: str


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Time spent waiting in one layer; `until` None: still."""

    layer: str
    since: datetime
    until: datetime | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """The Job object that was on the cluster before the job: somebody applied it."""

    name: str
    uid: str
    gated: bool
    """False: nothing holds it back; it runs as its owner wrote it."""
    problem: str | None = None
    """Why its annotations could not be followed."""


class Job(Document, frozen=True, kw_only=True):
    """A training job: what was asked, what is known, what was announced, and the state that follows."""

    kind: ClassVar[str] = "job"
    indexed: ClassVar[tuple[str, ...]] = ("named", "standing", "pinned", "planned")
    project: str
    id: str
    name: str
    run: int
    spec: dict[str, Any]
    spec_sha256: str
    submitted_by: str
    client_id: str | None = None
    submitted_at: datetime
    submitted_event: str
    lease: Lease = Lease()
    plans: tuple[str, ...] = ()
    unplannable: dict[str, Objection] = msgspec.field(default_factory=dict)
    """Inputs for which the cache could not even make a plan."""
    gate: str = "unset"
    """unset, shut or open"""
    gate_generation: int = 0
    gate_changed_at: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    waiting: Waiting | None = None
    waiting_generation: int = 0
    attempts: tuple[Attempt, ...] = ()
    terminal: Terminal | None = None
    verdict: dict[str, Any] | None = None
    verdict_generation: int = 0
    state: str = "CREATED"
    queued_for: str | None = None
    spans: tuple[Span, ...] = ()
    on_cluster: bool = False
    """Something of it was seen on a Kubernetes cluster."""
    applied: Applied | None = None
    saved_steps: tuple[int, ...] = ()
    """Steps of its checkpoints that were verified and can be started from, newest last."""

    @property
    def held_by_us(self) -> bool:
        """The gate is ours to open: of every job but one that came past the webhook."""
        return self.applied is None or self.applied.gated

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def named(self) -> str:
        """Index: all runs of one name."""
        return place(self.project, self.name)

    @property
    def standing(self) -> str | None:
        """Index for the queue: `holding` quota, `waiting` for it, `between` two attempts, or not its business."""
        if any(attempt.holds for attempt in self.attempts):
            return "holding"
        if self.terminal is not None:
            return None
        if self.attempts:
            return "between"
        return "waiting" if self.gate == "open" else None

    @property
    def pinned(self) -> tuple[str, ...]:
        """Index: open jobs by the input they are pinned to."""
        if self.terminal is not None:
            return ()
        return tuple(place(self.project, f"{item.kind}/{item.name}") for item in self.lease.inputs)

    @property
    def planned(self) -> tuple[str, ...]:
        """Index: open jobs by the cache plan they wait for."""
        return () if self.terminal is not None else tuple(place(self.project, plan) for plan in self.plans)

    @property
    def request(self) -> JobSpec:
        return JobSpec.model_validate(self.spec)

    @property
    def resources(self) -> Resources:
        return Resources.model_validate(self.spec.get("resources", {}))

    @property
    def last(self) -> Attempt | None:
        """The newest attempt, by number."""
        return self.attempts[-1] if self.attempts else None


class Warmth(msgspec.Struct, frozen=True, kw_only=True):
    """What is warm of a plan in one cache."""

    state: str
    """partial, ready, failed or lost"""
    verified_bytes: int = 0
    reason: str
    message: str = ""
    place: str | None = None
    at: datetime
    event: str


EVERYWHERE = ""
"""Stands for the node of a cache that every node reads through."""


class Plan(Document, frozen=True, kw_only=True):
    """One warm plan; several jobs may wait for the same one. Its state is that of the cache that is furthest."""

    kind: ClassVar[str] = "plan"
    project: str
    id: str
    name: str
    number: int
    columns: tuple[str, ...] = ()
    total_bytes: int = 0
    state: str = "planned"
    """planned, partial, ready, failed or lost"""
    verified_bytes: int = 0
    reason: str = "Warming"
    message: str = ""
    place: str | None = None
    at: datetime
    event: str
    nodes: dict[str, Warmth] = msgspec.field(default_factory=dict)
    """Node -> what its own cache holds; EVERYWHERE for a shared one."""

    @property
    def key(self) -> str:
        return place(self.project, self.id)

    @property
    def warm_on(self) -> frozenset[str]:
        return frozenset(node for node, warmth in self.nodes.items() if warmth.state == "ready")


class KnownName(Document, frozen=True, kw_only=True):
    """A dataset or model that exists, or is on its way, so that a typing error is caught at submit."""

    kind: ClassVar[str] = "known-name"
    indexed: ClassVar[tuple[str, ...]] = ("group",)
    project: str
    of: str
    """dataset or model"""
    name: str
    highest: int = 0
    """The newest committed version; 0 while the first upload is under way."""
    tags: tuple[str, ...] = ()
    """Every tag that it has or had."""

    @property
    def key(self) -> str:
        return place(self.project, f"{self.of}/{self.name}")

    @property
    def group(self) -> str:
        return place(self.project, self.of)


class Entry(Document, frozen=True, kw_only=True):
    """One line of a job's history, ordered by when it happened; never changed, never removed."""

    kind: ClassVar[str] = "history"
    indexed: ClassVar[tuple[str, ...]] = ("of",)
    project: str
    job: str
    at: datetime
    id: str
    event: str
    machine: str
    """`business` for the job's life, `runtime` for raw facts about what carries it."""
    attempt: int | None = None
    source: str | None = None
    object: str | None = None
    reason: str | None = None
    message: str = ""
    exit_code: int | None = None
    data: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.project}/{self.job}/{self.at:%Y%m%dT%H%M%S.%f}/{self.id}"

    @property
    def of(self) -> str:
        return place(self.project, self.job)


DOCUMENTS: tuple[type[Document], ...] = (Job, Plan, KnownName, Entry)
