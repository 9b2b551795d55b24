"""The commands `derive`, `compact`, `withdraw`, `check` and `cleanup`: what a person asks about versions and episodes.

Decided from the state alone; what follows is long work or an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from forebay.contracts.identifiers import split_episode_name, stable_id
from forebay.contracts.v1.datasets import DatasetDerivationRequested, DatasetVersionRemoved
from forebay.contracts.v1.episodes import EpisodeWithdrawn
from forebay.ingest.domain.decide import CHECK
from forebay.ingest.domain.documents import Dataset, Derivation, Episode, Lease, Model, Tag, Version, place, use_of
from forebay.ingest.domain.episode_filter import Condition, FilterError, parse_filter
from forebay.ingest.domain.fold_versions import CHECK_ID
from forebay.ingest.domain.membership import copies, holds, leave_out, members
from forebay.ingest.domain.resolve import unusable
from forebay.ingest.domain.selecting import find_episode, find_episodes, name_of, selected
from forebay.ingest.domain.tagging import find_dataset, reason_of
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Command, Emit, Outcome, Pending, Request, Work
from forebay.runtime.state import State

MAX_RANGES = 2500
"""Ranges of episodes that fit into one event."""
MAX_CRF = 51


def derive(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """`{dataset, exclude, where, rewrite, crf, reason, dry_run}` -> a version with fewer episodes, in its turn."""
    dataset, base = selected(state, request)
    why_not = unusable(base)
    if why_not is not None and not base.withdrawn:
        raise Refused("version-unusable", why_not.message, "derive from another version", {})
    reason = _needed_reason(request)
    there = members(state, base)
    if len(there) != base.episode_count:
        raise Refused(
            "not-ours",
            f"v{base.number} of {dataset.name} was registered where it lies, so its episodes cannot be left out one by one",
            "take them out at the source and register again, or upload the folder and derive from that version",
        )
    dropped = _dropped(state, request, dataset, base, there)
    withdrawn = [episode for episode in there if episode.withdrawn is not None]
    rewrite, crf = _quality(request)
    gone = {episode.id for episode in (*dropped, *withdrawn)}
    result: dict[str, Any] = {
        "dataset": dataset.name,
        "base": base.number,
        "kept": len(there) - len(gone),
        "left_out": len(gone),
        "withdrawn": len(withdrawn),
        "frames": sum(episode.length for episode in there if episode.id not in gone),
    }
    if not result["kept"]:
        raise Refused("nothing-left", f"no episode of v{base.number} would be left", "leave fewer out")
    if not gone and not rewrite:
        raise Refused("nothing-to-do", f"every episode of v{base.number} would be kept", "leave some out")
    left_out = leave_out(base.left_out, [*dropped, *withdrawn])
    if sum(len(ranges) for ranges in left_out.values()) > MAX_RANGES:
        text = f"the episodes to leave out lie in more than {MAX_RANGES} places"
        raise Refused("too-scattered", text, "leave out fewer, or whole stretches")
    if request.args.get("dry_run"):
        return Outcome(result=result)
    id_ = "dv-" + stable_id(request.project, dataset.name, request.id)[:24]
    body = DatasetDerivationRequested(
        derivation=id_,
        dataset=dataset.name,
        base=base.number,
        left_out=left_out,
        filter=_in_words(request),
        rewrite=rewrite,
        crf=crf,
        by=request.by,
        reason=reason,
    )
    emit = Emit(project=request.project, body=body, dedupe=(id_,))
    return Outcome(result={**result, "derivation": id_}, actions=(emit,))


def compact(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """`{dataset, reason, dry_run}` -> the same episodes as a new version whose rows lie in one file."""
    dataset, base = selected(state, request)
    why_not = unusable(base)
    if why_not is not None:
        raise Refused("version-unusable", why_not.message, "compact another version", {})
    if base.access_plan != "C":
        text = f"v{base.number} of {dataset.name} was registered where it lies; its files are its owner's"
        raise Refused("not-ours", text, "upload the folder, then compact that version")
    result: dict[str, Any] = {
        "dataset": dataset.name,
        "base": base.number,
        "root": base.root,
        "kept": base.episode_count,
        "left_out": 0,
        "frames": base.frame_count,
    }
    if request.args.get("dry_run"):
        return Outcome(result=result)
    id_ = "dv-" + stable_id(request.project, dataset.name, request.id)[:24]
    body = DatasetDerivationRequested(
        derivation=id_,
        dataset=dataset.name,
        base=base.number,
        left_out=base.left_out,
        filter="every episode, rows in one file",
        by=request.by,
        reason=reason_of(request) or "compacted",
    )
    emit = Emit(project=request.project, body=body, dedupe=(id_,))
    return Outcome(result={**result, "derivation": id_}, actions=(emit,))


def _needed_reason(request: Request) -> str:
    reason = reason_of(request)
    if not reason:
        raise Refused("bad-request", "no reason is given", "say why with --reason; it stays on record")
    return reason


def _quality(request: Request) -> tuple[bool, int | None]:
    rewrite, crf = bool(request.args.get("rewrite")), request.args.get("crf")
    if crf is None:
        return rewrite, None
    if not rewrite or not isinstance(crf, int) or not 0 <= crf <= MAX_CRF:
        raise Refused("bad-request", f"crf {crf!r} needs --rewrite and a number from 0 to {MAX_CRF}", "for example 18")
    return rewrite, crf


def _dropped(state: State, request: Request, dataset: Dataset, base: Version, there: list[Episode]) -> list[Episode]:
    """Episodes that are named, and those that do not meet the condition."""
    by_id = {episode.listed_id: episode for episode in there}
    found: dict[str, Episode] = {}
    texts = [str(one) for one in request.args.get("exclude") or ()]
    named = [text for text in texts if split_episode_name(text) is not None]
    ids = {text: one.id for text, one in zip(named, find_episodes(state, request, named), strict=True)}
    for text in texts:
        if text.isdigit() and int(text) < len(there):
            episode = there[int(text)]
        elif (id_ := ids.get(text, text)) in by_id:
            episode = by_id[id_]
        else:
            _no_such_episode(text, dataset, base)
        found[episode.id] = episode
    where = request.args.get("where")
    if where:
        condition = _condition(str(where))
        for index, episode in enumerate(there):
            if not condition(_values(index, episode)):
                found[episode.id] = episode
    return list(found.values())


def _no_such_episode(text: str, dataset: Dataset, base: Version) -> NoReturn:
    what = (
        f"episode {text} does not exist in v{base.number} of {dataset.name} (there are 0 to {base.episode_count - 1})"
    )
    raise Refused("episode-unknown", f"{what}; nothing was changed", "forebay dataset show, or name the stable id")


def _condition(where: str) -> Condition:
    try:
        return parse_filter(where)
    except FilterError as error:
        raise Refused("bad-request", f"--where: {error}", "for example: length >= 60 AND task = 'pick'") from error


def _values(index: int, episode: Episode) -> dict[str, tuple[Any, ...]]:
    return {
        "index": (index,),
        "episode": (episode.listed_id,),
        "length": (episode.length,),
        "task": episode.tasks,
        "upload": (episode.upload,),
        "source_index": (episode.source_index,),
    }


def _in_words(request: Request) -> str:
    parts = []
    named = [str(one) for one in request.args.get("exclude") or ()]
    if named:
        more = f" and {len(named) - 10} more" if len(named) > 10 else ""
        parts.append(f"without {', '.join(named[:10])}{more}")
    if request.args.get("where"):
        parts.append(f"where {request.args['where']}")
    return "; ".join(parts) or "without what was withdrawn"


# withdrawal


def withdraw(state: State, pending: Pending, request: Request) -> Outcome:
    """`{episode, reason}` -> the episode is in no version from now on, and every version with it is marked."""
    episode = find_episode(state, request, str(request.args.get("episode", "")))
    reason = _needed_reason(request)
    versions = state.find(Version, "dataset_key", place(request.project, episode.dataset))
    every = copies(state, episode)
    here = [version for version in versions if any(holds(version, one) for one in every)]
    held = [version.number for version in here if version.removed is None]
    waiting: list[str] = []
    running: list[str] = []
    for number in held:
        for lease in state.find(Lease, "uses", use_of(request.project, episode.dataset, number)):
            if lease.ended is None:
                (waiting if lease.state == "WAITING" else running).append(lease.job)
    result: dict[str, Any] = {
        "episode": episode.id,
        "dataset": episode.dataset,
        "name": name_of(state, episode),
        "versions": held,
        "waiting_jobs": waiting,
        "leased_jobs": running,
    }
    before = [one for one in pending.of(EpisodeWithdrawn, request.project) if one.episode == episode.id]
    if episode.withdrawn is not None or before:
        why, by = (before[0].reason, before[0].by) if before else (episode.withdrawn, episode.withdrawn_by)
        return Outcome(result={**result, "changed": False, "reason": why, "by": by})
    body = EpisodeWithdrawn(episode=episode.id, dataset=episode.dataset, reason=reason, by=request.by)
    emit = Emit(project=request.project, body=body, dedupe=(episode.id,))
    return Outcome(result={**result, "changed": True, "reason": reason, "by": request.by}, actions=(emit,))


# checks and clean-up


def check(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """`{dataset}` -> the version's files are compared with what was committed; the question `checked` has the answer."""
    dataset, version = selected(state, request)
    id_ = CHECK_ID + stable_id(request.project, request.id)[:24]
    payload = {"dataset": dataset.name, "number": version.number}
    work = Work(kind=CHECK, key=id_, project=request.project, payload=payload)
    return Outcome(result={"dataset": dataset.name, "number": version.number, "check": id_}, actions=(work,))


