"""Judges a folder of checkpoints where it lies, by the rules that the worker uses; asks no server and changes nothing.

One save, or a folder that holds several (a training's `checkpoints`). The recorded
step orders them, never a name and never a time; `last` and other links are second
names and are resolved. Called by `saves_command`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from forebay.contracts.v1.models import Compatibility
from forebay.registry.domain.checkpoint_layout import in_progress_marker, parts_of
from forebay.registry.domain.resume import ResumePoint, Save, Wanted, decide_resume
from forebay.registry.workers.verify_checkpoint import MAX_ENTRIES, judge_files, states_in
from forebay.runtime.regular_files import open_regular, read_regular

_NUMBER = re.compile(r"(\d+)\Z")
_PARTS = ("pretrained_model", "training_state", "model.safetensors", "model.safetensors.index.json", "state.json")
_CONFIG = ("pretrained_model/train_config.json", "train_config.json")
_MAX_CONFIG, _BLOCK = 4 << 20, 1 << 20
_WHOLE = ("complete", "inexact", "weights-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One save: what it is, and why. `state` adds `in progress` and `suspect` to the worker's words."""

    name: str
    folder: Path
    step: int
    state: str
    findings: tuple[str, ...]
    made_with: Compatibility

    @property
    def whole(self) -> bool:
        return self.state in _WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What lies beside the saves and is none, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A second name such as `last`: what it leads to, or why it leads to no save."""

    name: str
    target: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything in one folder; saves in the order of their steps."""

    saves: tuple[Judged, ...]
    passed: tuple[Passed, ...] = ()
    links: tuple[Linked, ...] = ()


def look_at(folder: Path) -> Found:
    """Judge one save or all saves of a folder."""
    folder = folder.resolve()
    if any((folder / name).exists() for name in _PARTS):
        return Found(saves=(_judge(folder),))
    inner = folder / "checkpoints"
    root = inner if inner.is_dir() else folder
    saves: list[Judged] = []
    passed: list[Passed] = []
    links: list[Path] = []
    for path in sorted(root.iterdir()):
        why = _no_save(path)
        if path.is_symlink():
            links.append(path)
        elif why is None:
            saves.append(_judge(path))
        else:
            passed.append(Passed(name=path.name, reason=why))
    saves = sorted(_twice(saves), key=lambda save: (save.step, save.name))
    named = tuple(_linked(link, root, {save.name: save for save in saves}) for link in links)
    return Found(saves=tuple(saves), passed=tuple(passed), links=named)


def _no_save(path: Path) -> str | None:
    if not path.is_dir():
        return "a file, not a checkpoint's folder"
    if in_progress_marker([path.name]) is not None:
        return "its name says that it is still being written"
    if _NUMBER.search(path.name) is None:
        return "its name says no step; look at it by itself if it is a checkpoint of its own"
    return None


def _judge(folder: Path) -> Judged:
    paths = list(islice(folder.rglob("*"), MAX_ENTRIES))
    present = [path.relative_to(folder).as_posix() for path in paths]
    marker = in_progress_marker([folder.name, *present])
    outside = [name for path, name in zip(paths, present, strict=True) if not path.resolve().is_relative_to(folder)]
    names = frozenset(name for path, name in zip(paths, present, strict=True) if path.is_file()) - {*outside}
    states = states_in(folder, names)
    said = parts_of(names, states).step
    number = _NUMBER.search(folder.name)
    step = said if said is not None else int(number[1]) if number else 0
    state, findings = _state(folder, names, step, marker, sorted(outside))
    if said is not None and number and int(number[1]) != said:
        findings = (*findings, f"its name says {int(number[1])}, its files say step {said}: the files count")
    return Judged(
        name=folder.name, folder=folder, step=step, state=state, findings=findings, made_with=_made_with(folder)
    )


