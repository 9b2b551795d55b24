"""Everything that a command prints or a service logs goes through the modules that make text safe."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.test_shape import ROOT, SOURCES

BORDER = {
    "runtime/src/forebay/runtime/terminal.py",
    "contracts/src/forebay/contracts/generate.py",  # below the runtime; it prints names of our own files
}
WRITES = {"print", "Console", "typer.echo", "typer.secho", "click.echo", "rich.print", "Text.from_markup"}
STREAMS = {"sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer.write", "sys.stderr.buffer.write"}
LOGS = {"logging.basicConfig", "logging.StreamHandler"}


def calls(path: Path) -> set[str]:
    """The dotted names that a module calls."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_only_the_terminal_module_prints() -> None:
    """A command that printed past it would show escape sequences and forged lines of whoever chose a name."""
    found = {
        f"{name} calls {call}"
        for path in SOURCES
        if (name := str(path.relative_to(ROOT))) not in BORDER
        for call in calls(path) & (WRITES | STREAMS)
    }
    assert found == set()


def test_only_log_lines_set_up_logging() -> None:
    """A log of a service has one record on a line, whatever a record quotes."""
    found = {str(path.relative_to(ROOT)) for path in SOURCES if path.name != "log_lines.py" and calls(path) & LOGS}
    assert found == set()
