"""What the files of a save make of it: complete, inexact, weights-only, incomplete.

A save is judged by what its files are, not by one file name. Forebay's own layout
(`model.safetensors`, `optimizer.safetensors`, `state.json`), LeRobot's, Hugging Face
Trainer's, adapters, shards with an index, torch distributed checkpoints, FSDP and
DeepSpeed ranks, and Lightning's single files all say the same five things in their
own way: weights, optimizer, scheduler, random state, step.
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
TRAIN_CONFIG = "pretrained_model/train_config.json"
ADAPTER_CONFIG = "adapter_config.json"
STATE_FILES = (*TOP_STATES, LEROBOT_STEP, TRAIN_CONFIG)
"""Small JSON files that say the step, and which parts the training has at all."""
DCP_METADATA = ".metadata"
DCP_SHARD = ".distcp"
FILE_SAVES = (".ckpt", ".pt", ".pth")
"""A save may be a single file of these kinds, as Lightning writes it."""
_DATA = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", DCP_SHARD, ".npz", ".msgpack", ".h5", ".gguf")
_NO_WEIGHTS = re.compile(
    r"optim|sched|rng|random_state|processor|normaliz|training_args|sampler|dataloader|scaler|train_state|extra_state"
)
_OF_SHARDS = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<total>\d{1,6})\.(?:safetensors|bin)\Z")
_RANK = re.compile(r"(?:world_size_(?P<world>\d{1,6})_)?rank_?(?P<rank>\d{1,6}).*\.(?:pt|pth|bin|pkl)\Z")
_OF_A_SAVE = re.compile(
    r"(pretrained_model|training_state)/|(state|trainer_state)\.json\Z|\.metadata\Z|optim"
    r"|(model|adapter_model|pytorch_model|diffusion_pytorch_model|consolidated|mp_rank|zero_pp_rank)[^/]*"
    r"(/|\.(safetensors|bin|pt|pth))\Z"
)
_MAX_RANKS = 100_000
_WEIGHTS_KEYS = frozenset({"state_dict", "model", "module", "model_state_dict"})
_OPTIMIZER_KEYS = frozenset(
    {"optim", "optimizer", "optimizers", "optimizer_state", "optimizer_states", "optimizer_state_dict", "optim_state"}
)
_SCHEDULER_KEYS = frozenset({"scheduler", "schedulers", "lr_scheduler", "lr_schedulers", "scheduler_state_dict"})
_RNG_KEYS = frozenset({"rng", "rng_state", "rng_states", "random_state", "random_rng_state", "torch_rng_state"})
_LEROBOT_FILES = {
    "optimizer": "training_state/optimizer_state.safetensors",
    "scheduler": "training_state/scheduler_state.json",
    "RNG": "training_state/rng_state.safetensors",
    "step": LEROBOT_STEP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What was read from files whose names say little: keys of pickles, by file or by folder of a `.metadata`."""

    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Which parts of the training state a save holds."""

    kind: str
    """For a reader: `LeRobot, adapter`."""
    weights: bool
    optimizer: bool
    step: int | None
    scheduler: bool
    rng: bool
    states_step: bool
    """Whether this kind of save has a file that states the step; the others are ordered by their name."""
    problems: tuple[str, ...] = ()
    """What contradicts itself: the save is corrupt."""
    absent: tuple[str, ...] = ()
    """Files that others in the save need: it is incomplete."""


def in_progress_marker(names: Iterable[str]) -> str | None:
    """The first name that says the save is not finished: the folder's own or one inside it."""
    return next(iter(in_progress_markers(names)), None)


def in_progress_markers(names: Iterable[str]) -> list[str]:
    """Every name that says the save is not finished, sorted."""
    return [name for name in sorted(names) if any(_MARKER.search(part) for part in PurePosixPath(name).parts)]


