"""Judgements of the checks in a pod: what was seen, against what was asked. Pure; `pod_probes.py` looks.

Each failure has an exit code of its own (200 to 219): below 210 another attempt would
meet the same, from 210 on another node or a later moment may mend it. README of the
sdk has the table.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.jobs import PreflightCheck

SHM = "/dev/shm"  # noqa: S108 the name of the mount, nothing is written here
BAD_INPUTS, DATASET_CHANGED, CONFIG_UNREADABLE, CHECKPOINT_UNREADABLE, RESUME_REFUSED = 200, 201, 202, 203, 204
OUTPUT_NOT_WRITABLE, OUTPUT_FULL, SHM_TOO_SMALL = 205, 206, 207
OTHER_DATA_MOUNTED, DATA_MISSING = 208, 209
DATA_NOT_MOUNTED, DATA_UNREADABLE, GPU_NOT_VISIBLE, DRIVER_MISMATCH, GPU_COUNT = 210, 211, 212, 213, 214
OUTPUT_LOST, RESUME_UNKNOWN, CHECKS_BROKE = 215, 216, 219

EXIT_CODES: dict[int, str] = {
    BAD_INPUTS: "what the job was promised cannot be read, or its data was never pinned",
    DATASET_CHANGED: "the data is not the pinned version",
    CONFIG_UNREADABLE: "a configuration file of the command cannot be read",
    CHECKPOINT_UNREADABLE: "the checkpoint to continue from cannot be read",
    RESUME_REFUSED: "no usable checkpoint fits, and a cold start is not allowed",
    OUTPUT_NOT_WRITABLE: "the output folder takes no files",
    OUTPUT_FULL: "the output folder has no room",
    SHM_TOO_SMALL: f"{SHM} is smaller than needed",
    OTHER_DATA_MOUNTED: "something else than a dataset version is mounted at the data's folder",
    DATA_MISSING: "the data's volume is mounted, and the version is not on it",
    DATA_NOT_MOUNTED: "nothing is mounted at the data's folder, or the pool's mount behind it is gone",
    DATA_UNREADABLE: "the data is mounted and cannot be read",
    GPU_NOT_VISIBLE: "no GPU can be seen",
    DRIVER_MISMATCH: "GPU driver and library do not fit each other",
    GPU_COUNT: "fewer GPUs can be seen than were asked for",
    OUTPUT_LOST: "the output's mount does not answer",
    RESUME_UNKNOWN: "nobody could say where to continue",
    CHECKS_BROKE: "the checks themselves broke",
}
"""Every exit code of `forebay pod prepare`, with what it means."""
MOUNT_IS_DEAD = frozenset({errno.EIO, errno.ENOTCONN, errno.ESTALE, errno.ETIMEDOUT, errno.ENODEV, errno.EHOSTDOWN})
"""What a file system that lost its server answers."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
NODE_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "overlay", "zfs", "f2fs"})
"""What a node's own disk is formatted with."""
_NO_STORAGE = frozenset({"tmpfs", "ramfs", "proc", "sysfs", "devtmpfs", "cgroup", "cgroup2"})
"""File systems of a running machine: no data lies there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check with the exit code that its failure has."""

    check: PreflightCheck
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoint:
    """One line of /proc/self/mounts."""

    source: str
    path: str
    kind: str
    options: tuple[str, ...]


def read_mounts(table: str) -> tuple[MountPoint, ...]:
    """The mount points of a process, in the order in which they were made."""
    found = []
    for line in table.splitlines():
        parts = line.split(" ")
        if len(parts) >= 4:
            options = tuple(parts[3].split(","))
            found.append(MountPoint(source=parts[0], path=_plain(parts[1]), kind=parts[2], options=options))
    return tuple(found)


def mount_of(path: str, mounts: Sequence[MountPoint]) -> MountPoint | None:
    """The mount that a path lies on; of two on the same path the later one."""
    fitting = [item for item in mounts if item.path in {"/", path} or path.startswith(item.path + "/")]
    return max(enumerate(fitting), key=lambda pair: (len(pair[1].path), pair[0]), default=(0, None))[1]


