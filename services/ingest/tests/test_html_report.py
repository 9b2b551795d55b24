"""The HTML report: whole in one file, nothing from the network, hostile names harmless."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from forebay.ingest.commands import register
from forebay.ingest.rule_pages import main as rule_page
from forebay.ingest.rule_pages import markdown
from typer.testing import CliRunner

from . import lerobot_builder as lerobot
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, SECOND_VIDEO

runner = CliRunner()
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    return made


class Tags(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page_of(app: typer.Typer, root: Path) -> str:
    target = root.parent / "report.html"
    found = runner.invoke(app, ["validate", str(root), "--html", str(target)])
    assert found.exit_code in {0, 1}, found.output
    return target.read_text()


def test_what_people_look_at(app: typer.Typer, tmp_path: Path) -> None:
    """Verdict, finding with its advice, a marked curve, windows, pictures and episodes."""
    root = lerobot.build(tmp_path / "data")
    lerobot.change_cell(root, FIRST_DATA, 4, "action", [0.0, float("nan"), 0.0])
    page = page_of(app, root)
    tags = Tags(page).found
    assert ">reject</span>" in page
    assert "Drop the episode, or repair the value" in page
    assert "<title>frame 4</title>" in page
    assert sum(tag == "polyline" for tag, _ in tags) >= 6
    assert sum(tag == "img" for tag, _ in tags) >= 6
    assert "episode 1: 0.600 to 1.100 s" in page
    assert "pick up the cube" in page


def test_nothing_comes_from_the_network(app: typer.Typer, tmp_path: Path) -> None:
    """No script, no link, only pictures that are inside."""
    tags = Tags(page_of(app, lerobot.build(tmp_path / "data"))).found
    assert {"script", "link", "iframe"}.isdisjoint(tag for tag, _ in tags)
    sources = [attributes["src"] or "" for tag, attributes in tags if tag == "img"]
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert not any("http" in str(value) for _, attributes in tags for value in attributes.values() if value)


def test_hostile_names_stay_text(app: typer.Typer, tmp_path: Path) -> None:
    """Tasks, features and robots cannot write tags or attributes."""
    root = lerobot.build(tmp_path / "data")
    lerobot.change_info(root, robot_type=HOSTILE)
    lerobot.change_feature(root, CAMERA, info={"video.codec": HOSTILE})
    lerobot.change_cell(root, EPISODES, 0, "tasks", [HOSTILE])
    lerobot.change_cell(root, "meta/tasks.parquet", 0, "task", HOSTILE)
    page = page_of(app, root)
    tags = Tags(page).found
    assert "script" not in {tag for tag, _ in tags}
    assert not any(name.startswith("on") for _, attributes in tags for name in attributes)
    assert "alert(2)" in page


def test_broken_videos_leave_a_report(app: typer.Typer, tmp_path: Path) -> None:
    """What cannot be opened has no picture, and the page says why."""
    root = lerobot.build(tmp_path / "data")
    lerobot.cut(root, SECOND_VIDEO)
    page = page_of(app, root)
    assert "cut off" in page
    assert re.search(r"episode 0, frame 0", page)


def test_no_dataset_at_all(app: typer.Typer, tmp_path: Path) -> None:
    """Still a page, with the one finding."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.txt").write_text("x")
    assert "LR-FORMAT-001" in page_of(app, tmp_path / "data")


def test_a_report_that_cannot_be_written(app: typer.Typer, tmp_path: Path) -> None:
    """Is wrong use, not a crash."""
    found = runner.invoke(
        app, ["validate", str(lerobot.build(tmp_path / "data")), "--html", str(tmp_path / "no/r.html")]
    )
    assert found.exit_code == 2
    assert "cannot be written" in found.output


@pytest.mark.parametrize(("option", "content"), [("--policy", "rulez: {}"), ("--request", "[]")])
def test_terms_that_cannot_be_followed(app: typer.Typer, tmp_path: Path, option: str, content: str) -> None:
    """Are wrong use, said before anything is decoded."""
    (tmp_path / "terms").write_text(content)
    found = runner.invoke(app, ["validate", str(tmp_path), option, str(tmp_path / "terms")])
    assert found.exit_code == 2


def test_the_page_of_rules(app: typer.Typer, tmp_path: Path) -> None:
    """Every rule and every limit is in it; a difference is seen."""
    page = runner.invoke(app, ["rules", "--markdown"]).stdout
    assert page == markdown()
    assert "| `lenient_frames` | 1 |" in page
    target = tmp_path / "RULES.md"
    assert rule_page([str(target)]) == 0
    assert rule_page([str(target), "--check"]) == 0
    target.write_text("old")
    assert rule_page([str(target), "--check"]) == 1
