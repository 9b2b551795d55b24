"""Ingest on the runtime's own engine and a SQLite store: the same state as in memory, process by process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from forebay.contracts.codec import encode
from forebay.contracts.parts import Part
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.ingest.app import definition
from forebay.ingest.domain.documents import DOCUMENTS
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage
from forebay.runtime.rebuild import rebuild
from forebay.runtime.stores.sqlite import SqliteStore

from . import stories
from .simulated_log import SimulatedLog, request
from .stories import DATASET


def story() -> SimulatedLog:
    """A job waits for a dataset that arrives in two uploads, one of them partly bad."""
    log = SimulatedLog()
    stories.submit(log, DATASET)
    stories.whole_upload(log, "up-1", episodes=3)
    stories.whole_upload(log, "up-2")
    stories.reject(log, 1, "up-1")
    stories.accept(log, 0, "up-1")
    stories.accept(log, 2, "up-1")
    stories.commit(log, 1, ("up-1",))
    log.publish(JobSucceeded(job="train-1", attempt=1, attempts=1), "ok", Part.BRIDGE)
    return log


def messages(log: SimulatedLog) -> list[LogMessage]:
    found = []
    for recorded in log.records:
        wire = encode(recorded.event)
        found.append(
            LogMessage(
                seq=recorded.seq,
                subject=wire.subject,
                headers=wire.headers,
                data=wire.body,
                stored_at=recorded.stored_at,
            )
        )
    return found


async def opened(path: Path) -> tuple[Engine, SqliteStore]:
    service = definition()
    store = SqliteStore(path / "state.sqlite", fold_version=service.fold_version)
    assert await store.acquire("test", ttl_s=0)
    engine = Engine(service, store)
    await engine.open()
    return engine, store


async def batches(log: Sequence[LogMessage]) -> AsyncIterator[Sequence[LogMessage]]:
    yield log


async def test_the_store_holds_what_memory_holds(tmp_path: Path) -> None:
    """A few messages with a new process each time: equal digests, an empty outbox, equal to a rebuild."""
    simulated = story()
    log = messages(simulated)
    for start in range(0, len(log), 5):
        engine, store = await opened(tmp_path)
        await engine.fold(log[start : start + 5])
        await store.close()
    engine, store = await opened(tmp_path)
    assert not engine.parked
    assert not engine.outbox.entries()
    expected = {f"{work.kind}/{work.key}" for work in simulated.work.values()}
    assert {f"{record.work}/{record.item}" for record in engine.work.values()} == expected
    _, digest, _ = await engine.digest()
    assert digest == simulated.digest()
    rebuilt = await rebuild(definition(), batches(log), tmp_path / "shadow.sqlite")
    assert rebuilt.digest == digest
    assert simulated.state.digest(DOCUMENTS) == digest
    await store.close()


async def test_a_command_and_a_question_through_the_engine(tmp_path: Path) -> None:
    """`tag` waits in the outbox for the log; `dataset` reads the store."""
    engine, store = await opened(tmp_path)
    simulated = story()
    args = {"dataset": DATASET, "tag": "best", "number": 1, "check": simulated.opened(DATASET, 1)}
    await engine.fold(messages(simulated))
    result, waiting = await engine.command("tag", request(args))
    assert (result["changed"], len(waiting)) == (True, 1)
    found = await engine.question("dataset", request({"dataset": DATASET}))
    assert [version["number"] for version in found["versions"]] == [1]
    await store.close()
