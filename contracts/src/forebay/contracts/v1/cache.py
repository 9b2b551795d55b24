"""Warm plans and the state of the cache. Progress is not here: it goes over core NATS.

`node` names the machine whose cache is meant; without it there is only one.
"""

from __future__ import annotations

import datetime as dt
from typing import ClassVar, Literal

from pydantic import AwareDatetime, Field

from forebay.contracts.body import EventBody, FileRef, Value
from forebay.contracts.identifiers import Id, Name
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import PinnedInput


class CachePlanned(EventBody):
    """Exactly which bytes a job will read. Equal plans join one warm-up."""

    event: ClassVar[str] = "CachePlanned"
    plan: Id
    """First 32 hex digits of the plan's digest."""
    job: Id
    digest: str
    name: Name
    number: int
    root: str
    columns: tuple[str, ...] = ()
    files: int = Field(ge=0)
    total_bytes: int = Field(ge=0)
    aligned_bytes: int = Field(ge=0)
    whole_bytes: int = Field(ge=0)
    """Size of the whole version, to judge what the plan saves."""
    ranges: FileRef
    """The plan itself, as `forebay plan --json` prints it."""
    kind: Literal["dataset", "model"] | None = None
    episodes: tuple[int, int] | None = None
    wish: bool | None = None
    """`job` is the request of a warm-up that no job has asked for yet."""
    previous: Id | None = None
    """Plan made earlier, of an older version or of other columns, whose bytes are not fetched again."""
    reused_bytes: int | None = Field(default=None, ge=0)
    """Planned bytes that the previous plan has too."""
    new_aligned_bytes: int | None = Field(default=None, ge=0)
    """Cache room needed beside the previous plan."""


class CacheReserved(EventBody):
    """Room is set aside for a plan, before its first byte is fetched."""

    event: ClassVar[str] = "CacheReserved"
    plan: Id
    name: Name
    number: int
    node: Id | None = None
    reserved_bytes: int = Field(ge=0)
    available_bytes: int | None = Field(default=None, ge=0)
    """What is left after it; None: nobody set a limit."""


class CacheWarming(EventBody):
    """A warm-up has looked at what is there and begins to fetch the rest, or to verify what it fetched."""

    event: ClassVar[str] = "CacheWarming"
    plan: Id
    name: Name
    number: int
    node: Id | None = None
    stage: Literal["warming", "verifying"]
    found_bytes: int = Field(ge=0)
    """Planned bytes that were in the cache already."""
    planned_bytes: int = Field(ge=0)


class CacheReady(EventBody):
    """Every planned byte was verified where the job will read it."""

    event: ClassVar[str] = "CacheReady"
    plan: Id
    name: Name
    number: int
    verified_bytes: int = Field(ge=0)
    origin_bytes: int = Field(ge=0)
    place: str
    """The folder jobs read from: a mount, or the version root itself."""
    adapter: str
    proof: Literal["blocks", "readable"]
    """`blocks`: each block was seen in the cache. `readable`: the bytes can be read, residency is not provable."""
    cannot_prove: str | None = None
    seconds: float = Field(ge=0)
    node: Id | None = None
    reused_bytes: int | None = Field(default=None, ge=0)
    """Of the verified bytes, those that were in the cache before this warm-up."""


class MissingRange(Value):
    """A range that is planned but not verified."""

    file: str
    start: int
    stop: int
    reason: str


class CachePartial(EventBody):
    """Some planned bytes are still missing; warming goes on."""

    event: ClassVar[str] = "CachePartial"
    plan: Id
    name: Name
    number: int
    verified_bytes: int = Field(ge=0)
    planned_bytes: int = Field(ge=0)
    missing: tuple[MissingRange, ...] = ()
    reason: Reason
    message: str
    node: Id | None = None


class CacheFailed(EventBody):
    """Warming cannot succeed as things are; the message says what would help."""

    event: ClassVar[str] = "CacheFailed"
    plan: Id
    name: Name
    number: int
    reason: Reason
    message: str
    job: Id | None = None
    """Set when planning itself failed: then no CachePlanned ties the plan to its job."""
    node: Id | None = None
    needed_bytes: int | None = Field(default=None, ge=0)
    """With CacheOverBudget: the room that the plan needs,"""
    available_bytes: int | None = Field(default=None, ge=0)
    """what no job leases,"""
    budget_bytes: int | None = Field(default=None, ge=0)
    """of how much in all,"""
    evictable_bytes: int | None = Field(default=None, ge=0)
    """and what of it is held by plans that nobody leases."""


class CacheLost(EventBody):
    """What was ready is not any more (mount gone, disk failed, block missing)."""

    event: ClassVar[str] = "CacheLost"
    plan: Id
    name: Name
    number: int
    reason: Reason
    message: str
    node: Id | None = None


class CacheEvicted(EventBody):
    """Room was made: nobody leased it."""

    event: ClassVar[str] = "CacheEvicted"
    plan: Id
    name: Name
    number: int
    freed_bytes: int = Field(ge=0)
    reason: str
    node: Id | None = None


class CacheExpired(EventBody):
    """Nobody has used the plan for its time to live; it is the first to go when room is needed."""

    event: ClassVar[str] = "CacheExpired"
    plan: Id
    name: Name
    number: int
    node: Id | None = None
    last_used: AwareDatetime
    ttl_days: int = Field(ge=0)


class PoolConcern(Value):
    """Something about a cache disk that hurts, or will."""

    kind: str
    message: str


class CachePoolSeen(EventBody):
    """What the cache of one node is and has room for; said when it changes by much."""

    event: ClassVar[str] = "CachePoolSeen"
    node: Id
    adapter: str
    limit_bytes: int | None = None
    """What the pool itself keeps at most; None: it does not say."""
    used_bytes: int | None = None
    free_bytes: int | None = None
    """Of the disk, or of the fullest of them."""
    concerns: tuple[PoolConcern, ...] = ()


class WarmRequested(EventBody):
    """A version shall be warm although no job needs it yet."""

    event: ClassVar[str] = "WarmRequested"
    request: Id
    input: PinnedInput
    by: str
    reason: str
    """A person's, or the rule of the project's policy."""


class WarmCancelled(EventBody):
    """The person no longer wants it; warming stops unless a job needs it."""

    event: ClassVar[str] = "WarmCancelled"
    request: Id
    by: str
    reason: str | None = None


class WarmRule(Value):
    """What of which datasets is warmed without being asked."""

    on: Literal["commit", "tag"]
    """Each new version, as an upload makes one; or each version that gets a tag."""
    tag: Name = "train-ready"
    datasets: tuple[str, ...] = ("*",)
    """Names, with `*` for anything."""
    columns: tuple[str, ...] = ()
    """Empty: every column."""


class CachePolicySet(EventBody):
    """How a project uses the cache from now on."""

    event: ClassVar[str] = "CachePolicySet"
    policy: Id = "project"
    budget_bytes: int | None = Field(default=None, gt=0)
    """What all its plans may hold; None: no limit of its own."""
    ttl_days: int | None = Field(default=None, ge=0, le=3650)
    """None: from how the project's data was used so far."""
    warm: tuple[WarmRule, ...] = ()
    by: str


class DatasetAccessed(EventBody):
    """A job used a version on a day; once for each of the three."""

    event: ClassVar[str] = "DatasetAccessed"
    job: Id
    kind: Literal["dataset", "model"]
    name: Name
    number: int
    day: dt.date
    """In UTC."""
