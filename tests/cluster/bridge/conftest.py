"""One bridge per test: its own bus, its own namespace and queue, its own account on the shared cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from forebay.runtime.client import Client
from forebay.testcluster import build
from forebay.testcluster.api import Api
from forebay.testcluster.cluster import TestCluster

from tests.cluster import agent_image
from tests.cluster.queues import Queues
from tests.servers.nats import nats_server

from .world import OPERATOR, PROJECT, Bridge, environment, project_file, relay, service_account


@pytest.fixture(scope="session")
def agent(cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of our own containers, on the node."""
    import asyncio  # noqa: PLC0415 a session fixture has no loop of its own

    asyncio.run(cluster.load_image(agent_image.build(tmp_path_factory.mktemp("agent"))))
    return agent_image.AGENT


@pytest.fixture
async def bridge(
    *, cluster: TestCluster, api: Api, namespace: str, queues: Queues, agent: str, tmp_path: Path
) -> AsyncIterator[Bridge]:
    """A bridge that runs as the account of `deploy/kubernetes`, with a queue of one CPU."""
    await queues.make({"cpu": "1", "memory": "2Gi", cluster.gpu: 4}, name="main")
    kubectl = [str(build.kubectl()), f"--kubeconfig={cluster.kubeconfig}"]
    account = service_account(cluster.kubeconfig, kubectl, tmp_path, namespace)
    classes = [f"{namespace}-low", f"{namespace}-high"]
    projects = project_file(tmp_path, namespace, ("main",), priority_classes=classes)
    async with nats_server(tmp_path / "home", PROJECT) as server, relay(server.port) as port:
        node = await api.get("Node", None, cluster.node)
        assert node is not None
        address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
        variables = environment(server, tmp_path, account, projects, f"nats://{address}:{port}")
        async with Client.connect(server.url, server.key(OPERATOR), OPERATOR) as client:
            running = Bridge(
                server=server, client=client, api=api, namespace=namespace, folder=tmp_path, environment=variables
            )
            await running.start()
            try:
                yield running
            finally:
                await running.close()
