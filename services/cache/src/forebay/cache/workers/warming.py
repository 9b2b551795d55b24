"""One warm-up from first look to last proof, as plain blocking code. `warm.py` runs it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.cache.domain.plan import ByteRange, PlannedFile, ReadPlan, planned_file, range_bytes
from forebay.cache.errors import OverBudgetError
from forebay.cache.ports import Missing, Pool, Residency

SLAB_BYTES = 64 << 20
"""How much of one file is fetched and checked at a time, so that progress moves within large files."""
FILES_PER_CHECK = 64


class Stopped(Exception):  # noqa: N818 control flow: the service ends, nothing is wrong
    """The service is ending; the next process goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmingSettings:
    budget_bytes: int | None = None
    """What all leased plans may hold together; None: what the pool has room for."""
    parallel: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """How a warm-up ended: ready when nothing is missing."""

    verified_bytes: int
    origin_bytes: int
    missing: tuple[Missing, ...]
    seconds: float


@dataclass(slots=True, kw_only=True)
class Warming:
    """One run over one plan."""

    pool: Pool
    plan: ReadPlan
    settings: WarmingSettings
    tell: Callable[[Mapping[str, Any]], None]
    stopped: Callable[[], bool]
    verified: int = 0
    origin: int = 0
    seconds: float = 0.0
    at_start: int = 0
    """Verified by the first look: no part of the rate."""
    shown: int = 0
    """What watchers were told; an earlier run of this warm-up may have told them more than this one has seen yet."""

    def run(self, *, reserved_bytes: int, clock: Callable[[], float]) -> Warmed:
        """Look, refuse what does not fit, fetch what is missing, look again at everything."""
        started = clock()
        cold: list[PlannedFile] = []
        for file, residency in self._check(self.plan.files):
            self.verified += range_bytes(residency.verified)
            if residency.missing:
                cold.append(planned_file(file.path, file.size, [one.range for one in residency.missing]))
            self._progress("looking", clock() - started)
        self.at_start = self.verified
        if cold:
            self._check_room(cold, reserved_bytes)
            self._fetch(cold, lambda: clock() - started)
            found = [residency for _, residency in self._check(self.plan.files)]
        else:
            found = [Residency(verified=file.spans, missing=()) for file in self.plan.files]
        missing = tuple(one for residency in found for one in residency.missing)
        verified = sum(range_bytes(residency.verified) for residency in found)
        self.verified = verified
        seconds = clock() - started
        self._progress("verified" if not missing else "incomplete", seconds, done=True)
        return Warmed(verified_bytes=verified, origin_bytes=self.origin, missing=missing, seconds=seconds)

    def _check(self, files: tuple[PlannedFile, ...]) -> Iterator[tuple[PlannedFile, Residency]]:
        root = Path(self.plan.root)
        for start in range(0, len(files), FILES_PER_CHECK):
            self._go_on()
            part = files[start : start + FILES_PER_CHECK]
            yield from zip(part, self.pool.check(root, part), strict=True)

    def _check_room(self, cold: list[PlannedFile], reserved: int) -> None:
        """Refuse before the first byte what would exceed the budget, or the disk."""
        block = self.pool.traits.block_bytes
        budget = self.settings.budget_bytes
        whole = self.plan.aligned_bytes(block)
        if budget is not None and whole > budget - reserved:
            raise OverBudgetError(needed=whole, available=max(0, budget - reserved), budget=budget)
        if self.pool.traits.proof == "blocks":  # a plain folder takes nothing in
            missing = sum(range_bytes(file.aligned(block)) for file in cold)
            room = self.pool.room_bytes()
            if missing > room:
                raise OverBudgetError(needed=missing, available=room, budget=room)

    def _fetch(self, cold: list[PlannedFile], elapsed: Callable[[], float]) -> None:
        root = Path(self.plan.root)

        def bring(slab: PlannedFile) -> tuple[int, int]:
            self._go_on()
            fetched = self.pool.fetch(root, slab)
            (residency,) = self.pool.check(root, [slab])
            return fetched, range_bytes(residency.verified)

        slabs = [slab for file in cold for slab in cut(file, SLAB_BYTES)]
        with ThreadPoolExecutor(max_workers=self.settings.parallel) as workers:
            waiting = [workers.submit(bring, slab) for slab in slabs]
            try:
                for one in as_completed(waiting):
                    fetched, verified = one.result()
                    self.origin += fetched
                    self.verified += verified
                    self._progress("warming", elapsed())
            finally:
                for one in waiting:
                    one.cancel()

    def _progress(self, stage: str, seconds: float, *, done: bool = False) -> None:
        """Verified bytes, never going back, never above the plan."""
        self.shown = max(self.shown, min(self.verified, self.plan.total_bytes))
        gained = self.verified - self.at_start
        rate = gained / seconds if seconds > 0 and stage == "warming" else 0.0
        left = self.plan.total_bytes - self.shown
        self.tell(
            {
                "stage": stage,
                "verified_bytes": self.shown,
                "planned_bytes": self.plan.total_bytes,
                "origin_bytes": self.origin,
                "bytes_per_s": round(rate),
                "eta_s": round(left / rate, 1) if rate > 0 else None,
                "done": done,
            }
        )

    def _go_on(self) -> None:
        if self.stopped():
            msg = "the service is ending"
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
