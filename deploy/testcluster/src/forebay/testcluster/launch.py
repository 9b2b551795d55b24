"""Starting a cluster step by step, and taking it down without a trace, whoever started it and however that ended."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from forebay.testcluster import (
    build,
    certificates,
    control_groups,
    images,
    kueue,
    machine,
    namespace,
    network,
    node_config,
)
from forebay.testcluster.errors import ClusterError, StepFailed
from forebay.testcluster.kubectl import Kubectl
from forebay.testcluster.network import Network
from forebay.testcluster.servers import GPU, Servers
from forebay.testcluster.work_folder import NODE, NODE_GRACE_S, Record, WorkFolder

DEFAULT_GPUS = 4
Say = Callable[[str], None]


def kubectl(folder: WorkFolder) -> Kubectl:
    return Kubectl(folder.kubeconfig, folder.root / "kubectl-cache")


def running(folder: WorkFolder) -> Record | None:
    """The record of a cluster that is up."""
    record = folder.record()
    return record if record is not None and record.ready and namespace.first_process(folder) is not None else None


def up(folder: WorkFolder, *, gpus: int = DEFAULT_GPUS, node_grace_s: int = NODE_GRACE_S, say: Say) -> Record:
    """Start a cluster in a folder where none runs, and wait until Kueue answers.

    Raises `CannotRun`, `ClusterError` or `StepFailed`; what was begun is then taken down, the logs stay.
    """
    if running(folder) is not None:
        msg = f"a cluster already runs in {folder.root}"
        raise ClusterError(msg, f"use it with KUBECONFIG={folder.kubeconfig}, or end it with `down`")
    machine.ready(say)
    programs = build.build(say)
    down(folder)
    began = time.monotonic()
    try:
        record = _Start(folder, programs, gpus, say, Record(node_grace_s=node_grace_s)).run()
    except BaseException:
        down(folder)
        raise
    record.ready, record.took_s = True, round(time.monotonic() - began, 1)
    folder.write(record)
    return record


@dataclass(slots=True)
class _Start:
    folder: WorkFolder
    programs: dict[str, Path]
    gpus: int
    say: Say
    record: Record

    def run(self) -> Record:
        folder = self.folder
        folder.make()
        self._step("a namespace, a bridge and certificates of its own")
        self._mount_points()
        control_groups.make(folder)
        namespace.open_namespace(folder, node_config.INSISTED)
        addresses = network.make(folder)
        self.record.network = addresses.number
        folder.write(self.record)
        certificates.make(folder, addresses)
        node_config.write(folder, addresses)
        set_gpus(folder, self.gpus)
        servers = Servers(folder, addresses, self.programs, self.record.node_grace_s)
        self._control_plane(servers)
        self._node(servers)
        self._kueue()
        return self.record

    def _step(self, text: str) -> None:
        self.say(f"  {text}")

    def _mount_points(self) -> None:
        """Where the namespace mounts ours, there must be a folder outside; what we make is noted first."""
        for target in map(Path, node_config.INSISTED):
            fresh = [str(path) for path in (target, *target.parents) if not path.exists()]
            self.record.made_folders += [path for path in fresh if path not in self.record.made_folders]
            self.folder.write(self.record)
            target.mkdir(parents=True, exist_ok=True)

    def _control_plane(self, servers: Servers) -> None:
        folder, node = self.folder, servers.network.node
        self._step("etcd")
        namespace.start(folder, "etcd", servers.etcd())
        self._wait("etcd is healthy", lambda: _ok(f"http://{node}:2379/readyz"), 20, "etcd")
        self._step("API server")
        namespace.start(folder, "apiserver", servers.apiserver())
        # These two do not mind waiting for the API server, and containerd does not need it.
        namespace.start(folder, "controller-manager", servers.controller_manager())
        namespace.start(folder, "scheduler", servers.scheduler())
        namespace.start(folder, "containerd", servers.containerd())
        ask = kubectl(folder)
        self._wait("the API server is ready", lambda: ask.answers("get", "--raw", "/readyz") == "ok", 60, "apiserver")

    def _node(self, servers: Servers) -> None:
        folder, ask = self.folder, kubectl(self.folder)
        self._step("containerd with its images, kubelet, fake GPUs, names")
        self._wait("containerd answers", lambda: _ctr(folder, "version").returncode == 0, 20, "containerd")
        for archive in images.standard(folder.images, self.programs["kueue"]):
            load_image(folder, archive)
            archive.unlink()
        namespace.start(folder, "kubelet", servers.kubelet())
        namespace.start(folder, "fakegpu", servers.fakegpu())
        namespace.start(folder, "clusterdns", servers.clusterdns())
        self.say("  Kueue's definitions")
        ask.apply(self._kueue_objects(definitions=True))
        self._wait("the node is Ready", lambda: node_is_ready(folder), 60, "kubelet")
        self._wait("the node has its GPUs", lambda: allocatable_gpus(folder) == self.gpus, 30, "fakegpu")

    def _kueue_objects(self, *, definitions: bool) -> list[dict[str, object]]:
        found = kueue.objects(self.programs[build.KUEUE_OBJECTS], certificates.kueue_secret(self.folder), kueue.GATES)
        early = ("Namespace", "CustomResourceDefinition")
        return [item for item in found if (item["kind"] in early) == definitions]

    def _kueue(self) -> None:
        folder, ask = self.folder, kubectl(self.folder)
        self._step("Kueue in its pod")
        ask.apply(self._kueue_objects(definitions=False))
        wait_for_kueue(folder)

    def _wait(self, what: str, probe: Callable[[], bool], within: float, name: str) -> None:
        """As `wait_for`, and fails at once when the server that is waited for has ended."""

        def alive() -> bool:
            if namespace.server(self.folder, name) is None:
                msg = f"{what}: {name} has ended"
                raise StepFailed(msg, self.folder.log(name))
            return probe()

        namespace.wait_for(what, alive, within=within, log=self.folder.log(name))


def wait_for_kueue(folder: WorkFolder, *, within: float = 90) -> None:
    """Returns when Kueue's pod is ready, its webhooks let an object pass, and its visibility API answers."""
    ask = kubectl(folder)
    flavor = '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor","metadata":{"name":"probe"}}'

    def is_ready() -> bool:
        state = "jsonpath={.status.readyReplicas}/{.status.updatedReplicas}/{.status.replicas}"
        return ask.answers("get", "deployment", kueue.DEPLOYMENT, "-n", kueue.NAMESPACE, "-o", state) == "1/1/1"

    def passes() -> bool:
        with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
            ask.run("create", "--dry-run=server", "-f", "-", stdin=flavor, within=10)
            return ask.answers("get", "--raw", "/apis/visibility.kueue.x-k8s.io/v1beta2") is not None
        return False

    try:
        namespace.wait_for("Kueue's pod is ready", is_ready, within=within, log=folder.log("kubelet"))
        namespace.wait_for("Kueue's webhooks and visibility API answer", passes, within=30, log=folder.log("apiserver"))
    except StepFailed as failure:
        raise StepFailed(failure.message, kueue.log(folder.pod_logs)) from failure


