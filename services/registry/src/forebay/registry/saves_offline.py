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
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from forebay.contracts.v1.models import Compatibility
from forebay.registry.domain.checkpoint_layout import (
    FILE_SAVES,
    in_progress_marker,
    in_progress_markers,
    looks_like_save,
    parts_of,
)
from forebay.registry.domain.resume import NEWEST, ResumePoint, Save, Wanted, decide_resume
from forebay.registry.workers.save_files import faults_in, states_in
from forebay.registry.workers.verify_checkpoint import MAX_ENTRIES, judge_files, marked
from forebay.runtime.regular_files import open_regular, read_regular

_NUMBER = re.compile(r"(\d+)\Z")
_STEP = re.compile(r"(?:step|iter|global_step)[=_-]?(\d+)", re.IGNORECASE)
_POINTER_BYTES = 200
"""Some trainers name their last save in a small text file instead of a link."""
_STILL_WRITING_S = 600.0
"""A save whose files have not changed for so long is not being written, whatever its marks say."""
_COPIED_S = 2.0
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
    kind: str = ""
    """What wrote it: `LeRobot, adapter`."""
    changed: float = field(default=0.0, compare=False)
    """When one of its files changed last, by the file system's clock."""

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


def look_at(folder: Path, *, now: float | None = None) -> Found:
    """Judge one save or all saves of a folder; `now` in seconds since the epoch says whether a mark is stale."""
    folder = folder.resolve()
    if folder.is_file() or looks_like_save(_few_names(folder)):
        return Found(saves=tuple(_without_stale_marks([_judge(folder)], now)))
    inner = folder / "checkpoints"
    root = inner if inner.is_dir() else folder
    saves: list[Judged] = []
    passed: list[Passed] = []
    names: list[Path] = []
    for path in sorted(root.iterdir()):
        why = _no_save(path)
        if path.is_symlink() or _pointer(path) is not None:
            names.append(path)
        elif why is None:
            saves.append(_judge(path))
        else:
            passed.append(Passed(name=path.name, reason=why))
    saves = sorted(_twice(_without_stale_marks(saves, now)), key=lambda save: (save.step, save.name))
    linked = tuple(_linked(one, root, {save.name: save for save in saves}) for one in names)
    return Found(saves=tuple(saves), passed=tuple(passed), links=linked)


def _few_names(folder: Path) -> list[str]:
    """What lies directly in a folder, subfolders with a slash; enough to see what it is."""
    return [f"{path.name}/" if path.is_dir() else path.name for path in islice(folder.iterdir(), MAX_ENTRIES)]


def _no_save(path: Path) -> str | None:
    if in_progress_marker([path.name]) is not None:
        return "its name says that it was never finished"
    if not path.is_dir():
        if path.suffix not in FILE_SAVES:
            return "a file, not a checkpoint's folder"
        return None if _number(path) is not None or path.stem == "last" else "its name says no step"
    if _number(path) is None:
        return "its name says no step; look at it by itself if it is a checkpoint of its own"
    return None


def _number(path: Path) -> int | None:
    """The step that a name says: `step=400` of `epoch=3-step=400.ckpt`, else the number at its end."""
    name = path.name.removesuffix(path.suffix) if path.suffix in FILE_SAVES else path.name
    found = _STEP.findall(name) or _NUMBER.findall(name)
    return int(found[-1]) if found and len(found[-1]) < 16 else None


def _pointer(path: Path) -> str | None:
    """What a small text file beside the saves names, as `latest` does."""
    if path.is_symlink() or not path.is_file() or path.suffix not in {"", ".txt"}:
        return None
    if not 0 < path.stat().st_size <= _POINTER_BYTES:
        return None
    try:
        said = read_regular(path, limit=_POINTER_BYTES).decode().strip()
    except (OSError, ValueError):
        return None
    return said if said and said.isprintable() and " " not in said else None


def _judge(place: Path) -> Judged:
    """One save: a folder, or one file."""
    folder = place.parent if place.is_file() else place
    paths = [place] if place.is_file() else list(islice(folder.rglob("*"), MAX_ENTRIES))
    present = [path.relative_to(folder).as_posix() for path in paths]
    outside = [name for path, name in zip(paths, present, strict=True) if not path.resolve().is_relative_to(folder)]
    names = frozenset(name for path, name in zip(paths, present, strict=True) if path.is_file()) - {*outside}
    said = parts_of(names, states_in(folder, names), faults_in(folder, names)[1]).step
    number = _number(place)
    step = said if said is not None else number or 0
    verdict = marked(judge_files(folder, names, step), in_progress_markers([place.name, *present]))
    state, findings = str(verdict.status), verdict.findings
    if outside:  # what is absent may lie there, and was not looked at
        findings = tuple(one for one in findings if not one.startswith(("no weights", "missing ")))
        state, findings = (
            "corrupt",
            (*(f"{name} is a link out of the checkpoint" for name in sorted(outside)), *findings),
        )
    if said is not None and number is not None and number != said:
        findings = (*findings, f"its name says {number}, its files say step {said}: the files count")
    return Judged(
        name=place.name,
        folder=place,
        step=step,
        state=state,
        findings=findings,
        made_with=_made_with(folder),
        kind=verdict.kind,
        changed=max((path.lstat().st_mtime for path in paths if not path.is_dir()), default=place.stat().st_mtime),
    )


