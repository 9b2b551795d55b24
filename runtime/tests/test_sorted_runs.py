"""Sorted runs hold what a dictionary would, through every spill, merge and deletion."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from forebay.runtime.stores.port import Delete, Put, WriteBatch
from forebay.runtime.stores.runs import SortedRuns

KEYS = [f"key-{number:03d}" for number in range(300)]
KINDS = ("edge", "node")


@pytest.fixture
def db(tmp_path: Path) -> sqlite3.Connection:
    found = sqlite3.connect(tmp_path / "state.sqlite", isolation_level=None)
    found.execute("CREATE TABLE documents (kind TEXT, key TEXT, body BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID")
    return found


def changed(chosen: random.Random, number: int, model: dict[tuple[str, str], bytes]) -> WriteBatch:
    """A batch of new, changed, deleted and written-again documents, also done to the model."""
    places = {(chosen.choice(KINDS), chosen.choice(KEYS)) for _ in range(25)}
    gone = {place for place in places if chosen.random() < 0.2}
    puts = {place: f"{place} at {number}".encode() for place in places - gone}
    for place in gone:
        model.pop(place, None)
    model |= puts
    return WriteBatch(
        puts=[Put(kind, key, body) for (kind, key), body in puts.items()],
        deletes=[Delete(kind, key) for kind, key in gone],
    )


@pytest.mark.parametrize("seed", range(4))
def test_holds_what_was_written_last(db: sqlite3.Connection, tmp_path: Path, seed: int) -> None:
    """Whether a document is in memory, in a run, in a merged run or in the table, its newest body is found, and no deleted one."""
    chosen = random.Random(seed)  # noqa: S311 a chosen order, no secret
    model: dict[tuple[str, str], bytes] = {}
    runs = SortedRuns(db, tmp_path / "state.sqlite.runs", run=40, fan=3)
    for number in range(120):
        runs.change(changed(chosen, number, model))
        if runs.full:
            runs.spill()
        if number == 70:
            runs.settle()
        for kind in KINDS:
            expected = {key: model[(kind, key)] for key in KEYS if (kind, key) in model}
            assert runs.get(kind, KEYS) == expected
    runs.settle()
    assert runs.settled
    stored = db.execute("SELECT kind, key, body FROM documents ORDER BY kind, key").fetchall()
    assert stored == [(kind, key, body) for (kind, key), body in sorted(model.items())]


def test_leaves_no_file_behind(db: sqlite3.Connection, tmp_path: Path) -> None:
    """The runs are of no use once everything stands in the table."""
    (tmp_path / "state.sqlite.runs").write_bytes(b"what a killed process left")
    runs = SortedRuns(db, tmp_path / "state.sqlite.runs", run=1)
    runs.change(WriteBatch(puts=[Put("node", "a", b"1")]))
    runs.spill()
    runs.settle()
    db.close()
    runs.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["state.sqlite"]
