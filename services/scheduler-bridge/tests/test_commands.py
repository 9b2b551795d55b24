"""Submit and cancel: what is refused, what is adopted, and what the refusal says."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1 import jobs
from forebay.runtime.errors import Refused
from forebay.scheduler_bridge.domain.amounts import Amount

from .world import GB, World, spec, upload


@pytest.fixture
def world() -> World:
    world = World(Amount(millicpus=2000, memory_bytes=4 * GB))
    world.say(upload("pick-place"), Part.COLLECTOR)
    world.say(upload("pick-places-v3"), Part.COLLECTOR)
    return world


def refused(world: World, command: str = "submit", **args: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        world.command(command, **args)
    return caught.value


BAD_FIELDS: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "Pick_7"}, "name", "lower-case"),
    ({"name": "v7"}, "name", "reserved"),
    ({"name": "x" * 60}, "name", "at most"),
    ({"command": []}, "command", "list of words"),
    ({"command": "python train.py"}, "command", "list of words"),
    ({"command": [" "]}, "command", "name a program"),
    ({"project": "other"}, "project", "not the project"),
    ({"resources": {"cpu": 0}}, "resources.cpu", "greater than 0"),
    ({"resources": {"cpus": 2}}, "resources.cpus", "did you mean 'cpu'"),
    ({"resources": {"memory_bytes": -1}}, "resources.memory_bytes", "greater than 0"),
    ({"resources": {"gpus": 1.5}}, "resources.gpus", "integer"),
    ({"dataset": []}, "dataset", "did you mean 'datasets'"),
    ({"datasets": [{"name": "pick place@"}]}, "datasets[0].name", "nothing stands after '@'"),
    ({"datasets": [{"name": "image:x"}]}, "datasets[0].name", "'dataset' or 'model'"),
    ({"datasets": [{"name": ""}]}, "datasets[0].name", "empty"),
    ({"datasets": [{"name": "model:base@v1"}]}, "datasets[0].name", "list it under models"),
    ({"datasets": [{"name": "pick-place@v0"}]}, "datasets[0].name", "versions start at v1"),
    ({"datasets": [{"name": "pick-place"}, {"name": "pick-place"}]}, "datasets[1].name", "listed twice"),
    ({"datasets": [{"name": "pick-place", "episodes": [5, 5]}]}, "datasets[0].episodes", "no episode"),
    ({"datasets": [{"nmae": "pick-place"}]}, "datasets[0].nmae", "did you mean 'name'"),
    ({"queue": "gpu"}, "queue", "no queue 'gpu'"),
    ({"restart": {"max_attempts": 0}}, "restart.max_attempts", "greater than or equal to 1"),
    ({"environment": {"HF_TOKEN": "hf_abc"}}, "environment.HF_TOKEN", "secrets are names, never values"),
    ({"environment": {"aws_secret_access_key": "x"}}, "environment.aws_secret_access_key", "never values"),
    ({"environment": {"DB_PASSWORD": "x"}}, "environment.DB_PASSWORD", "never values"),
    ({"command": ["python", "train.py", "--api-key=hunter2"]}, "command[2]", "secretKeyRef"),
    ({"command": ["python", "--token", "hunter2"]}, "command[2]", "the value of --token looks like a secret"),
    ({"args": ["https://ada:hunter2@host/x"]}, "args[0]", "never values"),
    ({"parameters": {"wandb.api_key": "hunter2"}}, "parameters.wandb.api_key", "never values"),
    ({"pod": {"env": [{"name": "TOKEN", "value": "hunter2"}]}}, "pod.env[0].value", "never values"),
    ({"environment": {"FOREBAY_JOB": "x"}}, "environment.FOREBAY_JOB", "set by Forebay"),
    ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "environment.CUDA_VISIBLE_DEVICES", "set by Forebay"),
    ({"environment": {"A=B": "x"}}, "environment.A=B", "not a variable name"),
    ({"environment": {"A": "x\x00"}}, "environment.A", "NUL"),
    ({"parameters": {"lr": 1, "LR": 2}}, "parameters.LR", "rename"),
    ({"parameters": {"lr": float("nan")}}, "parameters.lr", "finite"),
    ({"parameters": {"text": "x" * 40_000}}, "spec", "at most"),
    ({"working_directory": "train"}, "working_directory", "whole path"),
]


@pytest.mark.parametrize(("fields", "field", "words"), BAD_FIELDS, ids=[f"{row[1]} {row[2]}" for row in BAD_FIELDS])
def test_a_bad_field_is_named_with_what_to_write(world: World, fields: dict[str, Any], field: str, words: str) -> None:
    """One problem per field, in the owner's words, and no event."""
    no = refused(world, spec=spec(**fields) if "name" not in fields else {**spec(), **fields})
    assert no.code == "invalid-spec"
    found = [problem["message"] for problem in no.details["problems"] if problem["field"].startswith(field)]
    assert any(words in message for message in found), no.details
    assert not world.said(jobs.JobSubmitted)


def test_all_problems_come_at_once(world: World) -> None:
    """Three wrong fields are three problems."""
    no = refused(world, spec={"name": "A", "comand": ["x"], "resources": {"cpu": -1}})
    assert {problem["field"] for problem in no.details["problems"]} == {"name", "comand", "command", "resources.cpu"}


