"""Evolve and decide: from a lease to a warm plan, joined, lost, refused and released."""

from __future__ import annotations

import pytest
from forebay.cache.domain.decide import CHECK, GIVE_UP, GIVE_UP_AFTER, PLAN, RECHECK_EVERY, RETRY, WARM
from forebay.cache.domain.documents import DOCUMENTS, LOCAL_NODE, Job, Plan, Warmth, place
from forebay.cache.questions import nodes as nodes_question
from forebay.cache.questions import plan as plan_question
from forebay.cache.questions import plans as plans_question
from forebay.contracts.parts import Part
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import CacheReserved, CacheWarming
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Action, Deadline, Request, Work

from .builders import (
    NOON,
    PLAN_ID,
    PROJECT,
    Log,
    evicted,
    failed,
    granted,
    lost,
    partial,
    pinned,
    planned,
    ready,
    released,
)

KEY = place(PROJECT, PLAN_ID)


@pytest.fixture
def log() -> Log:
    return Log()


def plan_of(log: Log, plan: str = PLAN_ID) -> Plan:
    found = log.state.get(Plan, place(PROJECT, plan))
    assert found is not None
    return found


def warmth_of(log: Log, plan: str = PLAN_ID) -> Warmth:
    return plan_of(log, plan).on(LOCAL_NODE)


def works(actions: list[Action]) -> list[tuple[str, str]]:
    return [(one.kind, one.key) for one in actions if isinstance(one, Work)]


def deadlines(actions: list[Action]) -> list[Deadline]:
    return [one for one in actions if isinstance(one, Deadline)]


def passed(deadline: Deadline) -> DeadlinePassed:
    return DeadlinePassed(part="cache", entity=deadline.entity, condition=deadline.condition, deadline=deadline.at)


def test_a_lease_asks_for_one_plan_per_input(log: Log) -> None:
    """Each pinned input is planned on its own, datasets and models alike."""
    actions = log.add(granted("train-1", pinned(), pinned(kind="model", name="base")), source=Part.INGEST)
    assert works(actions) == [(PLAN, f"{PROJECT}/train-1/0"), (PLAN, f"{PROJECT}/train-1/1")]
    assert log.add(granted("idle-1").model_copy(update={"inputs": ()}), source=Part.INGEST) == []


def test_equal_plans_join_one_warm_up(log: Log) -> None:
    """Two jobs with one plan lease it together, and the warm-up is one item of work."""
    for job in ("one-1", "two-1"):
        log.add(granted(job), source=Part.INGEST)
    first, second = log.say(planned("one-1")), log.say(planned("two-1"))
    assert works(first) == works(second) == [(WARM, KEY)]
    assert plan_of(log).jobs == ("one-1", "two-1")
    assert [type(body) for body in log.said] == [CacheReserved]


def test_a_ready_plan_is_not_warmed_again(log: Log) -> None:
    """A job that joins a ready plan causes no work; its readiness is known already."""
    log.add(granted("one-1"), source=Part.INGEST)
    log.say(planned("one-1"))
    (deadline,) = log.add(ready())
    assert isinstance(deadline, Deadline)
    log.add(granted("two-1"), source=Part.INGEST)
    assert log.add(planned("two-1")) == [deadline]  # one alarm, however many jobs join
    assert plan_of(log).state == "ready"
    assert warmth_of(log).reason == Reason.WARM.value


def test_lost_warmth_is_made_again_under_a_new_generation(log: Log) -> None:
    """What was ready and is lost is warmed again in the room that it has, and can be ready and lost once more."""
    log.add(granted(), source=Part.INGEST)
    log.say(planned())
    log.add(ready())
    assert works(log.add(lost())) == [(WARM, KEY)]
    assert (warmth_of(log).state, warmth_of(log).generation, warmth_of(log).verified_bytes) == ("lost", 1, 0)
    log.add(ready())
    assert (warmth_of(log).state, warmth_of(log).generation) == ("ready", 1)


def test_what_was_lost_while_nobody_wanted_it_needs_room_again(log: Log) -> None:
    """A job that joins such a plan claims room first, since others may hold it by now."""
    log.add(granted("one-1"), source=Part.INGEST)
    log.say(planned("one-1"))
    log.add(ready())
    log.add(released("one-1"), source=Part.INGEST)
    log.add(lost())
    log.add(granted("two-1"), source=Part.INGEST)
    assert works(log.say(planned("two-1"))) == [(WARM, KEY)]
    assert warmth_of(log).state == "reserved"
    assert [type(body) for body in log.said] == [CacheReserved, CacheReserved]


