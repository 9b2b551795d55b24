"""Order, repetition and lateness change no state: attempts (case EV-01), and the whole bridge under random delays."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1 import datasets, jobs
from forebay.runtime.documents import decode_document, encode_document
from forebay.runtime.state import MemoryState
from forebay.scheduler_bridge.domain.documents import DOCUMENTS, Entry, Job
from forebay.scheduler_bridge.domain.evolve import evolve
from forebay.scheduler_bridge.domain.history import remark
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from .world import GB, World, granted, planned, ready, spec, upload

BRIDGE = Source(Part.BRIDGE)
JOB = "tj-0007-1"


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-10T{clock}+00:00").astimezone(UTC)


def event(name: str, clock: str, body: EventBody) -> Event[EventBody]:
    return Event(id=name, source=BRIDGE, project="lab", body=body, time=at(clock), recorded=at(clock))


def admitted(name: str, clock: str, attempt: int) -> Event[EventBody]:
    return event(name, clock, jobs.WorkloadAdmitted(job=JOB, attempt=attempt, resources=jobs.Resources()))


def passed(name: str, clock: str, attempt: int) -> Event[EventBody]:
    return event(name, clock, jobs.PreflightPassed(job=JOB, attempt=attempt))


def started(name: str, clock: str, attempt: int) -> Event[EventBody]:
    return event(name, clock, jobs.AttemptStarted(job=JOB, attempt=attempt, host="bench", process=f"{attempt}@1"))


def ended(name: str, clock: str, attempt: int, code: int) -> Event[EventBody]:
    reason = "Completed" if code == 0 else "ProcessFailed"
    body = jobs.AttemptEnded.model_validate(
        {"job": JOB, "attempt": attempt, "exit_code": code, "reason": reason, "message": f"exit code {code}"}
    )
    return event(name, clock, body)


def succeeded(name: str, clock: str) -> Event[EventBody]:
    return event(name, clock, jobs.JobSucceeded(job=JOB, attempt=1, attempts=1))


def fold(events: list[Event[EventBody]]) -> MemoryState:
    """The state after these events were stored in this order, all at one moment: no clock decides."""
    state = MemoryState()
    submitted = jobs.JobSubmitted.model_validate(
        {
            "job": JOB,
            "run": 1,
            "spec": {**spec("tj-0007"), "project": "lab"},
            "spec_sha256": "s",
            "submitted_by": "ada",
        }
    )
    stream = [event("e0", "07:59:00", submitted), *events]
    seen: set[str] = set()
    for seq, one in enumerate(stream, start=1):
        if one.id not in seen:
            seen.add(one.id)
            evolve(state, Recorded(event=one, seq=seq, stored_at=at("09:00:00")))
    return state


def job_of(state: MemoryState) -> Job:
    job = state.get(Job, f"lab/{JOB}")
    assert job is not None
    return job


class TestDeliveries:
    """EV-01: RUNNING after SUCCEEDED, both twice, and a late RUNNING of a finished attempt."""

    EVENTS = (
        admitted("e1", "08:00:00", 1),
        passed("e2p", "08:00:09", 1),
        started("e2", "08:00:10", 1),
        ended("e3", "08:01:40", 1, 0),
        succeeded("e3s", "08:01:41"),
        started("e4", "08:02:10", 1),
    )

    def test_every_order_ends_in_the_same_documents(self) -> None:
        """All 720 orders: SUCCEEDED, equal attempts, equal history."""
        digests = set()
        for order in itertools.permutations(self.EVENTS):
            state = fold(list(order))
            assert job_of(state).state == "SUCCEEDED"
            # The clocks of waiting run by arrival, so a message that came late shows there and nowhere else.
            timeless = replace(job_of(state), spans=())
            digests.add((encode_document(timeless), state.digest([Entry])))
        assert len(digests) == 1

    def test_every_step_in_between_is_absorbed_too(self) -> None:
        """Once succeeded, no prefix of any order is anything else."""
        for order in itertools.permutations(self.EVENTS):
            index = [one.id for one in order].index("e3s")
            assert job_of(fold(list(order[: index + 1]))).state == "SUCCEEDED"

    def test_the_late_message_is_kept_as_ignored(self) -> None:
        """The history is in order of what happened; the late RUNNING is there, marked."""
        state = fold([self.EVENTS[index] for index in (0, 3, 2, 3, 2, 1, 5, 4)])
        history = state.find(Entry, "of", f"lab/{JOB}")
        assert [entry.id for entry in history] == ["e0", "e1", "e2p", "e2", "e3", "e3s", "e4"]
        remarks = {entry.id: remark(entry, job_of(state)) for entry in history}
        assert remarks["e4"] == "ignored: attempt finished"
        assert [name for name, said in remarks.items() if said] == ["e4"]

    @given(st.lists(st.sampled_from(EVENTS), max_size=12), st.permutations(EVENTS))
    @settings(deadline=None, max_examples=60)
    def test_repeats_change_nothing(self, extra: list[Event[EventBody]], order: list[Event[EventBody]]) -> None:
        """Duplicates anywhere: the same digest as the plain order."""
        assert fold([*order, *extra]).digest([Entry]) == fold(list(self.EVENTS)).digest([Entry])
        assert job_of(fold([*order, *extra])).attempts == job_of(fold(list(self.EVENTS))).attempts


def test_attempts_do_not_mix() -> None:
    """EV-01, second list: attempt 1 stays FAILED, attempt 2 RUNNING, job RUNNING, in every order."""
    events = (
        admitted("f0", "07:59:30", 1),
        ended("f1", "08:00:00", 1, 1),
        admitted("f2", "08:00:50", 2),
        started("f3", "08:01:00", 1),
        passed("f4p", "08:01:09", 2),
        started("f4", "08:01:10", 2),
    )
    for order in itertools.permutations(events):
        job = job_of(fold(list(order)))
        assert [(attempt.number, attempt.state) for attempt in job.attempts] == [(1, "FAILED"), (2, "RUNNING")]
        assert job.state == "RUNNING"


# ------------------------------------------------------------ the whole bridge


def invariants(world: World) -> None:
    """What must hold after every single event in the log."""
    found = world.state.all(Job, limit=1000)
    held = [attempt for job in found for attempt in job.attempts if attempt.holds]
    assert sum(float((attempt.resources or {})["cpu"]) for attempt in held) <= 4
    devices = [device for attempt in held for device in attempt.devices]
    assert len(devices) == len(set(devices)) <= 2
    for job in found:
        assert sum(attempt.holds for attempt in job.attempts) <= 1
        if job.spec.get("datasets"):
            assert job.gate == "open" or not job.attempts or job.terminal is not None


TERMINAL = {"SUCCEEDED", "FAILED", "CANCELLED"}


def act(world: World, data: st.DataObject, names: list[str], memory: dict[str, Any]) -> None:
    """One thing happens outside: a submission, an answer, an end, a change of mind."""
    found = world.state.all(Job, limit=1000)
    holding = [(job, attempt) for job in found for attempt in job.attempts if attempt.holds]
    leased = [job for job in found if job.spec.get("datasets") and job.terminal is None]
    choices = ["submit"] + ["end", "end"] * bool(holding) + ["cancel"] * bool(found) + ["data", "data"] * bool(leased)
    match data.draw(st.sampled_from(choices)):
        case "submit" if names:
            fields: dict[str, Any] = {
                "resources": {
                    "cpu": data.draw(st.sampled_from([1, 2, 4])),
                    "memory_bytes": GB,
                    "gpus": data.draw(st.integers(0, 2)),
                },
                "priority": data.draw(st.integers(0, 1)),
                "restart": {"max_attempts": 2},
            }
            if data.draw(st.booleans()):
                fields["datasets"] = [{"name": "pick-place"}]
            world.submit(names.pop(), settle=False, **fields)
        case "end":
            job, attempt = data.draw(st.sampled_from(holding))
            if attempt.start is None and data.draw(st.booleans()):
                report = jobs.PreflightReported(job=job.id, attempt=attempt.number, checks=(), seconds=0)
                world.say(report, Part.AGENT, settle=False)
                start = jobs.AttemptStarted(job=job.id, attempt=attempt.number, host="b", process="1@1")
                world.say(start, Part.BRIDGE, id=f"s-{job.id}-{attempt.number}", settle=False)
            else:
                code = data.draw(st.sampled_from([0, 1]))
                end = jobs.AttemptEnded.model_validate(
                    {"job": job.id, "attempt": attempt.number, "exit_code": code, "reason": "Unknown", "message": "x"}
                )
                world.say(end, Part.BRIDGE, id=f"e-{job.id}-{attempt.number}", settle=False)
        case "cancel":
            job = data.draw(st.sampled_from(found))
            if job.terminal is None and not world.outbox.of(jobs.JobCancelled):
                memory["cancelled"] = memory.get("cancelled", 0) + 1
                if not any(world.outbox.of(kind) for kind in (jobs.JobSucceeded, jobs.JobFailed)):
                    world.command("cancel", job=job.id, settle=False)
        case "data":
            job = data.draw(st.sampled_from(leased))
            say_data(world, job, data)
        case _:
            pass


def say_data(world: World, job: Job, data: st.DataObject) -> None:
    match data.draw(st.sampled_from(["grant", "plan", "ready", "untag", "tag"])):
        case "grant" if job.lease.state != "granted":
            world.say(granted(job.id), settle=False)
        case "plan" if not job.plans:
            world.say(planned(job.id), Part.CACHE, settle=False)
        case "ready":
            world.say(ready(), Part.CACHE, settle=False)
        case "untag":
            world.say(tag("DatasetUntagged"), settle=False)
        case "tag":
            world.say(tag("DatasetTagged"), settle=False)
        case _:
            pass


def tag(kind: str) -> EventBody:
    body = datasets.DatasetTagged if kind == "DatasetTagged" else datasets.DatasetUntagged
    return body(dataset="pick-place", tag="train-ready", number=1, by="bea")


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_quota_is_never_given_twice_however_late_own_events_arrive(data: st.DataObject) -> None:
    """Random life, own events stored late: never over capacity, no GPU twice, nobody left waiting on a free machine."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    names = [f"job-{index}" for index in range(8)]
    memory: dict[str, Any] = {}
    for _ in range(data.draw(st.integers(5, 40))):
        act(world, data, names, memory)
        for _ in range(data.draw(st.integers(0, 3))):
            world.store_own()
            invariants(world)
    world.settle()
    invariants(world)
    finish(world)
    admitted = [(body.job, body.attempt) for body in world.said(jobs.WorkloadAdmitted)]
    assert len(admitted) == len(set(admitted))
    ends = [body.job for body in world.said(jobs.JobSucceeded)]
    ends += [body.job for body in world.said(jobs.JobFailed)]
    ends += [body.job for body in world.said(jobs.JobCancelled)]
    assert len(ends) == len(set(ends)), "a job ended twice"


