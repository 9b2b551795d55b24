"""The story of a job through the bridge, event by event."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import cache, datasets, episodes, jobs, models

from .world import GB, World, granted, make_ready, pinned, planned, ready, spec, upload


@pytest.fixture
def world() -> World:
    world = World()
    world.say(upload(), Part.COLLECTOR)
    return world


def conditions(world: World, job: str) -> dict[str, tuple[str, str]]:
    return {item["type"]: (item["status"], item["reason"]) for item in world.ask("why", job=job)["conditions"]}


class TestGate:
    def test_a_job_without_inputs_goes_straight_to_quota(self) -> None:
        """Conditions without anything to wait for are True with NothingNeeded, and the gate opens at once."""
        world = World()
        job = world.submit()
        opened = world.said(jobs.JobGateOpened, job)
        assert len(opened) == 1
        assert {item.reason.value for item in opened[0].conditions} == {"NothingNeeded", "Fits"}
        assert [body.attempt for body in world.said(jobs.WorkloadAdmitted, job)] == [1]
        assert not world.said(jobs.JobGated, job)

    def test_each_step_of_readiness_is_announced_once_and_named(self, world: World) -> None:
        """Not answered, refused, planning, warming, warm: each change of the answer is one JobGated."""
        job = world.submit(datasets=[{"name": "pick-place"}])
        assert world.job(job).queued_for == "not-evaluated-yet"
        world.say(
            datasets.LeaseRefused.model_validate(
                {
                    "job": job,
                    "input": "pick-place@train-ready",
                    "reason": "DatasetNotReady",
                    "message": "3 of 12 episodes are checked",
                }
            )
        )
        assert world.job(job).queued_for == "data"
        assert conditions(world, job)["DatasetResolved"] == ("False", "DatasetNotReady")
        world.say(granted(job))
        assert conditions(world, job)["CacheWarm"] == ("Unknown", "Planning")
        world.say(planned(job), Part.CACHE)
        assert conditions(world, job)["CacheWarm"] == ("False", "Warming")
        world.say(ready(), Part.CACHE)
        reasons = [[item.reason.value for item in body.conditions] for body in world.said(jobs.JobGated, job)]
        assert [len(reasons), len(world.said(jobs.JobGateOpened, job))] == [4, 1]
        assert len({tuple(one) for one in reasons}) == 4
        assert [body.generation for body in world.said(jobs.JobGated, job)] == [1, 2, 3, 4]

    def test_progress_is_told_with_numbers_without_a_new_event(self, world: World) -> None:
        """A cache that is 41 % warm says so in `why`; the same reason again is no new announcement."""
        job = world.submit(datasets=[{"name": "pick-place"}])
        world.say(granted(job))
        world.say(planned(job), Part.CACHE)
        gated = len(world.said(jobs.JobGated, job))
        for verified in (100_000_000, 492_000_000):
            world.say(
                cache.CachePartial.model_validate(
                    {
                        "plan": "plan-1",
                        "name": "pick-place",
                        "number": 1,
                        "verified_bytes": verified,
                        "planned_bytes": 1_200_000_000,
                        "reason": "Warming",
                        "message": "2 files to go",
                    }
                ),
                Part.CACHE,
            )
        assert len(world.said(jobs.JobGated, job)) == gated
        why = world.ask("why", job=job)
        assert "41 % of 1.2 GB is warm" in why["sentence"]
        assert why["verdict"]["layer"] == "data"
        assert why["verdict"]["evidence"]

    def test_two_inputs_need_two_plans(self, world: World) -> None:
        """The gate stays shut until the plan of every pinned input is ready, models included."""
        job = world.submit(datasets=[{"name": "pick-place"}], models=[{"name": "base@v1"}], wait_for_dataset=True)
        world.say(granted(job, pinned(), pinned("model:base@v1")))
        world.say(planned(job), Part.CACHE)
        world.say(ready(), Part.CACHE)
        assert conditions(world, job)["CacheWarm"] == ("Unknown", "Planning")
        world.say(planned(job, plan="plan-2", name="base"), Part.CACHE)
        assert conditions(world, job)["CacheWarm"] == ("False", "Warming")
        world.say(ready("plan-2"), Part.CACHE)
        assert world.said(jobs.JobGateOpened, job)

    def test_a_plan_that_is_ready_already_serves_the_next_job(self, world: World) -> None:
        """Equal plans join: the second job's gate opens as soon as its plan is named."""
        first = world.submit("one", datasets=[{"name": "pick-place"}])
        make_ready(world, first)
        second = world.submit("two", datasets=[{"name": "pick-place"}])
        world.say(granted(second))
        world.say(planned(second), Part.CACHE)
        assert world.job(second).gate == "open"

    def test_a_column_that_the_version_lacks_fails_the_job(self, world: World) -> None:
        """A pinned version never changes, so the job does not wait for ever: it ends with the reason."""
        job = world.submit(datasets=[{"name": "pick-place", "columns": ["colour"]}])
        world.say(granted(job))
        failed = {
            "plan": "none",
            "name": "pick-place",
            "number": 1,
            "reason": "ColumnUnknown",
            "message": "no column 'colour'",
            "job": job,
        }
        world.say(cache.CacheFailed.model_validate(failed), Part.CACHE)
        assert conditions(world, job)["CacheWarm"] == ("False", "ColumnUnknown")
        assert world.job(job).state == "FAILED"
        verdict = world.ask("why", job=job)["verdict"]
        assert (verdict["cause"], verdict["layer"]) == ("ColumnUnknown", "data")
        assert "no column 'colour'" in verdict["message"]
        assert "correct `columns`" in verdict["next_action"]

    def test_a_cache_that_cannot_plan_is_told(self, world: World) -> None:
        """CacheFailed that names the job, not a plan, shuts the gate with its reason; what can be repaired is waited for."""
        job = world.submit(datasets=[{"name": "pick-place"}])
        world.say(granted(job))
        failed = {
            "plan": "none",
            "name": "pick-place",
            "number": 1,
            "reason": "FormatUnsupported",
            "message": "table version 9",
            "job": job,
        }
        world.say(cache.CacheFailed.model_validate(failed), Part.CACHE)
        assert conditions(world, job)["CacheWarm"] == ("False", "FormatUnsupported")
        assert "table version 9" in world.ask("why", job=job)["sentence"]


