"""What is said at submit: what a cluster will not do, and what would lose work on it."""

from __future__ import annotations

from typing import Any

import pytest
from forebay.scheduler_bridge.domain.cluster_review import Review, review
from forebay.scheduler_bridge.domain.lerobot import lerobot_run

from .cluster_jobs import LEROBOT, job_spec, project_file


def reviewed(project: dict[str, Any] | None = None, **fields: Any) -> Review:
    return review(job_spec(**fields), user="alice", project=project_file(**(project or {})))


def test_a_sound_job_gets_neither_problem_nor_warning() -> None:
    """No false alarm, with LeRobot or without."""
    assert reviewed() == Review(problems=(), warnings=())
    assert reviewed(command=list(LEROBOT)) == Review(problems=(), warnings=())


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"image": None}, "image", "missing; write the container image"),
        ({"queue": "team-c"}, "queue", "did you mean"),
        ({"priority": 3}, "priority", "write `priority_class`"),
        ({"priority_class": "hihg"}, "priority_class", "did you mean 'high'"),
        ({"resources": {"gpus": 1, "gpu_type": "H100"}}, "resources.gpu_type", "allowed: H200"),
        ({"resources": {"gpu_type": "H200"}}, "resources.gpu_type", "no GPU is asked for"),
        ({"mounts": "x(ftp):/y"}, "mounts", "character 3: unknown type 'ftp'"),
        ({"mounts": "other(pvc):/y"}, "mounts", "not allowed for project arm-lab"),
        ({"mounts": "1G(memory):/dev/shm"}, "resources.shm", "keep one of them"),
        ({"pod": {"hostNetwork": True}}, "pod.hostNetwork", "does not allow it"),
        ({"checkpoints": {"folder": "out"}}, "checkpoints.folder", "must be absolute"),
        ({"command": ["lerobot-train", "--output_dir=/forebay/output"]}, "command", "refuses a folder that exists"),
        ({"command": [*LEROBOT, "--resume=true"]}, "command", "added by Forebay"),
        ({"command": list(LEROBOT), "checkpoints": {"folder": "/x"}}, "checkpoints.folder", "saves in"),
    ],
)
def test_what_the_cluster_will_not_do_is_refused(fields: dict[str, Any], field: str, said: str) -> None:
    """With the field and what to write."""
    (problem,) = reviewed(**fields).problems
    assert problem.field == field
    assert said in problem.message


def test_a_mounts_problem_shows_its_caret() -> None:
    """Below the place in the text."""
    (problem,) = reviewed(mounts="x(ftp):/y").problems
    assert problem.message.splitlines()[1:] == ["x(ftp):/y", "  ^^^"]


def test_without_queues_and_data_a_project_says_so() -> None:
    """A project without Kueue takes no queue; one without a pool takes no dataset."""
    found = reviewed({"queues": [], "data": None}, queue="team-a")
    assert {item.field for item in found.problems} == {"queue", "datasets"}


WARNINGS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("no output folder", {}, {"command": ["lerobot-train"]}, "no --output_dir is given"),
    ("own disk", {}, {"command": ["lerobot-train", "--output_dir=/tmp/o", "--save_freq=1000"]}, "container's own disk"),
    ("no claim", {"outputs": None}, {}, "declares no `outputs` claim"),
    ("memory is no disk", {}, {"mounts": "1G(memory):/m", "checkpoints": {"folder": "/m/ckpt"}}, "container's own disk"),
    ("default interval", {}, {"command": [*LEROBOT[:3]]}, "a save every 20,000 steps loses up to 1 h 23 min"),
    (
        "slow steps",
        {},
        {"command": list(LEROBOT), "checkpoints": {"seconds_per_step": 30}},
        "loses up to 8 h 20 min of work with a node; the project's limit is 1 h 0 min: write --save_freq=60",
    ),
    ("no save before the end", {}, {"command": [*LEROBOT, "--steps=500"]}, "none before the end at step 500"),
    ("no save at all", {}, {"command": [*LEROBOT, "--save_checkpoint=false"]}, "nothing is saved"),
    ("policy", {}, {"checkpoints": {"save_every_steps": 100_000, "seconds_per_step": 1}}, "checkpoints.save_every_steps"),
    (
        "loader",
        {},
        {"loader": {"workers": 8, "batch_size": 32, "sample_bytes": 1_843_200}, "resources": {}},
        "has 64Mi, and the loader needs 943718400 bytes",
    ),
    ("no shm volume", {}, {"command": list(LEROBOT), "resources": {}}, "no memory volume at /dev/shm"),
    ("shm is memory", {}, {"resources": {"memory": "1Gi", "shm": "1Gi"}}, "counts as the job's memory"),
]  # fmt: skip


@pytest.mark.parametrize(("project", "fields", "said"), [w[1:] for w in WARNINGS], ids=[w[0] for w in WARNINGS])
def test_what_would_lose_work_is_a_warning(project: dict[str, Any], fields: dict[str, Any], said: str) -> None:
    """Said with numbers; the job is taken all the same."""
    found = reviewed(project, **fields)
    assert found.problems == ()
    assert any(said in warning for warning in found.warnings), found.warnings


def test_a_claim_of_the_job_itself_is_a_safe_place() -> None:
    """Checkpoints on a mounted claim outlive the container; a read-only one does not count."""
    fields: dict[str, Any] = {"checkpoints": {"folder": "/work/ckpt"}}
    project = {"mounts": {"pvcs": ["team"]}}
    assert reviewed(project, mounts="team(pvc-share):/work", **fields).warnings == ()
    assert reviewed(project, mounts="team(pvc-share):/work:ro", **fields).warnings


def test_without_workers_the_loader_needs_no_shared_memory() -> None:
    """num_workers 0 passes with 64 MiB."""
    loader = {"workers": 0, "batch_size": 32, "sample_bytes": 1_843_200}
    assert reviewed(loader=loader, resources={}).warnings == ()


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["lerobot-train", "--a=1"], 1),
        (["/opt/venv/bin/lerobot-train", "--a=1"], 1),
        (["python", "-m", "lerobot.scripts.train", "--a=1"], 3),
        (["python", "-m", "lerobot.scripts.lerobot_train"], 3),
        (["python", "/src/lerobot/scripts/train.py", "--a"], 2),
        (["accelerate", "launch", "--num_processes=2", "/usr/bin/lerobot-train", "--a=1"], 4),
        (["python", "train.py", "--note=lerobot-train"], None),
        (["lerobot-eval"], None),
    ],
)
def test_lerobots_program_is_found_behind_any_launcher(words: list[str], kept: int | None) -> None:
    """The words up to it stay when training resumes."""
    run = lerobot_run(words)
    assert (run.resume_words if run else None) == kept


def test_lerobots_options_are_read_both_ways() -> None:
    """`--save_freq 500` and `--save_freq=500`; the last one counts, nonsense is the default."""
    run = lerobot_run(["lerobot-train", "--save_freq", "5_00", "--steps=1e3", "--batch_size=x", "--output_dir", "/o/"])
    assert run is not None
    assert (run.save_freq, run.steps, run.batch_size, run.checkpoints) == (500, 1000, 8, "/o/checkpoints")
