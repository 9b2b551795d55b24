"""An installation whose disks are full, one after the other, as a person meets it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from forebay.contracts.parts import Part, Source
from forebay.runtime.connection import connect

from sdk.tests.builders import record
from tests.eventually import eventually
from tests.servers.installation import Installation, installation
from tests.servers.nats import stores
from tests.servers.small_disk import MIB, SmallDisk, small_disk

PROJECT = "arm-lab"
COLLECTOR = Source(Part.COLLECTOR, PROJECT)
JOB = "name: short\ncommand: [python, -c, \"print('trained')\"]\nresources: {cpu: 0.1}\n"


@contextlib.contextmanager
def three_disks(home: Path) -> Iterator[dict[str, SmallDisk]]:
    """The home, its pool and its bus on disks of their own."""
    with small_disk(home, 256 * MIB) as one, small_disk(home / "pool") as two, small_disk(home / "nats") as three:
        yield {"home": one, "pool": two, "bus": three}


async def red(place: Installation, disk: str) -> str:
    """What `status`, which is red, says about the disk."""
    status = await place.cli("status", "--json")
    assert (status.code, status.json()["healthy"]) == (1, False)
    return str(next(one for one in status.json()["disks"] if one["what"] == disk)["problem"])


def all_healthy(place: Installation) -> bool:
    return all(child.state == "healthy" and child.identity.process() for child in place.record().children)


async def test_an_installation_survives_each_of_its_disks_being_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pool, home and bus in turn: red with numbers, new work refused, processes come back, and the work is done after."""
    monkeypatch.setenv("FOREBAY_DISK_FLOOR_BYTES", str(1 << 30))
    home, recording = tmp_path / "home", record(tmp_path / "recording")
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    with three_disks(home) as disks:
        async with installation(home, [PROJECT]) as place:
            before = place.record()
            upload = ("upload", str(recording), "--project", PROJECT, "--dataset", "reach")

            disks["pool"].fill(leave=4 * MIB)
            assert "of 67.1 MB free" in await red(place, "pool")
            refused = await place.cli(*upload, "--json")
            assert (refused.code, refused.json()["error"]["code"]) == (3, "disk-full")
            assert "must stay free" in refused.json()["error"]["message"]
            assert not list((home / "pool" / "landing").rglob("*.parquet"))
            disks["pool"].clear()

            disks["bus"].fill()
            client = await connect(place.record().nats_url, COLLECTOR, place.home.key(f"collector.{PROJECT}"))
            assert not await stores(client)
            assert "the disk of the bus" in await red(place, "bus")
            refused = await place.cli("submit", str(job), "--project", PROJECT)
            assert (refused.code, "the disk of the bus" in refused.err) == (3, True)
            disks["bus"].clear()
            await eventually(
                lambda: place.child("nats-server").restarts == 1, what="the server is restarted", within=30
            )
            await client.close()

            disks["home"].fill()
            os.kill(place.child("ingest").pid, signal.SIGKILL)
            assert "has 0 B of 268.4 MB free; 26.8 MB must stay free" in await red(place, "home")
            assert place.record().supervisor.process() is not None
            disks["home"].clear()

            await eventually(lambda: all_healthy(place), what="all is healthy again by itself")
            assert (await place.cli("status")).code == 0
            assert place.record().supervisor_pid == before.supervisor_pid
            uploaded = await place.cli(*upload, "--wait", "--json")
            assert uploaded.code == 0, uploaded.err
            trained = await place.cli("submit", str(job), "--project", PROJECT, "--wait")
            assert trained.code == 0, trained.err + trained.out
