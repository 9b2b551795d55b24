"""What the files of a save make of it: complete, inexact, weights-only, incomplete.

Two layouts count, told apart by their files: Forebay's own (`model.safetensors`,
`optimizer.safetensors`, `state.json`) and LeRobot's (`pretrained_model/`,
`training_state/`). Other files beside them are fine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

Status = Literal["complete", "inexact", "weights-only", "incomplete", "corrupt", "missing"]

_MARKER = re.compile(
    r"(^|[._-])(tmp|temp|part|partial|incomplete|in[_-]?progress|writing|unfinished)$"
    r"|^\.?(tmp|temp)[._-]|[._-]tmp[._-]\w+$|^\.(tmp|incomplete|in[_-]?progress)|~$",
    re.IGNORECASE,
)
"""As writers name what they will rename: `1000.tmp`, `tmp-checkpoint-1000`, `1000.orbax-checkpoint-tmp-17`, `.incomplete`."""
TOP_STATES = ("state.json", "trainer_state.json")
LEROBOT_STEP = "training_state/training_step.json"
STATE_FILES = (*TOP_STATES, LEROBOT_STEP)
"""Small JSON files that say the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Which parts of the training state a save holds."""

    weights: bool
    optimizer: bool
    step: int | None
    scheduler: bool
    rng: bool
    problems: tuple[str, ...] = field(default=())


def in_progress_marker(names: Iterable[str]) -> str | None:
    """The first name that says the save is not finished: the folder's own or one inside it."""
    for name in sorted(names):
        if any(_MARKER.search(part) for part in PurePosixPath(name).parts):
            return name
    return None


def unsafe_path(path: str) -> str | None:
    """Why a path inside a save must not be followed; None when it may."""
    pure = PurePosixPath(path)
    if not path or "\0" in path or "\\" in path:
        return "not a relative path"
    if pure.is_absolute() or ".." in pure.parts:
        return "climbs out of the checkpoint"
    return None


def parts_of(names: frozenset[str], state: Mapping[str, Any]) -> Parts:
    """Read the layout. `state` holds the parsed JSON of those `STATE_FILES` that exist."""
    if any(name.startswith(("pretrained_model/", "training_state/")) for name in names):
        return _lerobot(names, state)
    return _own(names, state)


def _weights(names: frozenset[str], folder: str) -> bool:
    return f"{folder}model.safetensors" in names or f"{folder}model.safetensors.index.json" in names


def _own(names: frozenset[str], state: Mapping[str, Any]) -> Parts:
    """Forebay's layout, and others that keep the same parts in files of similar names at the top."""
    said = {name: state[name] for name in TOP_STATES if name in names}
    problems = tuple(f"{name} is not a JSON object" for name, found in said.items() if not isinstance(found, dict))
    own: dict[str, Any] = {}
    for found in said.values():
        own |= found if isinstance(found, dict) else {}
    return Parts(
        weights=_weights(names, ""),
        optimizer=any(name.startswith("optimizer") for name in names),
        step=_step(own.get("step", own.get("global_step"))),
        scheduler=own.get("scheduler") is not None or any(name.startswith("scheduler") for name in names),
        rng=own.get("rng") is not None or any(name.startswith("rng") for name in names),
        problems=problems,
    )


def _lerobot(names: frozenset[str], state: Mapping[str, Any]) -> Parts:
    said = state.get(LEROBOT_STEP)
    step = said.get("step") if isinstance(said, dict) else None
    return Parts(
        weights=_weights(names, "pretrained_model/"),
        optimizer="training_state/optimizer_state.safetensors" in names,
        step=_step(step),
        scheduler="training_state/scheduler_state.json" in names,
        rng="training_state/rng_state.safetensors" in names,
        problems=()
        if LEROBOT_STEP not in names or isinstance(said, dict)
        else (f"{LEROBOT_STEP} is not a JSON object",),
    )


def _step(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def judge(parts: Parts, *, expected_step: int) -> tuple[Status, tuple[str, ...]]:
    """The status of a save whose files are whole, and what is missing or wrong."""
    if parts.problems:
        return "corrupt", parts.problems
    if not parts.weights:
        return "incomplete", ("no model.safetensors",)
    if parts.step is not None and parts.step != expected_step:
        return "corrupt", (f"the files say step {parts.step}, the event says {expected_step}",)
    missing = [
        name
        for name, there in (
            ("optimizer", parts.optimizer),
            ("scheduler", parts.scheduler),
            ("RNG", parts.rng),
            ("step", parts.step is not None),
        )
        if not there
    ]
    if not missing:
        return "complete", ()
    finding = f"missing {', '.join(missing)}"
    if not parts.optimizer:
        return "weights-only", (finding,)
    return ("incomplete" if parts.step is None else "inexact"), (finding,)
