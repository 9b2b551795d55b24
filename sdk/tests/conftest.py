"""One recorded dataset for the whole session: recording it takes longer than most tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdk.tests import builders


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short episodes; the second has NaN in an action at frame 12."""
    return builders.record(tmp_path_factory.mktemp("recording") / "reach")
