"""Evolve and decide: from a lease to a warm plan, joined, lost, refused and released."""

from __future__ import annotations

import pytest
from forebay.cache.domain.decide import CHECK, PLAN, RECHECK, RECHECK_EVERY, WARM
from forebay.cache.domain.documents import DOCUMENTS, Job, Plan, place
from forebay.cache.questions import plan as plan_question
from forebay.cache.questions import plans as plans_question
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheEvicted
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Action, Deadline, Request, Work

from .builders import NOON, PLAN_ID, PROJECT, Log, failed, granted, lost, partial, pinned, planned, ready, released

KEY = place(PROJECT, PLAN_ID)


@pytest.fixture
def log() -> Log:
    return Log()


def plan_of(log: Log, plan: str = PLAN_ID) -> Plan:
    found = log.state.get(Plan, place(PROJECT, plan))
    assert found is not None
    return found


def works(actions: list[Action]) -> list[tuple[str, str]]:
    return [(one.kind, one.key) for one in actions if isinstance(one, Work)]


def test_a_lease_asks_for_one_plan_per_input(log: Log) -> None:
    """Each pinned input is planned on its own, datasets and models alike."""
    actions = log.add(granted("train-1", pinned(), pinned(kind="model", name="base")), source=Part.INGEST)
    assert works(actions) == [(PLAN, f"{PROJECT}/train-1/0"), (PLAN, f"{PROJECT}/train-1/1")]
    assert log.add(granted("idle-1").model_copy(update={"inputs": ()}), source=Part.INGEST) == []


def test_equal_plans_join_one_warm_up(log: Log) -> None:
    """Two jobs with one plan lease it together, and the warm-up is one item of work."""
    for job in ("one-1", "two-1"):
        log.add(granted(job), source=Part.INGEST)
    first, second = log.add(planned("one-1")), log.add(planned("two-1"))
    assert works(first) == works(second) == [(WARM, KEY)]
    assert plan_of(log).jobs == ("one-1", "two-1")


def test_a_ready_plan_is_not_warmed_again(log: Log) -> None:
    """A job that joins a ready plan causes no work; its readiness is known already."""
    log.add(granted("one-1"), source=Part.INGEST)
    log.add(planned("one-1"))
    (deadline,) = log.add(ready())
    assert isinstance(deadline, Deadline)
    log.add(granted("two-1"), source=Part.INGEST)
    assert log.add(planned("two-1")) == []
    assert plan_of(log).state == "ready"
    assert plan_of(log).reason == Reason.WARM.value


def test_lost_warmth_is_made_again_under_a_new_generation(log: Log) -> None:
    """What was ready and is lost is warmed again, and can be ready and lost once more."""
    log.add(granted(), source=Part.INGEST)
    log.add(planned())
    log.add(ready())
    assert works(log.add(lost())) == [(WARM, KEY)]
    assert (plan_of(log).state, plan_of(log).generation, plan_of(log).verified_bytes) == ("lost", 1, 0)
    log.add(ready())
    assert (plan_of(log).state, plan_of(log).generation) == ("ready", 1)


def test_nothing_is_warmed_for_nobody(log: Log) -> None:
    """After the last lease ends, a loss or an eviction causes no work."""
    log.add(granted(), source=Part.INGEST)
    log.add(planned())
    log.add(ready())
    log.add(released(), source=Part.INGEST)
    assert plan_of(log).jobs == ()
    assert log.add(lost()) == []
    evicted = CacheEvicted(plan=PLAN_ID, name="pick", number=1, freed_bytes=5, reason="room was needed")
    assert log.add(evicted) == []
    assert plan_of(log).state == "evicted"


def test_a_job_that_ended_while_it_was_planned_leases_nothing(log: Log) -> None:
    """A plan that arrives after the lease ended is kept, but holds no room and is not warmed."""
    log.add(granted(), source=Part.INGEST)
    log.add(released(), source=Part.INGEST)
    assert log.add(planned()) == []
    assert plan_of(log).jobs == ()


def test_room_reserved_by_other_plans_travels_with_the_work(log: Log) -> None:
    """What leased plans hold is known to the warm-up before it reads a byte."""
    log.add(granted("one-1"), source=Part.INGEST)
    log.add(granted("two-1"), source=Part.INGEST)
    log.add(planned("one-1", "b" * 32, aligned=700))
    (work,) = log.add(planned("two-1"))
    assert isinstance(work, Work)
    assert work.payload == {"reserved_bytes": 700}


