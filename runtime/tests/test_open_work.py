"""Open work stands in line by lanes, and one run does what its group has open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from forebay.runtime.batch import put_of
from forebay.runtime.bus import Bus
from forebay.runtime.engine import Engine
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit, Work
from forebay.runtime.open_work import OpenWork, Slots
from forebay.runtime.records import WorkRecord
from forebay.runtime.stores.port import WriteBatch
from forebay.runtime.work import WorkContext, WorkItem
from forebay.runtime.workshop import Workshop
from hypothesis import given
from hypothesis import strategies as st

from runtime.tests.test_engine import start
from tests.eventually import eventually


def record(
    item: str, *, group: str | None = None, asked_at: float = 0.0, not_before: float = 0.0, project: str = "lab"
) -> WorkRecord:
    return WorkRecord(
        work="mend", item=item, project=project, payload={}, group=group, asked_at=asked_at, not_before=not_before
    )


def line(work: OpenWork, now: float = 100.0, slots: Slots = Slots.unshared(100)) -> list[tuple[str, list[str]]]:  # noqa: B008 a value
    """What starts one after the other while nothing ends."""
    found: list[tuple[str, list[str]]] = []
    running: dict[tuple[str, str], None] = {}
    while (due := work.next_due("mend", now, running, slots)) is not None:
        project, lane, records = due
        running[project, lane] = None
        found.append((lane, [one.item for one in records]))
    return found


def test_a_group_is_one_lane_and_goes_as_a_whole_when_anything_of_it_is_due() -> None:
    """Oldest lane first, whatever order the records came back from the store in."""
    work = OpenWork(
        [
            record("b2", group="b", asked_at=3),
            record("a", asked_at=2),
            record("b1", group="b", asked_at=1),
            record("b3", group="b", asked_at=4, not_before=101),
            record("c1", group="c", not_before=101),
        ]
    )
    assert line(work) == [("b", ["b1", "b2", "b3"]), ("a", ["a"])]
    assert line(work, now=101) == [("c", ["c1"]), ("b", ["b1", "b2", "b3"]), ("a", ["a"])]
    assert work.next_due("sweep", 100, {}, Slots.shared(3)) is None


def test_a_lane_that_had_its_turn_goes_to_the_end() -> None:
    """A group that always has more to do keeps nobody else waiting."""
    work = OpenWork([record("b1", group="b"), record("a")])
    work.put(record("b2", group="b"))
    work.remove(record("b1", group="b"))
    assert line(work) == [("a", ["a"]), ("b", ["b2"])]
    for one in (record("b2", group="b"), record("a"), record("a")):
        work.remove(one)
    assert not work.by_key
    assert line(work) == []


class Mender:
    """A worker that notes its runs and waits until it is let go."""

    def __init__(self) -> None:
        self.runs: list[WorkItem] = []
        self.at_once = 0
        self.go = asyncio.Event()
        self.refuse = False

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        del context
        self.runs.append(item)
        self.at_once += 1
        try:
            await self.go.wait()
        finally:
            self.at_once -= 1
        if self.refuse:
            raise RetryLater(3600, "not now")
        return ()


def mend(item: str, group: str | None, **payload: object) -> Work:
    return Work(kind="mend", key=item, project="lab", payload=payload, group=group)


async def at_work(tmp_path: Path) -> tuple[Engine, Mender, asyncio.Task[None]]:
    engine, _ = await start(tmp_path)
    mender = Mender()
    shop = Workshop(
        engine, Bus("nats://127.0.0.1:1", engine.service.source, None), {"mend": mender}, {"mend": Slots.unshared(2)}
    )
    return engine, mender, asyncio.create_task(shop.run())


async def test_one_run_does_what_its_group_has_open(tmp_path: Path) -> None:
    """What came before it began is done with it; what came meanwhile gets a run of its own, afterwards."""
    engine, mender, task = await at_work(tmp_path)
    await engine.say([mend("a1", "a", job="a"), mend("a2", "a", job="a", sentence=True)])
    await eventually(lambda: len(mender.runs) == 1, what="the first run")
    assert mender.runs[0].payload == {"job": "a", "sentence": True}
    await engine.say([mend("a3", "a", job="a"), mend("b1", "b"), mend("c1", "c")])
    await eventually(lambda: len(mender.runs) == 2, what="a run of another group beside it")
    assert mender.runs[1].key == "b1"
    assert mender.at_once == 2
    mender.go.set()
    await eventually(lambda: not engine.work, what="all is done")
    assert sorted(run.key for run in mender.runs) == ["a1", "a3", "b1", "c1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_cannot_be_done_now_is_kept_whole(tmp_path: Path) -> None:
    """A run that is put off puts off everything that it was to do, also in the store."""
    engine, mender, task = await at_work(tmp_path)
    mender.refuse = True
    mender.go.set()
    await engine.say([mend("a1", "a"), mend("a2", "a")])
    await eventually(lambda: all(one.not_before for one in engine.work.values()), what="both are put off")
    assert {one.last_error for one in engine.work.values()} == {"not now"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    again = Engine(engine.service, engine.store)
    await again.open()
    assert again.work == engine.work
    assert [one.group for one in again.work.values()] == ["a", "a"]


items = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=40)


@given(items, st.integers(2, 5), st.data())
def test_no_project_keeps_another_waiting(asked: list[tuple[str, bool]], total: int, data: st.DataObject) -> None:
    """Runs start and end in any order. A project never holds the last slot; one that runs less goes first; in it, the oldest."""
    slots, work = Slots.shared(total), OpenWork()
    for number, (project, due) in enumerate(asked):
        work.put(record(f"{number}", project=project, not_before=0 if due else 200))
    running: dict[tuple[str, str], list[WorkRecord]] = {}
    while True:
        waiting = {
            project: [
                n
                for n, (one, due) in enumerate(asked)
                if one == project and due and f"mend/{one}/{n}" in work.by_key and (one, f"{n}") not in running
            ]
            for project in "abcd"
        }
        held = {project: sum(one == project for one, _ in running) for project in "abcd"}
        found = work.next_due("mend", 100, running, slots)
        able = [project for project in "abcd" if waiting[project] and held[project] < slots.per_project]
        if len(running) >= total or not able:
            assert found is None
        else:
            assert found is not None
            project, lane, records = found
            assert held[project] == min(held[one] for one in able)
            assert lane == f"{waiting[project][0]}"
            assert waiting[project][0] == min(waiting[one][0] for one in able if held[one] == held[project])
            running[project, lane] = records
            assert max(sum(one == name for one, _ in running) for name in "abcd") <= slots.per_project < total
            continue
        if not running:
            break
        ended = data.draw(st.sampled_from(sorted(running)))
        work.remove(running.pop(ended)[0])


def test_a_project_that_comes_later_starts_at_once() -> None:
    """Eight items of one project take all slots but one, which is free for the next project that comes."""
    work, slots = OpenWork([record(f"bomb-{n}") for n in range(8)]), Slots.shared(3)
    running: dict[tuple[str, str], None] = {}
    while (due := work.next_due("mend", 100, running, slots)) is not None:
        running[due[0], due[1]] = None
    assert sorted(running) == [("lab", "bomb-0"), ("lab", "bomb-1")]
    work.put(record("small", project="other"))
    due = work.next_due("mend", 100, running, slots)
    assert due is not None
    assert due[:2] == ("other", "small")


async def test_work_of_an_older_store_gets_its_present_name(tmp_path: Path) -> None:
    """Names without a project are those of an older version; the work is done once, and nothing of it stays."""
    engine, store = await start(tmp_path)
    old = record("a")
    await store.write(WriteBatch(puts=[put_of(old, "mend/a")]))
    await engine.open()
    assert list(engine.work) == ["mend/lab/a"]
    await engine.work_done(list(engine.work.values()), [])
    assert await store.find(WorkRecord.kind, "state", "open") == []