def unsafe_path(path: str) -> str | None:
    """Why a path inside a save must not be followed; None when it may."""
    pure = PurePosixPath(path)
    if not path or "\0" in path or "\\" in path:
        return "not a relative path"
    if pure.is_absolute() or ".." in pure.parts:
        return "climbs out of the checkpoint"
    return None


def looks_like_save(names: Iterable[str]) -> bool:
    """Whether a folder that directly holds these (folders end with a slash) is a save, and not a folder of saves."""
    return any(_OF_A_SAVE.match(name) or name.endswith((".index.json", DCP_SHARD)) for name in names)


def parts_of(names: frozenset[str], state: Mapping[str, Any], contents: Contents | None = None) -> Parts:
    """Read the layout. `state` holds the parsed JSON of those `STATE_FILES` that exist."""
    found = contents or Contents()
    keys = frozenset().union(*found.keys.values()) if found.keys else frozenset()
    lerobot = any(name.startswith(("pretrained_model/", "training_state/")) for name in names)
    steps = (LEROBOT_STEP,) if lerobot else TOP_STATES
    said = {name: state[name] for name in steps if name in names}
    own: dict[str, Any] = {}
    for one in said.values():
        own |= one if isinstance(one, dict) else {}
    config = state.get(TRAIN_CONFIG)
    none_wanted = isinstance(config, dict) and "scheduler" in config and config["scheduler"] is None
    step = _step(own.get("step", own.get("global_step")))
    opaque = any(name.endswith((DCP_SHARD, DCP_METADATA, ".ckpt")) or "world_size_" in name for name in names)
    return Parts(
        kind=_kind(names, lerobot=lerobot, keys=keys),
        weights=any(_is_weights(name, found.keys) for name in names) or _says(keys, _WEIGHTS_KEYS),
        optimizer=_named((name for name in names if name.endswith((*_DATA, ".pkl"))), "optim")
        or _says(keys, _OPTIMIZER_KEYS),
        step=found.step if step is None else step,
        scheduler=none_wanted
        or own.get("scheduler") is not None
        or _named(names, "sched", "extra_state")
        or _says(keys, _SCHEDULER_KEYS),
        rng=own.get("rng") is not None or _named(names, "rng", "random_state", "extra_state") or _says(keys, _RNG_KEYS),
        states_step=lerobot or bool(said) or not opaque,
        problems=tuple(f"{name} is not a JSON object" for name, one in said.items() if not isinstance(one, dict)),
        absent=(*_absent(names), *_absent_parts(names)),
    )


def _named(names: Iterable[str], *words: str) -> bool:
    return any(word in name.lower() for name in names for word in words)


def _says(keys: Iterable[str], words: frozenset[str]) -> bool:
    return any(key.partition(".")[0] in words for key in keys)


def _is_weights(name: str, keys: Mapping[str, frozenset[str]]) -> bool:
    path = PurePosixPath(name)
    if not name.endswith(_DATA) or _NO_WEIGHTS.search(name.lower()):
        return False
    if name.endswith(DCP_SHARD):
        said = keys.get(path.parent.as_posix())
        return said is None or any("." in key and not _NO_WEIGHTS.search(key.lower()) for key in said)
    return True


def _kind(names: frozenset[str], *, lerobot: bool, keys: frozenset[str]) -> str:
    words = ["LeRobot"] if lerobot else []
    if any(name.endswith(DCP_SHARD) or PurePosixPath(name).name == DCP_METADATA for name in names):
        words.append("torch distributed")
    if any("fsdp" in name.lower() for name in names):
        words.append("FSDP")
    if any("zero_pp_rank" in name or "mp_rank" in name for name in names):
        words.append("DeepSpeed")
    if any(key.startswith("pytorch-lightning") for key in keys):
        words.append("Lightning")
    if any(PurePosixPath(name).name.startswith("adapter_model") for name in names):
        words.append("adapter")
    if TOP_STATES[1] in names:
        words.append("Hugging Face Trainer")
    shards = sum(1 for name in names if _OF_SHARDS.search(name) or name.endswith(DCP_SHARD))
    if shards > 1 or any(name.endswith(".index.json") for name in names):
        words.append(f"{shards} shards" if shards > 1 else "shards")
    return ", ".join(words) or "folder"


