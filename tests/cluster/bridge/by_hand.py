"""What runs by hand against a cluster need: a cluster, a bridge in a namespace of its own, nodes that only KWOK knows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.testcluster import launch, objects, settings
from forebay.testcluster.api import Api
from forebay.testcluster.cluster import TestCluster
from forebay.testcluster.errors import ClusterError
from forebay.testcluster.work_folder import NODE_GRACE_S

from tests.cluster import our_images
from tests.cluster.queues import Queues

from .world import Bridge, running_bridge

ON_KWOK: Mapping[str, Any] = {
    "imagePullPolicy": "IfNotPresent",
    "nodeSelector": {"type": "kwok"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
}
"""`pod:` of a job whose pod ends on a node without a kubelet, as soon as it is there."""
KWOK = "kwok"
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Place:
    """A bridge, and the ClusterQueue behind its queue `main`."""

    bridge: Bridge
    queue: str


async def _many(requests: Iterable[Awaitable[Any]]) -> None:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(request: Awaitable[Any]) -> None:
        async with room:
            await request

    await asyncio.gather(*(one(request) for request in requests))


@asynccontextmanager
async def any_cluster(*, node_grace_s: int = NODE_GRACE_S) -> AsyncIterator[TestCluster]:
    """The one that runs in the work folder, else one of our own.

    Raises `ClusterError` when the one that runs takes silent nodes for lost sooner than asked.
    """
    work = settings.load().testcluster_work
    joined = TestCluster.join(work)
    if joined is None:
        async with TestCluster.start(work, node_grace_s=node_grace_s) as started:
            yield started
        return
    record = joined.folder.record()
    if record is None or record.node_grace_s < node_grace_s:
        msg = f"the cluster in {work} takes a node for lost sooner than {node_grace_s} s after its last word"
        hint = f"end it (python -m forebay.testcluster down --work {work}): one that is patient is then started here"
        raise ClusterError(msg, hint)
    yield joined


async def load_agent(cluster: TestCluster, folder: Path) -> None:
    """Give the node the image of our own containers."""
    folder.mkdir(parents=True, exist_ok=True)
    await cluster.load_image(our_images.build_agent(folder))


@asynccontextmanager
async def kwok_nodes(cluster: TestCluster, api: Api, names: Sequence[str]) -> AsyncIterator[None]:
    """Nodes that KWOK keeps alive, and KWOK where it does not run; both are taken away at the end."""
    runs_already = launch.server_pids(cluster.folder).get(KWOK) is not None
    if not runs_already:
        await cluster.start_kwok()
    try:
        await _many(api.create(objects.kwok_node(name, {"cpu": "64", "memory": "256Gi"})) for name in names)
        yield
    finally:
        await _many(api.delete("Node", None, name) for name in names)
        if not runs_already:
            await cluster.stop_server(KWOK)


@asynccontextmanager
async def bridge_with_kwok(
    cluster: TestCluster, folder: Path, quota: Mapping[str, str | int], *, nodes: int = 1
) -> AsyncIterator[Place]:
    """A bridge for a queue with this quota, and nodes of KWOK; everything is taken away at the end."""
    namespace = f"t-{uuid.uuid4().hex[:10]}"
    names = [f"{namespace}-{number}" for number in range(nodes)]
    folder.mkdir(parents=True, exist_ok=True)
    async with cluster.api() as api, kwok_nodes(cluster, api, names):
        queues = Queues(api, namespace)
        await api.create(objects.namespace(namespace))
        try:
            await queues.make(quota, name="main")
            async with running_bridge(cluster, api, namespace, folder) as bridge:
                yield Place(bridge, queues.behind("main"))
        finally:
            await api.delete("Namespace", None, namespace)
            await queues.remove()
