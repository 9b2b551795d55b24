"""The cache killed at random moments; `python -m tests.chaos.cache_kills --kills 200` is the long run."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay.cache.adapters import juicefs_volume

from tests.chaos.cache_kills import run_kills

KILLS = 20

if juicefs_volume.fuse_available() is None:

    @pytest.mark.chaos
    async def test_killing_the_cache_changes_no_outcome(tmp_path: Path) -> None:
        """Each request ends warm, by the blocks on disk; each eviction ends with nothing there; nothing is fetched twice."""
        outcome = await run_kills(KILLS, seed=5, folder=tmp_path)
        assert outcome.problems == []
        assert outcome.kills == KILLS
