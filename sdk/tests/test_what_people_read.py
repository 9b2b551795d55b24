"""Answers of services, as text: trees, attempts, dead letters, events."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

from forebay.cli.dead import _letter
from forebay.cli.jobs import attempt_line
from forebay.cli.lineage import _tree
from forebay.cli.output import seconds, size
from forebay.cli.watch import _telling
from forebay.runtime.log import LogMessage
from rich.console import Console


def printed(value: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(value)
    return out.getvalue()


def test_a_lineage_tree_names_every_parent_and_what_is_odd() -> None:
    """Order as answered; placeholders, contradictions, repeats and further pages are said."""
    tree = {
        "id": "model:m@v1", "kind": "model", "title": "model m@v1", "parents": [
            {"id": "checkpoint:ck", "kind": "checkpoint", "title": "checkpoint [ck]", "contested": {"digest": []}},
            {"id": "dataset:d@v1", "kind": "dataset", "title": "dataset d@v1", "placeholder": True, "repeated": True,
             "episodes": {"total": 30, "read": 30, "shown": 4, "after": "ep-4"}},
        ],
    }  # fmt: skip
    lines = printed(_tree(tree, "parents")).splitlines()
    assert lines[0].strip() == "model m@v1"
    assert "checkpoint [ck]" in lines[1]
    assert "contested: digest" in lines[1]
    assert "no event has described it" in lines[2]
    assert "26 more episodes" in lines[3]


def test_an_attempt_line_keeps_the_two_recoveries_apart() -> None:
    """The process came back, and training resumed: two facts, two phrases."""
    attempt = {
        "attempt": 2, "state": "RUNNING",
        "process": {"host": "box", "process": "7@9", "recovers": 1},
        "training": {"mode": "resume", "step": 1500}, "ending": None,
    }  # fmt: skip
    line = attempt_line(attempt)
    assert "the process came back after attempt 1" in line
    assert "training resume at step 1500" in line


def test_dead_letters_of_services_and_of_the_server_are_understood() -> None:
    """A parked message, parked work, and the server's own advisory."""
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def letter(subject: str, body: bytes) -> Any:
        return _letter(LogMessage(seq=3, subject=subject, headers={}, data=body, stored_at=at))

    parked = letter("dead.ingest.message", b'{"consumer":"ingest","what":"message","seq":7,"cause":"bad"}')
    work = letter("dead.cache.work", b'{"consumer":"cache","what":"work","work":"warm/p","cause":"disk"}')
    advisory = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.FOREBAY.registry"
    given_up = letter(advisory, b'{"stream_seq":9,"consumer":"registry","deliveries":10}')
    assert (parked.consumer, parked.seq, parked.cause) == ("ingest", 7, "bad")
    assert (work.work, work.seq) == ("warm/p", None)
    assert (given_up.consumer, given_up.seq, "10 tries" in given_up.cause) == ("registry", 9, True)


def test_an_event_line_says_what_matters() -> None:
    """Rule and message of a finding, the sentence of a verdict; never longer than a line."""
    body = {"source_index": 7, "findings": [{"rule": "LR-SIGNAL-001", "message": "action[0] is NaN"}]}
    assert _telling(body) == "source_index=7 LR-SIGNAL-001: action[0] is NaN"
    assert len(_telling({"message": "x" * 900})) <= 150


def test_sizes_and_times_are_read_at_a_glance() -> None:
    """Units change where a person would change them."""
    assert [size(1), size(6_944_717), size(None)] == ["1 B", "6.9 MB", "-"]
    assert [seconds(1.25), seconds(75), seconds(7260)] == ["1.2 s", "1 min 15 s", "2 h 1 min"]