def test_nothing_is_warmed_for_nobody(log: Log) -> None:
    """After the last lease ends, a loss or an eviction causes no work."""
    log.add(granted(), source=Part.INGEST)
    log.say(planned())
    log.add(ready())
    log.add(released(), source=Part.INGEST)
    assert plan_of(log).jobs == ()
    assert log.add(lost()) == []
    assert log.add(evicted()) == []
    assert plan_of(log).state == "evicted"


def test_a_job_that_ended_while_it_was_planned_leases_nothing(log: Log) -> None:
    """A plan that arrives after the lease ended is kept, but holds no room and is not warmed."""
    log.add(granted(), source=Part.INGEST)
    log.add(released(), source=Part.INGEST)
    assert log.add(planned()) == []
    assert plan_of(log).jobs == ()


def test_the_last_one_who_leaves_stops_the_warm_up(log: Log) -> None:
    """While another job wants it, warming goes on; then it stops, says so, and a later job starts it anew."""
    for job in ("one-1", "two-1"):
        log.add(granted(job), source=Part.INGEST)
        log.say(planned(job))
    log.say(released("one-1"), source=Part.INGEST)
    assert warmth_of(log).state == "reserved"
    log.say(released("two-1"), source=Part.INGEST)
    assert (warmth_of(log).state, warmth_of(log).reason) == ("partial", "Cancelled")
    assert "job two-1 has ended" in (warmth_of(log).message or "")
    late = CacheWarming(plan=PLAN_ID, name="pick", number=1, stage="verifying", found_bytes=0, planned_bytes=1000)
    log.say(late)
    assert warmth_of(log).state == "partial"
    log.add(granted("three-1"), source=Part.INGEST)
    assert works(log.say(planned("three-1"))) == [(WARM, KEY)]
    assert warmth_of(log).state == "reserved"


def test_a_warm_up_that_gets_nowhere_is_given_up_and_tried_again(log: Log) -> None:
    """Half an hour without progress ends in Failed with the last cause; whoever waits is served later."""
    log.add(granted(), source=Part.INGEST)
    log.say(planned())
    (early,) = deadlines(log.say(partial()))
    (late,) = deadlines(log.say(partial()))
    assert (early.condition, late.at - log.now) == (GIVE_UP, GIVE_UP_AFTER)
    assert log.say(passed(early), at=early.at) == []
    assert warmth_of(log).state == "partial"
    (again,) = deadlines(log.say(passed(late), at=late.at))
    assert warmth_of(log).state == "failed"
    assert warmth_of(log).message == "given up after 30 minutes without getting any further: 40 %"
    assert again.condition == RETRY
    assert works(log.say(passed(again), at=again.at)) == [(WARM, KEY)]


def test_leased_plans_are_looked_at_again_and_again(log: Log) -> None:
    """A provable plan is checked while a job leases it, and no longer."""
    log.add(granted(), source=Part.INGEST)
    log.say(planned())
    (deadline,) = log.add(ready())
    assert isinstance(deadline, Deadline)
    assert NOON + RECHECK_EVERY / 2 < deadline.at < NOON + 2 * RECHECK_EVERY
    check, following = log.add(passed(deadline))
    assert works([check]) == [(CHECK, KEY)]
    assert isinstance(following, Deadline)
    assert following.at > NOON
    log.add(released(), source=Part.INGEST)
    assert log.add(passed(deadline)) == []
    assert log.add(passed(deadline).model_copy(update={"part": "ingest"})) == []


def test_a_plain_folder_is_not_read_again_and_again(log: Log) -> None:
    """Where residency cannot be proved a check would only read everything once more."""
    log.add(granted(), source=Part.INGEST)
    log.say(planned())
    assert log.add(ready(proof="readable")) == []


def test_readiness_is_kept_for_each_node(log: Log) -> None:
    """Warm on one node is not warm on another (case CW-04)."""
    log.add(granted(), source=Part.INGEST)
    log.say(planned())
    log.add(ready().model_copy(update={"node": "gpu-node-1"}))
    log.add(partial().model_copy(update={"node": "gpu-node-2", "verified_bytes": 0}))
    shown = nodes_question(log.state, asked(plan=PLAN_ID))
    assert shown["ready"] == ["gpu-node-1"]
    assert {node: one["state"] for node, one in shown["nodes"].items()} == {
        "gpu-node-1": "ready",
        "gpu-node-2": "partial",
        "local": "reserved",
    }
    assert plan_of(log).state == "ready"
    assert plan_of(log).on("gpu-node-3").state == "planned"


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
    assert warmth_of(log).verified_bytes == 1000


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
