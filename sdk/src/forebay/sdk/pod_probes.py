"""Looks at a pod from inside it, for `pod_checks.py` to judge. Every check runs, whatever the others found."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from pydantic import Field

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import MANIFEST_FILE, PinnedInput
from forebay.runtime.regular_files import open_regular, read_regular
from forebay.sdk import pod_checks as judge
from forebay.sdk.checkpoints import Unfinished, inspect
from forebay.sdk.inputs import Inputs, local_path
from forebay.sdk.pod_checks import Finding, GpusSeen, MountPoint
from forebay.sdk.preflight import compare_manifest, try_writing
from forebay.sdk.settings import PodSettings

_DEVICES = Path("/dev")
_LOOK_S = 20.0
"""Together, all checks stay under half a minute."""
_CONFIG_ENDINGS = (".yaml", ".yml", ".json", ".toml")


class PodInputs(Inputs):
    """What the bridge wrote into the pod's annotation."""

    expects: tuple[str, ...] = ()
    """`dataset:NAME` of everything that must have been pinned when the gate opened."""
    shm_needed: int = 0
    free_bytes: int = 64 << 20
    skip: tuple[str, ...] = ()
    data_kinds: tuple[str, ...] = ()
    """File systems that the pool may be mounted as; empty: any that holds data."""
    output_dir: str | None = None
    """LeRobot's own output folder."""
    uris: Mapping[str, str] = Field(default_factory=dict)
    """Folder in this container -> the same folder as the services see it."""

    def uri_of(self, folder: Path) -> str:
        """How the services find a folder of this container."""
        path = str(folder)
        for here in sorted(self.uris, key=len, reverse=True):
            if path == here or path.startswith(here + "/"):
                return self.uris[here] + quote(path[len(here) :])
        return folder.resolve().as_uri()

    def folder_of(self, uri: str) -> Path:
        """The folder of this container that the services call `uri`."""
        for here, there in sorted(self.uris.items(), key=lambda pair: len(pair[1]), reverse=True):
            if uri == there or uri.startswith(there + "/"):
                return Path(here + unquote(uri[len(there) :]))
        return local_path(uri)


def look(inputs: PodInputs, settings: PodSettings) -> list[Finding]:
    """All checks of the place."""
    mounts = judge.read_mounts(settings.mount_table.read_text(encoding="utf-8", errors="replace"))
    found = [*_pins(inputs)]
    until = time.monotonic() + _LOOK_S
    for pinned in inputs.inputs:
        found += _data(pinned, inputs, mounts, until)
    found += _configs(inputs.command, mounts)
    found += _output(inputs, settings)
    if "shm" not in inputs.skip:
        found.append(_shm(inputs))
    if inputs.resources.gpus and "gpu" not in inputs.skip:
        found.append(judge.judge_gpus(inputs.resources.gpus, see_gpus(), node=settings.node))
    return found


def _pins(inputs: PodInputs) -> Iterator[Finding]:
    pinned = {f"{item.kind}:{item.name}" for item in inputs.inputs}
    for name in inputs.expects:
        if name not in pinned:
            message = f"{name} was never pinned to a version: the job was started before its data was ready"
            yield judge.failed(f"data {name}", Reason.DATA_UNREADABLE, message, judge.BAD_INPUTS)


