"""Ingest killed at random moments; `python -m tests.chaos.ingest_kills --kills 200` is the long run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.ingest_kills import run_kills

KILLS = 4


@pytest.mark.chaos
async def test_killing_ingest_changes_nothing_in_the_versions(tmp_path: Path) -> None:
    """Fifty episodes: the same version, the same digests, each verdict once, no stray file."""
    outcome = await run_kills(KILLS, seed=5, folder=tmp_path)
    assert outcome.problems == []
    assert outcome.kills == KILLS
