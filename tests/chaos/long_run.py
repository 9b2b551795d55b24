"""The command line of a run of kills by hand: how many, in which order, and one JSON object at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol


class Outcome(Protocol):
    """What such a run has found."""

    @property
    def problems(self) -> list[str]: ...

    def to_json(self) -> dict[str, Any]: ...


def long_run(about: str | None, run: Callable[[int, int, Path], Coroutine[Any, Any, Outcome]]) -> int:
    """Run `run(kills, seed, folder)` in a folder of its own, which is kept when anything is wrong; the exit code is then 1."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="for the same order of pauses again")
    given = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="forebay-kills-"))
    sys.stderr.write(f"seed {seed}; logs and states are in {folder}\n")
    outcome = asyncio.run(run(given.kills, seed, folder))
    sys.stdout.write(json.dumps(outcome.to_json() | {"seed": seed}, indent=1) + "\n")
    if outcome.problems:
        return 1
    shutil.rmtree(folder)
    return 0
