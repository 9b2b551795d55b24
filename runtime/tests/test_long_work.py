"""EV-03: work that takes longer than any patience, messages that come again meanwhile, and two workers for one item."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from forebay.runtime.engine import Engine
from forebay.runtime.errors import FencedError
from forebay.runtime.log import LogMessage
from forebay.runtime.records import WorkRecord

from runtime.tests import toy
from runtime.tests.test_engine import drain, start


def again(message: LogMessage) -> LogMessage:
    """What a consumer delivers when nobody acknowledged in time; the count of deliveries is not looked at."""
    return msgspec.structs.replace(message, redelivered=True)


def the_work(engine: Engine) -> WorkRecord:
    (record,) = engine.work.values()
    return record


def told(engine: Engine, log: toy.MemoryLog) -> int:
    """How many events of the work exist, stored or waiting to be."""
    stored = {message.headers["Nats-Msg-Id"] for message in log.messages if message.subject.endswith("tagged")}
    waiting = {entry.identity for entry in engine.outbox.entries() if entry.subject.endswith("tagged")}
    return len(stored | waiting)


async def test_redelivered_while_it_runs(tmp_path: Path) -> None:
    """The message comes again, once and once more, while its work runs: there is still one piece of work, one result."""
    engine, store = await start(tmp_path)
    log = toy.MemoryLog()
    messages = log.store(toy.started("u-7"), toy.finished("u-7"))
    await engine.fold(messages)
    running = the_work(engine)
    for _ in range(2):
        await engine.fold([again(message) for message in messages])
        assert the_work(engine) == running
    await engine.work_done([running], [toy.tagged("lab", "pick", "u-7")])
    await engine.fold([again(message) for message in messages])
    assert not engine.work
    await drain(engine, log)
    assert told(engine, log) == 1
    await store.close()


async def test_sent_twice(tmp_path: Path) -> None:
    """The same fact sent again after its work was done, under another sequence, starts nothing."""
    engine, store = await start(tmp_path)
    log = toy.MemoryLog()
    await engine.fold(log.store(toy.started("u-7"), toy.finished("u-7")))
    await engine.work_done([the_work(engine)], [toy.tagged("lab", "pick", "u-7")])
    await drain(engine, log)
    await engine.fold(log.store(toy.finished("u-7")))
    assert not engine.work
    assert told(engine, log) == 1
    await store.close()


async def test_two_workers_for_one_item(tmp_path: Path) -> None:
    """A second process takes over while the first still works: the first's result is refused, the second's counts once."""
    first, first_store = await start(tmp_path, owner="first")
    log = toy.MemoryLog()
    await first.fold(log.store(toy.started("u-7"), toy.finished("u-7")))
    slow = the_work(first)
    second, second_store = await start(tmp_path, owner="second", ttl_s=60)
    assert the_work(second) == slow
    with pytest.raises(FencedError):
        await first.work_done([slow], [toy.tagged("lab", "pick", "u-7")])
    with pytest.raises(FencedError):
        await first.work_emits(slow, [toy.tagged("lab", "pick", "u-7")])
    await second.work_done([the_work(second)], [toy.tagged("lab", "pick", "u-7")])
    await drain(second, log)
    assert told(second, log) == 1
    for store in (first_store, second_store):
        await store.close()


async def test_both_said_it(tmp_path: Path) -> None:
    """The first had stored its result before it lost its place; the second does the work again: one fact all the same."""
    first, first_store = await start(tmp_path, owner="first")
    log = toy.MemoryLog()
    await first.fold(log.store(toy.started("u-7"), toy.finished("u-7")))
    await first.work_emits(the_work(first), [toy.tagged("lab", "pick", "u-7")])
    second, second_store = await start(tmp_path, owner="second", ttl_s=60)
    await second.work_done([the_work(second)], [toy.tagged("lab", "pick", "u-7")])
    await drain(second, log)
    assert told(second, log) == 1
    for store in (first_store, second_store):
        await store.close()