class TestTakingBack:
    """What was true may stop being true: before opening, after opening, while running."""

    def untag(self, number: int = 1) -> datasets.DatasetUntagged:
        return datasets.DatasetUntagged(
            dataset="pick-place", tag="train-ready", number=number, by="bea", reason="bad lighting"
        )

    def waiting_for_quota(self, world: World) -> str:
        world.submit("big", resources={"cpu": 4, "memory_bytes": GB})
        job = world.submit(datasets=[{"name": "pick-place"}])
        make_ready(world, job)
        assert world.job(job).queued_for == "quota"
        return job

    def test_untag_before_opening_shuts_acceptance(self, world: World) -> None:
        """A pinned version that loses its tag is not accepted, and tagging it again accepts it."""
        job = world.submit(datasets=[{"name": "pick-place"}])
        world.say(granted(job))
        world.say(self.untag())
        assert conditions(world, job)["DatasetAccepted"] == ("False", "DatasetUntagged")
        world.say(datasets.DatasetTagged(dataset="pick-place", tag="train-ready", number=1, by="bea"))
        assert conditions(world, job)["DatasetAccepted"] == ("True", "DatasetAccepted")

    def test_moving_the_tag_on_is_no_untag(self, world: World) -> None:
        """A tag that moves to version 2 leaves jobs pinned to version 1 alone (case DV-02)."""
        job = self.waiting_for_quota(world)
        world.say(datasets.DatasetTagged(dataset="pick-place", tag="train-ready", number=2, previous=1, by="bea"))
        world.say(self.untag(number=2))
        assert world.job(job).gate == "open"

    def test_untag_after_opening_holds_a_job_that_has_no_quota(self, world: World) -> None:
        """Open, then untagged: held again under a new generation; tagged again: opened again; then it runs."""
        job = self.waiting_for_quota(world)
        world.say(self.untag())
        assert (world.job(job).gate, world.job(job).queued_for) == ("shut", "data")
        world.end_attempt("big-1")
        assert not world.said(jobs.WorkloadAdmitted, job), "quota must not go to a job that is held"
        world.say(datasets.DatasetTagged(dataset="pick-place", tag="train-ready", number=1, by="bea"))
        assert [body.generation for body in world.said(jobs.JobGateOpened, job)] == [4, 6]
        assert len(world.said(jobs.WorkloadAdmitted, job)) == 1

    def test_a_job_pinned_by_number_is_held_when_its_version_is_not_accepted_any_more(self, world: World) -> None:
        """`@v1` names no tag, but the version has lost train-ready; another tag on it does not matter."""
        job = world.submit(datasets=[{"name": "pick-place@v1"}])
        world.say(granted(job, pinned("dataset:pick-place@v1")))
        world.say(datasets.DatasetUntagged(dataset="pick-place", tag="demo", number=1, by="bea"))
        assert conditions(world, job)["DatasetAccepted"][0] == "True"
        world.say(self.untag())
        assert conditions(world, job)["DatasetAccepted"] == ("False", "DatasetUntagged")

    def test_lost_cache_holds_again_and_warm_again_opens(self, world: World) -> None:
        """CacheLost before admission closes the gate."""
        job = self.waiting_for_quota(world)
        lost = {"plan": "plan-1", "name": "pick-place", "number": 1, "reason": "CacheLost", "message": "disk failed"}
        world.say(cache.CacheLost.model_validate(lost), Part.CACHE)
        assert conditions(world, job)["CacheWarm"] == ("False", "CacheLost")
        assert world.job(job).gate == "shut"
        world.say(ready(), Part.CACHE)
        assert world.job(job).gate == "open"

    def test_withdrawal_by_a_refused_lease(self, world: World) -> None:
        """Ingest refuses the version after it was leased: not accepted any more."""
        job = self.waiting_for_quota(world)
        refused = {
            "job": job,
            "input": "dataset:pick-place@train-ready",
            "reason": "DatasetWithdrawn",
            "message": "episode 3 was withdrawn",
            "permanent": True,
        }
        world.say(datasets.LeaseRefused.model_validate(refused))
        assert conditions(world, job)["DatasetAccepted"] == ("False", "DatasetWithdrawn")
        assert conditions(world, job)["DatasetResolved"][0] == "True"
        assert world.job(job).gate == "shut"

    def test_a_running_job_is_flagged_only(self, world: World) -> None:
        """Untagged while running: the job goes on, its verdict says so, no gate event."""
        job = world.submit(datasets=[{"name": "pick-place"}])
        make_ready(world, job)
        world.run_attempt(job)
        gates = len(world.said(jobs.JobGated, job))
        world.say(self.untag())
        assert world.job(job).state == "RUNNING"
        assert len(world.said(jobs.JobGated, job)) == gates
        assert "DatasetAccepted no longer holds" in world.said(jobs.VerdictChanged, job)[-1].verdict.message


