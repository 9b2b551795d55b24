"""`forebay plan` offline: its table, its JSON, its lines for JuiceFS, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from forebay.cache.commands import register
from forebay.cache.domain.plan import plan_from_json
from typer.testing import CliRunner, Result

from .version_roots import FRONT, write_version


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_version(tmp_path_factory.mktemp("pool") / "v1", video_bytes=300_000)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["plan", *arguments])


def test_json_is_the_whole_plan(root: Path) -> None:
    """One object that reads back as the plan with its digest."""
    done = run("--root", str(root), "--columns", f"action,{FRONT}", "--episodes", "0:3", "--json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert {"digest", "total_bytes", "aligned_bytes", "whole_bytes", "files"} <= told.keys()
    assert plan_from_json(told).digest == told["digest"]
    assert all(set(file) == {"path", "size", "ranges"} for file in told["files"])


def test_the_table_ends_with_the_sum(root: Path) -> None:
    """People see the share of each file and of the whole."""
    done = run("--root", str(root), "--columns", "action")
    assert done.exit_code == 0
    assert "fetches" in done.stdout
    assert " %" in done.stdout


def test_juicefs_lines_name_ranges(root: Path) -> None:
    """`path [start-end;…]`, or the path alone for a whole file."""
    lines = run("--lance", str(root / "frames.lance"), "--columns", "note", "--juicefs").stdout.splitlines()
    assert any(line.endswith("]") and "-" in line.rsplit("[", 1)[1] for line in lines)
    assert any(line.endswith(".manifest") for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "exactly one of"),
        (["x@y", "--root", "."], 2, "exactly one of"),
        (["--root", ".", "--version", "3"], 2, "belongs to --lance"),
        (["--root", ".", "--episodes", "5"], 2, "FIRST:LAST"),
        (["--root", ".", "--episodes", "5:5"], 2, "FIRST:LAST"),
        (["--root", "/does/not/exist"], 1, "DataUnreadable"),
        (["not a name@@"], 2, "not a valid"),
    ],
    ids=["nothing", "two places", "version of a root", "one number", "empty window", "no folder", "bad name"],
)
def test_exit_codes(arguments: list[str], code: int, words: str) -> None:
    """2 for wrong use, 1 when the answer is no; the message says which."""
    done = run(*arguments)
    assert done.exit_code == code
    assert words in done.stderr


def test_nobody_to_ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a bus a name cannot be resolved: exit code 3, and what to do."""
    monkeypatch.setenv("FOREBAY_NATS_URL", "nats://127.0.0.1:9")
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path))
    done = run("pick-place@train-ready")
    assert done.exit_code == 3
    assert "forebay up" in done.stderr


def test_an_unknown_column_is_told_with_close_ones(root: Path) -> None:
    """The answer is no, and says what was probably meant."""
    done = run("--root", str(root), "--columns", "actoin")
    assert done.exit_code == 1
    assert "ColumnUnknown" in done.stderr
    assert "did you mean action" in done.stderr
