"""Training attempts that outlived the services are found by what their folder says, and only those are ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from forebay.local import attempts
from forebay.local.home import Home


@pytest.fixture
def training() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def folder(home: Home, content: object) -> None:
    place = home.jobs / "arm-lab" / "reach-1" / "attempt-2"
    place.mkdir(parents=True)
    (place / "process.json").write_text(content if isinstance(content, str) else json.dumps(content))


def test_a_living_attempt_is_found_and_ended(tmp_path: Path, training: subprocess.Popen[bytes]) -> None:
    """Named by project, job and attempt; every process of it ends."""
    home = Home(tmp_path)
    folder(home, {"agent_pid": training.pid, "agent_start": ticks(training.pid), "stage": "running"})
    found = attempts.live_attempts(home)
    assert [str(item) for item in found] == ["arm-lab/reach-1 attempt-2"]
    attempts.stop(found)
    assert not psutil.pid_exists(training.pid)
    assert attempts.live_attempts(home) == []


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", "null", {}, {"agent_pid": "7", "agent_start": 1}, {"agent_pid": -1}]
)
def test_a_half_written_folder_names_nobody(tmp_path: Path, content: object) -> None:
    """Nothing is ended on a guess."""
    folder(Home(tmp_path), content)
    assert attempts.live_attempts(Home(tmp_path)) == []


def test_a_number_that_was_reused_is_left_alone(tmp_path: Path, training: subprocess.Popen[bytes]) -> None:
    """A process that started at another time is somebody else's."""
    folder(Home(tmp_path), {"agent_pid": training.pid, "agent_start": ticks(training.pid) - 100})
    assert attempts.live_attempts(Home(tmp_path)) == []
