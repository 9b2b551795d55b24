"""Clearing up after a crash, and refusing to start twice, without starting a whole installation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.local import launch, pool
from forebay.local.errors import LocalError
from forebay.local.home import ChildRecord, Home, process_id, read_record, write_record
from forebay.local.supervisor import lock

from .test_home import record


@pytest.fixture
def orphan() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def home_of(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.make()
    return home


def test_down_where_nothing_was_ever_started(tmp_path: Path) -> None:
    """Nothing to do is done."""
    assert not launch.stop(home_of(tmp_path), seen=lambda _: None)


def test_what_a_killed_supervisor_left_is_ended(tmp_path: Path, orphan: subprocess.Popen[bytes]) -> None:
    """The record names the processes that lived; they are ended and the record says stopped."""
    home = home_of(tmp_path)
    identity = process_id(orphan.pid)
    children = [ChildRecord(name="ingest", pid=identity.pid, start=identity.start, state="healthy")]
    write_record(home, record(phase="ready", supervisor_pid=2**22 - 1, supervisor_start=1.0, children=children))
    assert launch.running(home) is None
    cleared = launch.stop(home, seen=lambda _: None)
    assert cleared.processes == ["ingest"]
    assert orphan.wait() == -9
    after = read_record(home)
    assert after is not None
    assert (after.phase, after.children[0].state) == ("stopped", "stopped")
    assert not launch.stop(home, seen=lambda _: None)


def test_a_second_up_in_the_same_home_is_refused(tmp_path: Path) -> None:
    """The answer is no, with how to add a project instead."""
    home = home_of(tmp_path)
    me = process_id(os.getpid())
    write_record(home, record(phase="ready", supervisor_pid=me.pid, supervisor_start=me.start))
    with pytest.raises(LocalError, match="already runs") as caught:
        launch.start(home, ["arm-lab"], juicefs=False)
    assert "bus init" in caught.value.next_action


def test_the_home_has_one_holder(tmp_path: Path) -> None:
    """Two supervisors that start at the same moment: the second does not get the lock."""
    home = home_of(tmp_path)
    first = lock(home)
    assert first is not None
    assert lock(home) is None
    first.close()
    second = lock(home)
    assert second is not None
    second.close()


def test_a_pool_that_holds_files_stays_a_folder(tmp_path: Path) -> None:
    """Mounting over it would hide the data."""
    home = home_of(tmp_path)
    (home.pool / "datasets").mkdir(parents=True)
    plan = pool.decide(home, None, juicefs=True)
    assert plan.kind == "folder"
    assert "cannot be proven" in plan.note


def test_a_pool_in_juicefs_is_not_silently_replaced(tmp_path: Path) -> None:
    """Starting without JuiceFS would show an empty pool, so it is refused."""
    home = home_of(tmp_path)
    home.pool_objects.mkdir()
    with pytest.raises(LocalError, match="lies in JuiceFS"):
        pool.decide(home, record(pool_kind="juicefs"), juicefs=False)
