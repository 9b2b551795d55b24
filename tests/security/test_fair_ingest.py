"""One collector's worst against everybody else's upload: bombs, FIFOs and a folder that hangs, on a real bus."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path
from statistics import median

import av
import numpy as np
import pytest
from forebay.contracts.parts import Part, Source
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.settings import environment
from forebay.sdk.collector import Collector

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests.lerobot_builder import FIRST_DATA, FIRST_VIDEO, SECOND_VIDEO
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server

pytestmark = [pytest.mark.real_bus, pytest.mark.timeout(170)]
GOOD, BAD = "alpha", "mallory"
BOMBS = 8
ROUNDS = 3
OPERATOR = Source(Part.OPERATOR)


@asynccontextmanager
async def ingest(server: NatsServer, **settings: str) -> AsyncIterator[None]:
    """The service in a process of its own, as an installation runs it."""
    (server.home.root / "pool").mkdir(exist_ok=True)
    inherited = {name: value for name, value in environment().items() if not name.startswith("FOREBAY_")}
    source = Source(Part.INGEST)
    with (server.home.logs / "ingest.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "forebay.ingest",
            env=inherited
            | {
                "FOREBAY_HOME": str(server.home.root),
                "FOREBAY_NATS_URL": server.url,
                "FOREBAY_NKEY_FILE": str(server.key(source)),
                **settings,
            },
            stderr=log,
        )
    try:
        yield
    finally:
        process.kill()
        await process.wait()


class Lab:
    """Collectors of both projects and somebody who looks at their uploads."""

    def __init__(self, server: NatsServer, operator: Client, folder: Path) -> None:
        self.server = server
        self.operator = operator
        self.folder = folder
        self.measured = 0

    async def upload(self, project: str, dataset: str, *, fifo: bool = False) -> str:
        """Land the project's recording as a dataset of its own, announce it, and return the upload's id."""
        folder = self.folder / project
        collector = Collector(home=self.server.home.root, project=project)
        done = await asyncio.to_thread(collector.upload, folder, dataset)
        if fifo:
            target = self.server.home.root / "pool" / "landing" / project / done.upload / FIRST_DATA
            target.unlink()
            os.mkfifo(target)
        async with Client.connect(self.server.url, self.server.key(collector.source), collector.source) as client:
            await collector.outbox.deliver(client)
        return done.upload

    async def state(self, project: str, upload: str) -> str:
        try:
            answer = await self.operator.ask("ingest", project, "upload", {"upload": upload})
        except (Refused, Unreachable):
            return ""
        return str(answer.result["state"])

    async def judged(self, project: str, upload: str, within: float) -> None:
        async def there() -> bool:
            return await self.state(project, upload) not in {"", "ARRIVING", "WAITING", "VALIDATING"}

        await eventually(there, what=f"{upload} of {project} is judged", within=within, every=0.02)

    async def seconds(self) -> float:
        """What one upload of the good project takes, from its last event to its verdicts."""
        self.measured += 1
        upload = await self.upload(GOOD, f"pick-{self.measured}")  # uploads of one dataset wait for each other
        began = time.monotonic()
        await self.judged(GOOD, upload, within=60)
        return time.monotonic() - began


@asynccontextmanager
async def lab(folder: Path, **settings: str) -> AsyncIterator[Lab]:
    async with (
        nats_server(folder / "home", GOOD, BAD) as server,
        Client.connect(server.url, server.key(OPERATOR), OPERATOR) as operator,
        ingest(server, **settings),
    ):
        yield Lab(server, operator, folder)


def slow_video(path: Path, repeats: int) -> bytes:
    """A small file that takes long to decode: few pictures, encoded once and told again and again."""
    frames, rate = 50, 5
    once = path.with_suffix(".once.mp4")
    with av.open(str(once), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 1280, 960, "yuv420p"
        stream.options = {"g": str(frames), "bf": "0", "preset": "ultrafast"}
        for number in range(frames):
            picture = np.full((960, 1280, 3), number * 5 % 256, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    with av.open(str(once)) as source, av.open(str(path), "w", format="mp4") as target:
        packets = [(bytes(one), one.is_keyframe) for one in source.demux(video=0) if one.size]
        out = target.add_stream_from_template(source.streams.video[0])
        for at, (content, key) in enumerate(packets * repeats):
            packet = av.Packet(content)
            packet.stream, packet.pts, packet.dts, packet.time_base = out, at, at, Fraction(1, rate)
            packet.is_keyframe = key
            target.mux(packet)
    return path.read_bytes()


async def test_bombs_of_one_project_do_not_delay_another(tmp_path: Path) -> None:
    """Eight uploads of slow videos and one with a FIFO wait in line; another project's verdicts come about as fast as before."""
    lerobot.build(tmp_path / GOOD)
    bomb = slow_video(tmp_path / "bomb.mp4", 120)
    lerobot.build(tmp_path / BAD)
    for video in (FIRST_VIDEO, SECOND_VIDEO):
        (tmp_path / BAD / video).write_bytes(bomb)
    async with lab(tmp_path) as place:
        await place.judged(GOOD, await place.upload(GOOD, "pick"), within=60)  # loads libraries
        before = [await place.seconds() for _ in range(ROUNDS)]
        await place.upload(BAD, "fifo", fifo=True)
        bombs = [await place.upload(BAD, f"bomb-{number}") for number in range(BOMBS)]
        during = [await place.seconds() for _ in range(ROUNDS)]
        waiting = [await place.state(BAD, upload) for upload in bombs].count("VALIDATING")
    ratio = max(during) / max(before)
    sys.stdout.write(
        f"undisturbed {median(before):.2f} s (worst {max(before):.2f}), "
        f"attacked {median(during):.2f} s (worst {max(during):.2f}), worst to worst {ratio:.2f}, "
        f"{waiting} of {BOMBS} bombs still wait\n"
    )
    assert waiting >= BOMBS // 2, "the attack was over before it was measured"
    assert median(during) <= 4 * median(before)  # one slow round is the machine, two are the attack
