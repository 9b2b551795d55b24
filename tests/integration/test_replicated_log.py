"""A log on three nodes: what a replica lacks is no hole and no end; the stream's leader decides."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from forebay.contracts.codec import encode
from forebay.runtime.errors import Unreachable
from forebay.runtime.log import LogReader, read_all
from nats.aio.client import Client as NatsClient

from runtime.tests import toy
from tests.servers.nats_cluster import nats_cluster

pytestmark = pytest.mark.real_bus


async def publish(client: NatsClient, first: int, count: int) -> int:
    """Store events; the sequence of the last one."""
    seq = 0
    for number in range(first, first + count):
        message = encode(toy.started(f"up-{number}"))
        ack = await client.jetstream().publish(message.subject, message.body, headers=dict(message.headers), timeout=20)
        seq = ack.seq
    return seq


async def sequences(reader: LogReader) -> list[int]:
    last = (await reader.state()).last
    return [message.seq async for batch in read_all(reader, after=0, until=last) for message in batch]


async def asked(reader: LogReader, last: int) -> None:
    """The newest message, by sequence and as the end of the log. Nothing is right as long as nobody answers."""
    try:
        newest, batch = await reader.one(last), await reader.read(last - 3)
    except Unreachable:
        return
    assert newest is not None, "a message that is there was said to be missing"
    assert [message.seq for message in batch] == [last - 2, last - 1, last]


async def test_a_follower_that_is_stopped_or_behind_makes_no_hole(tmp_path: Path) -> None:
    """A follower is stopped while messages are stored and asked as it comes back: nobody reads a hole or an end that is none."""
    async with nats_cluster(tmp_path) as cluster:
        leader = await cluster.leader(await cluster.connect(cluster.nodes[0]))
        behind, other = (node for node in cluster.nodes if node is not leader)
        client = await cluster.connect(other)
        assert await publish(client, 0, 20) == 20
        reader = LogReader(await cluster.connect(behind))
        last = 20
        for _ in range(5):
            behind.send(signal.SIGSTOP)
            last = await publish(client, last, 40)
            for node in (leader, other):
                assert await sequences(LogReader(await cluster.connect(node))) == list(range(1, last + 1))
            asking = [asyncio.create_task(asked(reader, last)) for _ in range(20)]
            await asyncio.sleep(0)  # the questions lie in its socket when it goes on, before what it has missed
            behind.send(signal.SIGCONT)
            await asyncio.gather(*asking)
        await behind.kill()
        last = await publish(client, last, 200)
        await behind.start()
        reader = LogReader(await cluster.connect(behind))
        for _ in range(50):
            await asked(reader, last)
        assert await sequences(reader) == list(range(1, last + 1))
        assert await reader.read(last) == []
