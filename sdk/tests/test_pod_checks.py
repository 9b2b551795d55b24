"""Judgements of the checks in a pod: what was seen against what was asked, each with its exit code."""

from __future__ import annotations

import errno
import json
import os

import pytest
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import PreflightCheck
from forebay.sdk import pod_checks as judge
from forebay.sdk.pod_checks import Finding, GpusSeen
from forebay.sdk.pod_report import MAX_BYTES, masked, termination_message
from hypothesis import given
from hypothesis import strategies as st

MOUNTS = judge.read_mounts(
    "overlay / overlay rw,relatime,lowerdir=/a 0 0\n"
    "JuiceFS:pool /forebay/data/pick-place fuse.juicefs ro,relatime 0 0\n"
    "JuiceFS:pool /forebay/data/open fuse.juicefs rw,relatime 0 0\n"
    "/dev/sda1 /forebay/data/disk ext4 ro 0 0\n"
    "tmpfs /forebay/data/ram tmpfs ro 0 0\n"
    "/dev/sda1 /with\\040blank ext4 ro 0 0\n"
    "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0\n"
)


def outcome(finding: Finding) -> tuple[str, Reason, int]:
    return finding.check.status, finding.check.reason, finding.code


class TestData:
    """A mount, of the right kind, not empty, of the pinned version."""

    @pytest.mark.parametrize(
        ("path", "entries", "kinds", "expected"),
        [
            ("/forebay/data/pick-place", 3, (), []),
            ("/forebay/data/pick-place", 3, ("fuse.juicefs",), []),
            ("/forebay/data/pick-place", 3, ("nfs4",), [("fail", Reason.DATA_NOT_MOUNTED, 210)]),
            ("/forebay/data/pick-place", 0, (), [("fail", Reason.DATA_MISSING, 209)]),
            ("/forebay/data/pick-place", 0, ("fuse.juicefs",), [("fail", Reason.DATA_MISSING, 209)]),
            ("/forebay/data/disk", 0, (), [("fail", Reason.DATA_NOT_MOUNTED, 210)]),
            ("/forebay/data/pick-place/meta", 3, (), [("fail", Reason.DATA_NOT_MOUNTED, 210)]),
            ("/forebay/data/ram", 3, (), [("fail", Reason.DATA_NOT_MOUNTED, 210)]),
            ("/forebay/data/gone", 3, (), [("fail", Reason.DATA_NOT_MOUNTED, 210)]),
            ("/forebay/data/open", 3, (), [("warn", Reason.DATA_WRITABLE, 0)]),
            ("/with blank", 3, (), []),
        ],
    )
    def test_the_folder_must_be_a_mount_that_holds_data(
        self, path: str, entries: int, kinds: tuple[str, ...], expected: list[tuple[str, Reason, int]]
    ) -> None:
        """The container's own disk and an empty folder behind a lost mount are no data; a writable mount warns."""
        found = judge.judge_data_mount("data x", path, MOUNTS, entries=entries, kinds=kinds)
        assert [outcome(item) for item in found] == expected

    def test_another_version_fails_with_both(self) -> None:
        """Expected 4/aaaa, found 5/bbbb."""
        found = judge.judge_version("data x", expected=(4, "a" * 64), found=(5, "b" * 64))
        assert found is not None
        assert outcome(found) == ("fail", Reason.DATASET_CHANGED, 201)
        assert "4/aaaaaaaaaaaa…" in found.check.message
        assert "5/bbbbbbbbbbbb…" in found.check.message
        assert judge.judge_version("data x", expected=(4, "a" * 64), found=(4, "a" * 64)) is None
        assert judge.judge_version("data x", expected=(4, "a" * 64), found=(None, "b" * 64)) is not None

    def test_a_dead_mount_is_the_infrastructures_fault(self) -> None:
        """Another node may read what this one cannot."""
        error = OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        found = judge.judge_read_error("data x", "/forebay/data/x", error)
        assert outcome(found) == ("fail", Reason.DATA_UNREADABLE, 211)
        assert "errno 107" in found.check.message


class TestOutput:
    """Writable, with room, on a mount that answers."""

    @pytest.mark.parametrize(
        ("number", "reason", "code"),
        [
            (errno.EROFS, Reason.OUTPUT_NOT_WRITABLE, 205),
            (errno.EACCES, Reason.OUTPUT_NOT_WRITABLE, 205),
            (errno.ENOSPC, Reason.OUTPUT_FULL, 206),
            (errno.EDQUOT, Reason.OUTPUT_FULL, 206),
            (errno.EIO, Reason.OUTPUT_NOT_WRITABLE, 215),
            (errno.ESTALE, Reason.OUTPUT_NOT_WRITABLE, 215),
        ],
    )
    def test_the_errors_number_decides(self, number: int, reason: Reason, code: int) -> None:
        """It is in the message, with the folder."""
        found = judge.judge_write_error("/output/tj-0007", OSError(number, os.strerror(number)))
        assert outcome(found) == ("fail", reason, code)
        assert f"errno {number}" in found.check.message

    def test_room_is_compared_with_what_is_needed(self) -> None:
        """Both numbers are told."""
        assert outcome(judge.judge_room("/o", free=10, needed=11)) == ("fail", Reason.OUTPUT_FULL, 206)
        assert judge.judge_room("/o", free=11, needed=11).check.status == "pass"


