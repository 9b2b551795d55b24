"""The shape of the code base: what a linter of lines cannot see."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in ROOT.glob("**/src/forebay/**/*.py") if ".venv" not in path.parts)
MAX_LINES = 500
MAX_APP_LINES = 80
IMPORT_ALL = """
import importlib, os, socket, sys
os.environ.clear()
def refuse(*_, **__):
    raise AssertionError("the network was used while importing")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[len(parts) - parts[::-1].index("forebay") - 1 :]).removesuffix(".__init__")


def test_every_module_imports_without_environment_and_network() -> None:
    """Importing does nothing: no settings are read, no connection is opened."""
    names = [module_name(path) for path in SOURCES if path.name != "__main__.py"]
    assert len(names) > 50
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_a_module_is_small_enough_to_read(path: Path) -> None:
    """No module is longer than 500 lines; a composition root at most 80."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= (MAX_APP_LINES if path.name == "app.py" and "runtime" not in path.parts else MAX_LINES)


def test_every_module_says_what_it_is_for() -> None:
    """A module that holds code opens with a docstring."""
    silent = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if tree.body and ast.get_docstring(tree) is None:
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def test_only_settings_read_the_environment() -> None:
    """One module per package looks at the environment; everything else is told."""
    readers = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        and node.attr in {"environ", "environb", "getenv", "putenv"}
    }
    assert {name for name in readers if not name.endswith("/settings.py")} == set()


def test_the_namespace_has_no_init_file() -> None:
    """A `forebay/__init__.py` would hide every other member of the workspace."""
    assert [path for path in SOURCES if path.name == "__init__.py" and path.parent.name == "forebay"] == []


def test_names_say_what_things_are() -> None:
    """No drawer for whatever fits nowhere else."""
    drawers = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "base"}
    assert [str(path) for path in SOURCES if path.stem in drawers or drawers & set(path.parent.parts[-2:])] == []


def test_tests_of_members_are_no_packages() -> None:
    """Each would be called `tests` and hide the others; without `__init__.py` pytest names them by their path."""
    assert sorted(ROOT.glob("*/tests/__init__.py")) + sorted(ROOT.glob("*/*/tests/__init__.py")) == []
