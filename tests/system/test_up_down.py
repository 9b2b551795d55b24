"""`forebay up` and `down` as a person uses them: nothing is left behind, a crash is noticed, a second start is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from forebay.contracts.parts import SERVICES, Part, Source
from forebay.local.attempts import live_attempts
from forebay.local.home import Home, Record, read_record
from forebay.local.pool import volume_tools
from forebay.runtime.client import Client

from tests.eventually import WITHIN_S, eventually
from tests.servers.installation import Installation

PARTS = {"nats-server", *(str(part) for part in SERVICES)}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Installation]:
    """A home folder where nothing runs yet; whatever a test leaves is ended."""
    made = Installation(Home(tmp_path / "home"))
    yield made
    await made.cli("down")


def alive(record: Record) -> list[str]:
    return [child.name for child in record.children if child.identity.process() is not None]


def of_home(place: Installation) -> list[str]:
    """Every process of this machine whose command line or environment names the home folder."""
    found = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            named = str(place.home.root) in " ".join(process.cmdline())
            if named or process.environ().get("FOREBAY_HOME") == str(place.home.root):
                found.append(f"{process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def mounted(place: Installation) -> bool:
    return str(place.home.root) in Path("/proc/self/mounts").read_text(encoding="utf-8")


async def test_up_status_down_leave_nothing_behind(place: Installation) -> None:
    """One command starts everything; the other leaves no process, no mount and no port."""
    up = await place.cli("up", "--project", "arm-lab", "--json")
    assert up.code == 0, up.err
    record = place.record()
    assert up.json()["phase"] == record.phase == "ready"
    expected_juicefs = (tools := volume_tools()) is not None and tools.fuse_available() is None
    assert record.pool_kind == ("juicefs" if expected_juicefs else "folder")
    assert mounted(place) == expected_juicefs
    assert bool(record.pool_note) != expected_juicefs
    assert set(alive(record)) == PARTS | ({"juicefs"} if expected_juicefs else set())
    private = (place.home.root, place.home.pool, place.home.record, place.home.store("ingest"))
    assert [path.stat().st_mode & 0o077 for path in private] == [0] * len(private)
    status = await place.cli("status", "--json")
    assert status.code == 0
    assert status.json()["healthy"] is True
    assert status.json()["acknowledged"] == "an acknowledged event is on the disk (fsync)"
    assert [disk["what"] for disk in status.json()["disks"]] == ["home", "pool", "bus"]
    again = await place.cli("up", "--project", "arm-lab")
    assert again.code == 1
    assert "already runs" in again.err + again.out
    down = await place.cli("down")
    assert down.code == 0, down.err
    assert of_home(place) == []
    assert not mounted(place)
    assert not listens(record.nats_port)
    assert not any(listens(child.health_port) for child in record.children if child.health_port)
    once_more = await place.cli("down")
    assert once_more.code == 0
    stopped = await place.cli("status")
    assert stopped.code == 1
    assert "forebay up" in stopped.out


async def test_what_dies_comes_back_and_a_project_joins(place: Installation) -> None:
    """The bus, the mount and a service are killed; all return on the same port, and a new project is heard at once."""
    assert (await place.cli("up", "--project", "arm-lab")).code == 0
    before = place.record()
    victims = [child for child in before.children if child.name in {"nats-server", "juicefs", "ingest"}]
    for child in victims:
        os.kill(child.pid, signal.SIGKILL)

    def all_back() -> bool:
        now = place.record()
        return all(
            c.state == "healthy" and c.pid not in {v.pid for v in victims} and c.identity.process()
            for c in now.children
        )

    await eventually(all_back, what="everything is back")
    assert place.record().nats_port == before.nats_port
    assert {child.name: child.restarts for child in place.record().children if child in victims or child.restarts} == {
        child.name: 1 for child in victims
    }
    joined = await place.cli("bus", "init", "--project", "dog-lab", "--json")
    assert joined.code == 0, joined.err
    assert joined.json()["reloaded"] is True
    await eventually(lambda: place.record().projects == ["arm-lab", "dog-lab"], what="the record names the new project")
    source = Source(Part.COLLECTOR, "dog-lab")
    async with Client.connect(before.nats_url, place.home.key("collector.dog-lab"), source) as newcomer:
        reply = await newcomer.nc.request("fb.dog-lab.upload.u1.started", b"{}", timeout=WITHIN_S)
    assert "seq" in json.loads(reply.data)


async def test_after_a_crash_of_the_supervisor_up_clears_the_remains(place: Installation, tmp_path: Path) -> None:
    """Killed children are named and ended; training goes on, is adopted, and ends with `down`, which says so."""
    assert (await place.cli("up", "--project", "arm-lab", "--no-juicefs")).code == 0
    first = place.record()
    job = tmp_path / "job.yaml"
    job.write_text('name: long\ncommand: [python, -c, "import time; time.sleep(600)"]\nresources: {cpu: 0.1}\n')
    assert (await place.cli("submit", str(job), "--project", "arm-lab")).code == 0
    await eventually(lambda: job_state(place), what="the job runs", every=0.3)
    (attempt,) = live_attempts(place.home)
    training = {process.pid for process in attempt.processes}
    os.kill(first.supervisor_pid, signal.SIGKILL)
    await eventually(lambda: first.supervisor.process() is None, what="the supervisor is gone")
    assert set(alive(first)) == PARTS
    assert (await place.cli("status")).code == 1
    second = await place.cli("up", "--no-juicefs")
    assert second.code == 0, second.err
    assert "ended what it left" in second.out
    assert alive(first) == []
    now = place.record()
    assert (now.projects, now.pool_kind, now.nats_port) == (["arm-lab"], "folder", first.nats_port)
    assert "--no-juicefs" in now.pool_note
    assert await job_state(place)
    assert {process.pid for found in live_attempts(place.home) for process in found.processes} == training
    down = await place.cli("down")
    assert "arm-lab/long-1 attempt-1" in down.out
    assert live_attempts(place.home) == []
    assert of_home(place) == []


async def job_state(place: Installation) -> bool:
    """Whether the job `long` is RUNNING."""
    ran = await place.cli("job", "long", "--project", "arm-lab", "--json")
    return ran.code == 0 and ran.json()["state"] == "RUNNING"


async def test_a_start_that_cannot_work_says_why_and_leaves_nothing(place: Installation) -> None:
    """A broken configuration ends with exit 3, the reason, and no process."""
    place.home.make()
    (place.home.nats / "jetstream").write_text("a file where the server wants a folder")
    up = await place.cli("up", "--project", "arm-lab", "--no-juicefs", "--timeout", "100")
    assert up.code == 3
    assert "nats-server" in up.err + up.out
    assert read_record(place.home) is not None
    assert of_home(place) == []


async def test_a_project_must_be_a_name(place: Installation) -> None:
    """What could climb out of its folder is refused before anything is made."""
    up = await place.cli("up", "--project", "../other")
    assert up.code in {1, 2}
    assert "not a valid id" in up.err + up.out
    assert not place.home.keys.exists()
