"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    path
    for top in ("contracts", "runtime", "sdk", "deploy", "services", "tests")
    for path in (ROOT / top).rglob("test_*.py")
]
NAMED = re.compile(r"`[^`]*`")
TEST = re.compile(r"test_\w+(?:\.py)?")


def test_every_test_that_is_named_is_there() -> None:
    """Files by their names, functions by theirs: a renamed test takes its row with it."""
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = {test for quoted in NAMED.findall(page) for test in TEST.findall(quoted)}
    source = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    there = {path.name for path in FILES} | set(re.findall(r"def (test_\w+)\(", source))
    assert len(named) > 40
    assert sorted(named - there) == []
