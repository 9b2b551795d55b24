"""The control group above all pods of a cluster, in the hierarchies (v1) or the one hierarchy (v2) of this machine."""

from __future__ import annotations

import time
from pathlib import Path

from forebay.testcluster.errors import ClusterError
from forebay.testcluster.work_folder import WorkFolder

_MOUNTS = Path("/proc/mounts")
_NEEDED = ("cpu", "cpuset", "memory", "pids")


def _mounted(kind: str) -> list[Path]:
    rows = (line.split() for line in _MOUNTS.read_text(encoding="utf-8").splitlines())
    return list(dict.fromkeys(Path(row[1]) for row in rows if row[2] == kind))


def hierarchies() -> list[Path]:
    """Where control groups live here: the controllers of v1 when they are mounted, else the root of v2."""
    return _mounted("cgroup") or _mounted("cgroup2")


def missing() -> list[str]:
    """Controllers that the kubelet needs and that this machine does not offer."""
    if _mounted("cgroup"):
        offered = {name for mount in _mounted("cgroup") for name in mount.name.split(",")}
    else:
        offered = {
            name
            for mount in _mounted("cgroup2")
            for name in (mount / "cgroup.controllers").read_text(encoding="utf-8").split()
        }
    return [name for name in _NEEDED if name not in offered]


def make(folder: WorkFolder) -> None:
    for root in hierarchies():
        if (root / "cgroup.subtree_control").exists():
            _hand_down(root)
        group = root / folder.control_group
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # v1 gives a new group none, and then nothing may run in it
            if (root / "tasks").exists() and (group / name).exists():
                (group / name).write_text((root / name).read_text(encoding="utf-8"), encoding="utf-8")
        # All pods together weigh eight times as much as one busy process of the machine, so that
        # Kueue's webhooks answer in time while other work keeps all cores busy.
        for name, weight in (("cpu.shares", "8192"), ("cpu.weight", "800")):
            if (group / name).exists():
                (group / name).write_text(weight, encoding="utf-8")


def _hand_down(root: Path) -> None:
    """Version 2 gives a child only what its parent hands down."""
    try:
        (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _NEEDED), encoding="utf-8")
    except OSError as error:
        msg = f"control groups cannot be handed down at {root}: {error.strerror}"
        raise ClusterError(
            msg, "in a container, start it with --cgroupns=host or with an init that leaves the root"
        ) from error


def existing(folder: WorkFolder) -> list[Path]:
    return [root / folder.control_group for root in hierarchies() if (root / folder.control_group).exists()]


def remove(folder: WorkFolder, *, within: float = 10) -> bool:
    """Take the group and those below it away, once their last processes are gone. False when there was none."""
    found = False
    deadline = time.monotonic() + within
    for root in hierarchies():
        top = root / folder.control_group
        while top.exists():
            found = True
            below = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            try:
                for group in (*below, top):
                    group.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    msg = f"the control group {top} cannot be removed: {error.strerror}"
                    raise ClusterError(msg, "look which processes it has in cgroup.procs") from error
                time.sleep(0.05)
    return found
