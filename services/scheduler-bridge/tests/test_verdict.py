"""Verdict rules, one by one: each situation has one cause, its numbers and a next step."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import cache, datasets, jobs
from forebay.scheduler_bridge.domain.amounts import Amount
from forebay.scheduler_bridge.domain.masking import mask
from forebay.scheduler_bridge.domain.verdict import judge
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES

from .world import GB, World, granted, make_ready, pinned, planned, upload


def verdict(world: World, job: str) -> dict[str, Any]:
    found: dict[str, Any] = world.ask("why", job=job)["verdict"]
    return found


def test_rules_have_distinct_names_and_one_always_answers() -> None:
    """Ids are unique, and the last rule never stays silent."""
    assert len({rule.id for rule in LOCAL_RULES}) == len(LOCAL_RULES)
    assert max(LOCAL_RULES, key=lambda rule: rule.rank).name == "not-evaluated"
    assert callable(judge)


def test_not_evaluated_is_a_verdict() -> None:
    """Nobody has answered yet: said, with what to look at."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(datasets=[{"name": "pick-place"}])
    found = verdict(world, job)
    assert (found["layer"], found["cause"], found["rule"]) == ("not-evaluated-yet", "NotEvaluatedYet", "gate-shut@1")
    assert "forebay status" in found["next_action"]


def test_data_is_named_before_quota() -> None:
    """A job whose data is not ready waits for data, however full the machine is."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    world.submit("full", resources={"cpu": 4})
    job = world.submit(datasets=[{"name": "pick-place"}])
    world.say(granted(job))
    world.say(planned(job), Part.CACHE)
    found = verdict(world, job)
    assert (found["layer"], found["cause"], found["where"]) == ("data", "Warming", "cache")
    assert "0 % of 1.2 GB" in found["message"]


def test_busy_is_not_never() -> None:
    """Quota used up: need, have, position and who holds it; `fits` does not say never."""
    world = World()
    world.submit("full", resources={"cpu": 3, "gpus": 1})
    job = world.submit(resources={"cpu": 2, "gpus": 2})
    found = verdict(world, job)
    assert (found["layer"], found["cause"], found["fits"]) == ("quota", "QuotaExceeded", "unknown")
    assert found["need"] == "2 CPUs, 2 GPUs"
    assert found["have"] == "1 of 4 cpu free, 1 of 2 gpu free"
    assert "held by full-1" in found["message"]
    assert "(position 1)" in found["message"]
    behind = verdict(world, world.submit("later"))
    assert behind["cause"] == "BehindOthers"


def test_a_machine_that_has_shrunk_says_never() -> None:
    """A job accepted by a larger machine is told that this one never fits it."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(datasets=[{"name": "pick-place"}], resources={"cpu": 4})
    small = World(Amount(millicpus=1000, memory_bytes=GB))
    for recorded in world.log:
        small.store(recorded.event)
    small.say(granted(job))
    found = verdict(small, job)
    assert (found["layer"], found["cause"], found["fits"]) == ("config", "NeverFits", "never")
    assert "4 CPUs asked, 1 CPU in all" in found["message"]
    assert small.job(job).queued_for == "config"


def test_each_stage_of_an_attempt_has_its_cause() -> None:
    """Checking, running, killed and recovering, then the end."""
    world = World()
    job = world.submit(restart={"max_attempts": 2})
    assert verdict(world, job)["cause"] == "PreflightRunning"
    world.run_attempt(job)
    assert (verdict(world, job)["cause"], verdict(world, job)["where"]) == ("Running", "bench")
    world.end_attempt(job, exit_code=None, signal=9, reason="ProcessKilled", message="SIGKILL from outside")
    recovering = verdict(world, job)
    assert (recovering["cause"], recovering["layer"]) == ("ProcessKilled", "preflight")
    assert "attempt 2 of 2 is being started; attempt 1 ended: SIGKILL from outside" in recovering["message"]
    world.run_attempt(job, 2)
    world.end_attempt(job, 2, exit_code=3, reason="ProcessFailed", message="exit code 3")
    ended = verdict(world, job)
    assert (ended["cause"], ended["layer"]) == ("AttemptsExhausted", "process")
    assert "forebay retry" in ended["next_action"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [("ResumeRefused", "allow_cold_start"), ("PreflightFailed", "fix"), ("StartFailed", "fix")],
)
def test_a_refused_start_says_what_to_do(reason: str, words: str) -> None:
    """The end names the layer preflight, and the action fits the cause."""
    world = World()
    job = world.submit()
    world.end_attempt(job, exit_code=None, reason=reason, message="because", ran=False)
    found = verdict(world, job)
    assert (found["cause"], found["layer"]) == (reason, "preflight")
    assert words in found["next_action"]


