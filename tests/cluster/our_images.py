"""Our own two images, of the containers in training pods and of the bridge, made from this checkout and its Python.

What users build with `deploy/kubernetes/Containerfile` from a registry's Python, made
here from files of this machine, because the test cluster reaches no registry.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from forebay.testcluster import images

AGENT = "forebay.test/agent:1"
BRIDGE = "forebay.test/bridge:1"
_PROGRAM = """#!/opt/python/bin/python3
import runpy
import site
import sys

# Debian's own Python would look for them in dist-packages.
site.addsitedir(f"/opt/python/lib/python{{sys.version_info.major}}.{{sys.version_info.minor}}/site-packages")
runpy.run_module({module}, run_name="__main__", alter_sys=True)
"""
_LEFT_OUT = frozenset({"pylance", "pyarrow", "numpy", "motor", "pymongo"})
"""Big, and nothing that an agent in a pod, or a bridge with its state in SQLite, needs."""
_NOT_NEEDED = ("test", "idlelib", "tkinter", "ensurepip", "site-packages", "__pycache__", "lib2to3", "turtledemo")
_MEMBERS = {"contracts": "forebay-contracts", "runtime": "forebay-runtime"}
"""Folder of the checkout -> distribution, of what both have."""
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def build_agent(folder: Path) -> Path:
    """The archive of the agent's image, in `folder`."""
    program = {"/usr/local/bin/forebay": _PROGRAM.format(module="'forebay.cli'")}
    return _build(folder / "agent.tar", AGENT, _MEMBERS | {"sdk": "forebay"}, program)


def build_bridge(folder: Path) -> Path:
    """The archive of the bridge's image, in `folder`."""
    command = "/usr/local/bin/scheduler-bridge"
    members = _MEMBERS | {"services/scheduler-bridge": "forebay-scheduler-bridge"}
    program = {
        command: _PROGRAM.format(module="'forebay.scheduler_bridge'"),
        "/usr/local/bin/python": _PROGRAM.format(module="sys.argv.pop(2)"),  # python -m MODULE
    }
    return _build(folder / "bridge.tar", BRIDGE, members, program, entrypoint=(command,))


def _build(
    archive: Path, image: str, members: Mapping[str, str], program: Mapping[str, str], *, entrypoint: Sequence[str] = ()
) -> Path:
    root = archive.with_suffix(".root")
    if root.exists():
        shutil.rmtree(root)
    _copy_python(root / "opt/python")
    packages = root / "opt/python/lib" / _library() / "site-packages"
    packages.mkdir(parents=True)
    for name in sorted(_wanted(members.values())):
        _copy_distribution(name, packages)
    checkout = Path(__file__).parents[2]
    for member, distribution in members.items():
        for source in (checkout / member / "src/forebay").iterdir():
            shutil.copytree(source, packages / "forebay" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        described = _metadata_of(distribution)
        shutil.copytree(described, packages / described.name)
    _copy_libraries(root)
    files: dict[str, Path | str] = {**images.busybox_files(), **program}
    files |= {f"/{path.name}": path for path in root.iterdir()}
    images.write(archive, image, files, links=images.applets(), entrypoint=entrypoint)
    shutil.rmtree(root)
    return archive


def _library() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _copy_python(to: Path) -> None:
    base = Path(sys.base_prefix)
    (to / "bin").mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), to / "bin/python3")
    shutil.copytree(
        base / "lib" / _library(), to / "lib" / _library(), ignore=shutil.ignore_patterns(*_NOT_NEEDED), symlinks=True
    )


def _wanted(members: Iterable[str]) -> set[str]:
    """Distributions that the members need, and what those need."""
    found: set[str] = set()
    todo = list(members)
    while todo:
        name = todo.pop()
        for line in metadata.requires(name) or ():
            head, _, marker = line.partition(";")
            match = _NAME.match(head)
            if match is None or ("extra" in marker and "nkeys" not in marker and "nats" not in marker):
                continue
            needed = match.group().lower().replace("_", "-")
            if needed in found or needed in _LEFT_OUT or needed.startswith("forebay"):
                continue
            try:
                metadata.distribution(needed)
            except metadata.PackageNotFoundError:
                continue  # for another system or another Python
            found.add(needed)
            todo.append(needed)
    return found


def _copy_distribution(name: str, packages: Path) -> None:
    for file in metadata.files(name) or ():
        source = Path(str(file.locate()))
        if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
            continue
        target = packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _metadata_of(name: str) -> Path:
    """The folder with a member's entry points."""
    (found,) = {Path(str(file.locate())).parent for file in metadata.files(name) or () if file.name == "METADATA"}
    return found


def _copy_libraries(root: Path) -> None:
    """Every shared library that Python and its modules are linked with, where the loader looks for it."""
    programs = [root / "opt/python/bin/python3", *root.rglob("*.so"), *root.rglob("*.so.*")]
    found: set[Path] = set()
    for program in programs:
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        for word in listed.split():
            path = Path(word)
            if word.startswith("/") and path.is_file() and not path.is_relative_to(root):
                found.add(path)
    for path in found:
        target = root / str(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path.resolve(), target)
