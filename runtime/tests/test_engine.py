"""The engine over a real SQLite store and a log in memory: what a kill, a repeat or a defect may not change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1.datasets import DatasetTagged
from forebay.runtime.companion import Company
from forebay.runtime.engine import MAX_WORK_FAILURES, Engine
from forebay.runtime.errors import FencedError, Refused
from forebay.runtime.health import Health
from forebay.runtime.log import LogMessage
from forebay.runtime.machine import Request, Service
from forebay.runtime.parking import Parking
from forebay.runtime.poison import FATAL_READS
from forebay.runtime.rebuild import rebuild
from forebay.runtime.records import DeadLetter, ParkedMessage
from forebay.runtime.stores.port import NotNow, WriteBatch
from forebay.runtime.stores.sqlite import SqliteStore

from runtime.tests import toy


class FailingStore(SqliteStore):
    """A store that fails once, at the n-th read or write, and then works again."""

    calls_left = 10**9

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise ConnectionError("the store is away")

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, bytes]:
        self._count()
        return await super().get(kind, keys)

    async def find(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        self._count()
        return await super().find(kind, field, value)

    def _count_now(self) -> None:
        """An immediate read that fails is repeated as one that waits, and that one reports the trouble."""
        if self.calls_left == 1:
            raise NotNow
        self.calls_left -= 1

    def get_now(self, kind: str, key: str) -> bytes | None:
        self._count_now()
        return super().get_now(kind, key)

    def find_now(self, kind: str, field: str, value: str) -> list[tuple[str, bytes]]:
        self._count_now()
        return super().find_now(kind, field, value)

    async def write(self, batch: WriteBatch) -> None:
        self._count()
        await super().write(batch)


class DyingStore(SqliteStore):
    """A store whose process dies at the n-th write. Its lease (0 s) is over at once, as that of a dead process is."""

    writes_left = 10**9

    async def write(self, batch: WriteBatch) -> None:
        self.writes_left -= 1
        if self.writes_left < 0:
            raise ConnectionError("killed")
        await super().write(batch)


async def start(
    path: Path, service: Service = toy.SERVICE, *, owner: str = "test", ttl_s: float = 0
) -> tuple[Engine, DyingStore]:
    store = DyingStore(path / "state.sqlite", fold_version=service.fold_version)
    assert await store.acquire(owner, ttl_s=ttl_s)
    engine = Engine(service, store)
    await engine.open()
    return engine, store


async def letters(engine: Engine) -> list[DeadLetter]:
    return await Parking(engine).letters(after="", limit=100)


async def drain(engine: Engine, log: toy.MemoryLog) -> None:
    """Publish the outbox and run the work, until nothing is left to do."""
    for _ in range(50):
        for entry in engine.outbox.entries():
            if entry.headers["Nats-Msg-Id"] not in {stored.headers["Nats-Msg-Id"] for stored in log.messages}:
                log.raw(entry.subject, entry.headers, entry.body)
        await engine.fold(log.messages)
        for record in list(engine.work.values()):
            await engine.work_done([record], [toy.tagged("lab", record.payload["dataset"], record.item)])
        if not engine.outbox.entries() and not engine.work:
            return
    pytest.fail("the outbox never empties")


def request(command_id: str, **args: object) -> Request:
    return Request(id=command_id, project="lab", by="me", args=args, now=toy.NOON)


async def batches(messages: Sequence[LogMessage]) -> AsyncIterator[Sequence[LogMessage]]:
    yield messages


async def test_story_ends_with_the_digest_of_a_rebuild(tmp_path: Path) -> None:
    """The live state equals the fold of the log, with outbox, work and commands in between."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"), toy.started("u2", ref="tag-at-once"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    await drain(engine, log)
    await engine.command("tag", request("c1", dataset="pick"))
    await drain(engine, log)
    position, digest, documents = await engine.digest()
    rebuilt = await rebuild(toy.SERVICE, batches(log.messages), tmp_path / "shadow.sqlite")
    assert (position, digest, documents) == (rebuilt.seq, rebuilt.digest, rebuilt.documents)
    assert documents == 2
    answer = await engine.question("uploads", request("q"))
    assert [(upload["id"], upload["tags"]) for upload in answer["uploads"]] == [("u1", 3), ("u2", 3)]


@pytest.mark.parametrize("survived", range(8))
async def test_death_at_any_write_changes_nothing(tmp_path: Path, survived: int) -> None:
    """A process that dies at its n-th write, and a successor, end where an undisturbed one ends."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"), toy.started("u2", ref="tag-at-once"), toy.finished("u3", "place"))
    engine, store = await start(tmp_path)
    store.writes_left = survived
    try:
        await engine.fold(log.messages[:2])
        await drain(engine, log)
        await engine.fold(log.messages)
        await drain(engine, log)
    except ConnectionError:
        await store.close()
    again, _ = await start(tmp_path, owner="successor")
    await again.fold(log.messages)
    await drain(again, log)
    identities = [message.headers["Nats-Msg-Id"] for message in log.messages]
    assert len(identities) == len(set(identities)) == 7
    rebuilt = await rebuild(toy.SERVICE, batches(log.messages), tmp_path / "shadow.sqlite")
    assert (await again.digest())[1] == rebuilt.digest


@pytest.mark.parametrize("calls", range(1, 7))
async def test_a_store_that_fails_for_a_moment_loses_no_decision(tmp_path: Path, calls: int) -> None:
    """A read or write that fails parks nothing; the same batch folded again decides the same, and it is stored."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"), toy.started("u2", ref="tag-at-once"), toy.finished("u3", "place"))
    store = FailingStore(tmp_path / "state.sqlite", fold_version=1)
    assert await store.acquire("test", ttl_s=0)
    engine = Engine(toy.SERVICE, store)
    await engine.open()
    store.calls_left = calls
    with pytest.raises(ConnectionError):
        await engine.fold(log.messages)
    await engine.fold(log.messages)
    assert not engine.parked
    again = Engine(toy.SERVICE, store)
    await again.open()
    assert [entry.identity for entry in again.outbox.entries()] == [entry.identity for entry in engine.outbox.entries()]
    assert set(again.work) == set(engine.work) == {"tag/lab/u1", "tag/lab/u3"}


