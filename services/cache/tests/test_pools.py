"""One suite for every pool: what is warm is there, what is not is said, nothing is counted that is not.

Without FUSE only the plain folder runs, and `test_fuse_is_used_where_it_exists` says so.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from forebay.cache.adapters import juicefs_volume
from forebay.cache.adapters.folder_pool import FolderPool
from forebay.cache.adapters.juicefs_pool import JuicefsPool
from forebay.cache.adapters.locations import choose_between
from forebay.cache.adapters.version_root import plan_folder
from forebay.cache.domain.plan import ByteRange, PlannedFile, planned_file, range_bytes
from forebay.cache.errors import DataChangedError, DataUnreadableError, PoolError
from forebay.cache.ports import Pool

from .mounts import Mounted, mounted
from .version_roots import FRONT, write_version

MIB = 1 << 20
WHY_NO_FUSE = juicefs_volume.fuse_available()
KINDS = ["folder"] if WHY_NO_FUSE else ["folder", "juicefs"]


@dataclass(frozen=True, slots=True)
class Place:
    pool: Pool
    root: Path
    mount: Mounted | None


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "folder":
        yield Place(FolderPool(folder), folder, None)
        return
    with mounted(folder) as mount:
        yield Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)


def write(place: Place, name: str, size: int) -> Path:
    path = place.root / name
    with path.open("wb") as file:
        file.write(os.urandom(size))
        file.flush()
        os.fsync(file.fileno())
    return path


def verified_bytes(place: Place, file: PlannedFile) -> int:
    (found,) = place.pool.check(place.root, [file])
    assert range_bytes(found.verified) + sum(one.range.length for one in found.missing) == file.planned_bytes
    return range_bytes(found.verified)


def test_fuse_is_used_where_it_exists() -> None:
    """A machine with /dev/fuse runs the JuiceFS half of this suite; one without says so and runs the rest."""
    if juicefs_volume.FUSE_DEVICE.exists():
        assert WHY_NO_FUSE is None
    else:
        print(f"JuiceFS pool not tested here: {WHY_NO_FUSE}")  # noqa: T201 the reader of the log must see it


def test_fetched_ranges_are_verified(place: Place) -> None:
    """After a fetch every planned byte is verified, and a second fetch has nothing to do."""
    write(place, "ranges.bin", 9 * MIB + 1234)
    file = planned_file(
        "ranges.bin",
        9 * MIB + 1234,
        [ByteRange(100, 200), ByteRange(3 * MIB - 5, 3 * MIB + 5), ByteRange(9 * MIB, 9 * MIB + 1234)],
    )
    place.pool.fetch(place.root, file)
    assert verified_bytes(place, file) == file.planned_bytes
    assert place.pool.fetch(place.root, file) == 0


def test_whole_and_empty_files(place: Place) -> None:
    """A whole file is verified whole; an empty one needs nothing."""
    write(place, "whole.bin", 2 * MIB + 7)
    write(place, "empty.bin", 0)
    whole, empty = planned_file("whole.bin", 2 * MIB + 7), planned_file("empty.bin", 0)
    for file in (whole, empty):
        place.pool.fetch(place.root, file)
    found = place.pool.check(place.root, [whole, empty])
    assert [one.missing for one in found] == [(), ()]
    assert found[0].verified == (ByteRange(0, 2 * MIB + 7),)


def test_a_changed_file_is_refused(place: Place) -> None:
    """A file with another size than planned, or none, is an error that names it."""
    write(place, "changed.bin", 1000)
    with pytest.raises(DataChangedError, match="1,000 bytes, it had 1,001"):
        place.pool.check(place.root, [planned_file("changed.bin", 1001)])
    with pytest.raises(DataUnreadableError, match="is gone"):
        place.pool.fetch(place.root, planned_file("never.bin", 5))


def test_a_version_is_warmed_as_planned(place: Place) -> None:
    """A real plan of a dataset version becomes warm range by range."""
    root = write_version(place.root / "v1", video_bytes=2_500_000)
    plan = plan_folder(root, columns=("action", FRONT))
    for file in plan.files:
        place.pool.fetch(root, file)
    found = place.pool.check(root, plan.files)
    assert sum(range_bytes(one.verified) for one in found) == plan.total_bytes
    assert not [one for part in found for one in part.missing]


def test_there_is_room(place: Place) -> None:
    """Room is what the disk has left, less what is never filled."""
    assert 0 < place.pool.room_bytes() < 1 << 50
    assert place.pool.traits.block_bytes == MIB
    assert (place.pool.traits.cannot_prove is None) == (place.pool.traits.proof == "blocks")


def test_facts_are_told(place: Place) -> None:
    """Bytes and inodes of the disk, what the pool may hold, and that the disk takes files."""
    facts = place.pool.facts()
    assert facts.adapter == place.pool.traits.adapter
    assert (facts.limit_bytes, facts.keep_free_ratio) == ((1 << 30, 0.05) if place.mount else (None, None))
    for disk in facts.disks:
        assert 0 < disk.free_bytes <= disk.total_bytes
        assert disk.problem is None
        assert not list(Path(disk.folder).glob(".forebay-probe-*"))


def test_dropping_what_nobody_has(place: Place) -> None:
    """Files that are gone, or were never warm, free nothing and are no error."""
    write(place, "cold.bin", 3 * MIB)
    cold = [planned_file("cold.bin", 3 * MIB), planned_file("gone.bin", 5)]
    assert place.pool.drop(place.root, cold) == 0


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    with mounted(tmp_path_factory.mktemp("juicefs")) as found:
        yield found


if WHY_NO_FUSE is None:

    def test_only_planned_blocks_are_fetched(mount: Mounted) -> None:
        """Freshly written blocks are cold, and a fetch brings in the planned ones and no others."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        write(place, "blocks.bin", 40 * MIB)
        spans = [ByteRange(block * MIB + 10, block * MIB + 90) for block in (2, 3, 4, 11, 30, 31)]
        file = planned_file("blocks.bin", 40 * MIB, spans)
        assert verified_bytes(place, file) == 0
        before, origin = mount.block_files(), mount.origin_bytes()
        assert place.pool.fetch(place.root, file) == 6 * MIB
        assert {path.name.split("_")[1] for path in mount.block_files() - before} == {"2", "3", "4", "11", "30", "31"}
        assert verified_bytes(place, file) == 6 * 80
        assert mount.origin_bytes() - origin <= 1.05 * 6 * MIB

    def test_a_mount_has_no_debug_server(mount: Mounted) -> None:
        """It listens on the loopback interface only, and there it gives its figures and no profile of its memory."""
        processes = [psutil.Process(mount.process.pid), *psutil.Process(mount.process.pid).children(recursive=True)]
        listening = [c.laddr for p in processes for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert {address.ip for address in listening} == {"127.0.0.1"}
        for address in listening:
            asked = http.client.HTTPConnection(address.ip, address.port, timeout=5)
            asked.request("GET", "/debug/pprof/")
            assert asked.getresponse().status == http.HTTPStatus.NOT_FOUND
            asked.close()

    def test_lost_blocks_are_seen_and_come_back(mount: Mounted) -> None:
        """Blocks that vanish from the cache are missing at once, with a reason, and can be fetched again."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        write(place, "lost.bin", 5 * MIB)
        file = planned_file("lost.bin", 5 * MIB)
        place.pool.fetch(place.root, file)
        assert verified_bytes(place, file) == 5 * MIB
        assert mount.forget() >= 5
        (found,) = place.pool.check(place.root, [file])
        assert found.verified == ()
        assert "is not in the cache folder" in found.missing[0].reason
        place.pool.fetch(place.root, file)
        assert verified_bytes(place, file) == 5 * MIB

    def test_dropped_blocks_are_freed(mount: Mounted) -> None:
        """Dropping frees exactly the blocks that no kept plan touches, the mount counts them no more, and they come back."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        content = write(place, "dropped.bin", 8 * MIB).read_bytes()
        whole = planned_file("dropped.bin", 8 * MIB)
        shared = planned_file("dropped.bin", 8 * MIB, [ByteRange(3 * MIB + 1, 4 * MIB + 1)])
        place.pool.fetch(place.root, whole)
        used = place.pool.facts().used_bytes
        before = mount.block_files()
        freed = place.pool.drop(place.root, [whole], keep=[(place.root, [shared])])
        assert 6 * MIB <= freed < 6.01 * MIB
        assert len(before - mount.block_files()) == 6
        assert verified_bytes(place, shared) == shared.planned_bytes
        assert verified_bytes(place, whole) == 2 * MIB
        assert place.pool.drop(place.root, [whole]) < 2.01 * MIB
        assert verified_bytes(place, whole) == 0
        now = place.pool.facts().used_bytes
        assert used is not None
        assert now is not None
        assert used - now >= 8 * MIB
        assert (place.root / "dropped.bin").read_bytes() == content
        place.pool.fetch(place.root, whole)
        assert verified_bytes(place, whole) == 8 * MIB

    def test_blocks_of_hard_links_are_kept(mount: Mounted) -> None:
        """Versions share files as hard links: a block is one block, whatever the file is called."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        path = write(place, "first.bin", 2 * MIB)
        (place.root / "second.bin").hardlink_to(path)
        first, second = planned_file("first.bin", 2 * MIB), planned_file("second.bin", 2 * MIB)
        place.pool.fetch(place.root, first)
        assert verified_bytes(place, second) == 2 * MIB
        assert place.pool.drop(place.root, [first], keep=[(place.root, [second])]) == 0
        assert verified_bytes(place, second) == 2 * MIB

    def test_links_into_the_mount(mount: Mounted, tmp_path: Path) -> None:
        """A dataset that stays in its place is a folder of links: what they lead to is warmed, proved and freed."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        (tmp_path / "linked.bin").symlink_to(write(place, "owners.bin", 3 * MIB))
        file = planned_file("linked.bin", 3 * MIB)
        chosen = choose_between("juicefs", mount.mountpoint)(tmp_path, [file])
        assert chosen.traits.proof == "blocks"
        assert range_bytes(chosen.check(tmp_path, [file])[0].verified) == 0
        chosen.fetch(tmp_path, file)
        assert range_bytes(chosen.check(tmp_path, [file])[0].verified) == 3 * MIB
        assert chosen.drop(tmp_path, [file]) >= 3 * MIB
        (tmp_path / "elsewhere.bin").write_bytes(b"here")
        outside = planned_file("elsewhere.bin", 4)
        assert choose_between("juicefs", mount.mountpoint)(tmp_path, [outside]).traits.proof == "readable"

    def test_a_cut_block_does_not_count(mount: Mounted) -> None:
        """A block file that is shorter than its block is not warm."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        write(place, "cut.bin", 3 * MIB)
        file = planned_file("cut.bin", 3 * MIB)
        before = mount.block_files()
        place.pool.fetch(place.root, file)
        victim = max(mount.block_files() - before)
        with victim.open("r+b") as opened:
            opened.truncate(1000)
        assert verified_bytes(place, file) == 2 * MIB

    def test_rewritten_parts_and_holes(mount: Mounted) -> None:
        """A file of several slices and a hole is mapped block by block."""
        place = Place(JuicefsPool(mount.mountpoint), mount.mountpoint, mount)
        path = write(place, "patched.bin", 6 * MIB)
        with path.open("r+b") as opened:
            opened.seek(2 * MIB + 500)
            opened.write(os.urandom(MIB))
            opened.truncate(70 * MIB)
        file = planned_file("patched.bin", 70 * MIB)
        place.pool.fetch(place.root, file)
        assert verified_bytes(place, file) == 70 * MIB

    def test_formatting_again_changes_nothing_and_a_dead_mount_is_named(tmp_path: Path) -> None:
        """Format is idempotent, data outlives the mount, and without a mount the pool says so."""
        with mounted(tmp_path) as first:
            (first.mountpoint / "kept").write_text("here")
        with mounted(tmp_path) as second:
            assert (second.mountpoint / "kept").read_text() == "here"
            pool = JuicefsPool(second.mountpoint)
            second.process.kill()
            juicefs_volume.unmount(second.mountpoint)
            with pytest.raises(PoolError, match="forebay up"):
                pool.check(second.mountpoint, [])
        assert not juicefs_volume.is_mounted(tmp_path / "pool")
        juicefs_volume.unmount(tmp_path / "pool")