class TestAttempts:
    def test_running_needs_preflight_and_process(self) -> None:
        """Quota alone is QUEUED for preflight; only checks passed and a started command make RUNNING."""
        world = World()
        job = world.submit()
        assert (world.job(job).state, world.job(job).queued_for) == ("QUEUED", "preflight")
        started = jobs.AttemptStarted(job=job, attempt=1, host="bench", process="7@1")
        world.say(started, Part.BRIDGE)
        assert world.job(job).state == "QUEUED"
        world.say(jobs.PreflightReported(job=job, attempt=1, checks=(), seconds=0), Part.AGENT)
        assert world.job(job).state == "RUNNING"

    def test_a_killed_attempt_is_followed_by_another_with_the_same_quota(self) -> None:
        """Killed: attempt 2 on the same GPUs, still RUNNING (recovering), process recovery on record."""
        world = World()
        job = world.submit(resources={"gpus": 1})
        world.run_attempt(job)
        world.end_attempt(job, exit_code=None, signal=9, reason="ProcessKilled", message="SIGKILL from outside")
        admitted = world.said(jobs.WorkloadAdmitted, job)
        assert [(body.attempt, body.devices) for body in admitted] == [(1, ("0",)), (2, ("0",))]
        assert world.job(job).state == "RUNNING"
        assert world.ask("why", job=job)["recovering"] is True
        world.say(
            models.ResumeDecided.model_validate(
                {"job": job, "attempt": 2, "mode": "resume", "checkpoint": "ck-1", "step": 200, "reasons": ["newest"]}
            ),
            Part.REGISTRY,
        )
        world.run_attempt(job, 2)
        attempt = world.ask("why", job=job)["attempts"][1]
        assert attempt["process"]["recovers"] == 1
        assert (attempt["training"]["mode"], attempt["training"]["step"]) == ("resume", 200)
        world.end_attempt(job, 2)
        assert world.said(jobs.JobSucceeded, job) == [jobs.JobSucceeded(job=job, attempt=2, attempts=2)]

    @pytest.mark.parametrize("reason", ["PreflightFailed", "ResumeRefused", "StartFailed"])
    def test_what_trying_again_cannot_mend_fails_at_once(self, reason: str) -> None:
        """A refused start uses up no attempts."""
        world = World()
        job = world.submit(restart={"max_attempts": 3})
        world.end_attempt(job, exit_code=None, reason=reason, message="output is read-only", ran=False)
        failed = world.said(jobs.JobFailed, job)
        assert [(body.reason.value, body.message) for body in failed] == [(reason, "output is read-only")]
        assert world.job(job).state == "FAILED"
        assert len(world.said(jobs.WorkloadAdmitted, job)) == 1

    def test_attempts_run_out_with_the_last_cause(self) -> None:
        """Two attempts allowed, both fail: AttemptsExhausted, and the message has the last cause."""
        world = World()
        job = world.submit(restart={"max_attempts": 2})
        for number in (1, 2):
            world.run_attempt(job, number)
            world.end_attempt(job, number, exit_code=1, reason="ProcessFailed", message=f"bad luck {number}")
        failed = world.said(jobs.JobFailed, job)[0]
        assert failed.reason.value == "AttemptsExhausted"
        assert "bad luck 2" in failed.message
        assert failed.attempts == 2

    def test_failed_preflight_lists_every_check(self) -> None:
        """PreflightFailed carries all failed checks; the job's end names them."""
        world = World()
        job = world.submit()
        checks = [
            {"name": "output", "status": "fail", "reason": "OutputFull", "message": "no room"},
            {"name": "data", "status": "fail", "reason": "DataUnreadable", "message": "gone"},
            {"name": "bus", "status": "warn", "reason": "StatusUnreachable", "message": "late"},
        ]
        body = jobs.PreflightReported.model_validate({"job": job, "attempt": 1, "checks": checks, "seconds": 1})
        world.say(body, Part.AGENT)
        assert [check.name for check in world.said(jobs.PreflightFailed, job)[0].failed] == ["output", "data"]
        world.end_attempt(job, exit_code=None, reason="PreflightFailed", message="preflight", ran=False)
        assert world.said(jobs.JobFailed, job)[0].message == "output: no room; data: gone"

    def test_a_report_about_an_attempt_that_never_was_changes_nothing(self) -> None:
        """An agent cannot invent attempts."""
        world = World()
        job = world.submit("big", resources={"cpu": 4})
        waiting = world.submit("small")
        world.say(jobs.PreflightReported(job=waiting, attempt=7, checks=(), seconds=0), Part.AGENT)
        assert world.job(waiting).attempts == ()
        assert not world.said(jobs.PreflightPassed, waiting)
        assert world.job(job).attempts[0].number == 1


