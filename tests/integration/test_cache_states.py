"""What a plan's state and sentence become when the data path fails: the service's workers over real JuiceFS and SeaweedFS."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.adapters.juicefs_volume import Bucket
from forebay.cache.domain.plan import PlannedFile, planned_file, range_bytes
from forebay.cache.ports import Pool
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheLost, CachePartial, CacheReady
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Work

from services.cache.tests.builders import pinned
from services.cache.tests.by_hand import Cache
from services.cache.tests.mounts import Mounted, mounted
from services.cache.tests.version_roots import write_version
from tests.eventually import WITHIN_S
from tests.servers.origin_proxy import OriginProxy, origin_proxy
from tests.servers.seaweedfs import ACCESS_KEY, SECRET_KEY, s3_server_beside

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Data:
    """A cold version on a mount whose object storage is behind a wire."""

    mount: Mounted
    wire: OriginProxy
    root: Path

    def choose(self, root: Path, files: Sequence[PlannedFile]) -> Pool:  # noqa: ARG002 the port's signature
        return JuicefsPool(self.mount.mountpoint, log=self.mount.log, stall_s=WITHIN_S)


if juicefs_volume.fuse_available() is None:

    @pytest.fixture(scope="module")
    def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
        with (
            s3_server_beside(tmp_path_factory.mktemp("weed")) as server,
            origin_proxy(server.endpoint) as wire,
        ):
            bucket = Bucket(url=f"{wire.url}/blocks", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
            with mounted(tmp_path_factory.mktemp("pool"), storage=bucket, io_retries=2) as mount:
                yield Data(mount, wire, write_version(mount.mountpoint / "v1"))

    @pytest.fixture
    def data(standing: Data) -> Iterator[Data]:
        standing.mount.forget()
        yield standing
        standing.wire.heal()

    @pytest.mark.parametrize(
        ("fault", "says"),
        [
            ({"refuse": 403}, "refuses the mount's keys (403 AccessDenied)"),
            ({"refuse": 500}, "fails with 500 InternalError"),
            ({"gone": True}, "does not answer"),
        ],
        ids=["403", "500", "gone"],
    )
    async def test_an_origin_that_fails_leaves_a_plan_partial(
        data: Data, tmp_path: Path, fault: dict[str, Any], says: str
    ) -> None:
        """Partial with the cause and without keys, tried again, and ready when the fault is over."""
        cache = Cache(tmp_path, data.choose)
        warm = await cache.planned("train-1", pinned(data.root, columns=("action",)))
        for name, value in fault.items():
            setattr(data.wire, name, value)
        with pytest.raises(RetryLater):
            await cache.work(warm)
        said = [emit.body for emit in cache.context.emitted if isinstance(emit.body, CachePartial)][-1]
        assert said.reason == Reason.CACHE_ORIGIN_FAILED
        assert says in said.message
        assert "it is tried again" in said.message
        assert SECRET_KEY not in said.message
        assert cache.plan().state == "partial"
        data.wire.heal()
        (ready,) = await cache.work(warm)
        assert isinstance(ready.body, CacheReady)
        assert (ready.body.proof, ready.body.verified_bytes) == ("blocks", said.planned_bytes)
        assert ready.body.origin_bytes <= 1.05 * cache.plan().aligned_bytes

    async def test_a_block_that_rots_loses_a_ready_plan(data: Data, tmp_path: Path) -> None:
        """The next check says which file is not warm any more, and the warm-up that follows mends it."""
        cache = Cache(tmp_path, data.choose)
        before = data.mount.block_files()
        said = await cache.submit("train-1", pinned(data.root, columns=("action",)))
        assert isinstance(said[-1], CacheReady)
        victim = max(data.mount.block_files() - before, key=lambda path: path.stat().st_size)
        with victim.open("r+b") as block:
            block.write(b"rotten")
        told = await cache.run([Work(kind="check", key=cache.plan().key, project=cache.plan().project)])
        assert [type(one) for one in told] == [CacheLost, CacheReady]
        assert isinstance(told[0], CacheLost)
        assert "is cut or broken" in told[0].message
        assert isinstance(told[1], CacheReady)
        assert 0 < told[1].origin_bytes <= 2 * MIB

    def test_a_cache_disk_that_drops_out(tmp_path: Path) -> None:
        """Of two, with most blocks still there: a check says so to the byte, whatever the warm-up had said, and a
        fetch brings back what was on the lost one."""
        folders = [tmp_path / "disk-a", tmp_path / "disk-b"]
        with mounted(tmp_path, cache_dir=Path(":".join(map(str, folders)))) as mount:
            size = 32 * MIB
            (mount.mountpoint / "model.bin").write_bytes(bytes(range(256)) * (size // 256))
            pool, file = JuicefsPool(mount.mountpoint), planned_file("model.bin", size)
            pool.fetch(mount.mountpoint, file)
            assert range_bytes(pool.check(mount.mountpoint, [file])[0].verified) == size
            held = {folder: len([one for one in folder.rglob("chunks/**/*") if one.is_file()]) for folder in folders}
            assert sum(held.values()) == 32
            assert min(held.values()) > 0
            for chunks in folders[0].rglob("chunks"):
                shutil.rmtree(chunks)
            (found,) = pool.check(mount.mountpoint, [file])
            assert range_bytes(found.verified) == held[folders[1]] * MIB
            pool.fetch(mount.mountpoint, file)
            assert range_bytes(pool.check(mount.mountpoint, [file])[0].verified) == size
