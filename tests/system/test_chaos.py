"""The crash proof in short; `make chaos KILLS=1000` is the full one."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay.contracts.parts import SERVICES

from tests.chaos.run import run_chaos

KILLS = 20


@pytest.mark.chaos
async def test_killing_services_changes_nothing(tmp_path: Path) -> None:
    """No event lost, no job started twice, no document twice, every digest that of the log; the outage was said and survived."""
    report = await run_chaos(KILLS, seed=7, folder=tmp_path)
    assert report.findings.problems == []
    assert sum(report.kills.values()) == KILLS
    assert report.jobs > 0
    assert set(report.findings.digests) == {str(part) for part in SERVICES}
    assert set(report.outage_seen_by) == {str(part) for part in SERVICES}
    assert "healthy" not in report.outage_seen_by.values()
    assert report.restarted_by_outage == []
