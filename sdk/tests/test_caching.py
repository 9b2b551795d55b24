"""What the cache commands read and print, and what the agent says about use."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from forebay.cli.amounts import parse_size
from forebay.cli.caching import _columns, _left, read_policy, room_line
from forebay.cli.main import run
from forebay.cli.warming import _sentence, _span
from forebay.contracts.v1.datasets import PinnedInput
from forebay.sdk.accesses import Accesses


def pinned(name: str, number: int = 1, columns: tuple[str, ...] = ()) -> PinnedInput:
    return PinnedInput(
        kind="dataset", logical=f"dataset:{name}@v{number}", name=name, number=number, root="/r",
        manifest_sha256="0" * 64, columns=columns,
    )  # fmt: skip


def test_each_version_is_used_once_a_day() -> None:
    """However often it is asked and however many inputs name it; the next day it is used again."""
    accesses = Accesses("train-1", [pinned("pick", columns=("a",)), pinned("pick", columns=("b",)), pinned("place", 2)])
    today = date(2026, 11, 29)
    first = list(accesses.on(today))
    assert [(one.job, one.name, one.number, one.day) for one in first] == [
        ("train-1", "pick", 1, today),
        ("train-1", "place", 2, today),
    ]
    assert list(accesses.on(today)) == []
    assert len(list(accesses.on(today + timedelta(days=1)))) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [("500 GB", 500 * 10**9), ("1.5TiB", 3 << 39), ("1000", 1000), ("2 kb", 2000), ("1 MiB", 1 << 20), ("7 B", 7)],
)
def test_sizes_are_read_as_people_write_them(text: str, found: int) -> None:
    """Decimal and binary units, with and without a space."""
    assert parse_size(text) == found


@pytest.mark.parametrize("text", ["much", "-1 GB", "5 XB", "", "GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    """With an example of how to write one."""
    with pytest.raises(typer.BadParameter, match="500 GB"):
        parse_size(text)


def test_a_policy_is_read_from_yaml(tmp_path: Path) -> None:
    """`when` becomes the rule's occasion, also where somebody wrote the `on` that YAML takes for a yes."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "budget: 500 GB\nttl_days: 3\nwarm:\n- {when: tag, tag: golden, columns: [a]}\n- {on: commit}\n",
        encoding="utf-8",
    )
    assert read_policy(file) == {
        "budget_bytes": 500 * 10**9,
        "ttl_days": 3,
        "warm": [{"on": "tag", "tag": "golden", "columns": ["a"]}, {"on": "commit"}],
    }
    file.write_text("", encoding="utf-8")
    assert read_policy(file) == {}
    for wrong in ("- a", "{"):
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(typer.BadParameter, match=r"policy\.yaml"):
            read_policy(file)
    with pytest.raises(typer.BadParameter, match="cannot be read"):
        read_policy(tmp_path / "none.yaml")


def test_room_and_time_left_fit_a_line() -> None:
    """Held, leased, what could go, the project's share, the disk; days and hours until a plan goes."""
    room: dict[str, Any] = {
        "budget_bytes": 10**9, "held_bytes": 6 * 10**8, "leased_bytes": 4 * 10**8, "evictable_bytes": 2 * 10**8,
        "project_budget_bytes": 5 * 10**8, "project_held_bytes": 10**8, "pool": {"free_bytes": 10**10},
    }  # fmt: skip
    assert room_line(room) == (
        "held 600.0 MB of 1.0 GB; leased 400.0 MB, could go 200.0 MB; this project holds 100.0 MB of 500.0 MB; "
        "10.0 GB free on the disk"
    )
    plan: dict[str, Any] = {"jobs": [], "wishes": [], "ttl_left_s": 100_000, "state": "ready"}
    assert _left(plan) == "1 d 3 h"
    assert [_left(plan | {"ttl_left_s": 0}), _left(plan | {"ttl_left_s": None}), _left(plan | {"jobs": ["x"]})] == [
        "expired",
        "-",
        "leased",
    ]
    assert [_columns([]), _columns(["a", "b"]), _columns(list("abcde"))] == ["all", "a, b", "a, b, c +2"]


def test_reused_bytes_are_printed() -> None:
    """What came from the origin, what was there, and what an earlier plan shares."""
    plan = {
        "verified_bytes": 1000, "origin_bytes": 400, "reused_bytes": 600, "shared_bytes": 500, "cannot_prove": None,
    }  # fmt: skip
    assert _sentence(plan).endswith(
        "1.0 kB verified, 400 B read from the origin, 600 B were there already; "
        "500 B are shared with a plan made earlier"
    )


@pytest.mark.parametrize("episodes", ["3", "5:2", "a:b", "2:2"])
def test_wrong_use_is_told_before_anything_is_asked(episodes: str) -> None:
    """Exit code 2 and how to write it."""
    with pytest.raises(typer.BadParameter, match="FIRST:LAST"):
        _span(episodes)
    assert run(["warm"]) == 2
    assert run(["cache", "evict"]) == 2
    assert run(["cache", "evict", "abc", "--expired"]) == 2
