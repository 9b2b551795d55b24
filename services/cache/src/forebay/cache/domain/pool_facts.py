"""What a pool says about its room, and what of it will hurt soon. Values and arithmetic only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from forebay.cache.domain.wording import show_bytes

LOW_INODES_RATIO = 0.05
"""The kubelet's own default: below it pods are evicted, cache or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDisk:
    """One folder that blocks are kept in, and the file system below it."""

    folder: str
    total_bytes: int
    free_bytes: int
    total_inodes: int | None
    """None where the file system has no fixed number (btrfs and others answer 0)."""
    free_inodes: int | None
    problem: str | None = None
    """Why nothing can be written there, as the system said it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """What a pool holds and may hold. None: it keeps nothing itself, or cannot say."""

    adapter: str
    limit_bytes: int | None
    used_bytes: int | None
    keep_free_ratio: float | None
    """The share of the disk below which the pool itself stops keeping blocks."""
    disks: tuple[CacheDisk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One thing that hurts, or will, with what to do."""

    kind: Literal["disk-failed", "disk-full", "inodes-low", "inodes-unknown", "limit-above-eviction"]
    folder: str
    message: str


def concerns(facts: PoolFacts, *, evict_below_ratio: float | None = None) -> tuple[Concern, ...]:
    """Everything worth saying about the disks before it hurts.

    `evict_below_ratio` is the share of free disk below which the kubelet evicts pods
    (`imagefs.available`, 0.15 by default); None on machines without one.
    """
    return tuple(one for disk in facts.disks for one in _of_disk(facts, disk, evict_below_ratio))


def _of_disk(facts: PoolFacts, disk: CacheDisk, evict_below_ratio: float | None) -> Iterator[Concern]:
    if disk.problem is not None:
        text = f"{disk.folder} takes no files ({disk.problem}): nothing new is kept; free or replace the disk"
        yield Concern(kind="disk-failed", folder=disk.folder, message=text)
    free = disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    if facts.keep_free_ratio is not None and free < facts.keep_free_ratio:
        text = (
            f"the disk of {disk.folder} has {free:.1%} free, below the {facts.keep_free_ratio:.0%} that the pool leaves "
            f"free: no block is kept any more; free {show_bytes(_short(disk, facts.keep_free_ratio))} there"
        )
        yield Concern(kind="disk-full", folder=disk.folder, message=text)
    if disk.total_inodes is None or disk.free_inodes is None:
        text = (
            f"the file system of {disk.folder} tells no number of free inodes: watch the number of files by other means"
        )
        yield Concern(kind="inodes-unknown", folder=disk.folder, message=text)
    elif disk.free_inodes < LOW_INODES_RATIO * disk.total_inodes:
        text = (
            f"the file system of {disk.folder} has {disk.free_inodes:,} of {disk.total_inodes:,} inodes left, and each "
            "block is a file: delete small files there, or use larger blocks"
        )
        yield Concern(kind="inodes-low", folder=disk.folder, message=text)
    if evict_below_ratio is not None and facts.limit_bytes is not None:
        yield from _eviction(facts, disk, evict_below_ratio, facts.limit_bytes)


def _eviction(facts: PoolFacts, disk: CacheDisk, ratio: float, limit: int) -> Iterator[Concern]:
    """The cache may not grow until the kubelet evicts the very pods that it is for."""
    used = facts.used_bytes or 0
    share, held = limit // len(facts.disks), used // len(facts.disks)
    never_below = int((facts.keep_free_ratio or 0.0) * disk.total_bytes)
    left = max(disk.free_bytes - max(0, share - held), never_below)
    if left >= ratio * disk.total_bytes:
        return
    fits = max(0, held + disk.free_bytes - int(ratio * disk.total_bytes)) * len(facts.disks)
    text = (
        f"the cache in {disk.folder} may grow to {show_bytes(share)}, which leaves {left / disk.total_bytes:.0%} of its "
        f"disk free; below {ratio:.0%} the kubelet evicts pods: set the cache limit to at most {show_bytes(fits)}"
    )
    yield Concern(kind="limit-above-eviction", folder=disk.folder, message=text)


def _short(disk: CacheDisk, ratio: float) -> int:
    return max(0, int(ratio * disk.total_bytes) - disk.free_bytes)
