"""The test cluster as a value that tests hold: start it or join one, change the node, talk to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from forebay.runtime.terminal import print_line
from forebay.testcluster import build, kueue, launch, namespace
from forebay.testcluster.api import Api
from forebay.testcluster.launch import Say
from forebay.testcluster.servers import GPU
from forebay.testcluster.work_folder import NODE, NODE_GRACE_S, WorkFolder

_POLL_S = 0.1


def _say(text: str) -> None:
    print_line(text, stderr=True)


@dataclass(frozen=True, slots=True)
class TestCluster:
    """A cluster that runs on this machine."""

    __test__ = False  # not a test, whatever pytest makes of the name
    folder: WorkFolder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder.kubeconfig

    @property
    def node(self) -> str:
        return NODE

    @property
    def gpu(self) -> str:
        """Name of the resource that the fake GPUs are."""
        return GPU

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        work_folder: Path,
        *,
        gpus: int = launch.DEFAULT_GPUS,
        node_grace_s: int = NODE_GRACE_S,
        say: Say = _say,
    ) -> AsyncIterator[TestCluster]:
        """Start one, and take it down at the end, without a trace but its logs.

        `node_grace_s`: seconds of silence before a node is taken for lost. With many nodes of
        KWOK take minutes: it renews some tens of leases a second on a small machine.
        """
        folder = WorkFolder(work_folder.absolute())
        await asyncio.to_thread(launch.up, folder, gpus=gpus, node_grace_s=node_grace_s, say=say)
        try:
            yield cls(folder)
        finally:
            await asyncio.to_thread(launch.down, folder)

    @classmethod
    def join(cls, work_folder: Path) -> TestCluster | None:
        """The one that runs in this folder, whoever started it; None when none does."""
        folder = WorkFolder(work_folder.absolute())
        return cls(folder) if launch.running(folder) is not None else None

    @asynccontextmanager
    async def api(self) -> AsyncIterator[Api]:
        async with Api.open(self.kubeconfig) as api:
            yield api

    async def stop_server(self, name: str) -> None:
        """End one of: apiserver, controller-manager, scheduler, containerd, kubelet, fakegpu, kwok, etcd."""
        await asyncio.to_thread(namespace.stop, self.folder, name)

    async def start_server(self, name: str) -> None:
        """Start it again; returns at once, see `wait_for_node`."""
        command = getattr(launch.servers(self.folder), name.replace("-", "_"))()
        await asyncio.to_thread(namespace.start, self.folder, name, command)

    async def stop_kubelet(self) -> None:
        """The node turns NotReady when the grace of the cluster (16 s) is over; its containers go on."""
        await self.stop_server("kubelet")

    async def start_kubelet(self) -> None:
        """Start the kubelet and return when the node is Ready and Kueue, which may have been evicted, answers again."""
        await self.start_server("kubelet")
        await self.wait_for_node(ready=True)
        await asyncio.to_thread(launch.wait_for_kueue, self.folder)

    async def wait_for_node(self, *, ready: bool, within: float = 90) -> None:
        async with asyncio.timeout(within):
            while await asyncio.to_thread(launch.node_is_ready, self.folder) is not ready:
                await asyncio.sleep(_POLL_S)

    async def set_gpus(self, count: int, *, within: float = 30) -> None:
        """Change how many GPUs the node has; returns when its status says so."""
        launch.set_gpus(self.folder, count)
        async with asyncio.timeout(within):
            while await asyncio.to_thread(launch.allocatable_gpus, self.folder) != count:
                await asyncio.sleep(_POLL_S)

    async def start_kwok(self) -> None:
        """Start KWOK (built now when it was not yet): nodes of `objects.kwok_node` are then kept alive, and their pods."""
        await asyncio.to_thread(build.build, _say, *build.OPTIONAL)
        await self.start_server("kwok")

    async def load_image(self, archive: Path) -> None:
        """Give the node an image from an archive (`docker save`, or `images.write`)."""
        await asyncio.to_thread(launch.load_image, self.folder, archive)

    async def set_kueue_gates(self, gates: Mapping[str, bool]) -> None:
        """Restart Kueue with these feature gates on top of its defaults; returns when it answers again."""
        await asyncio.to_thread(self._set_kueue_gates, gates)

    def _set_kueue_gates(self, gates: Mapping[str, bool]) -> None:
        kubectl = launch.kubectl(self.folder)
        kubectl.apply([kueue.configuration_object(gates)])
        kubectl.run("rollout", "restart", f"deployment/{kueue.DEPLOYMENT}", "-n", kueue.NAMESPACE)
        words = ("status", f"deployment/{kueue.DEPLOYMENT}", "-n", kueue.NAMESPACE, "--timeout=60s")
        kubectl.run("rollout", *words, within=70)
        launch.wait_for_kueue(self.folder)
