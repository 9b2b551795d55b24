"""Configuration files of the node: containerd, its pod network, the kubelet."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from forebay.testcluster import images
from forebay.testcluster.network import Network
from forebay.testcluster.work_folder import WorkFolder

PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
"""Where distributions keep the programs of containernetworking-plugins."""

INSISTED = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
"""Folders that the programs use whatever they are told; the node gets its own in their place."""

_SYS_RESOURCE = 24


def may_lower_oom_score() -> bool:
    """Whether this process has CAP_SYS_RESOURCE; without it no sandbox starts unless containerd holds back."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _SYS_RESOURCE & 1)


def plugins() -> Path | None:
    return next((folder for folder in PLUGINS if (folder / "bridge").exists()), None)


def containerd(folder: WorkFolder) -> str:
    base = folder.containerd
    return f"""\
version = 2
root = "{base / "root"}"
state = "{base / "state"}"
disabled_plugins = ["io.containerd.internal.v1.tracing", "io.containerd.snapshotter.v1.btrfs"]
[grpc]
  address = "{folder.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{base / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = {str(not may_lower_oom_score()).lower()}
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins()}"
    conf_dir = "{folder.config / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{shutil.which("runc") or "runc"}"
"""


def pod_network(folder: WorkFolder, network: Network) -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0",
        "name": "forebay-testcluster",
        "plugins": [
            {
                "type": "bridge",
                "bridge": folder.bridge,
                "isGateway": True,
                "ipMasq": False,  # pods reach each other and this machine, and nothing beyond it
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(folder.root / "addresses"),
                    "ranges": [[{"subnet": network.pods, "gateway": network.node}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def kubelet(folder: WorkFolder, network: Network) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node,
        "healthzBindAddress": network.node,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(folder.certificates / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{folder.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folder.control_group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [network.dns],
        "clusterDomain": "cluster.local",
        "podLogsDir": str(folder.pod_logs),
        "volumePluginDir": str(folder.kubelet / "volume-plugins"),
        # A full disk of the machine must not evict pods nor delete images that cannot be pulled again.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        # Soon noticed when it is gone, see --node-monitor-grace-period.
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 8,
        # An emptyDir over its limit is seen by the next count.
        "volumeStatsAggPeriod": "5s",
    }


def write(folder: WorkFolder, network: Network) -> None:
    (folder.config / "cni").mkdir(exist_ok=True)
    (folder.config / "containerd.toml").write_text(containerd(folder), encoding="utf-8")
    (folder.config / "cni" / "10-forebay.conflist").write_text(
        json.dumps(pod_network(folder, network)), encoding="utf-8"
    )
    (folder.config / "kubelet.yaml").write_text(yaml.safe_dump(kubelet(folder, network)), encoding="utf-8")
