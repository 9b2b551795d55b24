"""Finds the saves of a run that Forebay did not watch: one checkpoint, or the folder that holds them.

Order is the recorded step, never a name and never a time. Called by
`forebay checkpoint import`.
"""

from __future__ import annotations

import re
from pathlib import Path

from forebay.sdk.checkpoints import FILE_SAVES, Save, Unfinished, in_progress, inspect, named_step

_OF_A_SAVE = re.compile(
    r"(pretrained_model|training_state)\Z|(state|trainer_state)\.json\Z|\.metadata\Z|optim|.*\.distcp\Z|.*\.index\.json\Z"
    r"|(model|adapter_model|pytorch_model|diffusion_pytorch_model|consolidated|mp_rank|zero_pp_rank)[^/]*\Z"
)
"""What lies directly in a save, and not in a folder of saves."""


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
    if folder.is_file() or any(_OF_A_SAVE.match(path.name) for path in folder.iterdir()):
        return [folder.resolve()]
    inner = folder / "checkpoints"
    return [_judged(path) for path in sorted((inner if inner.is_dir() else folder).iterdir())]


def _judged(path: Path) -> Path | Unfinished:
    why = None
    if path.is_symlink():
        why = f"a second name of {path.readlink().name}"
    elif in_progress(path.name):
        why = "its name says that it was never finished"
    elif not path.is_dir() and path.suffix not in FILE_SAVES:
        why = "a file, not a checkpoint's folder"
    elif named_step(path) is None:
        why = "its name says no step; import it by itself if it is one of its own"
    return path if why is None else Unfinished(folder=path, reason=why)
