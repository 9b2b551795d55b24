"""The parts that may speak on the bus, and the source each puts into its envelopes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from forebay.contracts.errors import EnvelopeMismatchError
from forebay.contracts.identifiers import check_id

_SOURCE_ROOT = "/forebay/"


class Part(StrEnum):
    """One process kind with an identity of its own."""

    INGEST = "ingest"
    CACHE = "cache"
    BRIDGE = "scheduler-bridge"
    REGISTRY = "registry"
    COLLECTOR = "collector"
    """Uploads for one project."""
    AGENT = "agent"
    """Stands beside the training command, for one project."""
    OPERATOR = "operator"
    """A person at the command line: reads everything, asks questions, publishes nothing."""
    ADMIN = "admin"
    """Makes streams and consumers; used by `forebay bus apply` only."""


SERVICES = (Part.INGEST, Part.CACHE, Part.BRIDGE, Part.REGISTRY)
PROJECT_PARTS = (Part.COLLECTOR, Part.AGENT)
"""Parts that speak for exactly one project."""


@dataclass(frozen=True, slots=True)
class Source:
    """Who sent an event: a part, and its project when the part belongs to one."""

    part: Part
    project: str | None = None
    text: str = field(init=False, repr=False, compare=False)
    """As it stands in an envelope; written once, read for every event."""

    def __post_init__(self) -> None:
        text = f"{_SOURCE_ROOT}{self.part}" + (f"/{self.project}" if self.project else "")
        object.__setattr__(self, "text", text)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4096)
def parse_source(text: str) -> Source:
    """Read a `ce-source`; raises `EnvelopeMismatchError` when it names no part of Forebay."""
    head, _, project = text.removeprefix(_SOURCE_ROOT).partition("/")
    if not text.startswith(_SOURCE_ROOT) or head not in {part.value for part in Part}:
        msg = f"source {text!r} names no part of Forebay"
        raise EnvelopeMismatchError(msg)
    part = Part(head)
    if (part in PROJECT_PARTS) != bool(project):
        msg = f"source {text!r}: a {part} {'must' if part in PROJECT_PARTS else 'must not'} name a project"
        raise EnvelopeMismatchError(msg)
    return Source(part, check_id(project) if project else None)
