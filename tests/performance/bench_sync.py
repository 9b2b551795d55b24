"""What it costs that an acknowledgement means fsync: `make bench-sync`, one JSON line per figure.

The same server and client with `sync_interval: always`, `1s` and NATS's own `2m`; the
baseline of each figure is `2m`. Measured on the disk of the system's temporary folder,
or of the folder that is given.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from forebay.contracts.parts import Part
from forebay.local.settings import ALWAYS

from tests.performance.figures import Figure
from tests.servers.nats import nats_server

WINDOW = 200
SERIAL, BULK = 500, 10_000
BODY = b"x" * 600
"""About the size of a usual event with its headers."""
LAZY = "2m"


async def rates(folder: Path, interval: str) -> dict[str, float]:
    """Events per second, one after the other and with 200 in flight."""
    async with nats_server(folder / interval, sync_interval=interval) as server:
        client = await server.connect(Part.COLLECTOR, "arm-lab")
        room = asyncio.Semaphore(WINDOW)

        async def publish(number: int) -> None:
            async with room:
                await client.request(f"fb.arm-lab.upload.u{number % 50}.started", BODY, timeout=60)

        await publish(0)
        began = time.perf_counter()
        for number in range(SERIAL):
            await publish(number)
        serial = SERIAL / (time.perf_counter() - began)
        began = time.perf_counter()
        await asyncio.gather(*(publish(number) for number in range(BULK)))
        return {"serial": serial, "200-in-flight": BULK / (time.perf_counter() - began)}


async def main() -> int:
    where = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=where) as folder:
        baseline = await rates(Path(folder), LAZY)
        for interval in (ALWAYS, "1s"):
            for name, value in (await rates(Path(folder), interval)).items():
                Figure(
                    name=f"publish-{interval}-{name}",
                    value=value,
                    unit="events/s",
                    baseline=f"the same with sync_interval {LAZY}",
                    baseline_value=baseline[name],
                ).print()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
