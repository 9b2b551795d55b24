"""The job file: amounts in words, every field with a helpful problem, a schema that says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from forebay.contracts.job_file import job_file_schema
from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain.local_limits import local_refusals
from forebay.scheduler_bridge.domain.specification import parse_spec, placed_words, spec_digest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[3]
MINIMAL = {"name": "pick", "command": ["python", "train.py"]}


def problems(**fields: Any) -> dict[str, str]:
    found = parse_spec({**MINIMAL, **fields}, project="arm-lab")
    assert not isinstance(found, JobSpec), found
    return {item.field: item.message for item in found}


def spec(**fields: Any) -> JobSpec:
    found = parse_spec({**MINIMAL, **fields}, project="arm-lab")
    assert isinstance(found, JobSpec), found
    return found


def test_amounts_may_be_written_in_words() -> None:
    """`memory: 4Gi` and `memory_bytes: 4294967296` are the same job."""
    words = {"cpu": "500m", "memory": "4Gi", "shm": "1Gi", "ephemeral_storage": "50G", "gpus": 2}
    numbers = {
        "cpu": 0.5, "memory_bytes": 4 << 30, "shm_bytes": 1 << 30, "ephemeral_storage_bytes": 50 * 10**9, "gpus": 2,
    }  # fmt: skip
    assert spec_digest(spec(resources=words)) == spec_digest(spec(resources=numbers))


def test_all_problems_are_told_at_once() -> None:
    """Each with its field, what was found and what to write."""
    found = problems(
        resources={"memory": "4GB", "memory_bytes": 5, "cpu": "two", "gpus": -1},
        loader={"workers": 8, "sample_bytes": "big"},
        nodes=0,
        queue="Team A",
    )
    assert "write 'GB' as 'G'" in found["resources.memory"]
    assert "write for example 2, 1.5 or 500m" in found["resources.cpu"]
    assert "greater than or equal to 0" in found["resources.gpus"]
    assert "is no amount" in found["loader.sample_bytes"]
    assert "write {workers: 8" in found["loader.batch_size"]
    assert "greater than or equal to 1" in found["nodes"]
    assert "lower-case" in found["queue"]
    assert "keep one of them" in problems(resources={"memory": "4Gi", "memory_bytes": 5})["resources.memory"]


def test_a_misspelt_section_is_named() -> None:
    """Also inside of the newer sections."""
    assert "did you mean 'folder'" in problems(checkpoints={"foldr": "/x"})["checkpoints.foldr"]


def test_data_words_name_datasets_of_the_job() -> None:
    """`{data:NAME}` becomes the folder, by the name as written or its slug; other braces stay."""
    job = spec(
        datasets=[{"name": "lerobot/aloha_sim_x@v3"}, {"name": "dataset:pick-place"}],
        command=["train", "--root={data:pick-place}"],
        args=["--more={data:lerobot/aloha_sim_x}", "{data:lerobot-aloha-sim-x}", '{"a": {}}'],
    )
    assert placed_words(job, lambda name: f"/d/{name}") == (
        "train", "--root=/d/pick-place", "--more=/d/lerobot-aloha-sim-x", "/d/lerobot-aloha-sim-x", '{"a": {}}',
    )  # fmt: skip
    found = problems(datasets=[{"name": "pick-place"}], command=["train", "{data:pick-plce}"])
    assert found["command"] == "{data:pick-plce} names no dataset of this job; did you mean {data:pick-place}?"


def test_the_digest_of_an_older_job_stays_what_it_was() -> None:
    """Fields that came later are no part of it while they are unset: a job that lives is still recognised."""
    assert (
        spec_digest(spec(resources={"cpu": 1, "memory_bytes": 1024}))
        == "78b21f4e6509fc70df6bcce5e2839ba0b5979caaebaee21cd3dc7a7cb261604a"
    )


def test_this_machine_says_what_it_cannot_do() -> None:
    """One sentence per field; none for a job that needs no cluster."""
    job = spec(
        nodes=2, mounts="team(pvc):/work", pod={"tolerations": []}, priority_class="high", queue="gpu",
        resources={"gpu_type": "H200", "ephemeral_storage": "1Gi"}, checkpoints={"folder": "/x"},
    )  # fmt: skip
    assert {item.field for item in local_refusals(job)} == {
        "nodes", "mounts", "pod", "priority_class", "queue", "resources.gpu_type", "resources.ephemeral_storage",
        "checkpoints.folder",
    }  # fmt: skip
    assert list(local_refusals(spec(nodes=1, args=["--x"], image="lab@sha256:1"))) == []


class TestSchema:
    """What an editor is told is what is accepted."""

    VALIDATOR = Draft202012Validator(job_file_schema())

    def test_the_example_is_valid(self) -> None:
        """examples/reach.yaml, as it is."""
        data = yaml.safe_load((ROOT / "examples/reach.yaml").read_text(encoding="utf-8"))
        assert not list(self.VALIDATOR.iter_errors(data))

    def test_what_is_checked_in_is_what_is_printed(self) -> None:
        """contracts/schemas/JobFile.v1.json."""
        text = (ROOT / "contracts/schemas/JobFile.v1.json").read_text(encoding="utf-8")
        assert json.loads(text) == job_file_schema()

    @pytest.mark.parametrize(
        "fields",
        [
            {"resources": {"memory": "4Gi", "cpu": "500m", "shm": 1024}},
            {"mounts": "team(pvc):/work", "nodes": 4, "pod": {"tolerations": []}, "args": ["--x"]},
            {"loader": {"workers": 8, "batch_size": 32, "sample_bytes": "2Mi"}},
            {"resources": {"memory": "4GB"}},
            {"resources": {"mem": "4Gi"}},
            {"nodes": 0},
            {"command": "python"},
            {"dataset": []},
            {"loader": {"workers": 8}},
        ],
    )
    def test_schema_and_parser_agree(self, fields: dict[str, Any]) -> None:
        """A file that one takes the other takes."""
        data = {**MINIMAL, **fields}
        accepted = isinstance(parse_spec(data, project="arm-lab"), JobSpec)
        assert self.VALIDATOR.is_valid(data) == accepted
