"""Running a failed or cancelled job again: from its checkpoints, and never silently from step 0."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import datasets, jobs, models
from forebay.runtime.errors import Refused

from .world import World, make_ready, pinned, spec, upload

CRASH: dict[str, Any] = {"exit_code": 1, "reason": "ProcessFailed", "message": "exit code 1"}


@pytest.fixture
def world() -> World:
    made = World()
    made.say(upload(), Part.COLLECTOR)
    return made


def saved(world: World, job: str, step: int, status: str = "complete") -> None:
    body = models.CheckpointVerified.model_validate(
        {"checkpoint": f"ck-{job}-{step}", "job": job, "attempt": 1, "step": step, "status": status}
    )
    world.say(body, Part.REGISTRY)


def failed(world: World, *steps: int, **fields: Any) -> str:
    """A job that has failed and left these checkpoints."""
    job = world.submit(restart={"max_attempts": 1}, datasets=[{"name": "pick-place"}], **fields)
    make_ready(world, job)
    world.run_attempt(job)
    for step in steps:
        saved(world, job, step)
    world.end_attempt(job, **CRASH)
    assert world.job(job).state == "FAILED"
    return job


def submit_again(world: World, **args: Any) -> dict[str, Any]:
    again = spec(restart={"max_attempts": 1}, datasets=[{"name": "pick-place"}])
    return world.command("submit", spec=again, **args)


def test_the_same_file_again_never_starts_at_zero_silently(world: World) -> None:
    """Checkpoints that the failed run left are named, with the three ways to go on; nothing is submitted."""
    failed(world, 500, 1000)
    with pytest.raises(Refused) as refused:
        submit_again(world)
    assert refused.value.code == "has-checkpoints"
    assert "pick-1 has failed and left 2 checkpoints, the furthest at step 1000" in refused.value.message
    for words in ("forebay retry pick-1", "start_from: pick-1", "--fresh"):
        assert words in refused.value.next_action
    assert len(world.said(jobs.JobSubmitted)) == 1


def test_fresh_starts_at_zero_and_says_so(world: World) -> None:
    """A person who asks for it gets a new run; what is left behind is named."""
    failed(world, 500)
    answer = submit_again(world, fresh=True)
    assert (answer["job"], world.job("pick-2").request.restart.start_from) == ("pick-2", None)
    assert (
        answer["starts"]
        == "it starts at step 0, as asked with --fresh; pick-1 left 1 checkpoint, the furthest at step 500"
    )


def test_a_run_without_checkpoints_is_simply_run_again(world: World) -> None:
    """Nothing would be lost, so nothing is asked, and the answer says where training starts."""
    failed(world)
    assert submit_again(world)["starts"] == "it starts at step 0: pick-1 was failed and left no checkpoint"


def test_a_retry_is_the_same_request_from_its_checkpoints(world: World) -> None:
    """Another run of its own, pinned to the versions of the first one, whatever the tag names now."""
    job = failed(world, 500)
    world.say(datasets.DatasetTagged(dataset="pick-place", tag="train-ready", number=2, previous=1, by="bea"))
    answer = world.command("retry", job=job)
    assert (answer["job"], answer["continues"]) == ("pick-2", "pick-1")
    assert answer["starts"] == "it continues pick-1, which left 1 checkpoint, the furthest at step 500"
    request = world.job("pick-2").request
    assert (request.restart.start_from, request.datasets[0].version) == ("pick-1", 1)
    assert request.datasets[0].name == "pick-place", "the command opens its data by the name that it was given"
    assert world.command("retry", job=job)["adopted"], "asked twice, it is the same run"
    assert submit_again(world)["adopted"], "its file, submitted again, is the run that is under way"


def test_checkpoints_are_inherited_through_several_retries(world: World) -> None:
    """A retry that fails before its first save still leaves what the run before it left."""
    failed(world, 500)
    world.command("retry", job="pick-1")
    make_ready(world, "pick-2")
    world.run_attempt("pick-2")
    world.end_attempt("pick-2", **CRASH)
    with pytest.raises(Refused, match="left 1 checkpoint, the furthest at step 500"):
        submit_again(world)
    answer = world.command("retry", job="pick")
    assert (answer["job"], answer["continues"]) == ("pick-3", "pick-1"), "the run that has checkpoints is mounted"


def test_a_cancelled_job_is_continued_like_a_failed_one(world: World) -> None:
    """What a person stopped has checkpoints, too."""
    job = world.submit()
    world.run_attempt(job)
    saved(world, job, 40)
    saved(world, job, 50, status="corrupt")
    world.command("cancel", job=job)
    assert "forebay retry pick-1" in world.ask("why", job=job)["sentence"]
    with pytest.raises(Refused, match="was cancelled and left 1 checkpoint, the furthest at step 40"):
        world.submit()
    assert world.command("retry", job=job)["job"] == "pick-2"


@pytest.mark.parametrize(("state", "code"), [("RUNNING", "still-alive"), ("SUCCEEDED", "already-succeeded")])
def test_what_cannot_be_retried_says_why(world: World, state: str, code: str) -> None:
    """A job that runs, and one that has succeeded."""
    job = world.submit()
    world.run_attempt(job)
    if state == "SUCCEEDED":
        world.end_attempt(job)
    with pytest.raises(Refused) as refused:
        world.command("retry", job=job)
    assert refused.value.code == code


def test_a_file_may_name_the_job_that_it_continues(world: World) -> None:
    """`start_from: JOB` takes an id or a name, and a name that no job has is refused."""
    failed(world, 500)
    job = world.submit("other", restart={"start_from": "pick"})
    assert world.job(job).request.restart.start_from == "pick-1"
    with pytest.raises(Refused, match="no job 'pikc'; did you mean pick"):
        world.submit("third", restart={"start_from": "pikc"})


@pytest.mark.parametrize("reason", ["Stopped", "Preempted", "NodeLost", "Evicted", "EvictedDrain"])
def test_being_stopped_costs_no_attempt(world: World, reason: str) -> None:
    """Ends from outside are no failures: the job keeps all the attempts that it asked for."""
    job = world.submit(restart={"max_attempts": 1})
    for attempt in (1, 2, 3):
        world.run_attempt(job, attempt)
        world.end_attempt(job, attempt, exit_code=0 if reason == "Stopped" else None, reason=reason, message="by down")
        assert world.job(job).state != "FAILED"
        assert world.job(job).state != "SUCCEEDED", "a command that was told to stop has not finished"
    assert "costs no attempt" in world.ask("why", job=job)["sentence"]
    world.run_attempt(job, 4)
    world.end_attempt(job, 4, **CRASH)
    assert world.job(job).state == "FAILED"


def test_data_that_is_not_mounted_is_given_time(world: World) -> None:
    """The attempt costs nothing, and the next one does not start at once."""
    job = world.submit(restart={"max_attempts": 1})
    ending = {"exit_code": None, "reason": "DataNotMounted", "message": "nothing is mounted", "ran": False}
    pauses = []
    for attempt in (1, 2, 3):
        world.end_attempt(job, attempt, **ending)
        not_before = world.work[-1].not_before
        assert not_before is not None
        pauses.append((not_before - world.now).total_seconds())
    assert pauses == sorted(pauses)
    assert pauses[0] > 10
    assert "mount the volume" in world.ask("why", job=job)["sentence"]


def test_one_letter_off_is_asked_about(world: World) -> None:
    """A tag that the dataset never had is refused with the one that was meant; known ones and those to come are taken."""
    world.say(datasets.DatasetTagged(dataset="pick-place", tag="golden", number=1, by="bea"))
    for written, meant in (("train-raedy", "train-ready"), ("goldn", "golden")):
        with pytest.raises(Refused, match=f"did you mean {meant}") as refused:
            world.submit(datasets=[{"name": f"pick-place@{written}"}])
        assert refused.value.code == "unknown-tag"
    world.submit("a", datasets=[{"name": "pick-place@golden"}])
    world.submit("b", datasets=[{"name": "pick-place@v7"}])
    world.command("submit", spec=spec("c", datasets=[{"name": "pick-place@silver"}]), wait_for_dataset=True)
    assert {body.job for body in world.said(jobs.JobSubmitted)} == {"a-1", "b-1", "c-1"}


def test_a_lease_keeps_the_pinned_version(world: World) -> None:
    """The request of a retry names the version for ingest, and the name for the command."""
    job = failed(world, 500)
    world.command("retry", job=job)
    world.say(datasets.LeaseGranted(job="pick-2", inputs=(pinned(number=1),)))
    assert [item.label for item in world.job("pick-2").lease.inputs] == ["pick-place@v1"]
