"""The runtime on a real nats-server with real permissions: order, redelivery, outages, stolen message ids."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.codec import encode
from forebay.contracts.parts import Part, Source
from forebay.contracts.subjects import STREAM
from forebay.contracts.v1.datasets import DatasetTagged
from forebay.runtime.bus import Bus
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.machine import event_of
from forebay.runtime.rebuild import rebuild

from runtime.tests import toy
from tests.eventually import WITHIN_S, eventually
from tests.servers.nats import NatsServer, nats_server
from tests.servers.toy_service import client, tags, toy_service

OPERATOR = Source(Part.OPERATOR)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "home", "lab") as running:
        yield running


async def events(operator: Client) -> list[tuple[int, EventBody]]:
    """All that the log holds by now; when a deadline is told, and after what, is for the service to say."""
    return [(message.seq, message.decode().body) async for batch in operator.batches() for message in batch]


async def digests(operator: Client, folder: Path) -> tuple[str, str]:
    """The live digest, and the one rebuilt from the log up to the same sequence."""
    live = (await operator.ask("ingest", "lab", "digest")).result
    rebuilt = await rebuild(
        toy.SERVICE, operator.batches(until=live["position"]), folder / f"{live['position']}.sqlite"
    )
    return live["digest"], rebuilt.digest


async def test_upload_is_folded_worked_on_and_answered(server: NatsServer, tmp_path: Path) -> None:
    """Event in, work done, event out, command answered after its event is in the log; rebuild agrees."""
    async with (
        toy_service(server, tmp_path, cached_documents=1),
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        await collector.publish(toy.started("u1"))
        await collector.publish(toy.finished("u1"))
        await eventually(lambda: _is(tags(me), {"u1": 1}), what="the upload is tagged")
        answer = await me.ask("ingest", "lab", "tag", {"dataset": "pick"}, id="c1")
        assert answer.result == {"dataset": "pick"}
        by_work, by_command = [seq for seq, body in await events(me) if isinstance(body, DatasetTagged)]
        assert by_work < by_command <= answer.as_of_seq
        again = await me.ask("ingest", "lab", "tag", {"dataset": "pick"}, id="c1")
        assert again.result == answer.result
        assert await tags(me) == {"u1": 2}
        live, rebuilt = await digests(me, tmp_path)
        assert [seq for seq, body in await events(me) if isinstance(body, DatasetTagged)] == [by_work, by_command]
        with pytest.raises(Refused, match="has no question 'nonsense'"):
            await me.ask("ingest", "lab", "nonsense")
        assert live == rebuilt


async def test_leaving_is_no_trouble(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    """A connection that is closed on purpose is not reported as lost."""
    bus = Bus(server.url, toy.SERVICE.source, server.key(toy.SERVICE.source))
    await bus.connect()
    await bus.close()
    await server.stop()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_bus_outage_loses_nothing(server: NatsServer, tmp_path: Path) -> None:
    """nats-server gone for a while: decided events wait, everyone comes back on the same subscriptions."""
    async with (
        toy_service(server, tmp_path, cached_documents=1),
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        await collector.publish(toy.started("u1"))
        await eventually(lambda: _is(tags(me), {"u1": 0}), what="the service folds")
        await server.stop()
        with pytest.raises(Unreachable):
            await collector.publish(toy.finished("u1"))
        await server.start()
        await eventually(lambda: _published(collector, toy.finished("u1")), what="the collector is heard again")
        await eventually(lambda: _is(tags(me), {"u1": 1}), what="the upload is tagged after the outage")
        live, rebuilt = await digests(me, tmp_path)
        assert live == rebuilt


async def test_messages_held_by_a_dead_reader_are_not_waited_for(server: NatsServer, tmp_path: Path) -> None:
    """What another process fetched and never acknowledged is read from the log, in order, at once."""
    thief = await server.connect(Part.INGEST)
    async with client(server, toy.COLLECTOR) as collector, client(server, OPERATOR) as me:
        await collector.publish(toy.started("u1"))
        await collector.publish(toy.finished("u1"))
        pull = await thief.jetstream().pull_subscribe("fb.>", durable="ingest", stream=STREAM)
        held = await pull.fetch(2, timeout=WITHIN_S)
        assert len(held) == 2
        async with toy_service(server, tmp_path, cached_documents=1):
            await eventually(lambda: _is(tags(me), {"u1": 1}), what="the held messages are folded")


async def test_stolen_message_id_does_not_swallow_an_event(server: NatsServer, tmp_path: Path) -> None:
    """A collector that guesses the service's next message id only delays it until it has read back."""
    expected = event_of(toy.SERVICE, toy.tagged("lab", "pick", "u1"), causation=None, correlation=None)
    stolen = encode(expected).headers["Nats-Msg-Id"]
    async with client(server, toy.COLLECTOR) as collector, client(server, OPERATOR) as me:
        bait = encode(toy.started("bait", "other"))
        await collector._store(bait.subject, dict(bait.headers, **{"Nats-Msg-Id": stolen}), bait.body)
        async with toy_service(server, tmp_path, cached_documents=1):
            await collector.publish(toy.started("u1"))
            await collector.publish(toy.finished("u1"))
            await eventually(lambda: _is(tags(me), {"bait": 0, "u1": 1}), what="the event is stored under another id")


async def test_collector_sees_through_a_false_duplicate(server: NatsServer) -> None:
    """A publish answered `duplicate` counts only when the stored message is the collector's own."""
    event = toy.finished("u1")
    stolen = encode(event).headers["Nats-Msg-Id"]
    async with client(server, toy.COLLECTOR) as collector, client(server, OPERATOR) as me:
        bait = encode(toy.started("bait"))
        taken = await collector._store(bait.subject, dict(bait.headers, **{"Nats-Msg-Id": stolen}), bait.body)
        seq = await collector.publish(event)
        assert seq != taken["seq"]
        assert await collector.publish(toy.started("u2")) == await collector.publish(toy.started("u2"))
        stored = await me.log_reader.one(seq)
        assert stored is not None
        assert stored.decode().body == event.body


async def test_dead_letter_is_kept_and_retried(server: NatsServer, tmp_path: Path) -> None:
    """A parked message is in FOREBAY_DEAD with its cause; retrying hands that very sequence over again."""
    async with (
        toy_service(server, tmp_path, cached_documents=1),
        client(server, toy.COLLECTOR) as collector,
        client(server, OPERATOR) as me,
    ):
        seq = await collector.publish(toy.finished("u1", "breaks-evolve"))
        await collector.publish(toy.started("u2"))
        await eventually(lambda: _is(tags(me), {"u2": 0}), what="the next message is folded")
        dead = await server.connect(Part.OPERATOR)
        letter = await eventually(
            lambda: dead.request(
                "$JS.API.DIRECT.GET.FOREBAY_DEAD", b'{"last_by_subj":"dead.ingest.message"}', timeout=2
            ),
            what="the dead letter is stored",
        )
        assert b"ZeroDivisionError" in letter.data
        answer = await me.ask("ingest", "lab", "dead-retry", {"seq": seq})
        assert answer.result == {"seq": seq, "folded": False}


async def _is(found: object, expected: object) -> bool:
    assert await found == expected  # type: ignore[misc]
    return True


async def _published(collector: Client, event: object) -> int:
    try:
        return await collector.publish(event)  # type: ignore[arg-type]
    except Unreachable:
        return 0
