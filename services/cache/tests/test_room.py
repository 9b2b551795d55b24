"""Room, wishes, policies and expiry as the log decides them: refused with numbers, made by eviction, given back."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from forebay.cache.domain.decide import EVICT, EXPIRE, PLAN, WARM, Cache
from forebay.cache.domain.documents import LOCAL_NODE, Histogram, Plan, Usage, Wish, place
from forebay.cache.orders import Orders
from forebay.cache.questions import Questions
from forebay.cache.questions import policy as policy_question
from forebay.cache.questions import wish as wish_question
from forebay.contracts.body import FileRef
from forebay.contracts.envelope import B, Event, Recorded
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.cache import (
    CacheExpired,
    CacheFailed,
    CachePolicySet,
    CachePoolSeen,
    CacheReserved,
    DatasetAccessed,
    WarmCancelled,
    WarmRequested,
    WarmRule,
)
from forebay.contracts.v1.datasets import DatasetTagged, DatasetVersionCommitted, DatasetVersionRemoved
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Action, Deadline, Emit, NothingPending, Outcome, Request, Work

from .builders import NOON, PROJECT, SHA, Log, evicted, granted, partial, pinned, planned, ready, released

A, B_, C = "a" * 32, "b" * 32, "c" * 32


def want(log: Log, job: str, plan: str, *, aligned: int = 700, **changes: Any) -> list[Action]:
    """A job leases a version and its plan is known."""
    log.add(granted(job), source=Part.INGEST)
    return log.say(planned(job, plan, aligned=aligned, **changes))


def state(log: Log, plan: str) -> str:
    found = log.state.get(Plan, place(PROJECT, plan))
    assert found is not None
    return found.on(LOCAL_NODE).state


def works(actions: list[Action], kind: str) -> list[Work]:
    return [one for one in actions if isinstance(one, Work) and one.kind == kind]


def order(log: Log, command: str, /, **args: object) -> Outcome:
    request = Request(id=f"{command}-{log.seq}", project=PROJECT, by="mia", args=args, now=log.now)
    return Orders(LOCAL_NODE).table()[command](log.state, NothingPending(), request)


def ask(log: Log, question: str, /, **args: object) -> dict[str, Any]:
    request = Request(id="q", project=PROJECT, by="mia", args=args, now=log.now)
    return Questions(LOCAL_NODE, 1000).table()[question](log.state, request)


def committed(number: int = 1, dataset: str = "pick") -> DatasetVersionCommitted:
    file = FileRef(uri="file:///x", sha256=SHA, bytes=1)
    return DatasetVersionCommitted(
        dataset=dataset, number=number, root=f"/pool/v{number}", access_plan="C", format="lance",
        episodes=file, episode_count=3, frame_count=30, bytes=9000, manifest_sha256=SHA, checksums=file,
        rules_version="1",
    )  # fmt: skip


def tagged(number: int = 1, tag: str = "train-ready") -> DatasetTagged:
    return DatasetTagged(dataset="pick", tag=tag, number=number, by="ingest")


class TestBudget:
    def test_the_second_does_not_fit_and_gets_its_turn(self) -> None:
        """Refused with every number while the first is leased; reserved when its job has ended and it was evicted."""
        log = Log(budget=1000)
        assert works(want(log, "one-1", A), WARM)
        log.add(ready(A))
        want(log, "two-1", B_)
        refused = log.said[-1]
        assert isinstance(refused, CacheFailed)
        numbers = (refused.needed_bytes, refused.available_bytes, refused.budget_bytes, refused.evictable_bytes)
        assert numbers == (700, 300, 1000, 0)
        assert "the rest is leased by one-1" in refused.message
        (evict,) = works(log.say(released("one-1"), source=Part.INGEST), EVICT)
        assert evict.payload["victims"] == [place(PROJECT, A)]
        assert "room was needed" in evict.payload["why"]
        (warm,) = works(log.say(evicted(A)), WARM)
        assert warm.key == place(PROJECT, B_)
        assert (state(log, A), state(log, B_)) == ("evicted", "reserved")

    def test_two_at_once_never_exceed_the_budget(self) -> None:
        """What is decided and not yet in the log counts already."""
        log = Log(budget=1000)
        log.add(granted("one-1"), source=Part.INGEST)
        log.add(granted("two-1"), source=Part.INGEST)
        (first,) = log.add(planned("one-1", A, aligned=700))
        assert isinstance(first, Emit)
        decided = first.body

        class Deciding(NothingPending):
            def of(self, body_type: type[B], project: str | None = None) -> list[B]:  # noqa: ARG002 the port's signature
                return [decided] if isinstance(decided, body_type) else []

        body = planned("two-1", B_, aligned=700)
        log.add(body)
        event = Event(id="x", source=Source(Part.CACHE), project=PROJECT, body=body, time=log.now)
        recorded = Recorded(event=event, seq=99, stored_at=log.now)
        (second,) = Cache(budget_bytes=1000).decide(log.state, Deciding(), recorded)
        assert isinstance(second, Emit)
        assert isinstance(second.body, CacheFailed)

    def test_a_project_has_a_budget_of_its_own(self) -> None:
        """Set by its policy; raised, and whoever was refused gets room."""
        log = Log()
        log.say(CachePolicySet(budget_bytes=1000, by="mia"))
        want(log, "one-1", A)
        want(log, "two-1", B_)
        refused = log.said[-1]
        assert isinstance(refused, CacheFailed)
        assert f"project {PROJECT}" in refused.message
        log.say(CachePolicySet(budget_bytes=2000, by="mia"))
        assert state(log, B_) == "reserved"

    def test_the_pool_keeps_no_more_than_its_limit(self) -> None:
        """Without a budget the pool's own limit holds, less what it drops before it is full."""
        log = Log()
        log.say(CachePoolSeen(node="local", adapter="juicefs", limit_bytes=1000), project="_cluster")
        want(log, "one-1", A, aligned=960)
        assert isinstance(log.said[-1], CacheFailed)
        want(log, "two-1", B_, aligned=940)
        assert isinstance(log.said[-1], CacheReserved)
        assert log.said[-1].available_bytes == 10

    def test_a_version_with_a_little_more_needs_a_little_more(self) -> None:
        """After append the new plan fits beside the old one, which stays leased."""
        log = Log(budget=1000)
        want(log, "one-1", A, aligned=900)
        want(log, "two-1", B_, aligned=950, number=2, previous=A, reused_bytes=850, new_aligned_bytes=50)
        assert (state(log, A), state(log, B_)) == ("reserved", "reserved")
        said = log.said[-1]
        assert isinstance(said, CacheReserved)
        assert said.reserved_bytes == 50
        assert "850 bytes of it are shared with plan aaaaaaaaaaaa" in " ".join(ask(log, "why", plan=B_)["sentences"])

    def test_older_plans_are_offered_to_the_planner(self) -> None:
        """A new version's plan is compared with older ones of the same columns."""
        log = Log()
        want(log, "one-1", A)
        (work,) = works(log.say(granted("two-1", pinned(number=2)), source=Part.INGEST), PLAN)
        assert work.payload["previous"] == [A]

    def test_evicted_for_nobody_who_still_wants_it(self) -> None:
        """A command frees what nobody leases, and names the jobs that keep the rest."""
        log = Log()
        want(log, "one-1", A)
        log.add(ready(A))
        with pytest.raises(Refused, match="one-1 needs it"):
            order(log, "evict", plan=A)
        log.say(released("one-1"), source=Part.INGEST)
        (work,) = order(log, "evict", plan=A[:8]).actions
        assert isinstance(work, Work)
        assert work.payload == {"victims": [place(PROJECT, A)], "keep": [], "why": "mia asked for it"}
        with pytest.raises(Refused, match="nothing of it is in the cache"):
            order(log, "evict", expired=True)
        log.say(evicted(A))
        with pytest.raises(Refused, match="nothing of it is in the cache"):
            order(log, "evict", plan=A)

    def test_the_list_says_what_is_held_and_what_could_go(self) -> None:
        """Leased, evictable, in all; age and time left of each plan."""
        log = Log(budget=1000)
        want(log, "one-1", A)
        log.add(ready(A))
        want(log, "two-1", B_, aligned=200)
        log.add(ready(B_))
        log.say(released("two-1"), source=Part.INGEST)
        shown = ask(log, "list")
        room = shown["room"]
        assert (room["held_bytes"], room["leased_bytes"], room["evictable_bytes"]) == (900, 700, 200)
        assert room["goes_first"] == [B_]
        leased, unused = shown["plans"]
        assert (leased["ttl_left_s"], leased["jobs"]) == (None, ("one-1",))
        assert 7 * 86400 < unused["ttl_left_s"] <= 8 * 86400 + 3600


