"""One cluster for the whole folder, and a namespace with queues for each test.

The cluster that runs in the work folder is joined and left running (`python -m forebay.testcluster up`);
when none does, one is started and taken down. With KUBECONFIG, that cluster is used; tests of
the node itself (those that ask for `cluster`) are then left out.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from forebay.testcluster import build, images, launch, settings
from forebay.testcluster.api import Api, path_of
from forebay.testcluster.cluster import TestCluster
from forebay.testcluster.work_folder import WorkFolder

from .queues import Queues

_OWN = "cluster"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if settings.foreign_kubeconfig() is None:
        return
    ours = [item for item in items if _OWN in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[TestCluster]:
    """Our own cluster, for tests that change the node or Kueue itself."""
    work = settings.load().testcluster_work
    if joined := TestCluster.join(work):
        yield joined
        return
    if missing := build.missing():
        pytest.fail(f"not built yet: {', '.join(missing)}; run `make test-cluster`, which builds first")
    folder = WorkFolder(work)
    with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        launch.up(folder, say=lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201 progress of a minute
    yield TestCluster(folder)
    launch.down(folder)
    assert launch.remains(folder) == []


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The administrator's kubeconfig of the cluster that is tested on."""
    if foreign := settings.foreign_kubeconfig():
        return foreign
    own: TestCluster = request.getfixturevalue(_OWN)
    return own.kubeconfig


@pytest.fixture(scope="session")
def image() -> str:
    """An image with a shell that the cluster has or can pull."""
    return settings.load().testcluster_image if settings.foreign_kubeconfig() else images.BUSYBOX


@pytest.fixture
async def api(kubeconfig: Path) -> AsyncIterator[Api]:
    async with Api.open(kubeconfig) as opened:
        yield opened


@pytest.fixture
async def namespace(api: Api) -> AsyncIterator[str]:
    """A namespace of this test alone; it goes away with all that is in it."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    await api.create({"kind": "Namespace", "metadata": {"name": name}})
    yield name
    # Pods go first with a namespace, but the last failed pod of an index stays until the Job controller has made
    # another one, which it cannot in a namespace that goes away: the Jobs have to go before.
    await api.json("DELETE", path_of("Job", name), {"propagationPolicy": "Background"})
    await api.delete("Namespace", None, name)


@pytest.fixture
async def queues(api: Api, namespace: str) -> AsyncIterator[Queues]:
    """Makes queues of this test alone, and takes them away."""
    made = Queues(api, namespace)
    yield made
    await made.remove()