class TestCancel:
    def test_a_waiting_job_is_cancelled_and_those_behind_it_move_up(self) -> None:
        """The head of the queue reserves; once it is cancelled, the next one starts."""
        world = World()
        world.submit("first", resources={"cpu": 3})
        head = world.submit("head", resources={"cpu": 4})
        behind = world.submit("behind", resources={"cpu": 1})
        assert world.job(behind).waiting is not None
        assert world.command("cancel", job=head) == {"job": head, "state": "CANCELLED", "already": False}
        assert world.job(head).state == "CANCELLED"
        assert len(world.said(jobs.WorkloadAdmitted, behind)) == 1

    def test_quota_is_free_only_when_the_process_is_gone(self) -> None:
        """Cancelled while running: the state is final at once, the quota is held until AttemptEnded."""
        world = World()
        first = world.submit("first", resources={"cpu": 4})
        second = world.submit("second")
        world.run_attempt(first)
        world.command("cancel", job="first", reason="typo")
        assert world.job(first).state == "CANCELLED"
        assert not world.said(jobs.WorkloadAdmitted, second)
        assert "is being stopped" in world.ask("why", job=first)["sentence"]
        world.end_attempt(first, exit_code=None, signal=15, reason="Cancelled", message="cancelled")
        assert world.said(jobs.WorkloadAdmitted, second)
        assert world.job(first).state == "CANCELLED"
        assert not world.said(jobs.JobFailed, first)
        assert len(world.said(jobs.WorkloadAdmitted, first)) == 1

    def test_cancel_again_is_the_same_answer(self) -> None:
        """Cancelling twice changes nothing and says so."""
        world = World()
        job = world.submit()
        world.command("cancel", job=job)
        assert world.command("cancel", job=job)["already"] is True
        assert len(world.said(jobs.JobCancelled, job)) == 1


