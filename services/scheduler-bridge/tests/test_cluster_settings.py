"""A bridge that is told to use a cluster and cannot: one sentence that says what is missing, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = "project: arm-lab\nnamespace: arm-lab\n"


@pytest.mark.parametrize(
    ("project", "kubeconfig", "says"),
    [
        (None, None, "FOREBAY_PROJECTS is not set"),
        ("project: [", None, "projects/arm.yaml"),
        ("project: arm-lab\nnamespace: arm-lab\nqueue: main\n", None, "queue: no such field"),
        (PROJECT, None, "FOREBAY_KUBECONFIG"),
        (PROJECT, "missing", "missing cannot be used"),
        (PROJECT, "projects/arm.yaml", "arm.yaml cannot be used"),
    ],
)
def test_what_is_missing_is_said_in_words(
    tmp_path: Path, project: str | None, kubeconfig: str | None, says: str
) -> None:
    """Exit code 1, the cause and the setting that mends it."""
    settings = {
        "FOREBAY_BACKEND": "kubernetes",
        "FOREBAY_HOME": str(tmp_path),
        "FOREBAY_STORE": str(tmp_path / "state.sqlite"),
        "FOREBAY_NATS_URL": "nats://127.0.0.1:1",
        "FOREBAY_NKEY_FILE": str(tmp_path / "key"),
    }
    if project is not None:
        folder = tmp_path / "projects"
        folder.mkdir()
        (folder / "arm.yaml").write_text(project)
        settings["FOREBAY_PROJECTS"] = str(folder)
    if kubeconfig is not None:
        settings["FOREBAY_KUBECONFIG"] = str(tmp_path / kubeconfig)
    command = [sys.executable, "-m", "forebay.scheduler_bridge"]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