class TestWishes:
    def test_a_version_is_warmed_because_somebody_asked(self) -> None:
        """By name and tag; open until it is ready; the same request joins; nobody leases it afterwards."""
        log = Log()
        log.say(committed(), source=Part.INGEST)
        log.say(tagged(), source=Part.INGEST)
        asked = order(log, "warm", name="pick@train-ready", columns=["b", "a"])
        (emit,) = asked.actions
        assert isinstance(emit, Emit)
        assert isinstance(emit.body, WarmRequested)
        assert (emit.body.input.number, emit.body.input.columns) == (1, ("a", "b"))
        (work,) = works(log.publish([emit]), PLAN)
        assert work.payload["wish"] is True
        again = order(log, "warm", name="pick@v1", columns=["a", "b"])
        assert (again.result["request"], again.result["joined"], again.actions) == (asked.result["request"], True, ())
        wish_id = asked.result["request"]
        (warm,) = works(log.say(planned(wish_id, A, wish=True)), WARM)
        assert warm.key == place(PROJECT, A)
        actions = log.say(ready(A))
        assert [one.condition for one in actions if isinstance(one, Deadline)] == ["recheck", EXPIRE]
        request = Request(id="q", project=PROJECT, by="mia", args={"request": wish_id}, now=NOON)
        assert wish_question(log.state, request)["state"] == "warm"
        found = log.state.get(Plan, place(PROJECT, A))
        assert found is not None
        assert not found.wanted

    def test_taken_back_while_it_warms(self) -> None:
        """The warm-up stops, unless a job came to need it."""
        log = Log()
        for wish_id, plan in (("warm-1", A), ("warm-2", B_)):
            log.say(WarmRequested(request=wish_id, input=pinned(), by="mia", reason="asked"))
            log.say(planned(wish_id, plan, wish=True))
        log.add(granted("job-1"), source=Part.INGEST)
        log.say(planned("job-1", B_))
        log.say(WarmCancelled(request="warm-1", by="mia"))
        log.say(WarmCancelled(request="warm-2", by="mia"))
        assert (state(log, A), state(log, B_)) == ("partial", "reserved")
        assert order(log, "warm-cancel", request="warm-1").result["already"] is True
        with pytest.raises(Refused, match="no request"):
            order(log, "warm-cancel", request="warm-9")

    def test_a_wish_that_cannot_be_served_ends(self) -> None:
        """Refused for want of room or files: the request failed with the same words."""
        log = Log(budget=100)
        log.say(WarmRequested(request="warm-1", input=pinned(), by="mia", reason="asked"))
        log.say(planned("warm-1", A, wish=True))
        found = log.state.get(Wish, place(PROJECT, "warm-1"))
        assert found is not None
        assert found.state == "failed"
        assert "needs 2.0 KB of cache" in (found.message or "")

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("pick@golden", "version-unknown"),
            ("pcik@v1", "dataset-unknown"),
            ("pick@v9", "version-unknown"),
            ("", "bad-name"),
        ],
    )
    def test_what_does_not_exist_is_refused_at_once(self, name: str, code: str) -> None:
        """A wrong name ends in a refusal with what there is, and no work is made (case CW-07)."""
        log = Log()
        log.say(committed(), source=Part.INGEST)
        log.say(tagged(), source=Part.INGEST)
        with pytest.raises(Refused) as refused:
            order(log, "warm", name=name)
        assert refused.value.code == code
        assert refused.value.next_action

    def test_another_project_has_nothing_of_it(self) -> None:
        """Names are looked up in the asking project only (case CW-07)."""
        log = Log()
        log.say(committed(), source=Part.INGEST)
        request = Request(id="1", project="other-team", by="mia", args={"name": "pick@v1"}, now=NOON)
        with pytest.raises(Refused, match="no dataset 'pick' in project other-team"):
            Orders(LOCAL_NODE).table()["warm"](log.state, NothingPending(), request)

    def test_a_policy_warms_new_and_tagged_versions(self) -> None:
        """Rules for uploads and for tags, by pattern; moving a tag while a version warms asks for the new one too."""
        log = Log()
        rules = (
            WarmRule(on="commit", datasets=("pick*",), columns=("action",)),
            WarmRule(on="tag", datasets=("pick",)),
        )
        log.say(CachePolicySet(warm=rules, by="mia"))
        (first,) = works(log.say(committed(), source=Part.INGEST), PLAN)
        (second,) = works(log.say(tagged(), source=Part.INGEST), PLAN)
        assert first.payload["input"]["columns"] == ["action"]
        assert "columns" not in second.payload["input"] or not second.payload["input"]["columns"]
        assert works(log.say(tagged(tag="golden"), source=Part.INGEST), PLAN) == []
        assert works(log.say(committed(dataset="other"), source=Part.INGEST), PLAN) == []
        log.say(committed(2), source=Part.INGEST)
        (moved,) = works(log.say(tagged(2), source=Part.INGEST), PLAN)
        assert moved.payload["input"]["number"] == 2
        assert len(log.state.find(Wish, "standing", PROJECT)) == 4

    def test_a_policy_that_does_not_fit_is_refused(self) -> None:
        """Every problem by name, and nothing is set."""
        log = Log()
        for wrong in ({"ttl": 3}, {"ttl_days": -1}, {"warm": [{"on": "full moon"}]}, None):
            with pytest.raises(Refused, match="policy does not fit"):
                order(log, "policy-set", policy=wrong)
        assert order(log, "policy-set", policy={"ttl_days": 14}).result["policy"]["ttl_days"] == 14


