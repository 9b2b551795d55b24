"""Supervision of one process, with real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
from forebay.local.children import Child

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


async def well() -> str:
    return ""


def child(tmp_path: Path, *command: str, probe: Callable[[], Awaitable[str]] = well) -> Child:
    return Child(
        "toy",
        [sys.executable, "-c", *command],
        environment=dict.fromkeys(("PATH",), ""),
        log=tmp_path / "toy.log",
        probe=probe,
        changed=lambda: None,
    )


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that another process does; the test's own time limit is the deadline."""
    while not condition():
        await asyncio.sleep(0.02)


async def test_a_process_that_dies_is_started_again_with_a_note(tmp_path: Path) -> None:
    """The first restarts come fast, and the record says what happened."""
    toy = child(tmp_path, "import sys; print('one life', flush=True); sys.exit(3)")
    toy.start()
    await until(lambda: toy.record.restarts >= 3)
    assert "exit code 3" in toy.record.note or toy.record.state == "starting"
    await toy.stop()
    assert toy.record.state == "stopped"
    assert (tmp_path / "toy.log").read_text().count("one life") >= 3


async def test_a_killed_process_comes_back_as_another_one(tmp_path: Path) -> None:
    """SIGKILL is only another way to die."""
    toy = child(tmp_path, "import time; time.sleep(600)")
    toy.start()
    await until(lambda: toy.record.pid)
    first = toy.record.pid
    psutil.Process(first).kill()
    await until(lambda: toy.record.pid not in {0, first})
    assert toy.record.restarts == 1
    await toy.stop()


async def test_stopping_takes_the_whole_group(tmp_path: Path) -> None:
    """What a service started dies with it."""
    note = tmp_path / "grandchild"
    toy = child(tmp_path, FAMILY, str(note))
    toy.start()
    await until(lambda: note.exists() and note.read_text())
    grandchild = psutil.Process(int(note.read_text()))
    await toy.stop()
    await until(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


async def test_a_process_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    """SIGTERM first; after the grace SIGKILL."""
    toy = child(tmp_path, DEAF)
    toy.start()
    log = tmp_path / "toy.log"
    await until(lambda: log.exists() and "ready" in log.read_text())
    await toy.stop(grace_s=0.2)
    assert toy.record.state == "stopped"
    assert not psutil.pid_exists(toy.record.pid)


async def test_a_program_that_does_not_exist_is_said_in_the_record(tmp_path: Path) -> None:
    """Supervision itself does not fall over what it supervises."""
    toy = Child("toy", ["/no/such/program"], environment={}, log=tmp_path / "l", probe=well, changed=lambda: None)
    toy.start()
    await until(lambda: toy.record.state == "backoff")
    assert await toy.check() is False
    await toy.stop()


async def test_health_is_what_the_probe_says(tmp_path: Path) -> None:
    """Starting, healthy, unhealthy, with the probe's own words."""
    answers = ["reading the log", "", "the bus is gone"]

    async def probe() -> str:
        return answers.pop(0)

    toy = child(tmp_path, "import time; time.sleep(600)", probe=probe)
    toy.start()
    await until(lambda: toy.record.state == "starting")
    seen = []
    for _ in range(3):
        await toy.check()
        seen.append((toy.record.state, toy.record.note))
    assert seen == [("starting", "reading the log"), ("healthy", ""), ("unhealthy", "the bus is gone")]
    await toy.stop()


async def test_a_log_that_has_grown_is_set_aside(tmp_path: Path) -> None:
    """The process keeps writing into the same file, which begins anew; one older file is kept."""
    toy = child(tmp_path, "import time\nfor n in range(100): print('x' * 100, flush=True)\ntime.sleep(600)")
    log = tmp_path / "toy.log"
    toy.start()
    await until(lambda: log.exists() and log.stat().st_size >= 10_100)
    toy.rotate(5_000)
    assert log.stat().st_size == 0
    assert (tmp_path / "toy.log.1").stat().st_size == 10_100
    toy.rotate(5_000)
    assert (tmp_path / "toy.log.1").stat().st_size == 10_100
    await toy.stop()