def test_room_made_by_a_finished_job_is_offered_to_refused_plans(log: Log) -> None:
    """A plan refused for want of room is tried again when a lease ends; one refused for its files is not."""
    for job, plan, reason in (
        ("one-1", "b" * 32, Reason.CACHE_OVER_BUDGET),
        ("two-1", "c" * 32, Reason.DATASET_CHANGED),
        ("three-1", "d" * 32, None),
    ):
        log.add(granted(job), source=Part.INGEST)
        log.add(planned(job, plan))
        if reason is not None:
            log.add(failed(reason, plan))
    assert works(log.add(released("three-1"), source=Part.INGEST)) == [(WARM, place(PROJECT, "b" * 32))]


def test_leased_plans_are_looked_at_again_and_again(log: Log) -> None:
    """A provable plan is checked while a job leases it, and no longer."""
    log.add(granted(), source=Part.INGEST)
    log.add(planned())
    (deadline,) = log.add(ready())
    assert isinstance(deadline, Deadline)
    assert deadline.at - RECHECK_EVERY > NOON
    passed = DeadlinePassed(part="cache", entity=PLAN_ID, condition=RECHECK, deadline=deadline.at)
    check, following = log.add(passed)
    assert works([check]) == [(CHECK, KEY)]
    assert isinstance(following, Deadline)
    assert following.at > NOON
    log.add(released(), source=Part.INGEST)
    assert log.add(passed) == []
    assert log.add(passed.model_copy(update={"part": "ingest"})) == []


def test_a_plain_folder_is_not_read_again_and_again(log: Log) -> None:
    """Where residency cannot be proved a check would only read everything once more."""
    log.add(granted(), source=Part.INGEST)
    log.add(planned())
    assert log.add(ready(proof="readable")) == []


def test_a_refused_input_is_kept_with_its_job(log: Log) -> None:
    """A planning failure has no plan; the job remembers why, and nothing is warmed."""
    log.add(granted(), source=Part.INGEST)
    assert log.add(failed(Reason.COLUMN_UNKNOWN, "e" * 32, job="train-1")) == []
    job = log.state.get(Job, place(PROJECT, "train-1"))
    assert job is not None
    assert [one.reason for one in job.refusals] == ["ColumnUnknown"]
    assert log.state.get(Plan, place(PROJECT, "e" * 32)) is None


def test_folding_twice_is_folding_once(log: Log) -> None:
    """Events folded again leave the same documents."""
    events = [granted(), planned(), partial(), ready()]
    for body in events:
        log.add(body)
    digest = log.state.digest(DOCUMENTS)
    again = Log()
    for body in events:
        again.add(body)
    assert again.state.digest(DOCUMENTS) == digest
    assert plan_of(log).verified_bytes == 1000


def asked(**args: object) -> Request:
    return Request(id="1", project=PROJECT, by="someone", args=args, now=NOON)


def test_plans_are_listed_in_pages(log: Log) -> None:
    """A page ends with the key after which the next one starts."""
    log.add(granted(), source=Part.INGEST)
    for letter in "abc":
        log.add(planned(plan=letter * 32))
    page = plans_question(log.state, asked(limit=2))
    assert [one["id"][0] for one in page["plans"]] == ["a", "b"]
    rest = plans_question(log.state, asked(limit=2, after=page["next"]))
    assert [one["id"][0] for one in rest["plans"]] == ["c"]
    assert rest["next"] is None


def test_a_plan_is_shown_by_id_or_job(log: Log) -> None:
    """A job's answer has its plans and refusals; unknown names are refused with close ones."""
    log.add(granted(), source=Part.INGEST)
    log.add(planned())
    log.add(partial())
    shown = plan_question(log.state, asked(plan=PLAN_ID))
    assert shown["summary"] == "partial: 40 % of 1.0 KB verified; the plan is 11 % of the version"
    assert plan_question(log.state, asked(job="train-1"))["plans"][0]["id"] == PLAN_ID
    with pytest.raises(Refused) as unknown:
        plan_question(log.state, asked(job="train-2"))
    assert "train-1" in unknown.value.next_action
    with pytest.raises(Refused, match="no plan"):
        plan_question(log.state, asked(plan="x"))
    with pytest.raises(Refused, match="name a plan"):
        plan_question(log.state, asked())