def node_is_ready(folder: WorkFolder) -> bool:
    path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
    return kubectl(folder).answers("get", "node", NODE, "-o", path) == "True"


def allocatable_gpus(folder: WorkFolder) -> int:
    name = GPU.replace(".", "\\.")
    path = f"jsonpath={{.status.allocatable.{name}}}"
    return int(kubectl(folder).answers("get", "node", NODE, "-o", path) or 0)


def set_gpus(folder: WorkFolder, count: int) -> None:
    """Say how many GPUs the node has; the device plugin passes it on within moments."""
    fresh = folder.gpu_count.with_suffix(".new")
    fresh.write_text(f"{count}\n", encoding="utf-8")
    fresh.replace(folder.gpu_count)


def _ctr(folder: WorkFolder, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["ctr", f"--address={folder.containerd_socket}", "--namespace=k8s.io", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603


def load_image(folder: WorkFolder, archive: Path) -> None:
    """Give the node an image from an archive (`docker save`, or `images.write`)."""
    done = _ctr(folder, "images", "import", str(archive))
    if done.returncode:
        msg = f"containerd does not take the image {archive}: {done.stderr.strip()[-600:]}"
        raise ClusterError(msg, "it wants an archive as `docker save` writes it")


def servers(folder: WorkFolder) -> Servers:
    """The command lines of a cluster that is up. Raises `ClusterError` when there is none."""
    record = folder.record()
    if record is None or record.network < 0:
        msg = f"no cluster runs in {folder.root}"
        raise ClusterError(msg, f"start it: python -m forebay.testcluster up --work {folder.root}")
    return Servers(folder, Network(record.network), build.wanted(), record.node_grace_s)


def _ok(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 our own address
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@dataclass(slots=True)
class Cleared:
    """What `down` took away."""

    processes: int = 0
    bridge: bool = False
    control_group: bool = False
    folders: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.processes or self.bridge or self.control_group or self.folders)

    def __str__(self) -> str:
        parts = [f"{self.processes} processes"] if self.processes else []
        parts += ["the bridge"] if self.bridge else []
        parts += ["the control group"] if self.control_group else []
        return ", ".join([*parts, *self.folders]) or "nothing"


def down(folder: WorkFolder) -> Cleared:
    """End everything of this folder and take away what it made outside; its logs stay. Fine when nothing runs."""
    record = folder.record()
    cleared = Cleared(processes=namespace.close_namespace(folder))
    cleared.control_group = control_groups.remove(folder)
    cleared.bridge = network.remove(folder)
    # Another cluster mounts its own there, and would lose that with the folder.
    made_folders = record.made_folders if record is not None and not namespace.any_running() else []
    for made in made_folders:
        with contextlib.suppress(OSError):  # gone already, or somebody else uses it by now
            Path(made).rmdir()
            cleared.folders.append(made)
    if folder.root.is_dir():
        for path in folder.root.iterdir():
            if path != folder.logs:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return cleared


def remains(folder: WorkFolder) -> list[str]:
    """What a cluster of this folder still has outside it; nothing after `down`."""
    found = [f"process {process.pid}" for process in namespace.alive(folder)]
    found += [f"bridge {folder.bridge}"] if network.exists(folder) else []
    found += [f"control group {path}" for path in control_groups.existing(folder)]
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return found + [f"mount {line.split()[4]}" for line in mounts if str(folder.root) in line]


def server_pids(folder: WorkFolder) -> dict[str, int | None]:
    """Every server that was started, and its process when it still runs."""
    names = sorted(path.stem for path in folder.processes.glob("*.json"))
    found = {name: namespace.server(folder, name) for name in names}
    return {name: process.pid if process is not None else None for name, process in found.items()}