def finish(world: World) -> None:
    """Everything running ends well: then every job whose gate is open has run."""
    for _ in range(100):
        holding = [(job, attempt) for job in world.state.all(Job) for attempt in job.attempts if attempt.holds]
        if not holding:
            break
        for job, attempt in holding:
            world.end_attempt(job.id, attempt.number)
            invariants(world)
    for job in world.state.all(Job):
        assert job.standing is None, f"{job.id} is {job.standing} although the machine is free"


@given(st.permutations(["grant", "plan", "ready", "refuse"]))
@settings(deadline=None, max_examples=24)
def test_folding_the_log_again_gives_the_same_digest(order: list[str]) -> None:
    """State is a function of the log: evolve alone over the same log ends in the same documents."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(datasets=[{"name": "pick-place"}])
    for step in order:
        match step:
            case "grant":
                world.say(granted(job))
            case "plan":
                world.say(planned(job), Part.CACHE)
            case "ready":
                world.say(ready(), Part.CACHE)
            case _:
                world.say(tag("DatasetUntagged"))
    again = MemoryState()
    for recorded in world.log:
        evolve(again, recorded)
    assert again.digest(DOCUMENTS) == world.state.digest(DOCUMENTS)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_survive_the_store(kind: type[Any]) -> None:
    """What is folded can be written and read back unchanged."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(datasets=[{"name": "pick-place"}], resources={"gpus": 1})
    world.say(granted(job))
    world.say(planned(job), Part.CACHE)
    world.say(ready(), Part.CACHE)
    world.run_attempt(job)
    world.end_attempt(job)
    documents = world.state.all(kind)
    assert documents
    for document in documents:
        assert decode_document(kind, encode_document(document)) == document