def test_a_secret_value_is_never_repeated(world: World) -> None:
    """The refusal must not print the secret it refuses."""
    hidden = (
        {"environment": {"API_TOKEN": "hf_verysecret", "X": 3}},
        {"command": "train.py --api-key=verysecret"},
        {"datasets": [{"name": "https://ada:verysecret@host/x"}]},
        {"resources": {"cpu": "password=verysecret"}},
        {"queue": "Bearer verysecret"},
        {"parameters": {"token=verysecret": "1"}},
        {"api_key=verysecret": 1},
    )
    for fields in hidden:
        no = refused(world, spec=spec(**fields))
        assert "verysecret" not in no.message + str(no.details)


def test_not_a_mapping(world: World) -> None:
    """A list instead of a job is refused like any other mistake."""
    assert refused(world, spec=["x"]).code == "invalid-spec"


def test_unknown_dataset_with_close_matches(world: World) -> None:
    """A typing error gets the names that come close; --wait-for-dataset accepts it and waits visibly."""
    no = refused(world, spec=spec(datasets=[{"name": "pick-plcae@train-ready"}]))
    assert no.code == "unknown-dataset"
    assert "did you mean pick-place" in no.message
    assert no.details["close"][0] == "pick-place"
    job = world.submit(datasets=[{"name": "pick-plcae"}], wait_for_dataset=True)
    assert world.job(job).state == "QUEUED"


def test_unknown_model(world: World) -> None:
    """Base weights are inputs like datasets."""
    assert refused(world, spec=spec(models=[{"name": "base@v1"}])).code == "unknown-model"


def test_a_name_that_is_no_id_is_known_by_its_slug(world: World) -> None:
    """`lerobot/aloha` and its slug are the same dataset."""
    world.say(upload("lerobot-aloha"), Part.COLLECTOR)
    assert world.submit(datasets=[{"name": "lerobot/aloha@train-ready"}]) == "pick-1"


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"cpu": 3}, "3 CPUs asked, 2 CPUs in all"),
        ({"memory_bytes": 8 * GB}, "8.0 GB memory asked, 4.0 GB memory in all"),
        ({"gpus": 1}, "1 GPU asked, 0 GPUs in all"),
        ({"cpu": 2.0001}, "2.001 CPUs asked"),
    ],
)
def test_larger_than_the_machine(world: World, resources: dict[str, Any], words: str) -> None:
    """What never fits is refused at once, with need and have."""
    no = refused(world, spec=spec(resources=resources))
    assert no.code == "never-fits"
    assert words in no.message
    assert no.details["reason"] == "NeverFits"
    assert no.details["lacking"][0]["need"] > no.details["lacking"][0]["have"]


class TestTheSameNameAgain:
    def test_same_content_while_it_lives_is_adopted(self, world: World) -> None:
        """Submitted twice, one job, and the second answer says so."""
        world.submit()
        again = world.command("submit", spec=spec())
        assert again == {"job": "pick-1", "run": 1, "adopted": True, "warnings": []}
        assert len(world.said(jobs.JobSubmitted)) == 1

    def test_also_while_the_first_is_still_on_its_way(self, world: World) -> None:
        """The first is decided but not in the log yet: adopted all the same."""
        world.submit(settle=False)
        assert world.command("submit", spec=spec(), settle=False)["adopted"] is True
        no = refused(world, spec=spec(priority=3), settle=False)
        assert no.code == "conflict"

    def test_other_content_while_it_lives_is_a_conflict(self, world: World) -> None:
        """The first is untouched, and the answer says how to go on."""
        world.submit()
        no = refused(world, spec=spec(command=["python", "other.py"]))
        assert (no.code, no.details["job"]) == ("conflict", "pick-1")
        assert "forebay cancel pick-1" in no.next_action

    def test_waiting_for_a_dataset_is_not_other_content(self, world: World) -> None:
        """The same job with --wait-for-dataset is the same job."""
        world.submit()
        assert world.command("submit", spec=spec(wait_for_dataset=True))["adopted"] is True

    def test_after_the_end_it_is_a_new_run(self, world: World) -> None:
        """The same name after the first has ended: run 2, same or other content."""
        job = world.submit()
        world.end_attempt(job)
        assert world.command("submit", spec=spec())["job"] == "pick-2"
        world.command("cancel", job="pick")
        assert world.job("pick-2").state == "CANCELLED"
        assert world.command("submit", spec=spec(priority=1))["job"] == "pick-3"

    def test_the_same_request_after_success_is_the_same_job(self, world: World) -> None:
        """A client that repeats its request, because the answer was lost, gets its job and no second run."""
        first = world.command("submit", spec=spec(), client="laptop-1")
        world.end_attempt("pick-1")
        again = world.command("submit", spec=spec(), client="laptop-1")
        assert (again["job"], again["adopted"]) == (first["job"], True)


def test_ids_and_names_find_a_job(world: World) -> None:
    """`pick` is its newest run, `pick-1` that run; a typing error gets what comes close."""
    job = world.submit()
    assert world.ask("why", job="pick")["job"] == world.ask("why", job="pick-1")["job"] == job
    with pytest.raises(Refused, match="did you mean"):
        world.ask("why", job="pikc-1")
    with pytest.raises(Refused, match="missing"):
        world.ask("why")


def test_cancel_refuses_what_has_ended(world: World) -> None:
    """A job that has succeeded stays so."""
    job = world.submit()
    world.end_attempt(job)
    assert refused(world, "cancel", job=job).code == "already-ended"
    assert refused(world, "cancel", job="nobody").code == "unknown-job"
    assert world.job(job).state == "SUCCEEDED"
