"""The offline commands as a person runs them: what is printed, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from forebay.ingest.commands import register
from typer.testing import CliRunner

from . import lerobot_builder as lerobot
from .lerobot_builder import FIRST_DATA

runner = CliRunner()


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    return made


def test_a_good_dataset(app: typer.Typer, tmp_path: Path) -> None:
    """Exit 0, and one JSON object on stdout."""
    found = runner.invoke(app, ["validate", str(lerobot.build(tmp_path)), "--json"])
    document = json.loads(found.stdout)
    assert (found.exit_code, document["outcome"], document["findings"]) == (0, "accept", [])
    assert document["episodes"][0] == {"id": 0, "outcome": "accept", "frames": 6}


def test_a_broken_dataset(app: typer.Typer, tmp_path: Path) -> None:
    """Exit 1; the finding names rule, episode, feature, file and frame; the JSON is strict."""
    root = lerobot.build(tmp_path)
    lerobot.change_cell(root, FIRST_DATA, 4, "action", [0.0, float("nan"), 0.0])
    found = runner.invoke(app, ["validate", str(root), "--json"])
    document = json.loads(found.stdout, parse_constant=pytest.fail)
    finding = document["findings"][0]
    assert found.exit_code == 1
    assert list(finding) == [
        "rule",
        "severity",
        "episode",
        "feature",
        "file",
        "frame",
        "expected",
        "found",
        "message",
        "advice",
    ]
    assert (finding["rule"], finding["episode"], finding["frame"]) == ("LR-SIGNAL-001", 0, 4)


def test_the_report_for_people(app: typer.Typer, tmp_path: Path) -> None:
    """What was found and what to do about it, without markup from the dataset taking effect."""
    root = lerobot.build(tmp_path)
    lerobot.change_cell(root, FIRST_DATA, 4, "action", [0.0, float("nan"), 0.0])
    found = runner.invoke(app, ["validate", str(root)])
    assert "LR-SIGNAL-001" in found.stdout
    assert "action[1]" in found.stdout
    assert "2 accepted, 0 held, 1 rejected" in found.stdout


def test_a_path_that_does_not_exist(app: typer.Typer, tmp_path: Path) -> None:
    """Exit 2: the command was used wrongly."""
    found = runner.invoke(app, ["validate", str(tmp_path / "nothing")])
    assert found.exit_code == 2
    assert "does not exist" in found.output


def test_a_file_is_no_dataset(app: typer.Typer, tmp_path: Path) -> None:
    """A file gets a verdict like any other place: rejected, and why."""
    (tmp_path / "a.mcap").write_bytes(b"\x89MCAP0\r\n")
    found = runner.invoke(app, ["validate", str(tmp_path / "a.mcap"), "--json"])
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert document["outcome"] == "reject"
    (finding,) = document["findings"]
    assert finding["rule"] == "LR-FORMAT-001"
    assert finding["message"] == "this is not a LeRobot dataset: it is an MCAP recording"
    assert "Convert it" in finding["advice"]


def test_the_rules(app: typer.Typer) -> None:
    """Every rule with its sentence."""
    document = json.loads(runner.invoke(app, ["rules", "--json"]).stdout)
    assert {"id", "title", "severity", "question", "why", "fix"} == set(document["rules"][0])
    assert "LR-VIDEO-002" in runner.invoke(app, ["rules"]).stdout