def _state(
    folder: Path, names: frozenset[str], step: int, marker: str | None, outside: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    if marker is not None:
        return "in progress", (f"marked in progress: {marker}",)
    if outside:
        return "corrupt", tuple(f"{name} is a link out of the checkpoint" for name in outside)
    verdict = judge_files(folder, names, step)
    return verdict.status, verdict.findings


def _twice(saves: Iterable[Judged]) -> list[Judged]:
    """Two whole saves of one step with different content: nobody can say which one the training wrote."""
    before = list(saves)
    found = list(before)
    for place, save in enumerate(before):
        twins = [one for one in before if one.step == save.step and one.name != save.name and one.whole and save.whole]
        other = next((one for one in twins if _content(one.folder) != _content(save.folder)), None)
        if other is not None:
            why = f"step {save.step} is also in {other.name}, with other content"
            found[place] = replace(save, state="suspect", findings=(*save.findings, why))
    return found


def _content(folder: Path) -> list[tuple[str, str]]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest = hashlib.sha256()
            with open_regular(path) as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
            found.append((path.relative_to(folder).as_posix(), digest.hexdigest()))
    return found


def _linked(link: Path, root: Path, saves: Mapping[str, Judged]) -> Linked:
    said = link.readlink()
    try:
        target = link.resolve()
    except (OSError, RuntimeError):  # what Python says of links that lead to each other
        return Linked(name=link.name, target=None, problem=f"it leads to {said}, and that leads nowhere")
    if not target.is_relative_to(root):
        return Linked(name=link.name, target=None, problem=f"it leads out of this folder, to {said}: not followed")
    if not target.exists():
        return Linked(name=link.name, target=None, problem=f"it names {said}, which is not there")
    save = saves.get(target.name) if target.parent == root else None
    if save is None:
        return Linked(name=link.name, target=None, problem=f"it names {said}, which is no checkpoint")
    absolute = "its path is absolute, so it breaks when the folder is moved" if said.is_absolute() else ""
    return Linked(name=link.name, target=save.name, problem=absolute if save.whole else f"{save.name} is {save.state}")


# ------------------------------------------------------------- what it was made with


def _made_with(folder: Path) -> Compatibility:
    """What the training's own configuration says of data and code; nothing where it says nothing."""
    said = next((found for name in _CONFIG if isinstance(found := _json(folder / name), dict)), {})
    dataset = _dataset(said.get("dataset"))
    code = said.get("code")
    return Compatibility(
        datasets=() if dataset is None else (dataset,),
        code_revision=plain_code(code) if isinstance(code, str) else None,
    )


def _dataset(said: object) -> str | None:
    if not isinstance(said, dict):
        return None
    name, version = said.get("name", said.get("repo_id")), said.get("version", said.get("revision"))
    if not isinstance(name, str) or not isinstance(version, int | str) or isinstance(version, bool):
        return None
    return f"dataset:{name}@{f'v{version}' if isinstance(version, int) else version}"


def plain_code(revision: str) -> str:
    """`git:0123abc` and `0123abc` are one revision."""
    return revision.removeprefix("git:")


def _json(path: Path) -> Any:
    try:
        return json.loads(read_regular(path, limit=_MAX_CONFIG))
    except (OSError, ValueError, RecursionError):
        return None


# ------------------------------------------------------------------ where to go on


def resume_in(found: Found, *, named: str | None, compatibility: Compatibility, steps: int | None) -> ResumePoint:
    """Which save a resume would take: the registry's own decision over what lies here."""
    named = None if named is None else _meant(found, named)
    passed = next((one for one in found.passed if one.name == named), None)
    if passed is not None:
        return ResumePoint(mode="refused", reasons=(f"{passed.name} was asked for and is refused: {passed.reason}",))
    wanted = Wanted(attempt=2, allow_cold_start=False, compatibility=compatibility, named=named, steps=steps)
    suspect = [save for save in found.saves if save.state == "suspect"]
    point = decide_resume([_save(save) for save in found.saves if save.state != "suspect"], wanted)
    if named is not None:
        twin = next((save for save in suspect if named in {save.name, str(save.step)}), None)
        return point if twin is None else ResumePoint(mode="refused", reasons=(f"{twin.name}: {_why(twin)}",))
    said = tuple(f"step {save.step} skipped: {_why(save)}" for save in suspect)
    if point.mode == "resume":
        newer = tuple(
            one for one, save in zip(said, suspect, strict=True) if point.save and save.step >= point.save.step
        )
        return replace(point, reasons=(*point.reasons, *newer))
    why = "no checkpoint here can be resumed" if found.saves else "there is no checkpoint here"
    return replace(point, mode="refused", reasons=(why, *point.reasons[1:], *said))


def _meant(found: Found, named: str) -> str:
    """A name, a step, a path or a link, as the save's own name where there is one."""
    name = named.rstrip("/").rpartition("/")[2]
    linked = next((link for link in found.links if link.name == name), None)
    return name if linked is None or linked.target is None else linked.target


def _why(save: Judged) -> str:
    return f"{save.state}: {'; '.join(save.findings)}"


def _save(save: Judged) -> Save:
    return Save(
        id=save.name,
        step=save.step,
        attempt=0,
        uri=str(save.folder),
        digest="",
        status="incomplete" if save.state == "in progress" else save.state,
        findings=save.findings,
        compatibility=save.made_with,
    )
