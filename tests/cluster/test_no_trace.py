"""A cluster that is taken down leaves nothing behind, however its start ended."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.testcluster import launch, namespace
from forebay.testcluster.cluster import TestCluster
from forebay.testcluster.work_folder import WorkFolder

from tests.eventually import eventually


@pytest.fixture
def folder() -> Iterator[WorkFolder]:
    with tempfile.TemporaryDirectory(prefix="fb-", ignore_cleanup_errors=True) as short:
        made = WorkFolder(Path(short) / "c")
        yield made
        launch.down(made)


async def test_a_killed_start_leaves_nothing_after_down(cluster: TestCluster, folder: WorkFolder) -> None:
    """The starter is killed halfway; `down` finds all it began by the folder alone, and the first cluster goes on."""
    words = [sys.executable, "-m", "forebay.testcluster", "up", "--work", str(folder.root)]
    starter = await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL)
    await eventually(
        lambda: namespace.server(folder, "containerd") is not None, what="the second cluster has begun", within=60
    )
    starter.kill()
    await starter.wait()
    assert launch.remains(folder) != []
    (folder.root / "cluster.json").unlink()
    assert launch.down(folder).processes > 0
    assert launch.remains(folder) == []
    assert launch.running(cluster.folder) is not None
