"""One warm-up from first look to last proof, as plain blocking code. `warm.py` runs its steps in threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.cache.domain.plan import ByteRange, PlannedFile, ReadPlan, planned_file, range_bytes
from forebay.cache.errors import OverBudgetError, PoolError
from forebay.cache.ports import Missing, Pool, Residency

SLAB_BYTES = 64 << 20
"""How much of one file is fetched and checked at a time, so that progress moves within large files."""
FILES_PER_CHECK = 64
TELL_EVERY_S = 0.5
MOST_FAILURES = 3
"""Fetches that fail one after the other before the rest is left for the next pass."""


class Stopped(Exception):  # noqa: N818 control flow: nothing is wrong
    """The service ends, or nobody wants the plan any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmingSettings:
    parallel: int = 4
    stall_s: float = 300.0
    """How long a step may go on without any byte before it is given up for this time."""
    look_s: float = 0.5
    """How often it is looked whether anybody still wants the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """How a warm-up ended: ready when nothing is missing."""

    verified_bytes: int
    origin_bytes: int
    reused_bytes: int
    missing: tuple[Missing, ...]
    seconds: float
    trouble: PoolError | None = None
    """What the pool said last, when a fetch failed."""


@dataclass(slots=True, kw_only=True)
class Warming:
    """One run over one plan: `look`, `fetch` what is cold, `verify` everything."""

    pool: Pool
    plan: ReadPlan
    settings: WarmingSettings
    tell: Callable[[Mapping[str, Any]], None]
    clock: Callable[[], float] = time.monotonic
    shown: int = 0
    """What watchers were told; an earlier run of this warm-up may have told them more than this one has seen yet."""
    stopped: bool = False
    verified: int = 0
    origin: int = 0
    failed_blocks: int = 0
    found: int = 0
    """Verified by the first look: no part of the rate."""
    trouble: PoolError | None = None
    began: float = field(init=False)
    moved: float = field(init=False)
    """When anything was last seen to happen."""
    _told: float = field(init=False, default=float("-inf"))
    _fetching_since: float | None = None

    def __post_init__(self) -> None:
        self.began = self.moved = self.clock()

    def look(self) -> list[PlannedFile]:
        """What is missing. Raises `PlanError` and `PoolError` like the pool."""
        cold: list[PlannedFile] = []
        for file, residency in self._check(self.plan.files):
            self.verified += range_bytes(residency.verified)
            if residency.missing:
                cold.append(planned_file(file.path, file.size, [one.range for one in residency.missing]))
            self._progress("looking")
        self.found = self.verified
        return cold

    def fetch(self, cold: list[PlannedFile]) -> None:
        """Bring in what is missing; raises `OverBudgetError` before the first byte when the disk has no room for it."""
        self._check_disk(cold)
        self._fetching_since = self.clock()
        failures = 0
        slabs = [slab for file in cold for slab in cut(file, SLAB_BYTES)]
        with ThreadPoolExecutor(max_workers=self.settings.parallel) as workers:
            waiting = [workers.submit(self._bring, slab) for slab in slabs]
            try:
                for one in as_completed(waiting):
                    try:
                        fetched, residency = one.result()
                    except PoolError as error:
                        self.trouble = error
                        failures += 1
                        if failures >= MOST_FAILURES:
                            break
                        continue
                    failures = 0
                    self.origin += fetched
                    self.verified += range_bytes(residency.verified)
                    self.failed_blocks += self._blocks(residency.missing)
                    self._progress("warming")
            finally:
                for one in waiting:
                    one.cancel()

    def verify(self) -> Warmed:
        """Look at everything once more: only what is seen now counts."""
        self._progress("verifying", at_once=True)
        verified = 0
        missing: list[Missing] = []
        for _, residency in self._check(self.plan.files):
            verified += range_bytes(residency.verified)
            missing += residency.missing
            self._progress("verifying")
        return self.ended(verified, tuple(missing))

    def ended(self, verified: int, missing: tuple[Missing, ...] = ()) -> Warmed:
        """The result, told to watchers."""
        self.verified = verified
        self.failed_blocks = self._blocks(missing)
        self._progress("verified" if not missing else "incomplete", done=True)
        return Warmed(
            verified_bytes=verified,
            origin_bytes=self.origin,
            reused_bytes=min(self.found, verified),
            missing=missing,
            seconds=self.clock() - self.began,
            trouble=self.trouble,
        )

    def _check(self, files: tuple[PlannedFile, ...]) -> Iterator[tuple[PlannedFile, Residency]]:
        root = Path(self.plan.root)
        for start in range(0, len(files), FILES_PER_CHECK):
            self._go_on()
            part = files[start : start + FILES_PER_CHECK]
            yield from zip(part, self.pool.check(root, part), strict=True)

    def _check_disk(self, cold: list[PlannedFile]) -> None:
        """Room is reserved by then; but others may have filled the disk."""
        traits = self.pool.traits
        if traits.proof != "blocks":  # a plain folder takes nothing in
            return
        needed = sum(range_bytes(file.aligned(traits.block_bytes)) for file in cold)
        room = self.pool.room_bytes()
        if needed > room:
            raise OverBudgetError(needed=needed, available=room, budget=room)

    def _bring(self, slab: PlannedFile) -> tuple[int, Residency]:
        self._go_on()
        root = Path(self.plan.root)
        fetched = self.pool.fetch(root, slab)
        self.moved = self.clock()
        (residency,) = self.pool.check(root, [slab])
        return fetched, residency

    def _blocks(self, missing: tuple[Missing, ...]) -> int:
        size = self.pool.traits.block_bytes
        return sum(-(-one.range.end // size) - one.range.start // size for one in missing)

    def _progress(self, stage: str, *, done: bool = False, at_once: bool = False) -> None:
        """Verified bytes, never going back, never above the plan; at most twice a second."""
        now = self.moved = self.clock()
        self.shown = max(self.shown, min(self.verified, self.plan.total_bytes))
        if not (done or at_once) and now - self._told < TELL_EVERY_S:
            return
        self._told = now
        since = self._fetching_since
        seconds = now - since if since is not None and stage == "warming" else 0.0
        rate = (self.verified - self.found) / seconds if seconds > 0 else 0.0
        left = self.plan.total_bytes - self.shown
        self.tell(
            {
                "stage": stage,
                "verified_bytes": self.shown,
                "planned_bytes": self.plan.total_bytes,
                "origin_bytes": self.origin,
                "reused_bytes": self.found,
                "failed_blocks": self.failed_blocks,
                "bytes_per_s": round(rate),
                "eta_s": round(left / rate, 1) if rate > 0 else None,
                "done": done,
            }
        )

    def _go_on(self) -> None:
        if self.stopped:
            msg = "told to stop"
            raise Stopped(msg)


def cut(file: PlannedFile, limit: int) -> Iterator[PlannedFile]:
    """The file's planned bytes in pieces of at most `limit` bytes."""
    piece: list[ByteRange] = []
    held = 0
    for start, end in file.spans:
        at = start
        while at < end:
            take = min(end - at, limit - held)
            piece.append(ByteRange(at, at + take))
            held += take
            at += take
            if held == limit:
                yield planned_file(file.path, file.size, piece)
                piece, held = [], 0
    if piece:
        yield planned_file(file.path, file.size, piece)
