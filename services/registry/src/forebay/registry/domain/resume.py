"""Where an attempt continues: a pure function of the job's known checkpoints, with its reasons.

Order is the recorded step, then the attempt; never a name, never a clock. A
complete save goes before an inexact one, because an inexact one next to complete
ones is a save that was interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from forebay.contracts.v1.models import Compatibility, SkippedCheckpoint
from forebay.registry.domain.nodes import Node, local_id
from forebay.registry.domain.view import facts_named, first_fact, shown

CRASHES_BEFORE_SUSPECT = 3
"""So many attempts that loaded a checkpoint and died without saving make it suspect."""
_MAX_SKIPPED = 50
_MAX_REASON = 400
_MAX_NEWER = 5
_OUTSIDE = frozenset(
    {
        "ProcessKilled",
        "AgentLost",
        "Cancelled",
        "DiskFull",
        "Stopped",
        "Preempted",
        "Evicted",
        "EvictedDrain",
        "EvictedMemory",
        "NodeLost",
        "DataNotMounted",
    }
)
"""Ends that say nothing about the checkpoint that was loaded."""
NEWEST = frozenset({"last", "latest"})
"""Names by which a person means the newest save."""
DELETED = "deleted"
"""The status of a save whose files a person had deleted."""
_WHY_NOT = {
    DELETED: "deleted",
    "weights-only": "weights only",
    "incomplete": "incomplete",
    "corrupt": "corrupt",
    "missing": "its files are not there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One checkpoint of the job, as far as a resume is concerned."""

    id: str
    step: int
    attempt: int
    uri: str
    digest: str
    status: str | None
    """None: written, but its files have not been checked yet."""
    findings: tuple[str, ...] = ()
    compatibility: Compatibility = field(default_factory=Compatibility)
    imported: str | None = None
    """`warm-start` or `resume` for a save that a person brought in."""
    imported_reason: str | None = None
    unknown: tuple[str, ...] = ()
    job: str | None = None
    """The job that wrote it, where that is another one."""

    @property
    def order(self) -> tuple[int, int, str]:
        return self.step, self.attempt, self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One thing that is not as it was when the checkpoint was made."""

    what: Literal["dataset_version", "parameters", "code", "steps"]
    made: str
    wanted: str
    forbids: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The decision, ready to become ResumeDecided."""

    mode: Literal["cold", "resume", "warm-start", "refused"]
    reasons: tuple[str, ...]
    save: Save | None = None
    skipped: tuple[SkippedCheckpoint, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the attempt asks with."""

    attempt: int
    allow_cold_start: bool
    forbid_cold_start: bool = False
    unread: bool = False
    """The log is not read up to this attempt, so there may be checkpoints that are not known yet."""
    compatibility: Compatibility
    skip_unverified: bool = False
    steps: int | None = None
    """How many steps the whole training shall have, where the job says so."""
    named: str | None = None
    """The one checkpoint that a person asks for: an id, a step, or its folder."""
    start_from: Save | None = None
    """Where the job's owner lets its first attempt begin."""
    continues: str | None = None
    """The earlier job that this one continues,"""
    inherited: tuple[Save, ...] = ()
    """its checkpoints, and those of the jobs that it continued itself."""


def save_of(node: Node) -> Save | None:
    """The checkpoint of a node; None while no event has said where and what it is."""
    written = facts_named(node, "CheckpointWritten", "CheckpointImported")
    if not written:
        return None
    deleted = first_fact(node, "CheckpointDeleted")
    findings = tuple(shown(node, "findings", ()))
    if deleted is not None:
        findings = (f"by {deleted.values['deleted_by']}: {deleted.values['deleted_reason']}",)
    return Save(
        id=local_id(node.id),
        step=shown(node, "step"),
        attempt=shown(node, "attempt"),
        uri=shown(node, "uri"),
        digest=shown(node, "digest"),
        status=shown(node, "status") if deleted is None else DELETED,
        findings=findings,
        compatibility=Compatibility.model_validate(shown(node, "compatibility", {})),
        imported=shown(node, "imported"),
        imported_reason=shown(node, "imported_reason"),
        unknown=tuple(shown(node, "unknown", ())),
    )


def suspects(attempts: Iterable[tuple[Node, int]]) -> frozenset[str]:
    """Checkpoints that attempts load and die on. Each attempt comes with the number of saves it wrote."""
    crashed: Counter[str] = Counter()
    for node, saves in attempts:
        decided, ended = first_fact(node, "ResumeDecided"), first_fact(node, "AttemptEnded")
        if decided is None or ended is None or saves or not ended.values.get("ran", True):
            continue
        if ended.values.get("exit_code") == 0 or ended.values.get("end_reason") in _OUTSIDE:
            continue
        loaded = decided.values.get("resume_checkpoint")
        if loaded is not None:
            crashed[loaded] += 1
    return frozenset(loaded for loaded, times in crashed.items() if times >= CRASHES_BEFORE_SUSPECT)


def overwritten(saves: Sequence[Save]) -> dict[str, str]:
    """Saves whose place now holds another save, and why they cannot be used."""
    found: dict[str, str] = {}
    by_place: dict[str, list[Save]] = {}
    for save in saves:
        if save.status != DELETED:
            by_place.setdefault(save.uri, []).append(save)
    for several in by_place.values():
        latest = max((save.attempt, save.step) for save in several)
        top = [save for save in several if (save.attempt, save.step) == latest]
        for save in several:
            if (save.attempt, save.step) != latest:
                found[save.id] = (
                    f"overwritten: its folder now holds {top[0].id} (attempt {latest[0]}, step {latest[1]})"
                )
            elif len({one.digest for one in top}) > 1:
                found[save.id] = "two different contents are on record for this step in this folder"
    return found


def conflicts(wanted: Wanted, save: Save) -> tuple[Conflict, ...]:
    """What differs between the run that asks and the one that saved, each by name."""
    ask, made = wanted.compatibility, save.compatibility
    found: list[Conflict] = []
    if ask.datasets and made.datasets and sorted(ask.datasets) != sorted(made.datasets):
        found.append(_conflict("dataset_version", _names(made.datasets), _names(ask.datasets), "dataset {} → {}"))
    if _differ(ask.parameters_sha256, made.parameters_sha256):
        before, after = _head(made.parameters_sha256), _head(ask.parameters_sha256)
        found.append(_conflict("parameters", before, after, "parameters {} → {}"))
    if _differ(ask.code_revision, made.code_revision):
        before, after = str(made.code_revision), str(ask.code_revision)
        said = "code {} → {}: resumed with other code"
        found.append(_conflict("code", before, after, said, forbids=False))
    if wanted.steps is not None and wanted.steps <= save.step:
        said = "step {} is saved and {} are wanted: nothing to do"
        found.append(_conflict("steps", str(save.step), str(wanted.steps), said, forbids=wanted.named is not None))
    return tuple(found)


def _conflict(
    what: Literal["dataset_version", "parameters", "code", "steps"],
    made: str,
    wanted: str,
    said: str,
    *,
    forbids: bool = True,
) -> Conflict:
    return Conflict(what=what, made=made, wanted=wanted, forbids=forbids, message=said.format(made, wanted))


def _differ(wanted: str | None, made: str | None) -> bool:
    return wanted is not None and made is not None and wanted != made


def _names(datasets: Iterable[str]) -> str:
    return ", ".join(sorted(datasets))


def _head(digest: str | None) -> str:
    return (digest or "")[:12]


def _remarks(wanted: Wanted, save: Save) -> list[str]:
    """What is worth saying about a save that is used."""
    found = [one.message for one in conflicts(wanted, save)]
    if wanted.compatibility.datasets and not save.compatibility.datasets:
        found.append("the checkpoint does not say which dataset version it was trained on")
    if save.imported is not None:
        unknown = f"; unknown: {', '.join(save.unknown)}" if save.unknown else ""
        found.append(f"imported as {save.imported}: {save.imported_reason or 'no reason given'}{unknown}")
    return found


def unverified_ahead(saves: Sequence[Save]) -> Save | None:
    """The newest written save that nobody has checked yet, if it could still win."""
    gone = overwritten(saves)
    best = max((save.order for save in saves if save.status == "complete" and save.id not in gone), default=None)
    waiting = [save for save in saves if save.status is None and save.id not in gone]
    ahead = [save for save in waiting if best is None or save.order > best]
    return max(ahead, key=lambda save: save.order, default=None)


def decide_resume(saves: Sequence[Save], wanted: Wanted, suspect: frozenset[str] = frozenset()) -> ResumePoint:
    """The resume point of one attempt. Pure, and every checkpoint passed over is named with its reason."""
    gone = overwritten(saves)
    if wanted.named is not None:
        return _named(saves, wanted, gone, suspect)
    skipped: list[SkippedCheckpoint] = []
    usable: list[Save] = []
    for save in sorted(saves, key=lambda one: one.order, reverse=True):
        why = _unusable(save, wanted, gone, suspect)
        if why is None:
            usable.append(save)
        else:
            skipped.append(SkippedCheckpoint(checkpoint=save.id, step=save.step, reason=why[:_MAX_REASON]))
    if not usable:
        none = tuple(skipped[:_MAX_SKIPPED])
        return _continued(wanted, none, suspect) or _without(wanted, none)
    chosen = next((save for save in usable if save.status == "complete"), usable[0])
    skipped += [
        SkippedCheckpoint(checkpoint=save.id, step=save.step, reason=_inexact(save))
        for save in usable
        if save.order > chosen.order
    ]
    skipped = sorted(skipped, key=lambda one: -one.step)[:_MAX_SKIPPED]
    newer = [f"step {one.step} skipped: {one.reason}" for one in skipped if one.step >= chosen.step]
    return ResumePoint(
        mode="resume",
        reasons=(*_grounds(wanted, chosen), *newer),
        save=chosen,
        skipped=tuple(skipped),
        conflicts=conflicts(wanted, chosen),
    )


def _grounds(wanted: Wanted, chosen: Save) -> list[str]:
    of = f" of {chosen.job}" if chosen.job else ""
    written = f", written by attempt {chosen.attempt}{of}" if chosen.attempt else of and f", written by {chosen.job}"
    origin = written if chosen.imported is None else ", imported"
    reasons = [f"resumed from step {chosen.step} (checkpoint {chosen.id}{origin})"]
    if chosen.status == "inexact":
        reasons.append(_inexact(chosen))
    return reasons + _remarks(wanted, chosen)


def find_save(saves: Sequence[Save], wanted: str) -> Save | None:
    """The save that a person means: by id, by folder, `last`, else the last one of that step."""
    if wanted in NEWEST:
        return max(saves, key=lambda save: save.order, default=None)
    exact = [save for save in saves if wanted in {save.id, f"checkpoint:{save.id}", save.uri}]
    if not exact and wanted.isdecimal():
        exact = [save for save in saves if save.step == int(wanted)]
    return max(exact, key=lambda save: save.order, default=None)


def _named(saves: Sequence[Save], wanted: Wanted, gone: dict[str, str], suspect: frozenset[str]) -> ResumePoint:
    """A checkpoint that a person asks for is taken or refused; nothing else is taken in its place."""
    save = find_save(saves, wanted.named or "")
    if save is None:
        return ResumePoint(mode="refused", reasons=(f"there is no checkpoint {wanted.named!r}",))
    differs = conflicts(wanted, save)
    why = _unusable(save, wanted, gone, suspect)
    about = _resolved(saves, wanted, save)
    if why is None:
        return ResumePoint(mode="resume", reasons=(*_grounds(wanted, save), *about), save=save, conflicts=differs)
    reasons = [f"step {save.step} (checkpoint {save.id}) was asked for and is refused: {why}"]
    reasons += [one.message for one in differs if one.message not in why] + about
    return ResumePoint(mode="refused", reasons=tuple(reasons), conflicts=differs)


def _resolved(saves: Sequence[Save], wanted: Wanted, save: Save) -> list[str]:
    """What a name such as `last` stands for, and which newer saves are not taken because of it."""
    said = [f"{wanted.named} means step {save.step} (checkpoint {save.id})"] if wanted.named in NEWEST else []
    newer = sorted((one for one in saves if one.step > save.step), key=lambda one: one.order, reverse=True)
    for one in newer[:_MAX_NEWER]:
        state = ": ".join([one.status or "not checked yet", *one.findings[:1]])
        said.append(f"step {one.step} (checkpoint {one.id}) is newer and is not taken: {state}"[:_MAX_REASON])
    return said


def _inexact(save: Save) -> str:
    return "inexact: " + ("; ".join(save.findings) or "scheduler or random state is missing")


def _unusable(save: Save, wanted: Wanted, gone: dict[str, str], suspect: frozenset[str]) -> str | None:
    if save.id in gone:
        return gone[save.id]
    if save.status is None:
        return "written, but its files were not verified in time"
    if save.status in _WHY_NOT:
        why = ": ".join([_WHY_NOT[save.status], *(["; ".join(save.findings)] if save.findings else [])])
        return f"{why}; a new run may start from it as warm start" if save.status == "weights-only" else why
    if save.id in suspect:
        return f"suspect: {CRASHES_BEFORE_SUSPECT} attempts loaded it and died without saving"
    return _unfit(save, wanted)


def _unfit(save: Save, wanted: Wanted) -> str | None:
    """Why a whole save is not one to continue from."""
    if save.imported == "warm-start":
        return "imported for a warm start only; a new run may start from it (restart.start_from)"
    forbids = [one.message for one in conflicts(wanted, save) if one.forbids]
    return f"made with other inputs: {'; '.join(forbids)}; a new run may start from it" if forbids else None


WARM = ("complete", "inexact", "weights-only")


def _start(wanted: Wanted, save: Save, skipped: tuple[SkippedCheckpoint, ...]) -> ResumePoint:
    """The first attempt of a job whose owner named a checkpoint to begin with."""
    if save.status not in WARM:
        found = "; ".join(save.findings) or save.status or "its files are not verified"
        reason = f"the job starts from {save.id}, which cannot be used: {found}"
        return ResumePoint(mode="refused", reasons=(reason,), skipped=skipped)
    said = _remarks(wanted, save)
    fits = save.status != "weights-only" and not any(one.forbids for one in conflicts(wanted, save))
    if save.imported == "resume" and fits:
        return ResumePoint(mode="resume", reasons=tuple(_grounds(wanted, save)), save=save, skipped=skipped)
    reason = f"warm start from step {save.step} of {save.id}: its weights, at step 0 and with a fresh optimizer"
    return ResumePoint(mode="warm-start", reasons=(reason, *said), save=save, skipped=skipped)


def _continued(wanted: Wanted, skipped: tuple[SkippedCheckpoint, ...], suspect: frozenset[str]) -> ResumePoint | None:
    """Where a job goes on that continues an earlier one; None: that one left nothing."""
    if not wanted.inherited:
        return None
    point = decide_resume(wanted.inherited, replace(wanted, continues=None, inherited=(), start_from=None), suspect)
    found = tuple(sorted((*skipped, *point.skipped), key=lambda one: -one.step))[:_MAX_SKIPPED]
    if point.mode == "resume":
        return replace(point, reasons=(f"continues {wanted.continues}", *point.reasons), skipped=found)
    gone = overwritten(wanted.inherited)
    warm = [save for save in wanted.inherited if save.status in WARM and save.id not in gone and save.id not in suspect]
    if warm:
        save = max(warm, key=lambda one: one.order)
        why = _unusable(save, wanted, gone, suspect) or "it cannot be resumed"
        reason = f"continues {wanted.continues}, warm start from step {save.step} of {save.id}: {why}"
        return ResumePoint(mode="warm-start", reasons=(reason, *_remarks(wanted, save)), save=save, skipped=found)
    said = f"{wanted.continues} left no checkpoint that can be used"
    if wanted.allow_cold_start:
        return replace(point, mode="cold", reasons=(f"{said}; the job allows a cold start", *point.reasons[1:]))
    refusal = f"{said}; restart.allow_cold_start starts at step 0 all the same"
    return replace(point, mode="refused", reasons=(refusal, *point.reasons[1:]), skipped=found)


def _without(wanted: Wanted, skipped: tuple[SkippedCheckpoint, ...]) -> ResumePoint:
    said = tuple(f"step {one.step} skipped: {one.reason}" for one in skipped)
    nothing_lost = not (skipped or wanted.forbid_cold_start or wanted.unread)
    if wanted.start_from is not None and (wanted.attempt == 1 or wanted.allow_cold_start or nothing_lost):
        return _start(wanted, wanted.start_from, skipped)
    if wanted.attempt == 1 and not skipped:
        none = "first attempt, and no checkpoint is on record"
        if wanted.continues is not None:
            none = f"{wanted.continues} left no checkpoint, so training starts at step 0"
        return ResumePoint(mode="cold", reasons=(none,))
    if nothing_lost:
        reason = f"attempt {wanted.attempt} starts at step 0: no checkpoint was saved before it, so nothing is lost"
        return ResumePoint(mode="cold", reasons=(reason,))
    if wanted.attempt == 1 or wanted.allow_cold_start:
        why = "first attempt" if wanted.attempt == 1 else "the job allows a cold start"
        return ResumePoint(
            mode="cold", reasons=(f"no usable checkpoint; {why}, so training starts at step 0", *said), skipped=skipped
        )
    forbidden = "forbids a cold start (restart.forbid_cold_start)"
    if not wanted.forbid_cold_start:
        forbidden = "does not allow a cold start (restart.allow_cold_start)"
    known = " on record yet" if wanted.unread else ""
    refusal = f"attempt {wanted.attempt} has no usable checkpoint{known}, and the job {forbidden}"
    return ResumePoint(mode="refused", reasons=(refusal, *said), skipped=skipped)
