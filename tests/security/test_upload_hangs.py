"""`forebay upload` when something never answers: it ends when it was told to, at a signal, and says what to do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from forebay.runtime.settings import environment
from forebay.sdk.collector import Collector

from sdk.tests.builders import NOBODY, record
from services.cache.tests.mounts import mounted
from tests.eventually import WITHIN_S, eventually
from tests.servers.small_disk import MIB, small_disk


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recording") / "reach")


async def upload(home: Path, recording: Path, *options: str) -> asyncio.subprocess.Process:
    (home / "pool").mkdir(parents=True, exist_ok=True)
    inherited = {name: value for name, value in environment().items() if not name.startswith("FOREBAY_")}
    return await asyncio.create_subprocess_exec(
        str(Path(sysconfig.get_path("scripts")) / "forebay"),
        *("upload", str(recording), "--dataset", "reach", "--project", "lab", "--json", *options),
        env=inherited | {"FOREBAY_HOME": str(home), "FOREBAY_NATS_URL": NOBODY},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@contextmanager
def hanging(home: Path, recording: Path) -> Iterator[None]:
    """A data pool that answers nobody: the processes that serve its mount are stopped."""
    home.mkdir(exist_ok=True)
    with mounted(home) as mount:
        Collector(home=home, project="lab").upload(recording, "reach")
        serving = json.loads((mount.mountpoint / ".config").read_bytes())["Pid"]
        os.kill(serving, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(serving, signal.SIGCONT)


def waits_for_the_pool(pid: int) -> bool:
    """Whether a thread of the process is in a call that the mount does not answer."""
    try:
        return any(
            "request_wait_answer" in (task / "wchan").read_text() for task in Path(f"/proc/{pid}/task").iterdir()
        )
    except OSError:
        return False


async def test_the_time_limit_holds_while_the_bus_is_away(tmp_path: Path, recording: Path) -> None:
    """Not 20 s for delivery on top: it ends with exit code 3 and the way to go on, and what was copied stays."""
    process = await upload(tmp_path, recording, "--timeout", "3")
    out, _ = await process.communicate()
    assert process.returncode == 3
    error = json.loads(out)["error"]
    assert (error["code"], error["message"]) == ("timeout", "the upload was not complete within 3.0 s")
    assert "not copied twice" in error["next_action"]


async def test_the_time_limit_holds_while_a_file_system_hangs(tmp_path: Path, recording: Path) -> None:
    """A thread that never comes back from the pool does not keep the process."""
    with hanging(tmp_path, recording):
        process = await upload(tmp_path, recording, "--timeout", "3")
        out, _ = await process.communicate()
        assert (process.returncode, json.loads(out)["error"]["code"]) == (3, "timeout")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
async def test_a_signal_ends_an_upload_that_hangs(
    tmp_path: Path, recording: Path, sent: signal.Signals, code: int
) -> None:
    """At once, without a time limit."""
    with hanging(tmp_path, recording):
        process = await upload(tmp_path, recording)
        await eventually(lambda: waits_for_the_pool(process.pid), what="it waits for the pool")
        process.send_signal(sent)
        async with asyncio.timeout(WITHIN_S):  # without its handler it would wait for the pool for ever
            await process.communicate()
        assert process.returncode == code


async def test_a_disk_that_fills_up_under_an_upload_is_no_defect(tmp_path: Path, recording: Path) -> None:
    """A sentence, exit code 3, no half file; and with room the same upload goes on where it was."""
    with small_disk(tmp_path / "pool", 4 * MIB) as disk:
        disk.fill(leave=64 << 10)
        process = await upload(tmp_path, recording)
        out, _ = await process.communicate()
        error = json.loads(out)["error"]
        assert (process.returncode, error["code"]) == (3, "disk-full")
        assert "defect" not in error["next_action"]
        assert "free space" in error["next_action"]
        assert not list(disk.folder.rglob("*.part"))
        disk.clear()
        done = Collector(home=tmp_path, project="lab").upload(recording, "reach")
        assert len(list(disk.folder.rglob("*.parquet"))) > 0
        assert not done.repeated