def _step(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _absent(names: frozenset[str]) -> list[str]:
    """Small files without which the others cannot be loaded."""
    found = []
    for name in sorted(names):
        path = PurePosixPath(name)
        beside = f"{path.parent.as_posix()}/" if len(path.parts) > 1 else ""
        if path.name.startswith("adapter_model.") and f"{beside}{ADAPTER_CONFIG}" not in names:
            found.append(f"no {beside}{ADAPTER_CONFIG}: {path.name} cannot be loaded without it")
        groups = f"{beside}optimizer_param_groups.json"
        if path.name == "optimizer_state.safetensors" and groups not in names:
            found.append(f"no {groups}: {path.name} cannot be loaded without it")
        if name.endswith(DCP_SHARD) and f"{beside}{DCP_METADATA}" not in names:
            where = beside.rstrip("/") or "the save"
            why = f"no {beside}{DCP_METADATA}: torch writes it last, so {where} was not finished"
            found += [] if why in found else [why]
    return found


def _absent_parts(names: frozenset[str]) -> list[str]:
    """Parts that the numbers in other file names say there must be."""
    shards: dict[tuple[str, int], set[int]] = {}
    ranks: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if (shard := _OF_SHARDS.match(name)) is not None:
            shards.setdefault((shard["stem"], int(shard["total"])), set()).add(int(shard["number"]))
        if (rank := _RANK.search(PurePosixPath(name).name)) is not None:
            start = len(name) - len(PurePosixPath(name).name)
            group = f"{name[: start + rank.start('rank')]}{{}}{name[start + rank.end('rank') :]}"
            ranks.setdefault((group, int(rank["world"] or 0)), set()).add(int(rank["rank"]))
    found = [
        f"{stem}: {len(there)} of {total} shards are there"
        for (stem, total), there in sorted(shards.items())
        if len(there) < total
    ]
    for (group, world), there in sorted(ranks.items()):
        wanted = max(world, max(there) + 1 if len(there) > 1 else 0)
        if len(there) < wanted <= _MAX_RANKS:
            first = next(number for number in range(wanted) if number not in there)
            found.append(f"{group.format(first)} is not there: {len(there)} of {wanted} ranks are")
    return found


def judge(parts: Parts, *, expected_step: int) -> tuple[Status, tuple[str, ...]]:
    """The status of a save whose files are whole, and everything that is missing or wrong."""
    problems = list(parts.problems)
    if parts.step is not None and parts.step != expected_step:
        problems.append(f"the files say step {parts.step}, the event says {expected_step}")
    absent = list(parts.absent)
    if not parts.weights:
        absent.insert(0, "no weights: no model, adapter or shard is among the files")
    lacking = _lacking(parts)
    findings = (*problems, *absent, *(_words(parts, lacking),) * bool(lacking))
    if problems:
        return "corrupt", findings
    if absent:
        return "incomplete", findings
    if not parts.optimizer:
        return "weights-only", findings
    if "step" in lacking and parts.states_step:
        return "incomplete", findings
    return ("inexact" if lacking else "complete"), findings


def _lacking(parts: Parts) -> list[str]:
    there = {"optimizer": parts.optimizer, "scheduler": parts.scheduler, "RNG": parts.rng}
    found = [name for name, is_there in there.items() if not is_there]
    return found if parts.step is not None else [*found, "step"]


def _words(parts: Parts, lacking: list[str]) -> str:
    said = f"missing {', '.join(lacking)}"
    if parts.kind.startswith("LeRobot"):
        return f"{said} (no {', '.join(_LEROBOT_FILES[name] for name in lacking)})"
    return said