class TestSharedMemory:
    """/dev/shm against workers · prefetch · batch · sample."""

    def test_64_mib_are_not_enough_for_eight_workers(self) -> None:
        """8·2·32·1,843,200 = 943,718,400 bytes are needed; the mount table says what there is."""
        have = judge.shm_size(MOUNTS)
        assert have == 67_108_864
        found = judge.judge_shm(have=have, needed=943_718_400, asked=None)
        assert outcome(found) == ("fail", Reason.SHM_TOO_SMALL, 207)
        assert "67108864" in found.check.message
        assert "943718400" in found.check.message

    def test_without_workers_it_passes(self) -> None:
        """Nothing is handed over through it."""
        assert judge.judge_shm(have=67_108_864, needed=0, asked=None).check.status == "pass"

    def test_what_was_asked_for_must_be_there(self) -> None:
        """A memory volume that is not mounted is seen, whatever the loader needs."""
        assert judge.judge_shm(have=64 << 20, needed=0, asked=1 << 30).check.status == "fail"
        assert judge.judge_shm(have=1 << 30, needed=0, asked=1 << 30).check.status == "pass"

    @pytest.mark.parametrize(("option", "size"), [("size=1g", 1 << 30), ("size=8388608k", 8 << 30), ("rw", None)])
    def test_sizes_of_the_mount_table(self, option: str, size: int | None) -> None:
        """As the kernel writes them."""
        assert judge.shm_size(judge.read_mounts(f"tmpfs /dev/shm tmpfs rw,{option} 0 0")) == size


H200 = "GPU 0: NVIDIA H200 (UUID: GPU-1111)\n"
GPUS: list[tuple[str, int, GpusSeen, tuple[str, Reason, int]]] = [
    ("unknown error", 1, GpusSeen(device_files=0, listing="Failed to initialize NVML: Unknown Error\n", exit_code=255),
     ("fail", Reason.GPU_NOT_VISIBLE, 212)),
    ("mismatch", 1, GpusSeen(device_files=1, listing="Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.1", exit_code=18),
     ("fail", Reason.DRIVER_MISMATCH, 213)),
    ("one of two", 2, GpusSeen(device_files=1, listing=H200, exit_code=0), ("fail", Reason.GPU_COUNT, 214)),
    ("none listed", 1, GpusSeen(device_files=0, listing="No devices found.\n", exit_code=0), ("fail", Reason.GPU_NOT_VISIBLE, 212)),
    ("half a list", 1, GpusSeen(device_files=1, listing=H200, exit_code=14), ("fail", Reason.GPU_NOT_VISIBLE, 212)),
    ("no program, no file", 1, GpusSeen(device_files=0), ("fail", Reason.GPU_NOT_VISIBLE, 212)),
    ("no program, one file of two", 2, GpusSeen(device_files=1), ("fail", Reason.GPU_COUNT, 214)),
    ("no program, files", 2, GpusSeen(device_files=2), ("pass", Reason.RESOURCES_VISIBLE, 0)),
    ("two", 2, GpusSeen(device_files=2, listing=H200 + H200.replace("0:", "1:"), exit_code=0), ("pass", Reason.RESOURCES_VISIBLE, 0)),
    ("slices", 2, GpusSeen(device_files=1, listing=H200 + "  MIG 1g.18gb     Device  0: (UUID: MIG-a)\n  MIG 1g.18gb     Device  1: (UUID: MIG-b)\n", exit_code=0),
     ("pass", Reason.RESOURCES_VISIBLE, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "seen", "expected"), [case[1:] for case in GPUS], ids=[case[0] for case in GPUS])
def test_gpus_are_seen_in_the_number_asked_for(wanted: int, seen: GpusSeen, expected: tuple[str, Reason, int]) -> None:
    """A failure names the node, and nothing falls back to the processor."""
    found = judge.judge_gpus(wanted, seen, node="gpu-5")
    assert outcome(found) == expected
    assert expected[0] == "pass" or "gpu-5" in found.check.message


def test_an_endpoint_that_does_not_answer_only_warns() -> None:
    """Training may start; events are delivered later."""
    (found,) = judge.judge_bus("Name or service not known")
    assert outcome(found) == ("warn", Reason.STATUS_UNREACHABLE, 0)
    assert list(judge.judge_bus(None)) == []


def test_the_exit_code_is_that_of_what_another_attempt_would_meet_again() -> None:
    """Configuration before infrastructure; warnings never fail."""
    gpu = judge.judge_gpus(1, GpusSeen(device_files=0))
    shm = judge.judge_shm(have=1, needed=2, asked=None)
    (bus,) = judge.judge_bus("no")
    assert judge.exit_code_of([bus]) == 0
    assert judge.exit_code_of([gpu, bus]) == 212
    assert judge.exit_code_of([gpu, shm]) == 207
    assert all(200 <= code <= 219 for code in judge.EXIT_CODES)


def test_no_secret_is_reported() -> None:
    """Neither in a URL nor as a value."""
    found = judge.judge_bus("nats://user:hunter2@bus:4222 does not answer; token=abcdef123")
    text = masked(list(found))[0].check.message
    assert "hunter2" not in text
    assert "abcdef123" not in text


CHECKS = st.builds(
    PreflightCheck,
    name=st.text(max_size=200),
    status=st.sampled_from(["pass", "warn", "fail"]),
    reason=st.sampled_from(list(Reason)),
    message=st.text(max_size=3000),
)


@given(st.lists(CHECKS, max_size=30))
def test_the_termination_message_always_fits_and_reads(checks: list[PreflightCheck]) -> None:
    """At most 4,096 bytes of whole JSON; what passed is left out before a failure is."""
    text = termination_message(checks, attempt=2, exit_code=205)
    assert len(text) <= MAX_BYTES
    found = json.loads(text)
    assert (found["attempt"], found["exit_code"]) == (2, 205)
    kept = [item["status"] for item in found["checks"]]
    failed = sum(1 for check in checks if check.status == "fail")
    if "pass" in kept:
        assert kept.count("fail") == failed
    assert found.get("left_out", 0) == len(checks) - len(kept)
