"""`forebay plan` offline: its table, its JSON, its lines for JuiceFS, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from forebay.cache.commands import register
from forebay.cache.domain.plan import plan_from_json
from forebay.cache.domain.warm_list import read_list
from typer.testing import CliRunner, Result

from . import lance_histories as histories
from . import lerobot_folders as folders
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
        (["--root", "tests", "--since", "/no/such/plan"], 2, "keep a plan with --json"),
        (["--lerobot", "."], 1, "no LeRobot folder: it has no meta/info.json"),
        (["--check-list", "/no/such/list"], 2, "cannot be read"),
    ],
    ids=[
        "nothing",
        "two places",
        "version of a root",
        "one number",
        "empty window",
        "no folder",
        "bad name",
        "no older plan",
        "no LeRobot folder",
        "no list",
    ],
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


def test_a_folder_that_is_no_table_is_told_what_it_is(root: Path, tmp_path: Path) -> None:
    """A version root, a LeRobot folder and a folder of tables, each passed as a table, get the right hint."""
    (tmp_path / "set" / "meta").mkdir(parents=True)
    (tmp_path / "set" / "meta" / "info.json").write_text("{}")
    for folder, words in (
        (root, "the root of a dataset version: use --root"),
        (tmp_path / "set", "it is a LeRobot folder: use --root"),
        (root.parent, "no Lance table"),
    ):
        done = run("--lance", str(folder), "--columns", "action")
        assert done.exit_code == 1
        assert words in done.stderr


def test_versions_and_tags_of_a_table(tmp_path: Path) -> None:
    """A version by number or tag, and what is there when it is not."""
    life = histories.Life(tmp_path / "frames.lance", ["texts"], "2.2", stable_rows=False)
    life.write()
    life.table.tags.create("golden", 1)
    histories.append(life)
    table = ("--lance", str(life.path), "--columns", "texts", "--json")
    by_tag, by_number = (json.loads(run(*table, "--version", one).stdout) for one in ("golden", "1"))
    assert by_tag["digest"] == by_number["digest"] != json.loads(run(*table).stdout)["digest"]
    assert "it has 1 to 2" in run(*table, "--version", "7").stderr
    assert "did you mean golden?" in run(*table, "--version", "goldn").stderr


def test_a_filter_picks_rows(tmp_path: Path) -> None:
    """An SQL condition narrows a plan; one that cannot be understood is refused in words."""
    life = histories.Life(tmp_path / "frames.lance", ["big_bytes"], "2.2", stable_rows=False)
    life.write()
    table = ("--lance", str(life.path), "--columns", "big_bytes", "--json")
    whole, some = json.loads(run(*table).stdout), json.loads(run(*table, "--filter", "episode_index = 6").stdout)
    assert some["total_bytes"] < whole["total_bytes"]
    assert json.loads(run(*table, "--episodes", "6:7").stdout)["digest"] == some["digest"]
    for condition, words in (("index <", "cannot be scanned with the filter"), ("index < 0", "select no row")):
        done = run(*table, "--filter", condition)
        assert (done.exit_code, words in done.stderr) == (1, True)


def test_what_is_new_since_another_version(tmp_path: Path) -> None:
    """After an append only the new fragments are new, against a version or a kept plan; after a compaction all are."""
    life = histories.Life(tmp_path / "frames.lance", ["big_bytes"], "2.2", stable_rows=False)
    life.write()
    table = ("--lance", str(life.path), "--columns", "big_bytes")
    kept = tmp_path / "kept.json"
    kept.write_text(run(*table, "--json").stdout)
    histories.append(life)
    told = json.loads(run(*table, "--since", str(kept), "--json").stdout)
    assert told["since"] == json.loads(run(*table, "--since", "1", "--json").stdout)["since"]
    assert told["since"]["reused_bytes"] + told["since"]["new_bytes"] == told["total_bytes"]
    assert told["since"]["reused_bytes"] > 0.9 * json.loads(kept.read_text())["total_bytes"]
    lines = run(*table, "--since", "1", "--juicefs").stdout.splitlines()
    assert len(lines) == len(told["since"]["new_files"]) < len(told["files"])
    assert "are the same" in run(*table, "--since", "1").stdout
    histories.compact(life)
    assert json.loads(run(*table, "--since", "2", "--json").stdout)["since"]["reused_bytes"] == 0


def test_the_digest_does_not_depend_on_the_place(root: Path, tmp_path: Path) -> None:
    """The same version copied elsewhere has the same digest, and another warm-up."""
    elsewhere = folders.copied(root, tmp_path / "deep" / "copy")
    one, two = (
        json.loads(run("--root", str(place), "--columns", "action", "--json").stdout) for place in (root, elsewhere)
    )
    assert one["digest"] == two["digest"]
    assert one["plan"] != two["plan"]


def test_a_list_is_checked_before_it_is_used(tmp_path: Path) -> None:
    """Lines that JuiceFS would skip are named with number and reason; good ones are merged; paths may have spaces."""
    path = tmp_path / "warm.list"
    path.write_text(
        "/jfs/ds.lance/_versions/4.manifest\n"
        "/jfs/my data/c.lance [4096-8192]\n"
        "/jfs/d.lance [8192-4096]\n"
        "/jfs/e.lance [0-100;x-200]\n"
        "/jfs/f.lance [100-300;200-400]\n"
        "/jfs/g.lance []\n"
        "/jfs/h.lance [0-4\n"
        "/jfs/i.lance [7-7]\n"
    )
    done = run("--check-list", str(path), "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert [one["line"] for one in told["bad_lines"]] == [3, 4, 6, 7, 8]
    assert {one["path"]: one["bytes"] for one in told["lines"]} == {
        "/jfs/ds.lance/_versions/4.manifest": None,
        "/jfs/my data/c.lance": 4096,
        "/jfs/f.lance": 300,
    }
    assert "line 3: '8192-4096' ends before it starts" in done.stderr


def test_our_own_lines_read_back(root: Path) -> None:
    """What `--juicefs` prints passes the check."""
    lines = run("--root", str(root), "--columns", "action", "--juicefs").stdout.splitlines()
    good, bad = read_list(lines)
    assert (len(good), bad) == (len(lines), [])
