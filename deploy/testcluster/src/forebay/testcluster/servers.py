"""Command lines of the servers: pure functions of the folder, the addresses and where the programs are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forebay.testcluster.network import Network
from forebay.testcluster.work_folder import NODE, WorkFolder

GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Servers:
    """What to start, and how to ask whether it is there."""

    folder: WorkFolder
    network: Network
    programs: Mapping[str, Path]
    """Where each built program is."""
    node_grace_s: int
    """After how many seconds of silence a node is taken for lost."""

    def _program(self, name: str) -> str:
        return str(self.programs[name])

    def _certificate(self, name: str) -> str:
        return str(self.folder.certificates / name)

    def etcd(self) -> list[str]:
        clients, peers = f"http://{self.network.node}:2379", f"http://{self.network.node}:2380"
        return [
            self._program("etcd"),
            f"--data-dir={self.folder.root / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",  # nothing of a test cluster has to survive a power cut
            "--log-level=warn",
        ]

    def apiserver(self) -> list[str]:
        certificate = self._certificate
        return [
            self._program("kube-apiserver"),
            f"--etcd-servers=http://{self.network.node}:2379",
            f"--bind-address={self.network.api}",
            "--secure-port=443",
            f"--tls-cert-file={certificate('apiserver.crt')}",
            f"--tls-private-key-file={certificate('apiserver.key')}",
            f"--client-ca-file={certificate('ca.crt')}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={certificate('accounts.pub')}",
            f"--service-account-signing-key-file={certificate('accounts.key')}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            f"--service-cluster-ip-range={self.network.services}",
            "--endpoint-reconciler-type=none",
            "--enable-aggregator-routing",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-client-certificate={certificate('kubelet-client.crt')}",
            f"--kubelet-client-key={certificate('kubelet-client.key')}",
            f"--requestheader-client-ca-file={certificate('ca.crt')}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={certificate('front-proxy.crt')}",
            f"--proxy-client-key-file={certificate('front-proxy.key')}",
            # A node that is gone is noticed soon, so that tests need not wait five minutes for what follows.
            "--default-not-ready-toleration-seconds=5",
            "--default-unreachable-toleration-seconds=5",
            "--profiling=false",
        ]

    def controller_manager(self) -> list[str]:
        return [
            self._program("kube-controller-manager"),
            f"--kubeconfig={self.folder.config / 'controller-manager.kubeconfig'}",
            f"--bind-address={self.network.node}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--root-ca-file={self._certificate('ca.crt')}",
            f"--service-account-private-key-file={self._certificate('accounts.key')}",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={self.node_grace_s}s",
            f"--node-startup-grace-period={max(60, self.node_grace_s)}s",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--profiling=false",
        ]

    def scheduler(self) -> list[str]:
        return [
            self._program("kube-scheduler"),
            f"--kubeconfig={self.folder.config / 'scheduler.kubeconfig'}",
            f"--bind-address={self.network.node}",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--profiling=false",
        ]

    def containerd(self) -> list[str]:
        return ["containerd", f"--config={self.folder.config / 'containerd.toml'}", "--log-level=warn"]

    def kubelet(self) -> list[str]:
        return [
            self._program("kubelet"),
            f"--config={self.folder.config / 'kubelet.yaml'}",
            f"--kubeconfig={self.folder.config / 'kubelet.kubeconfig'}",
            f"--root-dir={self.folder.kubelet}",
            f"--cert-dir={self.folder.kubelet / 'pki'}",
            f"--hostname-override={NODE}",
            f"--node-ip={self.network.node}",
        ]

    def fakegpu(self) -> list[str]:
        return [
            self._program("fakegpu"),
            f"--resource={GPU}",
            f"--registry={self.folder.kubelet / 'plugins_registry'}",
            f"--count-file={self.folder.gpu_count}",
        ]

    def clusterdns(self) -> list[str]:
        return [
            self._program("clusterdns"),
            f"--api=https://{self.network.api}:443",
            f"--ca={self._certificate('ca.crt')}",
            f"--certificate={self._certificate('admin.crt')}",
            f"--key={self._certificate('admin.key')}",
            f"--listen={self.network.dns}:53",
        ]

    def kwok(self) -> list[str]:
        return [
            self._program("kwok"),
            f"--kubeconfig={self.folder.kubeconfig}",
            f"--config={self.programs['kwok-stages']}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            # Renewed after a quarter of it. Without leases a node goes unheard longer than the grace, is taken for lost,
            # and comes back, for ever.
            f"--node-lease-duration-seconds={self.node_grace_s * 5 // 2}",
        ]
