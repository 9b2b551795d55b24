"""Checks that an attempt makes where it will run, before its command is started.

All checks run and are reported together: one start tells everything that is wrong.
Called by the agent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import MANIFEST_FILE, PinnedInput
from forebay.contracts.v1.jobs import PreflightCheck, Resources
from forebay.runtime.regular_files import open_regular, read_regular
from forebay.sdk.errors import DataUnreadableError
from forebay.sdk.inputs import Inputs, local_path
from forebay.sdk.pod_checks import MOUNT_IS_DEAD, NODE_DISKS, mount_of, read_mounts
from forebay.sdk.roots import Root, root_at

_READ_BYTES = 64 * 1024
_MOUNT_TABLE = Path("/proc/self/mounts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the checks look at."""

    output: Path
    free_bytes: int
    environment: Mapping[str, str]
    bus_problem: str | None = None
    home: Path = Path(".forebay")
    """Where the keys of object stores are."""


def _pass(name: str, reason: Reason, message: str) -> PreflightCheck:
    return PreflightCheck(name=name, status="pass", reason=reason, message=message)


def _warn(name: str, reason: Reason, message: str) -> PreflightCheck:
    return PreflightCheck(name=name, status="warn", reason=reason, message=message)


def _fail(name: str, reason: Reason, message: str) -> PreflightCheck:
    return PreflightCheck(name=name, status="fail", reason=reason, message=message)


def run_preflight(inputs: Inputs, command: Sequence[str], around: Surroundings) -> tuple[PreflightCheck, ...]:
    """Run every check."""
    return (
        *(_check_data(pinned, inputs.where_is(pinned), around.home) for pinned in inputs.inputs),
        check_output(around.output, around.free_bytes),
        *check_resources(inputs.resources, around.environment),
        check_command(command, around.environment),
        *check_bus(around.bus_problem),
    )


def _check_data(pinned: PinnedInput, where: str, home: Path) -> PreflightCheck:
    if where.startswith("s3://"):
        return check_objects(pinned, root_at(where, home=home))
    return check_input(pinned, local_path(where))


def check_objects(pinned: PinnedInput, root: Root) -> PreflightCheck:
    """The same of a version on object storage: what is listed there has the sizes that were committed."""
    name = f"data {pinned.name}@v{pinned.number}"
    try:
        there = root.below("")
        if MANIFEST_FILE not in there:
            return _warn(name, Reason.DATA_READABLE, f"{len(there)} objects; its list of files is kept elsewhere")
        content = root.read(MANIFEST_FILE)
        entries = json.loads(content)["files"]
    except (DataUnreadableError, ValueError, KeyError) as error:
        return _fail(name, Reason.DATA_UNREADABLE, str(error))
    if hashlib.sha256(content).hexdigest() != pinned.manifest_sha256:
        return _fail(name, Reason.DATASET_CHANGED, f"{MANIFEST_FILE} is not the one that the job pinned")
    for entry in entries:
        if there.get(entry["path"]) != entry["bytes"]:
            found = there.get(entry["path"], "no")
            message = f"{entry['path']} has {found} bytes on object storage, {entry['bytes']} were committed"
            return _fail(name, Reason.DATASET_CHANGED, message)
    strange = sorted(set(there) - {str(entry["path"]) for entry in entries} - {MANIFEST_FILE})
    if strange:
        message = f"{strange[0]} lies beside the version on object storage, and was not committed"
        return _fail(name, Reason.DATASET_CHANGED, message)
    return _pass(name, Reason.DATA_READABLE, f"{len(entries)} objects open at {pinned.name}@v{pinned.number}")


