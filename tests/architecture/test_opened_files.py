"""Files whose names come from outside are opened in one place, `forebay.runtime.regular_files`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOKED_AT = (
    "services/ingest/src",
    "services/registry/src",
    "services/cache/src",
    "services/scheduler-bridge/src/forebay/scheduler_bridge/adapters",
    "sdk/src/forebay/sdk",
)
READS = frozenset({"read_bytes", "read_text"})
LIBRARIES = frozenset({"ParquetFile", "read_table", "memory_map", "OSFile", "safe_open", "fromfile"})
"""Calls of libraries that open a path themselves; they are given what was opened, or `path_of` it."""

OURS = {
    # what the program itself wrote, or the kernel and the mount say; nobody else has a hand in it
    "services/cache/src/forebay/cache/adapters/juicefs_blocks.py": "files of the mount, and blocks of its cache",
    "services/cache/src/forebay/cache/adapters/juicefs_log.py": "the mount's log",
    "services/cache/src/forebay/cache/adapters/juicefs_volume.py": "/proc",
    "services/cache/src/forebay/cache/adapters/plan_files.py": "the service's own plans",
    "services/cache/src/forebay/cache/adapters/origin_file.py": "a stream over an Origin",
    "services/cache/src/forebay/cache/commands.py": "files that a person names on the command line",
    "services/ingest/src/forebay/ingest/commands.py": "files that a person names on the command line",
    "services/ingest/src/forebay/ingest/rule_pages.py": "a page of this repository",
    "services/ingest/src/forebay/ingest/adapters/video_cuts.py": "a draft just written, and Lance's blobs",
    "services/scheduler-bridge/src/forebay/scheduler_bridge/adapters/project_files.py": "the operator's files",
    "services/ingest/src/forebay/ingest/adapters/lance_version.py": "folders of a draft, to flush them",
    "services/scheduler-bridge/src/forebay/scheduler_bridge/adapters/local_processes.py": "/proc",
    "sdk/src/forebay/sdk/attempt_files.py": "the attempt's own folder, and /proc",
    "sdk/src/forebay/sdk/inputs.py": "the attempt's own folder",
    "sdk/src/forebay/sdk/memory_kills.py": "/proc and /sys",
    "sdk/src/forebay/sdk/opening.py": "the installation's record",
    "sdk/src/forebay/sdk/outbox.py": "the process's own outbox",
    "sdk/src/forebay/sdk/pod.py": "the pod's own inputs and marks",
    "sdk/src/forebay/sdk/pod_probes.py": "/proc",
    "sdk/src/forebay/sdk/preflight.py": "/sys",
    "sdk/src/forebay/sdk/lerobot_store.py": "a version's files, read in the training's own process",
    "sdk/src/forebay/sdk/metadata.py": "a version's files, read in the training's own process",
}


def _raw(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every call that opens a path for reading by itself."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in READS or name in LIBRARIES or (name == "open" and _reads(node)):
            yield node.lineno, name


def _reads(call: ast.Call) -> bool:
    """Whether an `open` may read a path: not those that write, and not methods of our own ports."""
    words = [one.value for one in [*call.args, *(key.value for key in call.keywords)] if isinstance(one, ast.Constant)]
    if any(isinstance(word, str) and set(word) & set("wax+") and set(word) <= set("wxabt+") for word in words):
        return False
    if isinstance(call.func, ast.Name):
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id == "os":
        return not any("O_CREAT" in ast.unparse(one) for one in call.args)
    return (isinstance(owner, ast.Name) and owner.id == "av") or any(
        isinstance(word, str) and word in {"r", "rb"} for word in words
    )


def _given(call_line: str) -> bool:
    """What is opened was opened by us before."""
    return any(word in call_line for word in ("path_of(", "ParquetFile(opened)"))


def test_nobody_opens_a_path_from_outside_by_himself() -> None:
    """A FIFO, a device or a link that somebody put there would be opened too. Use `open_regular` or `read_regular`."""
    found = []
    for folder in LOOKED_AT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            lines = text.splitlines()
            calls = [(line, call) for line, call in _raw(ast.parse(text)) if not _given(lines[line - 1])]
            if name not in OURS:
                found += [f"{name}:{line}: {call}" for line, call in calls]
    assert found == []


def test_no_exception_is_left_over() -> None:
    """Each file that is excepted exists and opens something."""
    for name in OURS:
        assert list(_raw(ast.parse((ROOT / name).read_text(encoding="utf-8")))), name
