"""The bridge on the runtime's own engine and a SQLite store: the same state as in memory, kill by kill."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from forebay.contracts.codec import encode
from forebay.contracts.parts import Part
from forebay.contracts.v1 import jobs
from forebay.runtime.engine import Engine
from forebay.runtime.log import LogMessage
from forebay.runtime.machine import Request
from forebay.runtime.rebuild import rebuild
from forebay.runtime.stores.sqlite import SqliteStore
from forebay.scheduler_bridge.app import definition
from forebay.scheduler_bridge.domain.decide import LocalBridge
from forebay.scheduler_bridge.domain.documents import DOCUMENTS
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES

from .world import MACHINE, START, World, make_ready, spec, upload


def story() -> World:
    """Two jobs, one of them held again and killed once."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    full = world.submit("full", resources={"cpu": 4})
    job = world.submit(datasets=[{"name": "pick-place"}], resources={"gpus": 1})
    make_ready(world, job)
    world.run_attempt(full)
    world.end_attempt(full)
    world.run_attempt(job)
    world.end_attempt(job, exit_code=None, signal=9, reason="ProcessKilled", message="SIGKILL")
    world.run_attempt(job, 2)
    world.end_attempt(job, 2)
    return world


def messages(world: World) -> list[LogMessage]:
    found = []
    for recorded in world.log:
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
    service = definition(LocalBridge(total=MACHINE, rules=LOCAL_RULES))
    store = SqliteStore(path / "state.sqlite", fold_version=service.fold_version)
    assert await store.acquire("test", ttl_s=0)
    engine = Engine(service, store)
    await engine.open()
    return engine, store


async def batches(log: Sequence[LogMessage]) -> AsyncIterator[Sequence[LogMessage]]:
    yield log


async def test_the_store_holds_what_memory_holds(tmp_path: Path) -> None:
    """Message by message with a new process each time: equal digests, an empty outbox, equal to a rebuild."""
    world = story()
    log = messages(world)
    for start in range(0, len(log), 7):
        engine, store = await opened(tmp_path)
        await engine.fold(log[start : start + 7])
        await store.close()
    engine, store = await opened(tmp_path)
    assert not engine.parked
    assert not engine.outbox.entries()
    assert sorted(record.item for record in engine.work.values()) == sorted(work.key for work in world.work)
    _, digest, _ = await engine.digest()
    assert digest == world.state.digest(DOCUMENTS)
    rebuilt = await rebuild(definition(), batches(log), tmp_path / "shadow.sqlite")
    assert rebuilt.digest == digest
    await store.close()


async def test_commands_and_questions_through_the_engine(tmp_path: Path) -> None:
    """Submit answers with the job, its events wait in the outbox, `why` reads from the store."""
    engine, store = await opened(tmp_path)
    request = Request(id="c-1", project="arm-lab", by="ada", args={"spec": spec()}, now=START)
    result, waiting = await engine.command("submit", request)
    assert (result["job"], len(waiting)) == ("pick-1", 1)
    (entry,) = engine.outbox.entries()
    wire = LogMessage(seq=1, subject=entry.subject, headers=entry.headers, data=entry.body, stored_at=START)
    await engine.fold([wire])
    why = await engine.question("why", replace(request, args={"job": "pick"}))
    assert why["job"] == "pick-1"
    assert [body.job for body in engine.outbox.of(jobs.JobGateOpened, "arm-lab")] == ["pick-1"]
    await store.close()
