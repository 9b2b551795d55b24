"""The disk outbox: events survive outages and kills, go out in order, and leave only when they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.errors import InvalidBodyError
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.jobs import PreflightReported
from forebay.runtime.errors import Unreachable
from forebay.sdk.outbox import Outbox, outbox_of

from sdk.tests.builders import KeptPublisher

AGENT = Source(Part.AGENT, "lab")


def event(number: int) -> Event[EventBody]:
    body = PreflightReported(job=f"job-{number}", attempt=1, checks=(), seconds=0.5)
    return Event(id=f"id-{number}", source=AGENT, project="lab", body=body)


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return outbox_of(tmp_path, AGENT)


async def test_events_come_back_as_they_were(outbox: Outbox) -> None:
    """What is delivered is the same event: id, clocks, body."""
    first = event(1)
    outbox.append([first])
    publisher = KeptPublisher()
    assert await Outbox(outbox.folder, AGENT).deliver(publisher) == 1
    assert publisher.stored == [first]
    assert outbox.pending() == 0


async def test_nothing_leaves_before_it_is_stored(outbox: Outbox) -> None:
    """An outage in the middle keeps the rest, and the next delivery goes on in order."""
    outbox.append([event(1)])
    outbox.append([event(2), event(3)])
    publisher = KeptPublisher(fail_after=2)
    with pytest.raises(Unreachable):
        await outbox.deliver(publisher)
    assert outbox.pending() == 2
    publisher.fail_after = None
    await outbox.deliver(publisher)
    assert [one.id for one in publisher.stored] == ["id-1", "id-2", "id-2", "id-3"]
    assert outbox.pending() == 0


async def test_order_is_kept_across_processes(outbox: Outbox) -> None:
    """A later process appends behind an earlier one."""
    for number in range(5):
        Outbox(outbox.folder, AGENT).append([event(number)])
    publisher = KeptPublisher()
    await outbox.deliver(publisher)
    assert [one.id for one in publisher.stored] == [f"id-{number}" for number in range(5)]


async def test_a_segment_that_was_not_finished_is_not_an_event(outbox: Outbox) -> None:
    """A kill while appending leaves a part file that nobody promised anything about."""
    outbox.append([event(1)])
    (outbox.folder / ".00000000000000000001.jsonl.part").write_text('{"id": "half')
    publisher = KeptPublisher()
    await outbox.deliver(publisher)
    assert [one.id for one in publisher.stored] == ["id-1"]


async def test_what_can_never_be_stored_holds_nothing_back(outbox: Outbox) -> None:
    """One event too large for the log and one damaged segment are set aside with the reason; the rest goes out."""

    class Strict(KeptPublisher):
        async def publish_many(self, events: Sequence[Event[EventBody]]) -> list[int]:
            if any(one.id == "id-2" for one in events):
                raise InvalidBodyError("the body is too large")
            return await super().publish_many(events)

    outbox.append([event(1), event(2), event(3)])
    (outbox.folder / "00000000000000000009-damaged.jsonl").write_text("{")
    publisher = Strict()
    assert await outbox.deliver(publisher) == 2
    assert [one.id for one in publisher.stored] == ["id-1", "id-3"]
    refused = {path.name: path.read_text() for path in (outbox.folder / "refused").iterdir()}
    assert "too large" in refused["id-2.json"]
    assert len(refused) == 2
    assert outbox.pending() == 0


async def test_only_one_process_delivers_at_a_time(outbox: Outbox) -> None:
    """Order could not hold with two; the second one leaves everything to the first."""
    outbox.append([event(1)])
    held, go_on = asyncio.Event(), asyncio.Event()

    class Slow(KeptPublisher):
        async def publish_many(self, events: Sequence[Event[EventBody]]) -> list[int]:
            held.set()
            await go_on.wait()
            return [1] * len(events)

    first = asyncio.create_task(outbox.deliver(Slow()))
    await held.wait()
    assert await Outbox(outbox.folder, AGENT).deliver(KeptPublisher()) == 0
    go_on.set()
    assert await first == 1
