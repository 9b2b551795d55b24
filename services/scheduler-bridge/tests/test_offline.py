"""`forebay submit --check|--render|--schema` and `forebay mounts`, through the command line, without any server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from forebay.cli.main import run

from .cluster_jobs import LEROBOT

ROOT = Path(__file__).parents[3]
PROJECT = {
    "project": "arm-lab",
    "namespace": "robot-train",
    "queues": ["team-a"],
    "data": {"pvc": "pool", "root": "file:///pool"},
    "outputs": {"pvc": "train-output"},
    "mounts": {"pvcs": ["team"]},
}


def job_file(folder: Path, **fields: object) -> str:
    values = {
        "name": "pick", "project": "arm-lab", "image": "trainer@sha256:1", "command": list(LEROBOT),
        "datasets": [{"name": "pick-place"}], "resources": {"shm": "512Mi"}, "mounts": "team(pvc):/work", **fields,
    }  # fmt: skip
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return str(path)


def project_path(folder: Path, **fields: object) -> str:
    path = folder / "project.yaml"
    path.write_text(yaml.safe_dump({**PROJECT, **fields}), encoding="utf-8")
    return str(path)


def test_a_sound_job_is_said_to_be_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0; with --json one object."""
    args = ["submit", "--check", job_file(tmp_path), "--project-file", project_path(tmp_path)]
    assert run(args) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert run([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "problems": [], "warnings": []}


def test_everything_wrong_is_told_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Field by field, the mounts with a caret."""
    bad = job_file(tmp_path, mounts="team(pvc):/work, x(ftp):/y", queue="team-z", pod={"hostPID": True})
    assert run(["submit", "--check", bad, "--project-file", project_path(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "mounts: character 20: unknown type 'ftp'" in err
    assert err.index("^^^") > err.index("x(ftp)")
    assert "queue: 'team-z' is not allowed" in err
    assert "pod.hostPID" in err


def test_rendering_prints_yaml_that_kubectl_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Objects on standard output only; what is remarked goes beside it."""
    assert run(["submit", "--render", job_file(tmp_path, nodes=2)]) == 0
    printed = capsys.readouterr()
    assert [item["kind"] for item in yaml.safe_load_all(printed.out)] == ["Job", "Service"]
    assert "&id" not in printed.out
    assert "without a project file" in printed.err


def test_a_job_for_this_machine_is_checked_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    """examples/reach.yaml passes, and cannot become a pod without an image."""
    example = str(ROOT / "examples/reach.yaml")
    assert run(["submit", "--check", example]) == 0
    assert run(["submit", "--render", example]) == 1
    assert "image: missing" in capsys.readouterr().err


def test_a_mistake_in_the_project_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By file and field; a file that is not there is wrong use."""
    bad = project_path(tmp_path, queue=["a"])
    assert run(["submit", "--check", job_file(tmp_path), "--project-file", bad]) == 1
    assert "project.yaml: queue: no such field" in capsys.readouterr().err
    assert run(["submit", "--check", job_file(tmp_path), "--project-file", str(tmp_path / "gone")]) == 2
    assert run(["submit", "--check"]) == 2


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the job file and of the project file."""
    assert run(["submit", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Forebay job file"
    assert run(["mounts", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Forebay project file"


def test_mounts_are_checked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is mounted where for whom, or the place of what is wrong."""
    text = "team(pvc):/work, 4G(memory):/dev/shm"
    assert run(["mounts", "check", text, "--user", "alice"]) == 0
    assert "/work/alice  pvc team, folder alice (read-write)" in capsys.readouterr().out
    assert run(["mounts", "check", text, "--project-file", project_path(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["target"] for item in found["mounts"]] == ["/work/someone", "/dev/shm"]
    assert run(["mounts", "check", "a(ftp):/x", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["start"] == 2
    assert run(["mounts", "check", "a(ftp):/x"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "      ^^^"
