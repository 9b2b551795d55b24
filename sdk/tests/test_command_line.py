"""The command line with nothing running: quick help, honest exit codes, errors as words or as JSON."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer
from forebay.cli.catalogue import PROVIDERS, installed
from forebay.cli.jobs import read_job
from forebay.cli.main import run
from typer.main import get_group

from sdk.tests.builders import EXAMPLES, NOBODY


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home and a port where nobody answers."""
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOREBAY_NATS_URL", NOBODY)
    for name in ("FOREBAY_ATTEMPT_DIR", "FOREBAY_PROJECT", "FOREBAY_INPUTS"):
        monkeypatch.delenv(name, raising=False)


def test_help_comes_at_once_and_loads_nothing_heavy() -> None:
    """Neither Lance nor FastStream nor pyarrow nor the contracts are imported to list the commands."""
    code = (
        "import sys; from forebay.cli.main import run; rc = run(['--help']);"
        "heavy = {'lance', 'faststream', 'pyarrow', 'nats', 'pydantic'} & set(sys.modules);"
        "print(heavy, file=sys.stderr); sys.exit(rc or bool(heavy))"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "submit" in done.stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 4, "0.4 s of a processor; a busy machine makes it wait longer, but not work much longer"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_the_catalogue_names_what_providers_register(provider: object) -> None:
    """The static list of commands and what really is there are the same."""
    (one,) = [found for found in PROVIDERS if found is provider]
    app = typer.Typer()
    app.callback()(lambda: None)
    if one.module is not None:
        import_module(one.module).register(app)
    else:
        installed()[one.name].load()(app)
    assert set(get_group(app).commands) == set(one.commands)


@pytest.mark.parametrize(
    "command",
    [
        "upload", "dataset list", "dataset show", "dataset tag", "submit", "jobs", "job", "why", "cancel", "run",
        "model register", "model evaluate", "model release", "model policy", "model list", "model fetch", "delete", "checkpoint delete", "lineage", "impact", "audit", "diff", "history",
        "search", "resume-point", "checkpoint import", "watch", "dead list",
        "dead show", "dead retry", "rebuild",
    ],
)  # fmt: skip
def test_every_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A person sees how it is called."""
    assert run([*command.split(), "--help"]) == 0
    assert "Example" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["jobs"], 3), (["why", "reach"], 3), (["watch", "--for", "1"], 3), (["dead", "list"], 3), (["lineage", "x"], 3),
        (["rebuild", "registry"], 3), (["model", "register", "m", "--job", "j"], 3), (["submit", str(EXAMPLES / "reach.yaml")], 3),
        (["upload", str(EXAMPLES)], 3),
        (["audit"], 3), (["diff", "a", "b"], 3), (["history", "m"], 3), (["search", "--task", "pick"], 3),
        (["resume-point", "reach"], 3), (["search"], 2), (["checkpoint", "import", "/does/not/exist"], 2),
        (["model", "release", "m@v1", "--channel", "canary", "--expect", "newest"], 2),
        (["rebuild", "nobody"], 2), (["run", "--", "true"], 2), (["nonsense"], 2), (["model", "release", "m"], 2),
        (["submit", "/does/not/exist.yaml"], 2), (["model", "evaluate", "m", "--metric", "loss=many"], 2),
        (["jobs", "--project", "No Such"], 2), (["dataset", "tag", "d", "t", "newest"], 2),
        (["model", "release", "m@v1", "--channel", "production", "--rollback"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)  # fmt: skip
def test_exit_codes_tell_no_from_wrong_from_unreachable(
    args: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 the answer is no, 2 wrong use, 3 not reachable; the sentence goes to standard error."""
    assert run(args) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert "✗" in said.err
    assert "Traceback" not in said.err


def test_errors_are_json_when_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads code, message and what to do next."""
    assert run(["jobs", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert (answer["error"]["code"], answer["error"]["next_action"]) == ("unreachable", "start it with: forebay up")


def test_json_behind_the_dashes_belongs_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`forebay run -- train --json` is not a wish for JSON errors."""
    assert run(["run", "--", "train", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_an_upload_without_a_bus_keeps_its_events(
    recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files are there, events wait, the message says where, the exit code says why."""
    monkeypatch.setattr("forebay.cli.upload._DELIVER_WITHIN_S", 0.2)
    (tmp_path / "home/pool").mkdir(parents=True)
    assert run(["upload", str(recording), "--dataset", "reach"]) == 3
    said = capsys.readouterr().err
    assert "6 events wait in" in said
    assert list((tmp_path / "home/outbox/collector.default").glob("*.jsonl"))


@pytest.mark.parametrize("folder", [EXAMPLES, Path("/does/not/exist")])
def test_a_folder_that_is_no_dataset_is_a_no(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, one sentence, and nothing is left behind in the outbox or the pool."""
    (tmp_path / "home/pool").mkdir(parents=True)
    assert run(["upload", str(folder)]) == 1
    assert "next:" in capsys.readouterr().err
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == []


def test_nothing_is_put_where_a_mount_will_hide_it(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A JuiceFS pool that is not mounted takes no uploads: they would vanish under the mount."""
    (tmp_path / "home/pool").mkdir(parents=True)
    (tmp_path / "home/local.json").write_text(json.dumps({"pool_kind": "juicefs", "projects": ["lab"]}))
    assert run(["upload", str(recording)]) == 3
    assert "is not mounted" in capsys.readouterr().err
    assert list((tmp_path / "home/pool").iterdir()) == []


def test_a_project_without_a_key_is_a_no(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before anything is copied, with the command that makes the key."""
    (tmp_path / "home/keys").mkdir(parents=True)
    assert run(["upload", str(recording), "--project", "other"]) == 1
    assert "forebay bus init --project other" in capsys.readouterr().err


def test_a_relative_working_directory_is_beside_the_job_file() -> None:
    """A job file can be submitted from anywhere."""
    spec = read_job(EXAMPLES / "reach.yaml")
    assert spec["working_directory"] == str(EXAMPLES)


def test_a_broken_package_does_not_break_the_others(tmp_path: Path) -> None:
    """A stranger's entry point that raises is named on standard error; everything else works."""
    package = tmp_path / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[forebay.commands]\nbroken = no_such_module:register\n")
    command = [sys.executable, "-m", "forebay.cli", "--help"]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, "upload" in done.stdout) == (0, True)
    assert "no_such_module" in done.stderr


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ("command: [python, train.py, --api-key=hunter2hunter2]", "command[2]"),
        ("command: [python, train.py]\nparameters: {wandb: {api_key: hunter2hunter2}}", "parameters.wandb.api_key"),
        ("command: [python, train.py]\nenvironment: {SRC: 'https://ada:hunter2hunter2@host/x'}", "environment.SRC"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_secret_in_a_job_file_does_not_leave_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: str, where: str, options: tuple[str, ...]
) -> None:
    """Wrong use, said before anybody is asked: nobody answers here, and that is not what is said."""
    file = tmp_path / "job.yaml"
    file.write_text(f"name: pick\n{fields}\n", encoding="utf-8")
    assert run(["submit", str(file), *options]) == 2
    said = "".join("".join(capsys.readouterr()).split())
    assert where in said
    assert "secretKeyRef" in said
    assert "hunter2" not in said
