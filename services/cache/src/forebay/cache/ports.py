"""What the workers need from outside, in the cache's own words.

A later pool (Fluid on Kubernetes, a ring of nodes in front of object storage) is one
more adapter of `Pool` and has to pass `tests/test_pools.py`; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from forebay.cache.domain.plan import ByteRange, PlannedFile, ReadPlan
from forebay.cache.domain.pool_facts import PoolFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTraits:
    """What a pool is, and what its word is worth."""

    adapter: str
    proof: Literal["blocks", "readable"]
    """`blocks`: residency of each block is seen. `readable`: the bytes can be read, nothing more."""
    cannot_prove: str | None
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A planned range that is not there, and why as far as the pool can tell."""

    file: str
    range: ByteRange
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """What a check of one file found. `verified` and `missing` together are its planned ranges."""

    verified: tuple[ByteRange, ...]
    missing: tuple[Missing, ...]


Kept = tuple[Path, Sequence[PlannedFile]]
"""Root and files of a plan whose blocks stay."""


class Pool(Protocol):
    """The place that jobs read from. Blocking; the workers call it from threads."""

    @property
    def traits(self) -> PoolTraits: ...

    def check(self, root: Path, files: Sequence[PlannedFile]) -> list[Residency]:
        """Look, without fetching anything, which planned bytes are there, one answer per file.

        Raises `PoolError` when the pool does not answer and `PlanError` when a file is
        gone or has another size than planned.
        """
        ...

    def fetch(self, root: Path, file: PlannedFile) -> int:
        """Bring the planned ranges of one file in, through the path that jobs use; returns origin bytes.

        Ends when every read was answered; only `check` says whether the bytes stayed.
        """
        ...

    def room_bytes(self) -> int:
        """How many more bytes the pool may take in before something has to go."""
        ...

    def drop(self, root: Path, files: Sequence[PlannedFile], *, keep: Sequence[Kept] = ()) -> int:
        """Free what is held for these ranges, but no block that a kept plan touches; returns bytes freed.

        Files that are gone are no error: nobody can read them. Afterwards `check` says
        of every dropped block that it is missing. A pool that holds nothing frees nothing.
        """
        ...

    def facts(self) -> PoolFacts:
        """Bytes, inodes and limits as they are now; `domain.pool_facts.concerns` judges them."""
        ...


class Planner(Protocol):
    """Turns one pinned input into a plan; raises `PlanError`."""

    def __call__(
        self,
        root: Path,
        *,
        columns: tuple[str, ...] = ...,
        episodes: tuple[int, int] | None = ...,
        source: str = ...,
    ) -> ReadPlan: ...


ChoosePool = Callable[[Path, Sequence[PlannedFile]], Pool]
"""The pool that these files are read from."""