async def test_repeated_messages_are_passed_over(tmp_path: Path) -> None:
    """The same event stored twice in the log is folded and decided once."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"), toy.finished("u1"), toy.started("u1"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    assert list(engine.work) == ["tag/lab/u1"]
    assert not engine.parked


async def test_same_id_with_another_body_is_a_contradiction_on_record(tmp_path: Path) -> None:
    """The first body counts; the second is parked with both sequences, and a dead letter says so."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1", size=1), toy.finished("u1", size=2))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    assert engine.parked == {3}
    (letter,) = await letters(engine)
    assert "the id was used before, at sequence 2, with another body" in letter.cause


async def test_a_message_that_is_no_event_is_parked_and_the_next_is_folded(tmp_path: Path) -> None:
    """Garbage on an event subject stops nobody; the letter says where in the log it lies."""
    log = toy.MemoryLog()
    log.raw("fb.lab.upload.u1.finished", {}, b"\xff\x00 no json")
    log.store(toy.started("u1"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    assert engine.parked == {1}
    assert (await engine.question("uploads", request("q")))["uploads"][0]["id"] == "u1"
    assert [letter.seq for letter in await letters(engine)] == [1]


@pytest.mark.parametrize(("dataset", "stage"), [("breaks-evolve", "evolve"), ("breaks-decide", "decide")])
async def test_a_defect_is_parked_with_its_cause_and_can_be_retried(tmp_path: Path, dataset: str, stage: str) -> None:
    """A defect in evolve leaves no half fold; one in decide keeps the fold; both can be tried again."""
    log = toy.MemoryLog()
    log.store(toy.started("u1", dataset), toy.finished("u1", dataset), toy.started("u2", dataset))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    assert engine.parked == {2}
    upload = await engine.document(toy.Upload, "u1")
    assert upload is not None
    assert upload.finished == (stage == "decide")
    assert [(letter.seq, letter.stage) for letter in await letters(engine)] == [(2, stage)]
    assert not await engine.retry_parked(log.messages[1])
    with pytest.raises(Refused, match="not parked"):
        await engine.retry_parked(log.messages[0])


async def test_poison_that_kills_the_process_is_parked_in_the_end(tmp_path: Path) -> None:
    """After enough deaths on one message it is set aside, and its neighbours are folded."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.started("u2"), toy.started("u3"))

    def deadly(state: object, recorded: object) -> None:
        if recorded.body.upload == "u2":  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        toy.evolve(state, recorded)  # type: ignore[arg-type]

    service = replace(toy.SERVICE, evolve=deadly)
    for deaths in range(2 * FATAL_READS + 2):
        engine, store = await start(tmp_path, service, owner=f"life-{deaths}")
        try:
            await engine.reread(log.messages)
            break
        except KeyboardInterrupt:
            await store.close()
    assert engine.parked == {2}
    assert engine.position == 3
    assert await engine.document(toy.Upload, "u3") is not None


async def test_a_command_is_decided_once(tmp_path: Path) -> None:
    """The same client id gets the same answer and publishes nothing twice."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    result, waiting = await engine.command("tag", request("c1", dataset="pick"))
    assert len(waiting) == 1
    assert not waiting[0].done()
    await drain(engine, log)
    assert waiting[0].done()
    again, nothing = await engine.command("tag", request("c1", dataset="other"))
    assert (again, nothing) == (result, [])
    assert len(log.messages) == 2
    with pytest.raises(Refused, match="no dataset 'none'"):
        await engine.command("tag", request("c2", dataset="none"))


async def test_work_is_parked_after_its_last_try_and_can_be_opened_again(tmp_path: Path) -> None:
    """Work that keeps failing ends in a dead letter that names it; `retry` opens it."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"), toy.finished("u1"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    for _ in range(MAX_WORK_FAILURES):
        await engine.work_again([engine.work["tag/lab/u1"]], at=0, reason="disk full", failed=True)
    assert engine.work == {}
    assert [(letter.name, letter.cause) for letter in await letters(engine)] == [("tag/lab/u1", "disk full")]
    parking = Parking(engine)
    assert "1 piece of work is parked" in parking.summary()
    await parking.retry_work("tag/lab/u1")
    assert engine.work["tag/lab/u1"].failures == 0
    assert parking.summary() == ""


async def test_what_was_parked_can_be_dismissed(tmp_path: Path) -> None:
    """Nobody is told of it any more, also after a restart; it stays on record, and can still be tried again."""
    log = toy.MemoryLog()
    log.store(toy.started("u1", "breaks-evolve"), toy.finished("u1", "breaks-evolve"))
    engine, store = await start(tmp_path)
    await engine.fold(log.messages)
    await Parking(engine).dismiss(by="ada", seq=2)
    await store.close()
    again, _ = await start(tmp_path)
    assert (Parking(again).summary(), await Parking(again).now()) == ("", [])
    kept = await again.document(ParkedMessage, f"{2:020d}")
    assert kept is not None
    assert kept.dismissed == "ada"
    assert not await again.retry_parked(log.messages[1])


async def test_a_stale_process_cannot_write(tmp_path: Path) -> None:
    """Once another process has taken over, the old one's writes are refused."""
    log = toy.MemoryLog()
    log.store(toy.started("u1"))
    engine, store = await start(tmp_path)
    await store.release()
    await start(tmp_path, owner="other")
    with pytest.raises(FencedError):
        await engine.fold(log.messages)


async def test_a_second_process_stands_by(tmp_path: Path) -> None:
    """While the first process lives and renews, nobody else becomes the reader."""
    await start(tmp_path, ttl_s=60)
    second = SqliteStore(tmp_path / "state.sqlite", fold_version=1)
    assert not await second.acquire("second", ttl_s=60)


async def test_pending_decisions_are_seen_before_they_come_back(tmp_path: Path) -> None:
    """`decide` sees what was decided but not published yet, so it does not decide it twice."""
    log = toy.MemoryLog()
    log.store(toy.started("u1", ref="tag-at-once"), toy.finished("u1"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    assert engine.work == {}
    assert engine.outbox.of(DatasetTagged)[0].dataset == "pick"


async def test_other_parts_events_are_not_taken_for_own(tmp_path: Path) -> None:
    """Only the service's own source empties its outbox."""
    log = toy.MemoryLog()
    log.store(toy.started("u1", ref="tag-at-once"))
    engine, _ = await start(tmp_path)
    await engine.fold(log.messages)
    assert engine.service.part is Part.INGEST
    assert len(engine.outbox) == 1


async def test_what_a_companion_says_again_is_said_once(tmp_path: Path) -> None:
    """A fact about the world that is seen again after a restart is no second event; its state can be read."""
    engine, store = await start(tmp_path / "state.sqlite")
    company = Company(engine, Health("toy"))
    await company.say(toy.tagged("lab", "pick", "fact"))
    await company.say(toy.tagged("lab", "pick", "fact"))
    assert len(engine.outbox) == 1
    assert await company.read(lambda state: state.find(toy.Upload, "dataset", "pick")) == []
    await store.close()


async def test_what_a_companion_settles_is_folded_when_it_goes_on(tmp_path: Path) -> None:
    """What it says next may depend on it; what is on record already keeps it no longer."""
    log = toy.MemoryLog()
    engine, store = await start(tmp_path / "state.sqlite")
    company = Company(engine, Health("toy"))
    settling = asyncio.create_task(company.settle(toy.tagged("lab", "pick", "fact")))
    async with asyncio.timeout(10):
        while not engine.outbox.entries():
            await asyncio.sleep(0)
        assert not settling.done()
        await drain(engine, log)
        await settling
        await company.settle(toy.tagged("lab", "pick", "fact"))
    assert len(log.messages) == 1
    await store.close()