def _plain(text: str) -> str:
    """Blanks in paths are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def passed(name: str, reason: Reason, message: str) -> Finding:
    return _finding(name, "pass", reason, message, 0)


def warned(name: str, reason: Reason, message: str) -> Finding:
    return _finding(name, "warn", reason, message, 0)


def failed(name: str, reason: Reason, message: str, code: int) -> Finding:
    return _finding(name, "fail", reason, message, code)


def _finding(name: str, status: Literal["pass", "warn", "fail"], reason: Reason, message: str, code: int) -> Finding:
    return Finding(check=PreflightCheck(name=name, status=status, reason=reason, message=message), code=code)


def judge_data_mount(
    name: str, path: str, mounts: Sequence[MountPoint], *, entries: int, kinds: Sequence[str] = ()
) -> Iterable[Finding]:
    """A mount of its own, of a kind that holds data, not empty, and not writable."""
    found = mount_of(path, mounts)
    if found is None or found.path != path or found.kind in _NO_STORAGE:
        message = f"{path} is a folder of the container, not the pool: nothing is mounted there"
        yield failed(name, Reason.DATA_NOT_MOUNTED, message, DATA_NOT_MOUNTED)
        return
    if kinds and found.kind not in kinds:
        message = f"{path} is mounted as {found.kind}, {' or '.join(kinds)} was expected: the pool's mount is gone"
        yield failed(name, Reason.DATA_NOT_MOUNTED, message, DATA_NOT_MOUNTED)
        return
    if not entries:
        yield _empty(name, path, found, kinds)
        return
    if "rw" in found.options:
        yield warned(f"{name} mode", Reason.DATA_WRITABLE, f"{path} is mounted read-write; a job could change the data")


def _empty(name: str, path: str, found: MountPoint, kinds: Sequence[str]) -> Finding:
    """A volume of the pool's own kind that lacks the version, or the node's disk showing through where the pool was."""
    pool = found.kind in kinds if kinds else found.kind not in NODE_DISKS
    if pool:
        message = f"{path} is mounted ({found.kind}) and empty: the version is not in the pool any more"
        return failed(name, Reason.DATA_MISSING, message, DATA_MISSING)
    message = f"{path} is an empty folder on the node's own disk ({found.kind}): the pool is not mounted there"
    return failed(name, Reason.DATA_NOT_MOUNTED, message, DATA_NOT_MOUNTED)


def judge_no_manifest(name: str, path: str, manifest: str) -> Finding:
    """Files lie there, and none of them says which version they are."""
    message = f"{path} holds files and no {manifest}: something else than the dataset version is mounted there"
    return failed(name, Reason.OTHER_DATA_MOUNTED, message, OTHER_DATA_MOUNTED)


def judge_read_error(name: str, path: str, error: OSError) -> Finding:
    """The data cannot be read: the mount is dead, or a file is not there."""
    said = f"{error.strerror or error} (errno {error.errno})"
    return failed(name, Reason.DATA_UNREADABLE, f"{path} cannot be read: {said}", DATA_UNREADABLE)


def judge_version(name: str, *, expected: tuple[int, str], found: tuple[int | None, str]) -> Finding | None:
    """The version that is there, by its manifest's digest; None when it is the pinned one."""
    if found[1] == expected[1] and found[0] in {None, expected[0]}:
        return None
    there = f"{found[0]}/{found[1][:12]}…" if found[0] is not None else f"{found[1][:12]}…"
    message = f"the job pinned {expected[0]}/{expected[1][:12]}…, mounted is {there}"
    return failed(name, Reason.DATASET_CHANGED, message, DATASET_CHANGED)


def judge_write_error(path: str, error: OSError) -> Finding:
    """Why the output takes no files."""
    said = f"{error.strerror or error} (errno {error.errno})"
    if error.errno in _NO_ROOM:
        return failed("output", Reason.OUTPUT_FULL, f"{path} has no room: {said}", OUTPUT_FULL)
    code = OUTPUT_LOST if error.errno in MOUNT_IS_DEAD else OUTPUT_NOT_WRITABLE
    return failed("output", Reason.OUTPUT_NOT_WRITABLE, f"{path} takes no files: {said}", code)


