"""A collector floods the log with messages that nobody can read: it harms nobody else, and everybody hears of it."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.parts import Part, Source
from forebay.contracts.streams import streams
from forebay.contracts.subjects import DEAD_STREAM, STREAM
from forebay.runtime.client import Client
from forebay.runtime.log import LogReader

from runtime.tests import toy
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server
from tests.servers.toy_service import all_tagged, ask, client, tags, toy_service, upload

pytestmark = pytest.mark.real_bus
OPERATOR = Source(Part.OPERATOR)
FLOOD, SIZE = 300, 110_000
"""More than the publisher's window, each larger than a letter with it in base64 could ever be."""


async def flood(server: NatsServer) -> None:
    """What one collector can send in a second: all of it lies on subjects that are its own."""
    evil = await server.connect(Part.COLLECTOR, "evil")
    stream = evil.jetstream(publish_async_max_pending=FLOOD + 1)
    acks = [
        await stream.publish_async(f"fb.evil.upload.u-{number}.started", b"\0" * SIZE, wait_stall=30)
        for number in range(FLOOD)
    ]
    await asyncio.gather(*acks)


async def test_a_flood_of_unreadable_messages_delays_nobody(tmp_path: Path) -> None:
    """Everybody else's upload is judged as before; health turns red with counts and cause; the letters are small references."""
    async with (
        nats_server(tmp_path / "home", "lab", "evil") as server,
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
        toy_service(server, tmp_path, restart=True),
    ):
        await upload(collector, "before")
        await eventually(lambda: all_tagged(me, {"before"}), what="the first upload is judged")
        assert (await ask(me, "health"))["healthy"] is True
        await flood(server)
        await upload(collector, "after")
        await eventually(lambda: all_tagged(me, {"before", "after"}), what="the other project is served")

        async def told() -> dict[str, Any]:
            report = await ask(me, "health")
            assert not report["healthy"]
            assert report["ready"]
            assert f"{FLOOD} messages of project evil ({FLOOD}) are parked" in " ".join(report["problems"])
            return report

        await eventually(told, what="health says what is parked")
        answer = await ask(me, "dead")
        assert answer["total"] == FLOOD
        assert {one["what"] for one in answer["dead"]} == {"message"}
        dead = LogReader(me.nc, DEAD_STREAM)

        async def all_told() -> bool:
            return (await dead.state()).messages == FLOOD

        await eventually(all_told, what="every letter is in its stream")
        letter = (await dead.read(0, limit=1))[0]
        assert json.loads(letter.data)["seq"] == 5
        assert len(letter.data) < 2_000


async def test_letters_that_cannot_be_stored_stay_in_the_store(tmp_path: Path) -> None:
    """With FOREBAY_DEAD refusing every letter, events go on, and what was parked is listed all the same."""
    async with (
        nats_server(tmp_path / "home", "lab", "evil") as server,
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        await change_stream(server, DEAD_STREAM, max_msg_size=10)
        async with toy_service(server, tmp_path, restart=True):
            evil = await server.connect(Part.COLLECTOR, "evil")
            for number in range(3):
                await evil.jetstream().publish(f"fb.evil.upload.u-{number}.started", b"no event")
            await upload(collector, "u-1")
            await eventually(lambda: all_tagged(me, {"u-1"}), what="the upload is judged")
            assert (await ask(me, "dead"))["total"] == 3


async def test_an_event_that_the_bus_refuses_is_set_aside_and_told(tmp_path: Path) -> None:
    """What was decided after it is stored; health names it and the server's reason; it is stored once the bus takes it."""
    long = "d" * 60
    async with (
        nats_server(tmp_path / "home", "lab") as server,
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        async with toy_service(server, tmp_path, restart=True):
            for name in ("d", long):
                await collector.publish(toy.started(name, name))
            await eventually(lambda: known(me, {"d": 0, long: 0}), what="the uploads are known")
            await tag(me, "d", "command-1")
            await change_stream(server, STREAM, max_msg_size=await stored_bytes(me, 3) + 20)
            refused = asyncio.create_task(tag(me, long, "command-2"))
            named = await eventually(lambda: problem(me, "refuses 1 decided event"), what="health names it")
            assert "message size exceeds maximum allowed" in named
            await tag(me, "d", "command-3")
            assert await known(me, {"d": 2, long: 0})
            refused.cancel()
        await change_stream(server, STREAM, max_msg_size=None)
        async with toy_service(server, tmp_path, restart=True):
            await eventually(lambda: known(me, {"d": 2, long: 1}), what="it is stored in the end")
            assert (await ask(me, "health"))["healthy"] is True


async def known(operator: Client, expected: dict[str, int]) -> bool:
    return await tags(operator) == expected


async def tag(operator: Client, dataset: str, command: str) -> None:
    await operator.ask("ingest", "lab", "tag", {"dataset": dataset}, id=command)


async def stored_bytes(operator: Client, seq: int) -> int:
    """Bytes of a stored message as the server counts them."""
    request = json.dumps({"seq": seq}).encode()
    message = json.loads((await operator.nc.request(f"$JS.API.STREAM.MSG.GET.{STREAM}", request)).data)["message"]
    return sum(len(base64.b64decode(message[part])) for part in ("hdrs", "data"))


async def problem(operator: Client, text: str) -> str:
    report = await ask(operator, "health")
    return next((one for one in report.get("problems", ()) if text in one), "")


async def change_stream(server: NatsServer, name: str, *, max_msg_size: int | None) -> None:
    """Another limit for one stream, or the one that contracts give it."""
    (config,) = [one.config for one in streams() if one.name == name]
    if max_msg_size is not None:
        config = config | {"max_msg_size": max_msg_size}
    admin = await server.connect(Part.ADMIN)
    answer = json.loads((await admin.request(f"$JS.API.STREAM.UPDATE.{name}", json.dumps(config).encode())).data)
    assert "error" not in answer, answer