def test_why_says_where_the_time_went(world: World) -> None:
    """Waiting is split by layer, and the spans add up to the time until the job ran."""
    job = world.submit(datasets=[{"name": "pick-place"}])
    world.tick(10)
    world.say(
        datasets.LeaseRefused.model_validate(
            {"job": job, "input": "pick-place", "reason": "DatasetNotReady", "message": "checking"}
        )
    )
    world.tick(60)
    make_ready(world, job)
    world.tick(5)
    world.run_attempt(job)
    ran_at = world.now
    world.tick(1000)
    split: dict[str, Any] = world.ask("why", job=job)["waited_seconds"]
    assert split["data"] > 60
    assert split["not-evaluated-yet"] >= 10
    assert split["preflight"] >= 5
    total = sum(split.values())
    assert total == pytest.approx((ran_at - world.job(job).submitted_at).total_seconds(), abs=0.1)


def test_verdict_changes_only_with_the_cause(world: World) -> None:
    """The same cause with other numbers is not a new verdict."""
    job = world.submit(datasets=[{"name": "pick-place"}])
    for checked in range(5):
        world.say(
            datasets.LeaseRefused.model_validate(
                {
                    "job": job,
                    "input": "pick-place",
                    "reason": "DatasetNotReady",
                    "message": f"{checked} of 12 episodes are checked",
                }
            )
        )
    causes = [body.verdict.cause.value for body in world.said(jobs.VerdictChanged, job)]
    assert causes == ["NotEvaluatedYet", "DatasetNotReady"]
    assert "4 of 12" in world.ask("why", job=job)["sentence"]


def test_lists_are_paged(world: World) -> None:
    """`jobs` gives pages of one project, each job once."""
    for index in range(5):
        world.submit(f"job-{index}")
    first = world.ask("jobs", limit=3)
    second = world.ask("jobs", limit=3, after=first["next"])
    assert [line["job"] for line in first["jobs"] + second["jobs"]] == [f"job-{index}-1" for index in range(5)]
    assert second["next"] is None


def test_projects_do_not_see_each_other(world: World) -> None:
    """The same job id in two projects is two jobs."""
    first = world.submit()
    world.project = "other-lab"
    second = world.submit()
    assert first == second
    assert len(world.ask("jobs")["jobs"]) == 1
    assert len(world.said(jobs.WorkloadAdmitted)) == 2


def test_upload_makes_a_name_known() -> None:
    """A dataset whose upload has begun may be named in a job."""
    world = World()
    body: episodes.UploadStarted = upload("new-set")
    world.say(body, Part.COLLECTOR)
    assert world.command("submit", spec=spec(datasets=[{"name": "new-set@train-ready"}]))["adopted"] is False