def cleanup(state: State, pending: Pending, request: Request) -> Outcome:
    """`{dataset, below, lineage, reason, dry_run}` -> versions that nobody uses are removed; the others say who does."""
    dataset = find_dataset(state, request)
    below = request.args.get("below")
    removed, kept = [], []
    emits: list[Emit] = []
    for version in state.find(Version, "dataset_key", dataset.key):
        if version.removed is not None:
            continue
        users = list(_users(state, pending, dataset, version, lineage=bool(request.args.get("lineage"))))
        if isinstance(below, int) and version.number >= below:
            users.append(f"not below v{below}")
        freed = 0 if version.access_plan == "A" else version.bytes  # data in its own place is its owner's
        line = {"number": version.number, "root": version.root, "bytes": freed}
        if users:
            kept.append({**line, "because": users})
            continue
        removed.append(line)
        reason = reason_of(request) or "nobody uses it"
        body = DatasetVersionRemoved(dataset=dataset.name, number=version.number, by=request.by, reason=reason)
        emits.append(Emit(project=request.project, body=body, dedupe=(dataset.name, version.number)))
    dry = bool(request.args.get("dry_run"))
    result = {"dataset": dataset.name, "dry_run": dry, "removed": removed, "kept": kept}
    return Outcome(result=result, actions=() if dry else tuple(emits))