def _without_stale_marks(saves: Sequence[Judged], now: float | None) -> list[Judged]:
    """`in progress` only where somebody may still be writing; otherwise why the mark is stale."""
    found: list[Judged] = []
    for save in saves:
        if not any(one.startswith(_MARKED) for one in save.findings):
            found.append(save)
        elif (why := _stale(save, [one for one in saves if one is not save], now)) is None:
            found.append(replace(save, state="in progress"))
        else:
            found.append(replace(save, findings=(*save.findings, f"the mark is stale: {why}; it was never published")))
    return found


def _stale(save: Judged, others: Sequence[Judged], now: float | None) -> str | None:
    """Why nobody is writing a marked save any more; None when somebody may be."""
    later = max((one for one in others if one.step > save.step), key=lambda one: one.step, default=None)
    if later is not None:
        return f"the training has gone on to step {later.step}"
    if now is None or now - save.changed >= _STILL_WRITING_S:
        return "nothing in it has changed for " + ("a while" if now is None else _span(now - save.changed))
    if any(one.changed + _COPIED_S >= save.changed for one in others):
        return "it is as old as the saves before it, so this folder is a copy"
    return None


def _span(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"


_MARKED = "marked in progress"


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
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        if path.is_file():
            with open_regular(path) as stream:
                digest = hashlib.file_digest(stream, "sha256")
            name = "" if path == folder else path.relative_to(folder).as_posix()
            found.append((name, digest.hexdigest()))
    return found


def _linked(link: Path, root: Path, saves: Mapping[str, Judged]) -> Linked:
    if (named := _pointer(link)) is not None:
        return _named_by(link, named, saves)
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


def _named_by(file: Path, named: str, saves: Mapping[str, Judged]) -> Linked:
    """A text file that names a save, by its name or by its step."""
    name = named.rstrip("/").rpartition("/")[2]
    save = saves.get(name)
    if save is None and name.isdecimal():
        save = next((one for one in saves.values() if one.step == int(name[:15])), None)
    if save is None:
        return Linked(name=file.name, target=None, problem=f"it names {named}, which is no checkpoint here")
    return Linked(name=file.name, target=save.name, problem="" if save.whole else f"{save.name} is {save.state}")


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
    resolved: tuple[str, ...] = ()
    if named is not None:
        named, resolved = _meant(found, named)
    passed = next((one for one in found.passed if one.name == named), None)
    if passed is not None:
        return ResumePoint(mode="refused", reasons=(f"{passed.name} was asked for and is refused: {passed.reason}",))
    wanted = Wanted(
        attempt=2, allow_cold_start=False, forbid_cold_start=True, compatibility=compatibility, named=named, steps=steps
    )
    suspect = [save for save in found.saves if save.state == "suspect"]
    point = decide_resume([_save(save) for save in found.saves if save.state != "suspect"], wanted)
    if named is not None:
        twin = next((save for save in suspect if named in {save.name, str(save.step)}), None)
        if twin is not None:
            point = ResumePoint(mode="refused", reasons=(f"{twin.name}: {_why(twin)}",))
        return replace(point, reasons=(*point.reasons[:1], *resolved, *point.reasons[1:]))
    said = tuple(f"step {save.step} skipped: {_why(save)}" for save in suspect)
    if point.mode == "resume":
        newer = tuple(
            one for one, save in zip(said, suspect, strict=True) if point.save and save.step >= point.save.step
        )
        return replace(point, reasons=(*point.reasons, *newer))
    why = "no checkpoint here can be resumed" if found.saves else "there is no checkpoint here"
    return replace(point, mode="refused", reasons=(why, *point.reasons[1:], *said))


def _meant(found: Found, named: str) -> tuple[str, tuple[str, ...]]:
    """(the save's own name for a name, a step, a path or a link, what a second name stands for)."""
    name = named.rstrip("/").rpartition("/")[2]
    linked = next((link for link in found.links if link.name == name), None)
    if linked is not None and linked.target is None:
        return name, (f"{name}: {linked.problem}",)
    if linked is None and (name not in NEWEST or not found.saves or any(one.name == name for one in found.saves)):
        return name, ()
    target = linked.target if linked is not None and linked.target is not None else found.saves[-1].name
    step = next((save.step for save in found.saves if save.name == target), 0)
    how = f"{name} names" if linked is not None else f"nothing here is called {name}, so it means the newest,"
    return target, (f"{how} {target} (step {step})",)


def _why(save: Judged) -> str:
    return ": ".join([save.state, *(["; ".join(save.findings)] if save.findings else [])])


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