def _data(pinned: PinnedInput, inputs: PodInputs, mounts: Sequence[MountPoint], until: float) -> Iterator[Finding]:
    name, root = f"data {pinned.name}@v{pinned.number}", inputs.place_of(pinned)
    try:
        with os.scandir(root) as entries:
            count = sum(1 for _ in zip(entries, range(2), strict=False))
        mounted = list(judge.judge_data_mount(name, str(root), mounts, entries=count, kinds=inputs.data_kinds))
        yield from (item for item in mounted if item.check.status == "fail" or "data-mode" not in inputs.skip)
        if any(item.check.status == "fail" for item in mounted):
            return
        if not (root / MANIFEST_FILE).exists():
            yield judge.judge_no_manifest(name, str(root), MANIFEST_FILE)
            return
        digest = hashlib.sha256(read_regular(root / MANIFEST_FILE)).hexdigest()
        expected = (pinned.number, pinned.manifest_sha256)
        if (drifted := judge.judge_version(name, expected=expected, found=(None, digest))) is not None:
            yield drifted
            return
        problem, files, size = compare_manifest(root, pinned.manifest_sha256, until=until)
    except FileNotFoundError as error:
        message = f"{error.filename} is missing: this is not the version that the job pinned"
        yield judge.failed(name, Reason.DATASET_CHANGED, message, judge.DATASET_CHANGED)
    except OSError as error:
        yield judge.judge_read_error(name, str(root), error)
    except (ValueError, KeyError, TypeError) as error:
        message = f"{root}: the list of files cannot be read: {error}"
        yield judge.failed(name, Reason.DATASET_CHANGED, message, judge.DATASET_CHANGED)
    else:
        if problem:
            message = f"{root} is not {pinned.name}@v{pinned.number}: {problem}"
            yield judge.failed(name, Reason.DATASET_CHANGED, message, judge.DATASET_CHANGED)
        else:
            message = f"{files} files, {size} bytes open at {pinned.name}@v{pinned.number}"
            yield judge.passed(name, Reason.DATA_READABLE, message)


def _configs(command: Sequence[str], mounts: Sequence[MountPoint]) -> Iterator[Finding]:
    """Configuration files that the command names and that lie on a mount, not in the owner's image."""
    for word in command:
        path = word.partition("=")[2] if word.startswith("-") else word
        if not path.startswith("/") or not path.endswith(_CONFIG_ENDINGS) or path.startswith("/forebay/"):
            continue
        mount = judge.mount_of(path, mounts)
        if mount is None or mount.path == "/":
            continue
        try:
            with open_regular(path) as file:
                file.read(1)
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}"
            yield judge.failed("config", Reason.CONFIG_UNREADABLE, message, judge.CONFIG_UNREADABLE)


def _output(inputs: PodInputs, settings: PodSettings) -> Iterator[Finding]:
    folders = dict.fromkeys([settings.output, _existing(settings.checkpoints)])
    for folder in folders:
        probe = folder / f".forebay-probe-{uuid.uuid4().hex}"
        try:
            try_writing(probe)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            yield judge.judge_write_error(str(folder), error)
        else:
            yield judge.judge_room(str(folder), free=free, needed=inputs.free_bytes)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: LeRobot wants to make its own itself."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _shm(inputs: PodInputs) -> Finding:
    try:
        status = os.statvfs(judge.SHM)
        have = status.f_frsize * status.f_blocks
    except OSError:
        have = 0
    return judge.judge_shm(have=have, needed=inputs.shm_needed, asked=inputs.resources.shm_bytes)


def see_gpus(devices: Path = _DEVICES, program: str = "nvidia-smi") -> GpusSeen:
    """What nvidia-smi lists, and which device files there are."""
    files = sum(1 for path in devices.glob("nvidia[0-9]*") if path.name[6:].isdigit())
    found = shutil.which(program)
    if found is None:
        return GpusSeen(device_files=files)
    try:
        done = subprocess.run(  # noqa: S603 a fixed program and option
            [found, "-L"], capture_output=True, text=True, timeout=15, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return GpusSeen(device_files=files, listing=f"{program} -L: {error}", exit_code=1)
    return GpusSeen(device_files=files, listing=done.stdout + done.stderr, exit_code=done.returncode)


def checkpoint_findings(folder: Path, *, lerobot: bool) -> Iterator[Finding]:
    """The checkpoint to continue from opens here, and is what the trainer resumes from."""
    name = "checkpoint"
    try:
        found = inspect(folder)
        if lerobot:
            json.loads(read_regular(folder / "pretrained_model" / "train_config.json"))
    except (OSError, ValueError) as error:
        message = f"{folder} cannot be read: {error}"
        yield judge.failed(name, Reason.CHECKPOINT_UNREADABLE, message, judge.CHECKPOINT_UNREADABLE)
        return
    if isinstance(found, Unfinished):
        message = f"{folder} is no complete checkpoint: {found.reason}"
        yield judge.failed(name, Reason.CHECKPOINT_UNREADABLE, message, judge.CHECKPOINT_UNREADABLE)
    else:
        yield judge.passed(name, Reason.CHECKPOINT_READABLE, f"{folder} opens, step {found.step}")
