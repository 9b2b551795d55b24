"""The one folder of a cluster: its paths, the names that follow from it, and the record of what was made outside it.

Bridge, control group and processes are found by names that follow from the folder alone, so
`down` finds them even when whoever started them was killed before writing anything down.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from forebay.testcluster.errors import ClusterError
from forebay.testcluster.settings import LONGEST_PATH

NODE = "forebay-node"
NODE_GRACE_S = 16
"""After how many seconds of silence a node is taken for lost, unless a cluster is started with another number."""


@dataclass(slots=True)
class Record:
    """What a cluster is, for those who come later: `down`, `status`, tests that join a running one."""

    network: int = -1
    """The N of its addresses 10.87.N.0/24 (pods, node) and 10.88.N.0/24 (services)."""
    made_folders: list[str] = field(default_factory=list)
    """Mount points outside the folder that were not there before; taken away again."""
    node_grace_s: int = NODE_GRACE_S
    ready: bool = False
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkFolder:
    """Paths and names of one cluster."""

    root: Path

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            msg = f"{self.root}: a work folder is given by its whole path"
            raise ValueError(msg)

    def check(self) -> None:
        """Raises `ClusterError` when sockets below this folder would have names that are too long."""
        if len(str(self.root)) > LONGEST_PATH:
            msg = f"the path of the work folder is too long for the sockets below it ({len(str(self.root))} characters)"
            raise ClusterError(msg, f"choose one of at most {LONGEST_PATH} characters with --work")

    @property
    def id(self) -> str:
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def bridge(self) -> str:
        return f"fbtest-{self.id}"

    @property
    def hardware_address(self) -> str:
        """The bridge's; 02 says that it is made up."""
        return ":".join(["02", "fb", *(self.id[at : at + 2] for at in range(0, 8, 2))])

    @property
    def control_group(self) -> str:
        return f"forebay-testcluster-{self.id}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; it holds its certificates itself, so that it may be copied."""
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def processes(self) -> Path:
        return self.root / "processes"

    @property
    def certificates(self) -> Path:
        return self.root / "certificates"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    @property
    def containerd(self) -> Path:
        return self.root / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.root / "containerd.sock"

    @property
    def pod_logs(self) -> Path:
        return self.root / "pod-logs"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def instead(self) -> Path:
        """What the node sees in place of folders of the machine that programs insist on."""
        return self.root / "instead"

    @property
    def gpu_count(self) -> Path:
        return self.root / "gpus"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def make(self) -> None:
        self.check()
        for folder in (self.logs, self.processes, self.certificates, self.config, self.kubelet, self.images):
            folder.mkdir(parents=True, exist_ok=True)
        self.certificates.chmod(0o700)

    def record(self) -> Record | None:
        """What was written down, or None when nothing (readable) was."""
        try:
            found = json.loads((self.root / "cluster.json").read_text(encoding="utf-8"))
            return Record(**found)
        except (OSError, ValueError, TypeError):
            return None

    def write(self, record: Record) -> None:
        fresh = self.root / "cluster.json.new"
        fresh.write_text(json.dumps(dataclasses.asdict(record), indent=1), encoding="utf-8")
        fresh.replace(self.root / "cluster.json")
