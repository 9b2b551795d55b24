"""Whether the test cluster can run on this machine, and the packages of the system that it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from forebay.testcluster import build, control_groups, node_config
from forebay.testcluster.errors import CannotRun, ClusterError
from forebay.testcluster.settings import outer_environment

Say = Callable[[str], None]

_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "openssl": "openssl",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
}
"""Program → Debian's package."""


def missing_packages() -> list[str]:
    """Debian's packages for what is not there."""
    needed = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if node_config.plugins() is None:
        needed.append("containernetworking-plugins")
    if "busybox-static" not in needed and not _is_static(Path(shutil.which("busybox") or "/bin/busybox")):
        needed.append("busybox-static")
    return list(dict.fromkeys(needed))


def _is_static(program: Path) -> bool:
    """Whether it runs in an image that holds nothing else: an ELF file that names no interpreter."""
    return b"/ld-linux" not in program.read_bytes()[:4096]


def reasons() -> list[str]:
    """Why the cluster cannot run here; empty when it can."""
    if not sys.platform.startswith("linux"):
        return [f"it needs Linux (this is {sys.platform})"]
    found = []
    if os.geteuid() != 0:
        found.append("it needs root (namespaces, a bridge, control groups)")
    if build.missing() and build.go() is None:
        found.append("its servers are not built yet and there is no Go to build them (`make setup` brings it)")
    if lacking := control_groups.missing():
        found.append(f"control groups lack {', '.join(lacking)}")
    if (packages := missing_packages()) and shutil.which("apt-get") is None:
        found.append(f"programs are missing and there is no apt-get to install them ({', '.join(packages)})")
    return found


def ready(say: Say) -> None:
    """Raises `CannotRun` with every reason; installs missing packages and says so."""
    if found := reasons():
        raise CannotRun(found)
    if packages := missing_packages():
        say(f"installing with apt-get: {', '.join(packages)}")
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *packages)
    if left := missing_packages():
        msg = f"apt-get installed what it was asked for, but these are still missing: {', '.join(left)}"
        raise ClusterError(msg, "install them by hand")


def _apt(*words: str) -> None:
    done = subprocess.run(  # noqa: S603 our own words
        ["apt-get", "--quiet", *words],  # noqa: S607 as root, from its PATH
        env={**outer_environment(), "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        msg = f"apt-get {' '.join(words)}: {(done.stderr or done.stdout).strip()[-600:]}"
        raise ClusterError(msg, "install the packages by hand and run it again")
