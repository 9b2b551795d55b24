"""Object storage that refuses, fails, is slow, breaks off, or goes away: no reader ever gets a wrong byte.

A JuiceFS mount over SeaweedFS, with a wire between them that does these things. What a
fault leaves behind is said with its cause, and is fetched when the fault is over.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import obstore
import pytest
from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.adapters.juicefs_volume import Bucket
from forebay.cache.domain.plan import ByteRange, PlannedFile, planned_file, range_bytes
from forebay.cache.domain.pool_facts import concerns
from forebay.cache.errors import OriginError, PoolError

from services.cache.tests.mounts import Mounted, mounted
from tests.eventually import WITHIN_S, wait_until
from tests.servers.origin_proxy import OriginProxy, origin_proxy
from tests.servers.redis import PASSWORD, redis_server
from tests.servers.seaweedfs import ACCESS_KEY, SECRET_KEY, S3Server, s3_server_beside

MIB = 1 << 20
STALL_S = 2.0
"""For what never answers; where something does, a busy machine may take longer."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Reader, mount, wire, object storage."""

    server: S3Server
    wire: OriginProxy
    mount: Mounted

    def pool(self, stall_s: float = WITHIN_S) -> JuicefsPool:
        return JuicefsPool(self.mount.mountpoint, log=self.mount.log, stall_s=stall_s)

    def write(self, name: str, size: int) -> bytes:
        """A cold file."""
        content = os.urandom(size)
        with (self.mount.mountpoint / name).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.mount.forget()
        return content

    def read(self, name: str, start: int, end: int) -> bytes:
        """What a job would read, with nothing left in the kernel's memory."""
        descriptor = os.open(self.mount.mountpoint / name, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            return os.pread(descriptor, end - start, start)
        finally:
            os.close(descriptor)


def verified(pool: JuicefsPool, root: Path, file: PlannedFile) -> int:
    return range_bytes(pool.check(root, [file])[0].verified)


if juicefs_volume.fuse_available() is None:

    @pytest.fixture(scope="module")
    def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, OriginProxy]]:
        with (
            s3_server_beside(tmp_path_factory.mktemp("weed")) as server,
            origin_proxy(server.endpoint) as wire,
        ):
            yield server, wire

    @pytest.fixture(scope="module")
    def standing(links: tuple[S3Server, OriginProxy], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
        server, wire = links
        bucket = Bucket(url=f"{wire.url}/blocks", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with mounted(tmp_path_factory.mktemp("pool"), storage=bucket, io_retries=2) as mount:
            yield Chain(server, wire, mount)

    @pytest.fixture
    def chain(standing: Chain) -> Iterator[Chain]:
        yield standing
        standing.wire.heal()

    @pytest.mark.parametrize(
        ("fault", "trouble", "says"),
        [
            ({"refuse": 403}, "refused", "403 AccessDenied"),
            ({"refuse": 500}, "failing", "500 InternalError"),
            ({"refuse": 404}, "missing", "404"),
            ({"gone": True}, "gone", "does not answer"),
            ({"hang": True}, "slow", "no read was answered within 2 s"),
        ],
        ids=["403", "500", "404", "gone", "hangs"],
    )
    def test_an_origin_that_gives_nothing(chain: Chain, fault: dict[str, int], trouble: str, says: str) -> None:
        """Said with its cause and without keys; nothing counts as warm; readers get an error; afterwards all comes."""
        content = chain.write("nothing.bin", 6 * MIB)
        file, root, pool = planned_file("nothing.bin", 6 * MIB), chain.mount.mountpoint, chain.pool()
        for name, value in fault.items():
            setattr(chain.wire, name, value)
        with pytest.raises(OriginError) as caught:
            (chain.pool(STALL_S) if "hang" in fault else pool).fetch(root, file)
        assert caught.value.trouble == trouble
        assert says in str(caught.value)
        assert SECRET_KEY not in str(caught.value)
        assert verified(pool, root, file) == 0
        if trouble != "slow":
            with pytest.raises(OSError, match="Input/output error"):
                chain.read("nothing.bin", 0, 100)
        chain.wire.heal()
        chain.wire.close_soon()
        pool.fetch(root, file)
        assert verified(pool, root, file) == 6 * MIB
        assert chain.read("nothing.bin", 0, 6 * MIB) == content

    def test_an_origin_that_goes_away_in_the_middle(chain: Chain) -> None:
        """What had come stays verified and readable, the rest is missing, and only the rest is fetched later."""
        content = chain.write("middle.bin", 40 * MIB)
        file, root, pool = planned_file("middle.bin", 40 * MIB), chain.mount.mountpoint, chain.pool()
        chain.wire.bytes_per_s = 32 * MIB
        chain.wire.when_fetched(24 * MIB, lambda: setattr(chain.wire, "gone", True))
        with pytest.raises(OriginError) as caught:
            pool.fetch(root, file)
        assert caught.value.trouble == "gone"
        # The mount writes what has come to its cache disk by and by, also after the error.
        wait_until(lambda: verified(pool, root, file) > 0, what="something that had come is verified")
        (found,) = pool.check(root, [file])
        had = range_bytes(found.verified)
        assert had < 40 * MIB
        for start, end in found.verified:
            assert chain.read("middle.bin", start, end) == content[start:end]
        chain.wire.heal()
        before = chain.wire.fetched
        assert 0 < pool.fetch(root, file) <= 40 * MIB - had
        assert verified(pool, root, file) == 40 * MIB
        assert chain.wire.fetched - before <= 40 * MIB - had + MIB

    def test_a_slow_origin(chain: Chain) -> None:
        """All comes in the end, and next to nothing is asked for twice."""
        chain.write("slow.bin", 12 * MIB)
        file, root = planned_file("slow.bin", 12 * MIB), chain.mount.mountpoint
        pool = JuicefsPool(root, log=chain.mount.log)
        chain.wire.bytes_per_s, chain.wire.latency_s = 4 * MIB, 0.1
        before = chain.wire.fetched
        assert pool.fetch(root, file) == 12 * MIB
        assert verified(pool, root, file) == 12 * MIB
        assert chain.wire.fetched - before <= 1.05 * 12 * MIB

    def test_many_readers_that_start_cold(chain: Chain) -> None:
        """64 at once on one mount fetch each block once, and read what was written."""
        content = chain.write("many.bin", 16 * MIB)
        file = planned_file("many.bin", 16 * MIB, [ByteRange(2 * MIB, 12 * MIB)])
        chain.wire.bytes_per_s, chain.wire.latency_s = 64 * MIB, 0.02
        before = chain.wire.fetched

        def read(_: int) -> bool:
            return all(chain.read("many.bin", start, end) == content[start:end] for start, end in file.spans)

        with ThreadPoolExecutor(64) as readers:
            assert all(readers.map(read, range(64)))
        # Beyond the range, once, in whole blocks: the mount cannot know where it ends.
        ahead = (juicefs_volume.READAHEAD_MIB + 1) * MIB
        assert chain.wire.fetched - before <= 1.05 * range_bytes(file.aligned(MIB)) + ahead

    def test_answers_that_break_off(chain: Chain) -> None:
        """Whole blocks never arrive: they are missing, with the cause, and no part of them is kept as one."""
        content = chain.write("broken.bin", 3 * MIB)
        file, root, pool = planned_file("broken.bin", 3 * MIB), chain.mount.mountpoint, chain.pool()
        chain.wire.cut_after = 300_000
        pool.fetch(root, file)
        (found,) = pool.check(root, [file])
        assert found.verified == ()
        assert "broke off" in found.missing[0].reason
        chain.wire.heal()
        pool.fetch(root, file)
        assert verified(pool, root, file) == 3 * MIB
        assert chain.read("broken.bin", 0, 3 * MIB) == content

    def test_one_lost_object(chain: Chain) -> None:
        """Only its block is missing, by name and cause; all others become warm."""
        chain.write("lost.bin", 5 * MIB)
        file, root, pool = planned_file("lost.bin", 5 * MIB), chain.mount.mountpoint, chain.pool()
        store = chain.server.bucket("blocks")
        names = [str(one["path"]) for part in obstore.list(store, "forebay-test/chunks") for one in part]
        slice_ = max(names, key=lambda name: int(name.rsplit("/", 1)[1].split("_")[0])).rsplit("/", 1)[1].split("_")[0]
        (victim,) = (name for name in names if name.rsplit("/", 1)[1].startswith(f"{slice_}_2_"))
        obstore.delete(store, victim)
        pool.fetch(root, file)
        (found,) = pool.check(root, [file])
        assert [one.range for one in found.missing] == [ByteRange(2 * MIB, 3 * MIB)]
        assert "has lost the object of a block (404" in found.missing[0].reason

    @pytest.mark.parametrize("noticed", ["the file's time", "its content"])
    def test_a_block_that_rots_on_the_cache_disk(chain: Chain, noticed: str) -> None:
        """No reader gets the wrong byte, a check says that the block is broken, and a fetch mends it."""
        name = f"rotten-{noticed.rsplit(maxsplit=1)[-1]}.bin"
        content = chain.write(name, 3 * MIB)
        file, root, pool = planned_file(name, 3 * MIB), chain.mount.mountpoint, chain.pool()
        before = chain.mount.block_files()
        pool.fetch(root, file)
        victim = sorted(chain.mount.block_files() - before)[1]
        told = victim.stat()
        with victim.open("r+b") as block:
            block.seek(700_000)
            wrong = bytes(255 - value for value in block.read(10))
            block.seek(700_000)
            block.write(wrong)
        if noticed == "its content":  # what a disk does by itself leaves no trace in the time
            os.utime(victim, ns=(told.st_atime_ns, told.st_mtime_ns))
            pool = chain.pool()
        (found,) = pool.check(root, [file])
        assert range_bytes(found.verified) == 2 * MIB
        assert "is cut or broken" in found.missing[0].reason
        assert chain.read(name, 0, 3 * MIB) == content
        for start in (MIB + 700_003, 700_003, 2 * MIB + 700_003):
            assert chain.read(name, start, start + 5) == content[start : start + 5]
        pool.fetch(root, file)
        assert verified(pool, root, file) == 3 * MIB

    def test_a_mount_that_dies_while_it_fetches(links: tuple[S3Server, OriginProxy], tmp_path: Path) -> None:
        """It is the mount that is named, not the object storage; what had come is found by the next one."""
        _, wire = links
        bucket = Bucket(url=f"{wire.url}/dying", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with mounted(tmp_path, storage=bucket) as mount:
            chain = Chain(links[0], wire, mount)
            content = chain.write("dying.bin", 16 * MIB)
            file, pool = planned_file("dying.bin", 16 * MIB), chain.pool()
            wire.bytes_per_s = 8 * MIB
            wire.when_fetched(4 * MIB, mount.kill)
            with pytest.raises(PoolError, match="forebay up"):
                pool.fetch(mount.mountpoint, file)
        wire.heal()
        with mounted(tmp_path, storage=bucket) as mount:
            again = Chain(links[0], wire, mount)
            had = verified(again.pool(), mount.mountpoint, file)
            assert again.pool().fetch(mount.mountpoint, file) == 16 * MIB - had
            assert again.read("dying.bin", 0, 16 * MIB) == content

    def test_shared_metadata_on_redis(links: tuple[S3Server, OriginProxy], tmp_path: Path) -> None:
        """A volume by URL, as in production: warmed and proved alike; passwords and keys are told to nobody."""
        bucket = Bucket(url=f"{links[1].url}/shared", access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        assert SECRET_KEY not in repr(bucket)
        with redis_server(tmp_path) as port:
            url = f"redis://:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/1"
            wrong = url.replace("test", "stranger")
            with pytest.raises(PoolError, match="WRONGPASS") as caught:
                juicefs_volume.format_volume(wrong, bucket, "shared")
            assert "stranger" not in str(caught.value)
            with mounted(tmp_path, storage=bucket, meta_url=url) as mount:
                chain = Chain(*links, mount)
                content = chain.write("shared.bin", 3 * MIB)
                file, pool = planned_file("shared.bin", 3 * MIB), chain.pool()
                pool.fetch(mount.mountpoint, file)
                assert verified(pool, mount.mountpoint, file) == 3 * MIB
                assert chain.read("shared.bin", 0, 3 * MIB) == content
                for process in (json.loads((mount.mountpoint / ".config").read_bytes())["Pid"], mount.process.pid):
                    line = Path(f"/proc/{process}/cmdline").read_bytes()
                    assert b"of the" not in line
                    assert b"of%20the" not in line
                assert PASSWORD not in mount.log.read_text()
                assert SECRET_KEY not in mount.log.read_text()


if juicefs_volume.fuse_available() is None and os.geteuid() == 0:

    def test_a_full_cache_disk(tmp_path: Path) -> None:
        """What does not fit is missing because of the disk, readers are served from the origin, and it is said before."""
        disk = tmp_path / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], check=True)
        try:
            with mounted(tmp_path, cache_dir=disk / "cache") as mount:
                content = os.urandom(24 * MIB)
                (mount.mountpoint / "large.bin").write_bytes(content)
                pool = JuicefsPool(mount.mountpoint, stall_s=WITHIN_S)
                file = planned_file("large.bin", 24 * MIB)
                assert pool.room_bytes() < 12 * MIB
                pool.fetch(mount.mountpoint, file)
                (found,) = pool.check(mount.mountpoint, [file])
                assert 0 < len(found.missing) < 24
                assert "the cache disk" in found.missing[0].reason
                assert (mount.mountpoint / "large.bin").read_bytes() == content
                (disk / "ballast").write_bytes(bytes(max(0, pool.facts().disks[0].free_bytes - 200_000)))
                assert "disk-full" in [one.kind for one in concerns(pool.facts())]
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)
