"""`lerobot-train` as it is: where it saves, how it resumes, and what would lose work. Read from its command line.

It resumes with `--config_path=…/train_config.json --resume=true` and nothing else;
a save is finished when `checkpoints/last` moves; it refuses an output folder that exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PROGRAM = "lerobot-train"
_MODULES = frozenset({"lerobot.scripts.train", "lerobot.scripts.lerobot_train"})
_SCRIPTS = ("lerobot/scripts/train.py", "lerobot/scripts/lerobot_train.py")
DEFAULT_SAVE_FREQ = 20_000
DEFAULT_STEPS = 100_000
DEFAULT_BATCH = 8
DEFAULT_WORKERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeRobotRun:
    """What the command line says."""

    resume_words: int
    """How many words stay in front of the two resume options: launcher and program."""
    output_dir: str | None
    save_freq: int
    steps: int
    batch_size: int
    num_workers: int
    saves: bool
    resumes: bool
    """The owner wrote `--resume=true` already."""

    @property
    def checkpoints(self) -> str | None:
        return f"{self.output_dir.rstrip('/')}/checkpoints" if self.output_dir else None


def lerobot_run(words: Sequence[str]) -> LeRobotRun | None:
    """The run, when one of the words is LeRobot's training program (a launcher may stand before it)."""
    for index, word in enumerate(words):
        by_module = word in _MODULES and index > 0 and words[index - 1] == "-m"
        if by_module or word.rpartition("/")[2] == PROGRAM or word.endswith(_SCRIPTS):
            return _run(words, index + 1)
    return None


def _run(words: Sequence[str], start: int) -> LeRobotRun:
    options = _options(words[start:])
    return LeRobotRun(
        resume_words=start,
        output_dir=options.get("output_dir") or None,
        save_freq=_number(options.get("save_freq"), DEFAULT_SAVE_FREQ),
        steps=_number(options.get("steps"), DEFAULT_STEPS),
        batch_size=_number(options.get("batch_size"), DEFAULT_BATCH),
        num_workers=_number(options.get("num_workers"), DEFAULT_WORKERS),
        saves=options.get("save_checkpoint", "true").lower() != "false",
        resumes=options.get("resume", "false").lower() == "true",
    )


def _options(words: Sequence[str]) -> dict[str, str]:
    """`--name=value` and `--name value`; the last one counts."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            follows = words[index + 1] if index + 1 < len(words) else ""
            value = "true" if follows.startswith("--") or not follows else follows
        found[name] = value
    return found


def _number(text: str | None, default: int) -> int:
    try:
        return int(float((text or "").replace("_", ""))) if text else default
    except (ValueError, OverflowError):
        return default
