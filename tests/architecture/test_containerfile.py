"""The two images can be built from a checkout: what it copies exists, what it installs is pinned, nobody is root."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/kubernetes/Containerfile"


def steps() -> list[tuple[str, str]]:
    """(instruction, arguments), continued lines joined."""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in FILE.read_text().splitlines() if not line.startswith("#")))
    parts = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    return [(instruction, rest) for instruction, rest in parts]


def of(instruction: str) -> list[str]:
    return [rest for name, rest in steps() if name == instruction]


def test_what_it_copies_exists() -> None:
    """From the root of the checkout, and every member that the agent is made of."""
    copied = [word for rest in of("COPY") if not rest.startswith("--from") for word in rest.split()[:-1]]
    assert [word for word in copied if not (ROOT / word).exists()] == []
    for image in ("sdk", "services/scheduler-bridge"):
        with (ROOT / image / "pyproject.toml").open("rb") as file:
            needs = tomllib.load(file)["project"]["dependencies"]
        members = {need.removeprefix("forebay-") for need in needs if need.startswith("forebay-")} | {image}
        for member in members:
            assert {f"{member}/pyproject.toml", f"{member}/src"} <= set(copied)


def test_what_it_installs_is_pinned() -> None:
    """The base has a version, uv the one of the Makefile, packages those of the lock file."""
    (base,) = of("ARG")
    assert re.search(r"@sha256:[0-9a-f]{64}$|:\d+\.\d+\.\d+-[a-z]+-[a-z]+$", base)
    made_from = [stage.split(" AS ") for stage in of("FROM")]
    assert {base for base, _ in made_from} <= {"${PYTHON}"} | {name for _, name in made_from}
    version = re.search(r"^UV_VERSION := (\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version is not None
    pip, *syncs = of("RUN")
    assert f"uv=={version[1]}" in pip
    assert len(syncs) == 2
    assert all("uv sync --frozen" in sync for sync in syncs)


def test_nobody_is_root() -> None:
    """A number, so that `runAsNonRoot` can be checked."""
    users = of("USER")
    assert len(users) == 2
    assert all(int(part) > 0 for user in users for part in user.split(":"))