def check_input(pinned: PinnedInput, root: Path) -> PreflightCheck:
    """The pinned version opens here, and its files are the ones that were committed."""
    name = f"data {pinned.name}@v{pinned.number}"
    try:
        if (absent := what_is_missing(root)) is not None:
            return _fail(name, *absent)
        problem, files, size = compare_manifest(root, pinned.manifest_sha256)
    except OSError as error:
        gone = error.errno in MOUNT_IS_DEAD
        reason = Reason.DATA_NOT_MOUNTED if gone else Reason.DATA_UNREADABLE
        return _fail(name, reason, f"{root} cannot be read: {error.strerror or error}; {_REPAIRS[reason]}")
    except (ValueError, KeyError, TypeError) as error:
        return _fail(name, Reason.DATASET_CHANGED, f"{root}: its list of files cannot be read: {error}")
    if problem:
        return _fail(name, Reason.DATASET_CHANGED, f"{root}: {problem}")
    return _pass(name, Reason.DATA_READABLE, f"{files} files, {size} bytes open at {pinned.name}@v{pinned.number}")


_REPAIRS = {
    Reason.DATA_NOT_MOUNTED: "mount the volume; the job tries again",
    Reason.DATA_UNREADABLE: "check the permissions and the disk of this folder",
}


def what_is_missing(root: Path) -> tuple[Reason, str] | None:
    """Why no dataset version lies at `root`: nothing is mounted, something else is, or the data is gone; None: one does."""
    if (root / MANIFEST_FILE).exists():
        return None
    if root.is_dir() and any(root.iterdir()):
        some = ", ".join(sorted(path.name for path in root.iterdir())[:3])
        message = (
            f"{root} holds {some}, and no {MANIFEST_FILE}: another folder than the dataset version is mounted or"
            " named here; correct the mount, then run `forebay retry`"
        )
        return Reason.OTHER_DATA_MOUNTED, message
    there = next(path for path in (root, *root.parents) if path.is_dir())
    if not any(there.iterdir()) and not _is_volume(there):
        message = f"{there} is an empty folder, and nothing is mounted on it; {_REPAIRS[Reason.DATA_NOT_MOUNTED]}"
        return Reason.DATA_NOT_MOUNTED, message
    state = "is empty" if there == root else f"does not exist ({there} does)"
    message = f"{root} {state}: the dataset version is not there any more; restore it or use another version"
    return Reason.DATA_MISSING, message


def _is_volume(folder: Path) -> bool:
    """The folder is a mount point, or lies on another file system than the disk of this machine."""
    mounts = read_mounts(_MOUNT_TABLE.read_text(encoding="utf-8", errors="replace"))
    found = mount_of(str(folder.resolve()), mounts)
    return folder.is_mount() or (found is not None and found.kind not in NODE_DISKS | {"tmpfs"})


def check_output(output: Path, free_bytes: int) -> PreflightCheck:
    """The output folder takes a file and has room."""
    name = "output"
    probe = output / "checkpoints" / f".forebay-probe-{uuid.uuid4().hex}"
    try:
        try_writing(probe)
        free = shutil.disk_usage(output).free
    except OSError as error:
        return _fail(name, Reason.OUTPUT_NOT_WRITABLE, f"{output} takes no files: {error.strerror}")
    if free < free_bytes:
        message = f"{output} has {free} bytes free, {free_bytes} are needed"
        return _fail(name, Reason.OUTPUT_FULL, message)
    return _pass(name, Reason.OUTPUT_WRITABLE, f"{output} takes files, {free // 2**20} MiB free")


def try_writing(probe: Path) -> None:
    """Make a small file and remove it. Raises `OSError` when the folder takes none."""
    probe.parent.mkdir(parents=True, exist_ok=True)
    try:
        with probe.open("wb") as file:
            file.write(b"forebay" * 512)
            file.flush()
            os.fsync(file.fileno())
    finally:
        probe.unlink(missing_ok=True)


