"""The cluster's own bridge: addresses for pods and the node, and those service addresses that really answer.

There is no kube-proxy. The API server listens on the address of the Service `kubernetes` itself,
which the bridge carries; webhooks and aggregated APIs are reached at the addresses of their pods.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.testcluster.errors import ClusterError
from forebay.testcluster.work_folder import WorkFolder


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses of one cluster. Several clusters on a machine differ in `number`."""

    number: int

    @property
    def pods(self) -> str:
        return f"10.87.{self.number}.0/24"

    @property
    def node(self) -> str:
        return f"10.87.{self.number}.1"

    @property
    def services(self) -> str:
        return f"10.88.{self.number}.0/24"

    @property
    def api(self) -> str:
        return f"10.88.{self.number}.1"

    @property
    def dns(self) -> str:
        return f"10.88.{self.number}.10"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        msg = f"ip {' '.join(words)}: {done.stderr.strip()}"
        raise ClusterError(msg, "the test cluster makes a bridge of its own: it needs root and iproute2")
    return done.stdout


def _taken() -> list[ipaddress.IPv4Network]:
    links: list[dict[str, Any]] = json.loads(_ip("-json", "-4", "address", "show"))
    return [
        ipaddress.IPv4Network(f"{address['local']}/{address['prefixlen']}", strict=False)
        for link in links
        for address in link.get("addr_info", [])
    ]


def make(folder: WorkFolder) -> Network:
    """Make the folder's bridge with the first addresses that nobody has."""
    with (Path(tempfile.gettempdir()) / "forebay-testcluster.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two clusters that start at once must not choose the same
        taken = _taken()
        network = next(
            (
                candidate
                for candidate in map(Network, range(256))
                if not any(
                    there.overlaps(ipaddress.IPv4Network(ours))
                    for there in taken
                    for ours in (candidate.pods, candidate.services)
                )
            ),
            None,
        )
        if network is None:
            msg = "no free network among 10.87.0.0/24 … 10.87.255.0/24 for the cluster's pods"
            raise ClusterError(msg, "end clusters that nobody needs (`ip address` shows their bridges, fbtest-…)")
        # Without an address of its own a bridge takes that of one of its ports. It then changes as pods come and
        # go, and for half a minute no pod finds the way back to this machine.
        _ip("link", "add", folder.bridge, "address", folder.hardware_address, "type", "bridge")
        # The order matters: the bridge plugin compares the first address with the one it wants.
        _ip("address", "add", f"{network.node}/24", "dev", folder.bridge)
        for address in (network.api, network.dns):
            _ip("address", "add", f"{address}/32", "dev", folder.bridge)
        _ip("link", "set", folder.bridge, "up")
    return network


def exists(folder: WorkFolder) -> bool:
    return Path("/sys/class/net", folder.bridge).exists()


def remove(folder: WorkFolder) -> bool:
    """Take the bridge away. False when there was none."""
    if not exists(folder):
        return False
    _ip("link", "delete", folder.bridge)
    return True