def test_ends() -> None:
    """Succeeded and cancelled say what to try next."""
    world = World()
    done = world.submit("done")
    world.run_attempt(done)
    world.end_attempt(done)
    gone = world.submit("gone")
    world.command("cancel", job=gone, reason="typo")
    assert "model register" in verdict(world, done)["next_action"]
    assert verdict(world, gone)["message"] == "cancelled by ada: typo"


def test_the_verdict_on_the_bus_is_the_one_that_why_gives() -> None:
    """After everything is folded, the last VerdictChanged has the cause of `why`."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(datasets=[{"name": "pick-place"}])
    make_ready(world, job)
    world.run_attempt(job)
    assert world.said(jobs.VerdictChanged, job)[-1].verdict.cause.value == verdict(world, job)["cause"]
    causes = [body.verdict.cause.value for body in world.said(jobs.VerdictChanged, job)]
    assert causes == ["NotEvaluatedYet", "Planning", "Warming", "PreflightRunning", "Running"]


def test_a_lease_that_comes_while_the_gate_is_opening_is_no_new_verdict() -> None:
    """Ingest grants an empty lease to a job without inputs: nothing is announced between two steps of its own."""
    world = World()
    job = world.submit(settle=False)
    world.store_own()
    world.say(datasets.LeaseGranted(job=job, inputs=()))
    causes = [body.verdict.cause.value for body in world.said(jobs.VerdictChanged, job)]
    assert causes == ["PreflightRunning"]


def test_the_newest_refusal_stands() -> None:
    """Ingest names one input at a time: when the first has come, only the second is told."""
    world = World()
    world.say(upload(), Part.COLLECTOR)
    job = world.submit(datasets=[{"name": "pick-place"}, {"name": "other"}], wait_for_dataset=True)
    for name, reason in (("pick-place", "DatasetNotReady"), ("other", "DatasetUnknown")):
        body = {"job": job, "input": name, "reason": reason, "message": f"about {name}"}
        world.say(datasets.LeaseRefused.model_validate(body))
    found = verdict(world, job)
    assert found["cause"] == "DatasetUnknown"
    assert "about pick-place" not in found["message"]


def test_every_input_that_cannot_be_planned_is_told() -> None:
    """Two inputs fail in planning: both are in the sentence; one that is planned later is not any more."""
    world = World()
    job = world.submit(datasets=[{"name": "one"}, {"name": "two"}], wait_for_dataset=True)
    world.say(granted(job, pinned("dataset:one@train-ready"), pinned("dataset:two@train-ready")))
    for name in ("one", "two"):
        failed = {"plan": "p", "name": name, "number": 1, "reason": "FormatUnsupported", "message": "?", "job": job}
        world.say(cache.CacheFailed.model_validate(failed), Part.CACHE)
    assert "one@v1: ?; two@v1: ?" in verdict(world, job)["message"]
    world.say(planned(job, name="two"), Part.CACHE)
    assert "two@v1" not in verdict(world, job)["message"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("s3 endpoint https://ada:hunter2@store/x", "hunter2"),
        ("redis://:hunter2@host:6379/0 is down", "hunter2"),
        ("GET https://b.s3/x?X-Amz-Signature=abcdef0123&a=1", "abcdef0123"),
        ("Authorization: Bearer eyJhbGciOi.abc.def", "eyJhbGciOi"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ('{"password": "hunter2", "user": "ada"}', "hunter2"),
        ("api_key: 'hunter2'", "hunter2"),
        ("using AKIAIOSFODNN7EXAMPLE now", "AKIAIOSFODNN7EXAMPLE"),
        ("login with hf_abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwx"),
        ("seed SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4", "SUAIBDPB"),
        ("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----", "MIIabc"),
    ],
)
def test_credentials_are_masked(text: str, secret: str) -> None:
    """No form of credential that we know survives, and masking again changes nothing."""
    masked = mask(text)
    assert secret not in masked
    assert mask(masked) == masked


def test_plain_text_is_left_alone() -> None:
    """What a person needs to read stays as it was printed."""
    text = "FileNotFoundError: /pool/datasets/arm-lab/pick-place/v1/meta/info.json at step 200, loss=0.031, tokens 512"
    assert mask(text) == text
