"""An event is the same whether its consumer delivered it or it was read from the log."""

from __future__ import annotations

from pathlib import Path

from forebay.contracts.parts import Part, Source
from forebay.runtime.bus import Bus
from forebay.runtime.log import LogMessage, LogReader

from tests.eventually import eventually
from tests.servers.nats import nats_server

COUNT = 60


async def test_both_ways_of_reading_give_the_same_message(tmp_path: Path) -> None:
    """Subject, body and above all the time of storing agree to the microsecond: decisions depend on it."""
    async with nats_server(tmp_path / "home", "arm-lab") as server:
        collector = await server.connect(Part.COLLECTOR, "arm-lab")
        for number in range(COUNT):
            await collector.request(f"fb.arm-lab.upload.u{number}.started", b"{}", headers={"ce-id": str(number)})
        source = Source(Part.INGEST)
        bus = Bus(server.url, source, server.key(source))
        await bus.connect()
        taken: list[LogMessage] = []

        async def take(batch: list[LogMessage], _: int) -> None:
            taken.extend(batch)

        await bus.read("ingest", take)
        await eventually(lambda: len(taken) == COUNT, what="everything is delivered")
        read = await LogReader(bus.nc).read(0)
        await bus.close()
    assert [(m.seq, m.subject, m.data, m.stored_at) for m in taken] == [
        (m.seq, m.subject, m.data, m.stored_at) for m in read
    ]
