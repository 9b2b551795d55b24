"""Finds the saves of a run that Forebay did not watch: one checkpoint, or the folder that holds them.

Order is the recorded step, never a name and never a time. Called by
`forebay checkpoint import`.
"""

from __future__ import annotations

import re
from pathlib import Path

from forebay.sdk.checkpoints import Save, Unfinished, in_progress, inspect

_SAVE = ("pretrained_model", "model.safetensors", "model.safetensors.index.json")
_NUMBER = re.compile(r"\d+\Z")


def saves_in(folder: Path) -> tuple[list[Save], list[Unfinished]]:
    """(whole saves by step, what was passed over and why)."""
    whole: dict[int, Save] = {}
    passed: list[Unfinished] = []
    for one in _candidates(folder):
        judged = one if isinstance(one, Unfinished) else inspect(one)
        if isinstance(judged, Unfinished):
            passed.append(judged)
        elif judged.step in whole and whole[judged.step].digest != judged.digest:
            reason = f"step {judged.step} is also in {whole[judged.step].folder.name}, with other content"
            passed.append(Unfinished(folder=judged.folder, reason=reason))
        else:
            whole[judged.step] = judged
    return [whole[step] for step in sorted(whole)], passed


def _candidates(folder: Path) -> list[Path | Unfinished]:
    if any((folder / name).exists() for name in _SAVE):
        return [folder.resolve()]
    inner = folder / "checkpoints"
    return [_judged(path) for path in sorted((inner if inner.is_dir() else folder).iterdir())]


def _judged(path: Path) -> Path | Unfinished:
    why = None
    if path.is_symlink():
        why = f"a second name of {path.readlink().name}"
    elif not path.is_dir():
        why = "a file, not a checkpoint's folder"
    elif in_progress(path.name):
        why = "its name says that it is still being written"
    elif not _NUMBER.search(path.name):
        why = "its name says no step; import it by itself if it is one of its own"
    return path if why is None else Unfinished(folder=path, reason=why)