def judge_room(path: str, *, free: int, needed: int) -> Finding:
    if free < needed:
        message = f"{path} has {free} bytes free, {needed} are needed"
        return failed("output", Reason.OUTPUT_FULL, message, OUTPUT_FULL)
    return passed("output", Reason.OUTPUT_WRITABLE, f"{path} takes files, {free // 2**20} MiB free")


def judge_shm(*, have: int, needed: int, asked: int | None) -> Finding:
    """Against what the loader needs, and what the job asked for."""
    name = "shm"
    if have < needed:
        message = (
            f"{SHM} has {have} bytes, the data loader needs at least {needed} (workers · prefetch · batch · sample);"
            " ask for more with resources: {shm: …}"
        )
        return failed(name, Reason.SHM_TOO_SMALL, message, SHM_TOO_SMALL)
    if asked and have < asked:
        message = f"{SHM} has {have} bytes, {asked} were asked for"
        return failed(name, Reason.SHM_TOO_SMALL, message, SHM_TOO_SMALL)
    return passed(name, Reason.SHM_LARGE_ENOUGH, f"{SHM} has {have // 2**20} MiB")


def shm_size(mounts: Sequence[MountPoint]) -> int | None:
    """The size that the mount table gives /dev/shm; None when it gives none."""
    found = mount_of(SHM, mounts)
    if found is None or found.path != SHM:
        return None
    units = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
    for option in found.options:
        if match := re.fullmatch(r"size=(\d+)([kmg]?)", option):
            return int(match[1]) * units[match[2]]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusSeen:
    """What can be seen of GPUs in a container."""

    device_files: int
    """Files such as /dev/nvidia0."""
    listing: str | None = None
    """Output of `nvidia-smi -L`; None: there is no such program here."""
    exit_code: int | None = None


def judge_gpus(wanted: int, seen: GpusSeen, *, node: str = "") -> Finding:
    """As many as were asked for, or nothing goes on: training must not fall back to the processor."""
    name, where = "gpu", f" on node {node}" if node else ""
    listing = (seen.listing or "").strip()
    if re.search(r"driver/library version mismatch", listing, re.IGNORECASE):
        return failed(name, Reason.DRIVER_MISMATCH, f"{listing}{where}", DRIVER_MISMATCH)
    if seen.listing is not None and (seen.exit_code or not _listed(listing)):
        message = f"{wanted} asked for, nvidia-smi{where} says: {listing or f'nothing (exit code {seen.exit_code})'}"
        return failed(name, Reason.GPU_NOT_VISIBLE, message, GPU_NOT_VISIBLE)
    count = _listed(listing) if seen.listing is not None else seen.device_files
    if count == 0:
        message = f"{wanted} asked for, and no GPU can be seen{where}: neither nvidia-smi nor a device file"
        return failed(name, Reason.GPU_NOT_VISIBLE, message, GPU_NOT_VISIBLE)
    if count < wanted:
        return failed(name, Reason.GPU_COUNT, f"{count} of {wanted} GPUs can be seen{where}", GPU_COUNT)
    return passed(name, Reason.RESOURCES_VISIBLE, f"{count} GPUs can be seen, {wanted} asked for")


def _listed(listing: str) -> int:
    """GPUs of `nvidia-smi -L`; where one is cut into MIG devices, those are what a container gets."""
    slices = re.findall(r"^\s+MIG .*\(UUID:", listing, re.MULTILINE)
    return len(slices) or len(re.findall(r"^GPU \d+:", listing, re.MULTILINE))


def judge_bus(problem: str | None) -> Iterable[Finding]:
    """A bus that does not answer holds no job back."""
    if problem:
        message = f"{problem}; events are kept and delivered later"
        yield warned("bus", Reason.STATUS_UNREACHABLE, message)


def exit_code_of(findings: Iterable[Finding]) -> int:
    """0, or the code of the failure that decides: what another attempt would meet again comes first."""
    codes = sorted(item.code for item in findings if item.check.status == "fail")
    return codes[0] if codes else 0
