"""Plan, warm and check as the service runs them, on a plain folder and on a real mount."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.locations import choose_between
from forebay.cache.app import definition
from forebay.cache.domain.documents import place
from forebay.cache.domain.plan import ByteRange, planned_file
from forebay.cache.ports import ChoosePool
from forebay.cache.workers.warming import cut
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import (
    CacheFailed,
    CacheLost,
    CachePartial,
    CachePlanned,
    CacheReady,
)
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Work

from .builders import PROJECT, granted, pinned
from .by_hand import Cache, Unreliable
from .mounts import Mounted, mounted
from .version_roots import FRONT, write_version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_version(tmp_path / "pool" / "v1", video_bytes=300_000)


def plain(folder: Path) -> ChoosePool:
    return choose_between("folder", folder)


async def test_a_lease_becomes_a_ready_plan(folder: Path, tmp_path: Path) -> None:
    """From the lease to CacheReady on a plain folder, which says what it cannot prove."""
    cache = Cache(tmp_path, plain(folder))
    planned, ready = await cache.submit("train-1", pinned(folder, columns=("action", FRONT)))
    assert isinstance(planned, CachePlanned)
    assert isinstance(ready, CacheReady)
    assert ready.plan == planned.plan
    assert ready.verified_bytes == planned.total_bytes < planned.aligned_bytes <= planned.whole_bytes
    assert ready.place == str(folder)
    assert (ready.proof, ready.origin_bytes) == ("readable", 0)
    assert "read back" in (ready.cannot_prove or "")
    stored = cache.plans.read(planned.plan)
    assert stored is not None
    assert stored.digest == planned.digest
    assert planned.ranges.bytes == Path(planned.ranges.uri.removeprefix("file://")).stat().st_size


async def test_a_second_job_joins(folder: Path, tmp_path: Path) -> None:
    """The same bytes under another spelling are the same plan, and nothing is read again."""
    cache = Cache(tmp_path, plain(folder))
    await cache.submit("one-1", pinned(folder, columns=("observation.state",)))
    (planned,) = await cache.submit("two-1", pinned(folder, columns=("observation_state",)))
    assert isinstance(planned, CachePlanned)
    assert cache.plan().jobs == ("one-1", "two-1")


async def test_an_unknown_column_is_refused_with_close_names(folder: Path, tmp_path: Path) -> None:
    """Planning failures carry the job, the reason code and what was probably meant."""
    cache = Cache(tmp_path, plain(folder))
    (refused,) = await cache.submit("train-1", pinned(folder, columns=("observation.stat",)))
    assert isinstance(refused, CacheFailed)
    assert (refused.job, refused.reason) == ("train-1", Reason.COLUMN_UNKNOWN)
    assert "did you mean observation.state?" in refused.message


async def test_a_place_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """An unknown kind of place is refused, and a missing folder is named."""
    cache = Cache(tmp_path, plain(tmp_path))
    (refused,) = await cache.submit("one-1", pinned("ftp://bucket/v1"))
    assert isinstance(refused, CacheFailed)
    assert refused.reason == Reason.FORMAT_UNSUPPORTED
    (refused,) = await cache.submit("two-1", pinned(tmp_path / "gone"))
    assert isinstance(refused, CacheFailed)
    assert refused.reason == Reason.DATA_UNREADABLE


async def test_a_model_is_warmed_like_a_dataset(tmp_path: Path) -> None:
    """Base weights are planned whole; a file URI is as good as a path."""
    model = tmp_path / "model one"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"w" * 70_000)
    cache = Cache(tmp_path, plain(tmp_path))
    planned, ready = await cache.submit("train-1", pinned(model.as_uri(), kind="model", name="base"))
    assert isinstance(planned, CachePlanned)
    assert isinstance(ready, CacheReady)
    assert ready.verified_bytes == planned.whole_bytes == 70_000


async def test_over_budget_is_refused_with_numbers(folder: Path, tmp_path: Path) -> None:
    """What does not fit is refused before a byte is fetched, with what is needed and what there is."""
    pool = Unreliable(folder)
    cache = Cache(tmp_path, pool.choose, budget=100_000)
    planned, refused = await cache.submit("train-1", pinned(folder))
    assert isinstance(planned, CachePlanned)
    assert isinstance(refused, CacheFailed)
    assert refused.reason == Reason.CACHE_OVER_BUDGET
    assert refused.needed_bytes == planned.aligned_bytes
    assert (refused.budget_bytes, refused.available_bytes, refused.evictable_bytes) == (100_000, 100_000, 0)
    assert "needs 1.5 MB of cache, but of the 100 KB of the cache only 100 KB can be had" in refused.message
    assert pool.fetched == 0


async def test_files_changed_after_planning_fail(folder: Path, tmp_path: Path) -> None:
    """A version whose files changed under the plan is not called warm."""
    cache = Cache(tmp_path, plain(folder))
    warm_work = await cache.planned("train-1", pinned(folder))
    (folder / "checksums.json").write_text("other content")
    (refused,) = await cache.work(warm_work)
    assert isinstance(refused.body, CacheFailed)
    assert refused.body.reason == Reason.DATASET_CHANGED


async def test_a_lost_plan_file_is_made_again(folder: Path, tmp_path: Path) -> None:
    """The stored plan is only a copy: without it the same plan comes from the lease."""
    cache = Cache(tmp_path, plain(folder))
    (plan_work,) = cache.log.say(granted("train-1", pinned(folder, columns=("action",), episodes=(0, 2))))
    assert isinstance(plan_work, Work)
    actions = cache.log.publish(await cache.work(plan_work))
    shutil.rmtree(tmp_path / "plans")
    (ready,) = await cache.run(actions)
    assert isinstance(ready, CacheReady)


async def test_partial_until_everything_is_there(folder: Path, tmp_path: Path) -> None:
    """Missing bytes are reported once, tried again, and only then ready; progress never goes back."""
    pool = Unreliable(folder)
    pool.drops = {"meta"}
    cache = Cache(tmp_path, pool.choose)
    warm_work = await cache.planned("train-1", pinned(folder, columns=("action",)))
    for _ in range(2):
        with pytest.raises(RetryLater):
            await cache.work(warm_work)
    assert cache.plan().state == "partial"
    partials = [emit for emit in cache.context.emitted if isinstance(emit.body, CachePartial)]
    assert len({emit.event_id for emit in partials}) == 1
    (said, _) = [emit.body for emit in partials]
    assert isinstance(said, CachePartial)
    assert {one.file.split("/")[0] for one in said.missing} == {"meta"}
    assert 0 < said.verified_bytes < said.planned_bytes
    pool.drops = set()
    (ready,) = await cache.work(warm_work)
    assert isinstance(ready.body, CacheReady)
    shown = [told["verified_bytes"] for told in cache.context.progressed]
    assert shown == sorted(shown)
    assert shown[-1] == said.planned_bytes


async def test_a_killed_warm_up_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    """The same item run again says the same fact and fetches nothing that is there."""
    pool = Unreliable(folder)
    cache = Cache(tmp_path, pool.choose)
    warm_work = await cache.planned("train-1", pinned(folder))
    (first,) = await cache.work(warm_work)
    fetched = pool.fetched
    (second,) = await cache.work(warm_work)
    assert first.event_id == second.event_id
    assert pool.fetched == fetched


async def test_a_pool_that_does_not_answer_is_partial_not_failed(folder: Path, tmp_path: Path) -> None:
    """A mount that is down passes: it is said, once, and tried again with growing pauses."""
    pool = Unreliable(folder)
    cache = Cache(tmp_path, pool.choose)
    warm_work = await cache.planned("train-1", pinned(folder))
    pool.down = True
    with pytest.raises(RetryLater) as first:
        await cache.work(warm_work)
    with pytest.raises(RetryLater) as later:
        await cache.work(warm_work, tries=4)
    assert later.value.delay_s > first.value.delay_s
    assert cache.plan().best.reason == Reason.CACHE_MOUNT_GONE.value


async def test_an_old_ready_plan_is_checked_before_it_opens_a_gate(folder: Path, tmp_path: Path) -> None:
    """Bytes that went while nobody leased them are said to be lost before the new job hears of its plan."""
    pool = Unreliable(folder)
    cache = Cache(tmp_path, pool.choose)
    await cache.submit("one-1", pinned(folder))
    pool.kept.clear()
    bodies = await cache.submit("two-1", pinned(folder))
    assert [type(body) for body in bodies] == [CacheLost, CachePlanned, CacheReady]
    assert cache.plan().best.generation == 1


async def test_a_check_says_what_is_gone(folder: Path, tmp_path: Path) -> None:
    """The periodic check is silent while all is there and says CacheLost with a cause when not."""
    pool = Unreliable(folder)
    cache = Cache(tmp_path, pool.choose)
    await cache.submit("one-1", pinned(folder))
    check = Work(kind="check", key=place(PROJECT, cache.plan().id), project=PROJECT)
    assert await cache.work(check) == []
    pool.kept.discard("meta/info.json")
    (said,) = await cache.work(check)
    assert isinstance(said.body, CacheLost)
    assert "meta/info.json" in said.body.message
    pool.down = True
    (said,) = await cache.work(check)
    assert isinstance(said.body, CacheLost)
    assert said.body.reason == Reason.CACHE_MOUNT_GONE


def test_large_files_are_cut_for_progress() -> None:
    """The pieces of a file hold its planned bytes, none more than the limit."""
    file = planned_file("a", 100, [ByteRange(0, 25), ByteRange(30, 65)])
    pieces = list(cut(file, 20))
    assert [piece.planned_bytes for piece in pieces] == [20, 20, 20]
    assert [one for piece in pieces for one in piece.spans][-1] == ByteRange(45, 65)


def test_the_definition_needs_nothing_around_it() -> None:
    """A rebuild folds with the definition alone."""
    assert definition().name == "cache"
    assert set(definition().questions) == {"plan", "plans", "nodes", "list", "why", "wish", "policy"}
    assert set(definition().commands) == {"warm", "warm-cancel", "evict", "policy-set"}


if juicefs_volume.fuse_available() is None:

    @pytest.fixture
    def mount(tmp_path: Path) -> Iterator[Mounted]:
        with mounted(tmp_path) as found:
            yield found

    async def test_a_mount_is_warmed_proved_lost_and_warmed_again(mount: Mounted, tmp_path: Path) -> None:
        """On a real mount: cold after writing, ready by its blocks, lost when they vanish, ready again."""
        root = write_version(mount.mountpoint / "v1", video_bytes=2_500_000)
        cache = Cache(tmp_path, choose_between("juicefs", mount.mountpoint))
        planned, ready = await cache.submit("train-1", pinned(root, columns=("action", FRONT)))
        assert isinstance(planned, CachePlanned)
        assert isinstance(ready, CacheReady)
        assert (ready.adapter, ready.proof, ready.cannot_prove) == ("juicefs", "blocks", None)
        assert 0 < ready.origin_bytes <= 1.05 * planned.aligned_bytes
        check = Work(kind="check", key=place(PROJECT, planned.plan), project=PROJECT)
        assert await cache.work(check) == []
        assert mount.forget() > 0
        emits = await cache.work(check)
        assert isinstance(emits[0].body, CacheLost)
        (again,) = await cache.run(cache.log.publish(emits))
        assert isinstance(again, CacheReady)
        assert again.verified_bytes == planned.total_bytes

    async def test_a_mount_that_is_down_is_waited_for(tmp_path: Path) -> None:
        """With the mount down a version's folder is missing, which passes and is no refusal."""
        cache = Cache(tmp_path, choose_between("juicefs", tmp_path / "pool"))
        (work,) = cache.log.add(granted("train-1", pinned(tmp_path / "pool" / "v1")))
        assert isinstance(work, Work)
        with pytest.raises(RetryLater, match="forebay up"):
            await cache.work(work)