def _users(state: State, pending: Pending, dataset: Dataset, version: Version, *, lineage: bool) -> Iterator[str]:
    """Everything that needs this version."""
    project, number = version.project, version.number
    if number == dataset.latest:
        yield "latest version"
    elif number == dataset.trunk:
        yield "the next upload adds to it"
    for tag in state.find(Tag, "dataset_key", dataset.key):
        if tag.number == number:
            yield f"tag {tag.name}"
    for lease in state.find(Lease, "uses", use_of(project, dataset.name, number)):
        yield from _uses_of_job(state, lease, lineage=lineage)
    wishes = pending.of(DatasetDerivationRequested, project)
    if any(wish.dataset == dataset.name and wish.base == number for wish in wishes):
        yield "a version is being derived from it"
    for id_ in (dataset.active, *dataset.waiting):
        wish = state.get(Derivation, place(project, id_)) if id_ is not None else None
        if wish is not None and wish.base == number:
            yield "a version is being derived from it"


def _uses_of_job(state: State, lease: Lease, *, lineage: bool) -> Iterator[str]:
    if lease.ended is None:
        yield f"job {lease.job} {'holds' if lease.state == 'GRANTED' else 'waits for'} it"
    elif lease.state == "GRANTED":
        yield f"job {lease.job} is giving it back"
    if not lineage:
        models = state.find(Model, "job_key", place(lease.project, lease.job))
        yield from (f"model {model.name}@v{model.number} was trained on it" for model in models)


COMMANDS: Mapping[str, Command] = {
    "derive": derive,
    "compact": compact,
    "withdraw": withdraw,
    "check": check,
    "cleanup": cleanup,
}