class TestUse:
    def unused(self, log: Log) -> Deadline:
        """A ready plan whose job has ended; returns the alarm for its expiry."""
        want(log, "one-1", A)
        log.add(ready(A))
        (alarm,) = [one for one in log.say(released("one-1"), source=Part.INGEST) if isinstance(one, Deadline)]
        assert alarm.condition == EXPIRE
        return alarm

    def passed(self, alarm: Deadline) -> DeadlinePassed:
        return DeadlinePassed(part="cache", entity=alarm.entity, condition=alarm.condition, deadline=alarm.at)

    def test_what_nobody_uses_expires_and_can_come_back(self) -> None:
        """Eight days after its last use; a job that wants it then claims room anew and finds the bytes."""
        log = Log()
        alarm = self.unused(log)
        assert alarm.at - NOON == timedelta(days=8, hours=1)
        assert log.say(self.passed(alarm), at=alarm.at) == []
        said = log.said[-1]
        assert isinstance(said, CacheExpired)
        assert (said.ttl_days, state(log, A)) == (8, "expired")
        assert works(want(log, "two-1", A), WARM)
        assert state(log, A) == "reserved"

    def test_use_puts_it_off(self) -> None:
        """A day of use is a new beginning; while a job leases it no alarm matters."""
        log = Log()
        alarm = self.unused(log)
        day = (NOON + timedelta(days=5)).date()
        used = DatasetAccessed(job="other-1", kind="dataset", name="pick", number=1, day=day)
        log.say(used, source=Part.AGENT, at=NOON + timedelta(days=5))
        (later,) = log.say(self.passed(alarm), at=alarm.at)
        assert isinstance(later, Deadline)
        assert later.at - NOON == timedelta(days=13)
        assert state(log, A) == "ready"
        want(log, "two-1", A)
        assert log.say(self.passed(later), at=later.at) == []
        assert state(log, A) == "ready"

    def test_the_policy_says_how_long(self) -> None:
        """A project's own choice holds."""
        log = Log()
        log.say(CachePolicySet(ttl_days=2, by="mia"))
        assert self.unused(log).at - NOON == timedelta(days=2, hours=1)

    def test_uses_are_counted_by_the_age_of_the_data(self) -> None:
        """Days since the version was committed; each job once a day; the histogram is shown with what follows."""
        log = Log()
        log.say(committed(), source=Part.INGEST)
        for age, jobs in ((0, 18), (3, 6), (30, 1)):
            for number in range(jobs):
                day = date.fromordinal(NOON.date().toordinal() + age)
                body = DatasetAccessed(job=f"job-{number}", kind="dataset", name="pick", number=1, day=day)
                log.say(body, source=Part.AGENT)
        found = log.state.get(Histogram, PROJECT)
        usage = log.state.get(Usage, f"{PROJECT}/dataset/pick@v1")
        assert found is not None
        assert usage is not None
        assert found.ages == {"0": 18, "3": 6, "30": 1}
        assert sum(usage.days.values()) == 25
        request = Request(id="q", project=PROJECT, by="mia", args={}, now=NOON)
        assert policy_question(log.state, request)["ttl_days"] == 3

    def test_a_version_that_is_cleaned_up_takes_its_blocks_along(self) -> None:
        """Nobody can read it any more, so it only takes room; open requests for it end."""
        log = Log()
        self.unused(log)
        log.say(WarmRequested(request="warm-1", input=pinned(columns=("x",)), by="mia", reason="asked"))
        log.say(planned("warm-1", B_, wish=True))
        gone = DatasetVersionRemoved(dataset="pick", number=1, by="mia", reason="superseded")
        (evict,) = works(log.say(gone, source=Part.INGEST), EVICT)
        assert evict.payload["victims"] == [place(PROJECT, A), place(PROJECT, B_)]
        found = log.state.get(Wish, place(PROJECT, "warm-1"))
        assert found is not None
        assert found.state == "failed"
        assert "pick@v1 was cleaned up: superseded" in (found.message or "")

    def test_the_reason_is_told_for_every_state(self) -> None:
        """`why` answers in sentences for each state that a plan can be in."""
        log = Log(budget=1000)
        want(log, "one-1", A)
        log.say(partial(A))
        assert "40 %" in ask(log, "why", plan=A)["sentences"]
        log.say(ready(A))
        assert "leased by one-1: it is not evicted" in ask(log, "why", plan=A)["sentences"]
        log.say(released("one-1"), source=Part.INGEST)
        assert "the default of 8 days, since only 0 uses are on record" in ask(log, "why", plan=A)["sentences"][-1]
