"""Warm plans and the state of the cache. Progress is not here: it goes over core NATS."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from forebay.contracts.body import EventBody, FileRef, Value
from forebay.contracts.identifiers import Id, Name
from forebay.contracts.reasons import Reason


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


class CacheLost(EventBody):
    """What was ready is not any more (mount gone, disk failed, block missing)."""

    event: ClassVar[str] = "CacheLost"
    plan: Id
    name: Name
    number: int
    reason: Reason
    message: str


class CacheEvicted(EventBody):
    """Room was made: nobody leased it."""

    event: ClassVar[str] = "CacheEvicted"
    plan: Id
    name: Name
    number: int
    freed_bytes: int = Field(ge=0)
    reason: str
