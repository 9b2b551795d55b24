"""One bridge per test: its own bus, its own namespace and queue, its own account on the shared cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from forebay.testcluster.api import Api
from forebay.testcluster.cluster import TestCluster

from tests.cluster import our_images
from tests.cluster.queues import Queues

from .world import Bridge, running_bridge


@pytest.fixture(scope="session")
def agent(cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of our own containers, on the node."""
    import asyncio  # noqa: PLC0415 a session fixture has no loop of its own

    asyncio.run(cluster.load_image(our_images.build_agent(tmp_path_factory.mktemp("agent"))))
    return our_images.AGENT


@pytest.fixture
async def bridge(
    *, cluster: TestCluster, api: Api, namespace: str, queues: Queues, agent: str, tmp_path: Path
) -> AsyncIterator[Bridge]:
    """A bridge that runs as the account of `deploy/kubernetes`, with a queue of one CPU."""
    await queues.make({"cpu": "1", "memory": "2Gi", cluster.gpu: 4}, name="main")
    async with running_bridge(cluster, api, namespace, tmp_path) as running:
        yield running
