"""A log on three nodes: what a replica lacks is no hole and no end; the stream's leader decides."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from forebay.contracts.codec import encode
from forebay.runtime.errors import Unreachable
from forebay.runtime.log import LogReader, read_all
from nats.aio.client import Client as NatsClient

from runtime.tests import toy
from tests.servers.nats_cluster import nats_cluster

pytestmark = [pytest.mark.real_bus, pytest.mark.timeout(180)]


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


async def test_a_follower_that_is_stopped_or_behind_makes_no_hole(tmp_path: Path) -> None:
    """A follower is stopped while messages are stored, then comes back empty-handed: nobody reads a hole, an end, or a foreign duplicate."""
    async with nats_cluster(tmp_path) as cluster:
        first = await cluster.connect(cluster.nodes[0])
        leader = await cluster.leader(first)
        behind, other = (node for node in cluster.nodes if node is not leader)
        client = await cluster.connect(other)
        assert await publish(client, 0, 20) == 20

        behind.send(signal.SIGSTOP)
        last = await publish(client, 20, 20)
        for node in (leader, other):
            assert await sequences(LogReader(await cluster.connect(node))) == list(range(1, last + 1))

        await behind.kill()
        last = await publish(client, last, 400)
        await behind.start()
        reader = LogReader(await cluster.connect(behind))
        for _ in range(200):  # while it catches up, and after
            try:
                newest, batch = await reader.one(last), await reader.read(last - 3)
            except Unreachable:
                continue
            assert newest is not None, "a message that is there was said to be missing"
            assert [message.seq for message in batch] == [last - 2, last - 1, last]
        assert await sequences(reader) == list(range(1, last + 1))
        assert await reader.read(last) == []
