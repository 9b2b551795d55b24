"""What hurts soon is said before it does, with numbers; a healthy disk says nothing."""

from __future__ import annotations

from forebay.cache.domain.pool_facts import CacheDisk, PoolFacts, concerns

GB = 1_000_000_000


def facts(
    *,
    free: int = 500,
    inodes: tuple[int, int] | None = (60_000_000, 50_000_000),
    limit: int = 100,
    used: int = 10,
    keep: float = 0.05,
    problem: str | None = None,
) -> PoolFacts:
    total_inodes, free_inodes = inodes or (None, None)
    disk = CacheDisk(
        folder="/cache", total_bytes=1000 * GB, free_bytes=free * GB, total_inodes=total_inodes,
        free_inodes=free_inodes, problem=problem,
    )  # fmt: skip
    return PoolFacts(
        adapter="juicefs", limit_bytes=limit * GB, used_bytes=used * GB, keep_free_ratio=keep, disks=(disk,)
    )


def kinds(told: PoolFacts, below: float | None = None) -> list[str]:
    return [one.kind for one in concerns(told, evict_below_ratio=below)]


def test_a_healthy_disk_says_nothing() -> None:
    """Room, inodes and a limit that leaves the kubelet alone."""
    assert kinds(facts(), 0.15) == []


def test_a_full_and_a_failing_disk() -> None:
    """Both are named with what to do."""
    (full,) = concerns(facts(free=30))
    assert full.kind == "disk-full"
    assert "3.0% free, below the 5%" in full.message
    assert "free 20.0 GB there" in full.message
    (failed,) = concerns(facts(problem="Input/output error"))
    assert failed.kind == "disk-failed"
    assert "Input/output error" in failed.message


def test_inodes() -> None:
    """Few inodes hurt as much as few bytes; a file system that does not count them is said to."""
    assert kinds(facts(inodes=(1_000_000, 49_999))) == ["inodes-low"]
    assert kinds(facts(inodes=None)) == ["inodes-unknown"]


def test_a_limit_above_the_kubelets_threshold() -> None:
    """The cache would fill the disk until pods are evicted; the limit that fits is named."""
    (found,) = concerns(facts(limit=800), evict_below_ratio=0.15)
    assert found.kind == "limit-above-eviction"
    assert "may grow to 800 GB, which leaves 5% of its disk free" in found.message
    assert "at most 360 GB" in found.message
    assert kinds(facts(limit=360), 0.15) == []
    assert kinds(facts(limit=800, keep=0.2), 0.15) == [], "the pool itself stops early enough"
    assert kinds(facts(limit=800)) == [], "no kubelet, no threshold"
