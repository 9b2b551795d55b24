"""Warm-ups that do not go straight: nobody wants them, the pool hangs, the disk is full, the origin fails."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from forebay.cache.app import definition
from forebay.cache.domain.documents import LOCAL_NODE, Plan
from forebay.cache.domain.plan import ReadPlan, planned_file
from forebay.cache.domain.pool_facts import CacheDisk
from forebay.cache.errors import OriginError
from forebay.cache.workers.pool_watch import PoolWatch, at_start
from forebay.cache.workers.warming import Warming, WarmingSettings
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import (
    CacheEvicted,
    CacheFailed,
    CachePartial,
    CachePlanned,
    CachePoolSeen,
    CacheReady,
    CacheWarming,
)
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.companion import Company
from forebay.runtime.engine import Engine
from forebay.runtime.errors import RetryLater
from forebay.runtime.health import Health
from forebay.runtime.machine import Deadline, Emit, Work
from forebay.runtime.stores.sqlite import SqliteStore

from tests.eventually import WITHIN_S, eventually

from .builders import NOON, pinned, released
from .by_hand import Cache, Unreliable
from .version_roots import write_version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_version(tmp_path / "pool" / "v1", video_bytes=300_000)


@pytest.fixture
def pool(folder: Path) -> Unreliable:
    return Unreliable(folder)


def warmth(cache: Cache) -> tuple[str, str | None]:
    found = cache.plan().on(LOCAL_NODE)
    return found.state, found.message


async def finished(cache: Cache, work: Work) -> list[Emit]:
    """What the worker says; nothing while it wants to be asked again."""
    try:
        return await cache.work(work)
    except RetryLater:
        return []


async def test_it_stops_when_nobody_wants_it(folder: Path, tmp_path: Path, pool: Unreliable) -> None:
    """The job that waited has gone: nothing more is fetched, and that is no failure."""
    cache = Cache(tmp_path, pool.choose)
    work = await cache.planned("train-1", pinned(folder))
    pool.gate = threading.Event()
    running = asyncio.ensure_future(cache.work(work))
    assert await asyncio.to_thread(pool.waiting.wait, WITHIN_S)
    cache.log.say(released("train-1"), source=Part.INGEST)
    seen = cache.context.looks + 2
    await eventually(lambda: cache.context.looks >= seen, what="the worker looks who is left")
    pool.gate.set()
    assert await running == []
    assert pool.fetched < cache.plan().total_bytes / 2
    assert "nobody waits for it" in (warmth(cache)[1] or "")


async def test_a_pool_that_hangs_is_left_alone(folder: Path, tmp_path: Path, pool: Unreliable) -> None:
    """No byte for too long: said, tried again later, and no second thread is sent after the first."""
    cache = Cache(tmp_path, pool.choose, stall_s=0.1)
    work = await cache.planned("train-1", pinned(folder))
    pool.gate = threading.Event()
    for tries in range(2):
        with pytest.raises(RetryLater, match="has not answered"):
            await cache.work(work, tries=tries)
    assert warmth(cache)[0] == "partial"
    assert cache.plan().on(LOCAL_NODE).reason == Reason.CACHE_MOUNT_GONE.value
    pool.gate.set()
    emits = await eventually(lambda: finished(cache, work), what="the pool answers again")
    assert isinstance(emits[0].body, CacheReady)


async def test_a_full_disk_is_refused_with_numbers_and_tried_again(
    folder: Path, tmp_path: Path, pool: Unreliable
) -> None:
    """Room was reserved, but others filled the disk; once there is room the plan gets ready."""
    cache = Cache(tmp_path, pool.choose)
    pool.room = 1000
    work = await cache.planned("train-1", pinned(folder))
    actions = cache.log.publish(await cache.work(work))
    refused = cache.log.said[-1]
    assert isinstance(refused, CacheFailed)
    assert (refused.reason, refused.available_bytes) == (Reason.CACHE_OVER_BUDGET, 1000)
    assert pool.fetched == 0
    (alarm,) = actions
    assert isinstance(alarm, Deadline)
    pool.room = 1 << 30
    passed = DeadlinePassed(part="cache", entity=alarm.entity, condition=alarm.condition, deadline=alarm.at)
    (ready,) = await cache.run(cache.log.say(passed, at=alarm.at))
    assert isinstance(ready, CacheReady)


async def test_an_origin_that_fails_costs_only_what_it_fails(folder: Path, tmp_path: Path, pool: Unreliable) -> None:
    """The rest is fetched; the sentence names the cause; what came is not fetched again when it recovers."""
    cache = Cache(tmp_path, pool.choose)
    work = await cache.planned("train-1", pinned(folder))
    pool.trouble["meta"] = OriginError("failing", "object storage answers with status 500")
    with pytest.raises(RetryLater):
        await cache.work(work)
    said = next(body for body in cache.log.said if isinstance(body, CachePartial))
    assert said.reason == Reason.CACHE_ORIGIN_FAILED
    assert "status 500" in said.message
    assert {one.file.split("/")[0] for one in said.missing} == {"meta"}
    before = said.verified_bytes
    assert 0 < before < said.planned_bytes
    pool.trouble.clear()
    (ready,) = await cache.work(work)
    assert isinstance(ready.body, CacheReady)
    assert ready.body.reused_bytes == before
    assert pool.fetched == ready.body.verified_bytes


async def test_an_origin_that_is_away_is_not_asked_for_everything(
    folder: Path, tmp_path: Path, pool: Unreliable
) -> None:
    """After a few failures in a row the rest waits for the next pass."""
    cache = Cache(tmp_path, pool.choose)
    work = await cache.planned("train-1", pinned(folder))
    for name in ("meta", "frames.lance", "videos.lance", "meta.lance"):
        pool.trouble[name] = OriginError("gone", "object storage does not answer")
    with pytest.raises(RetryLater):
        await cache.work(work)
    assert warmth(cache)[0] == "partial"
    pool.trouble.clear()
    (ready,) = await cache.work(work)
    assert isinstance(ready.body, CacheReady)


async def test_files_that_are_cleaned_up_meanwhile_end_it(folder: Path, tmp_path: Path, pool: Unreliable) -> None:
    """A file of the version is gone for good: failed with its name, not tried for ever."""
    cache = Cache(tmp_path, pool.choose)
    work = await cache.planned("train-1", pinned(folder))
    (tmp_path / "plans" / f"{cache.plan().id}.json").unlink()
    (folder / "meta" / "info.json").unlink()
    (failed,) = await cache.work(work)
    assert isinstance(failed.body, CacheFailed)
    assert failed.body.reason in {Reason.DATASET_CHANGED, Reason.DATA_UNREADABLE}


async def test_stages_are_on_record_and_progress_is_told_twice_a_second(
    folder: Path, tmp_path: Path, pool: Unreliable
) -> None:
    """Warming and Verifying are events; numbers go to watchers, monotone, with rate, time left and failed blocks."""
    cache = Cache(tmp_path, pool.choose)
    await cache.submit("train-1", pinned(folder))
    stages = [body.stage for body in cache.log.said if isinstance(body, CacheWarming)]
    assert stages == ["warming", "verifying"]
    now = [0.0]
    told: list[float] = []
    files = tuple(planned_file(f"f{number}", 1000) for number in range(100))
    plan = ReadPlan(root=str(folder), files=files, whole_bytes=100_000)

    def clock() -> float:
        now[0] += 0.01
        return now[0]

    def tell(progress: object) -> None:
        assert isinstance(progress, dict)
        assert {"bytes_per_s", "eta_s", "failed_blocks", "origin_bytes"} <= progress.keys()
        told.append(now[0])

    run = Warming(pool=pool, plan=plan, settings=WarmingSettings(parallel=1), tell=tell, clock=clock)
    run.fetch(run.look())
    gaps = [later - earlier for earlier, later in pairwise(told)]
    assert len(told) > 2
    assert min(gaps) >= 0.5


async def test_an_eviction_keeps_what_others_need(tmp_path: Path) -> None:
    """Files of a kept plan stay; what is wanted by the time of the eviction stays as a whole."""
    (tmp_path / "data").mkdir()
    pool = Unreliable(tmp_path / "data")
    files = {"v1": ["a", "b"], "v2": ["b", "c"]}
    for name in ("a", "b", "c"):
        (tmp_path / "data" / name).write_bytes(name.encode() * 5000)

    def planner(
        root: Path, *, columns: tuple[str, ...] = (), episodes: tuple[int, int] | None = None, source: str = ""
    ) -> ReadPlan:
        del episodes
        shared = tuple(planned_file(str(tmp_path / "data" / name), 5000) for name in files[root.name])
        return ReadPlan(root=str(root), files=shared, whole_bytes=10_000, columns=columns, source=source)

    cache = Cache(tmp_path, pool.choose, planner=planner)
    await cache.submit("one-1", pinned(tmp_path / "v1"))
    planned, ready = await cache.submit("two-1", pinned(tmp_path / "v2", number=2))
    assert isinstance(planned, CachePlanned)
    assert isinstance(ready, CacheReady)
    assert (planned.reused_bytes, ready.reused_bytes, ready.origin_bytes) == (5000, 5000, 5000)
    assert planned.new_aligned_bytes == planned.aligned_bytes - 5000
    cache.log.say(released("one-1"), source=Part.INGEST)
    first, second = sorted(cache.log.state.all(Plan), key=lambda plan: plan.number)
    payload = {"victims": [first.key, second.key], "keep": [second.key], "why": "room was needed"}
    evicted = await cache.run([Work(kind="evict", key="e", project=first.project, payload=payload)])
    (said,) = evicted
    assert isinstance(said, CacheEvicted)
    assert (said.plan, said.freed_bytes) == (first.id, 5000)
    assert "other plans need them" in said.reason
    assert pool.kept == {str(tmp_path / "data" / name) for name in ("b", "c")}


async def test_the_watch_says_what_will_hurt(tmp_path: Path, pool: Unreliable) -> None:
    """At start, and again only when it changes: disks, concerns in words, and a pool that does not answer."""
    store = SqliteStore(tmp_path / "state.sqlite", fold_version=1)
    engine = Engine(definition(), store)
    assert await store.acquire("test", ttl_s=0)
    await engine.open()
    company = Company(engine, Health("cache"))
    watch = PoolWatch(pool, node="local", evicts_below=0.15)
    disk = {"folder": "/cache", "total_bytes": 1 << 32, "total_inodes": 1000}
    pool.disks = (CacheDisk(**disk, free_bytes=1 << 31, free_inodes=900),)  # type: ignore[arg-type]
    await watch.look(company)
    await watch.look(company)
    (seen,) = engine.outbox.of(CachePoolSeen)
    assert (seen.adapter, seen.free_bytes, seen.concerns) == ("unreliable", 1 << 31, ())
    pool.disks = (CacheDisk(**disk, free_bytes=1 << 30, free_inodes=10, problem="No space left"),)  # type: ignore[arg-type]
    await watch.look(company)
    assert [one.kind for one in engine.outbox.of(CachePoolSeen)[-1].concerns] == [
        "disk-failed",
        "inodes-low",
        "limit-above-eviction",
    ]
    assert any("10 of 1,000 inodes left" in text for text in watch.warnings())
    pool.down = True
    await watch.look(company)
    assert watch.warnings()[0] == "the mount is gone"
    await store.close()


async def test_everything_is_taken_up_when_the_service_starts(tmp_path: Path, folder: Path, pool: Unreliable) -> None:
    """The disk decides, not memory: ready plans are looked at, wanted ones that are not ready are gone on with."""
    cache = Cache(tmp_path, pool.choose)
    await cache.submit("train-1", pinned(folder))
    await cache.planned("train-2", pinned(folder, columns=("action",)))
    check, alarm = sorted(at_start(cache.log.state, LOCAL_NODE, NOON), key=lambda one: type(one).__name__, reverse=True)
    assert isinstance(check, Work)
    assert isinstance(alarm, Deadline)
    assert (check.kind, alarm.condition, alarm.at) == ("check", "retry", NOON)
    passed = DeadlinePassed(part="cache", entity=alarm.entity, condition=alarm.condition, deadline=alarm.at)
    (warm, _) = cache.log.say(passed)
    assert isinstance(warm, Work)
    assert warm.kind == "warm"
    assert len(at_start(cache.log.state, "gpu-node-2", NOON)) == 2
