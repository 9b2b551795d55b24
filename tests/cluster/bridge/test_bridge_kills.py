"""The bridge killed at random moments; `python -m tests.chaos.bridge_kills --kills 200` is the long run."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay.testcluster.cluster import TestCluster

from tests.chaos.bridge_kills import JOBS, run_kills

KILLS = 20


@pytest.mark.chaos
@pytest.mark.timeout(420)
@pytest.mark.usefixtures("agent")
async def test_killing_the_bridge_loses_and_repeats_nothing(cluster: TestCluster, tmp_path: Path) -> None:
    """Fifty jobs: one Job object each, the log's last word is the API's, one attempt per pod, no quota held at the end."""
    outcome = await run_kills(cluster, KILLS, seed=11, folder=tmp_path)
    assert outcome.problems == []
    assert outcome.kills == KILLS
    assert outcome.jobs == JOBS