def check_resources(resources: Resources, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    """Processors, memory and GPUs that were promised can be seen."""
    cpus = len(os.sched_getaffinity(0))
    wanted = math.ceil(resources.cpu)
    if cpus < wanted:
        yield _fail("cpu", Reason.RESOURCES_MISSING, f"{cpus} processors are visible, {resources.cpu:g} were asked for")
    else:
        yield _pass("cpu", Reason.RESOURCES_VISIBLE, f"{cpus} processors visible, {resources.cpu:g} asked for")
    memory = _visible_memory()
    if memory < resources.memory_bytes:
        message = f"{memory} bytes of memory are visible, {resources.memory_bytes} were asked for"
        yield _fail("memory", Reason.RESOURCES_MISSING, message)
    else:
        message = f"{memory // 2**20} MiB visible, {resources.memory_bytes // 2**20} MiB asked for"
        yield _pass("memory", Reason.RESOURCES_VISIBLE, message)
    if resources.gpus:
        yield _check_gpus(resources.gpus, environment.get("CUDA_VISIBLE_DEVICES", ""))


def check_command(command: Sequence[str], environment: Mapping[str, str]) -> PreflightCheck:
    """The command exists and may be executed."""
    found = shutil.which(command[0], path=environment.get("PATH")) if command else None
    if found is None:
        message = f"{command[0] if command else 'an empty command'!r} is no program on PATH here ({Path.cwd()})"
        return _fail("command", Reason.COMMAND_NOT_FOUND, message)
    script = next((part for part in command[1:2] if part.endswith(".py")), None)
    if script is not None and not Path(script).exists():
        return _fail("command", Reason.COMMAND_NOT_FOUND, f"{script} does not exist in {Path.cwd()}")
    return _pass("command", Reason.COMMAND_FOUND, f"{found} can be executed")


def check_bus(problem: str | None) -> Iterator[PreflightCheck]:
    """A bus that does not answer holds no job back: events are kept on disk."""
    if problem:
        yield _warn("bus", Reason.STATUS_UNREACHABLE, f"{problem}; events are kept on disk and delivered later")


def _check_gpus(wanted: int, visible: str) -> PreflightCheck:
    devices = [device for device in visible.split(",") if device.strip()]
    if len(devices) < wanted:
        message = f"CUDA_VISIBLE_DEVICES names {len(devices)} GPUs ({visible!r}), {wanted} were asked for"
        return _fail("gpu", Reason.RESOURCES_MISSING, message)
    missing = [device for device in devices if device.isdigit() and not Path(f"/dev/nvidia{device}").exists()]
    if missing:
        message = f"no device file for GPU {', '.join(missing)}; declared, but not seen on this machine"
        return _warn("gpu", Reason.RESOURCES_VISIBLE, message)
    return _pass("gpu", Reason.RESOURCES_VISIBLE, f"GPUs {visible} visible, {wanted} asked for")


def _visible_memory() -> int:
    """Memory of this machine or container, whichever is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def compare_manifest(root: Path, expected: str, *, until: float = math.inf) -> tuple[str | None, int, int]:
    """(what differs from the committed version, files, bytes). Sizes of all files, and one read of each.

    The whole content was verified when the cache reported it warm; reading terabytes
    again would hold a GPU for hours. `until` (of `time.monotonic`) ends the look at single
    files; the manifest itself is always compared.
    """
    manifest = root / MANIFEST_FILE
    content = read_regular(manifest)
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        return f"{MANIFEST_FILE} has digest {found[:12]}, the job pinned {expected[:12]}", 0, 0
    entries = json.loads(content)["files"]
    for entry in entries:
        if time.monotonic() > until:
            break
        path = root / entry["path"]
        try:
            size = path.stat().st_size
            with open_regular(path) as file:
                file.read(_READ_BYTES)
        except FileNotFoundError:
            return f"{entry['path']} is missing", 0, 0
        if size != entry["bytes"]:
            return f"{entry['path']} has {size} bytes, {entry['bytes']} were committed", 0, 0
    return None, len(entries), sum(int(entry["bytes"]) for entry in entries)
