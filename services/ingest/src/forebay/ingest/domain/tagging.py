"""The commands `tag`, `move-tag` and `untag`: a person creates, moves or deletes a name for a version, and says why.

Creating and moving are two operations, so that nobody moves a tag by accident. Each is
decided against the state *and* the changes that are decided and not yet in the log: of two
people who act at the same moment, one wins, and the other is told who did.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_name, slug
from forebay.contracts.v1.datasets import DatasetTagged, DatasetUntagged
from forebay.ingest.domain.documents import Check, Dataset, Tag, Version, place, version_key
from forebay.ingest.domain.resolve import unusable
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A tag and the version that it shall name."""

    dataset: Dataset
    name: str
    version: Version
    before: Tag | None

    @property
    def text(self) -> str:
        return f"{self.dataset.name}@{self.name}"


def tag(state: State, pending: Pending, request: Request) -> Outcome:
    """`{dataset, tag, number, check, reason}` -> a new tag. One that exists is a conflict that names who set it."""
    wanted = _wanted(state, pending, request)
    if wanted.before is not None:
        raise _conflict("tag-exists", wanted, "so it was not created")
    return _tagged(wanted, request)


def move_tag(state: State, pending: Pending, request: Request) -> Outcome:
    """`{dataset, tag, number, check, expect | force, reason}` -> a tag names another version than the expected one.

    `force` moves it from wherever it is, creates it where there is none, and needs a reason.
    """
    force, expected = bool(request.args.get("force")), request.args.get("expect")
    if force and not reason_of(request):
        raise Refused("bad-request", "a forced move needs a reason", "say why with --reason; it stays on record")
    if not force and (not isinstance(expected, int) or isinstance(expected, bool) or expected < 1):
        text = f"the expected version {expected!r} is not a version number"
        raise Refused("bad-request", text, "name the version that the tag points at now, or force the move")
    wanted = _wanted(state, pending, request)
    if not force:
        _check_expectation(wanted, int(str(expected)))
    if wanted.before is not None and wanted.before.number == wanted.version.number:
        result = {"dataset": wanted.dataset.name, "tag": wanted.name, "number": wanted.version.number}
        return Outcome(result={**result, "changed": False, "previous": wanted.before.number})
    return _tagged(wanted, request, forced=force)


def untag(state: State, pending: Pending, request: Request) -> Outcome:
    """Delete a tag; jobs that wait for it wait on, jobs that pinned through it are held again."""
    dataset, name = find_dataset(state, request), _tag_name(request)
    _refuse_while_changing(pending, request, dataset, name)
    found = state.get(Tag, f"{request.project}/{dataset.name}/{name}")
    if found is None:
        raise Refused("tag-unknown", f"dataset {dataset.name} has no tag {name!r}", "forebay dataset show")
    expected = request.args.get("expect")
    if expected is not None and expected != found.number:
        text = f"{dataset.name}@{name} points at {_named(found)}, not v{expected} as expected; it was not deleted"
        raise Refused("tag-moved", text, "look at what changed with: forebay dataset show", _details(found))
    body = DatasetUntagged(
        dataset=dataset.name, tag=name, number=found.number, by=request.by, reason=reason_of(request)
    )
    emit = Emit(project=request.project, body=body, dedupe=("command", request.id))
    return Outcome(result={"dataset": dataset.name, "tag": name, "number": found.number}, actions=(emit,))


def _wanted(state: State, pending: Pending, request: Request) -> _Wanted:
    """What a request asks for; refuses a version that nobody may use, and a tag that is just being changed."""
    dataset, name = find_dataset(state, request), _tag_name(request)
    number = request.args.get("number")
    if not isinstance(number, int) or isinstance(number, bool):
        raise Refused("bad-request", f"the version {number!r} is not a number", "name a version, for example v3")
    version = find_version(state, request, dataset, number)
    why_not = unusable(version)
    if why_not is not None:
        raise Refused("version-unusable", why_not.message, "forebay dataset show", {"reason": why_not.reason.value})
    _require_check(state, request, version)
    _refuse_while_changing(pending, request, dataset, name)
    return _Wanted(dataset, name, version, state.get(Tag, f"{request.project}/{dataset.name}/{name}"))


def _require_check(state: State, request: Request, version: Version) -> None:
    """Nobody tags a version unseen: a check that was asked for now must have found its files whole."""
    check = state.get(Check, place(request.project, str(request.args.get("check") or "")))
    label = f"v{version.number} of {version.dataset}"
    if check is None or (check.dataset, check.number) != (version.dataset, version.number):
        raise Refused("not-checked", f"{label} was not opened before it is tagged", "run: forebay dataset check, first")
    if not check.whole:
        raise Refused("version-unusable", f"{check.message}; the tag was not changed", "forebay dataset show")


def _refuse_while_changing(pending: Pending, request: Request, dataset: Dataset, name: str) -> None:
    """A change of this tag that is decided, and not in the log yet, has won already."""
    changes: list[DatasetTagged | DatasetUntagged] = [*pending.of(DatasetTagged, request.project)]
    changes += pending.of(DatasetUntagged, request.project)
    for body in changes:
        if (body.dataset, body.tag) == (dataset.name, name):
            done = f"set to v{body.number}" if isinstance(body, DatasetTagged) else "deleted"
            why = _because(body.reason)
            text = f"{dataset.name}@{name} is being {done} by {body.by}{why}; your change was not made"
            advice = "look at what changed with: forebay dataset show"
            raise Refused("tag-moved", text, advice, {"number": body.number, "by": body.by})


def _check_expectation(wanted: _Wanted, expected: int) -> None:
    """Compare and set: a tag that is not where the caller saw it last stays where it is."""
    if wanted.before is None:
        text = f"{wanted.text} does not exist, so it cannot be moved from v{expected}"
        raise Refused("tag-moved", text, "create it: the same command without --expect", {"number": 0})
    if wanted.before.number != expected:
        raise _conflict("tag-moved", wanted, f"not at v{expected} as expected, so it was not moved")


def _conflict(code: str, wanted: _Wanted, outcome: str) -> Refused:
    before = wanted.before
    assert before is not None  # noqa: S101 for the type checker; callers looked
    dataset, now = wanted.dataset.name, before.number
    advice = (
        f"to move it: forebay dataset tag {dataset} {wanted.name} v{wanted.version.number} --expect v{now}"
        if now != wanted.version.number
        else "nothing to do: it points at the version that you named"
    )
    return Refused(code, f"{wanted.text} points at {_named(before)}, {outcome}", advice, _details(before))


def _details(found: Tag) -> dict[str, Any]:
    at = None if found.at is None else found.at.isoformat()
    return {"number": found.number, "by": found.by, "reason": found.reason, "at": at}


def _named(found: Tag) -> str:
    """`v2 (set by kim at 2026-12-01 09:30:00 UTC: checked by hand)`."""
    at = "" if found.at is None else f" at {found.at:%Y-%m-%d %H:%M:%S} UTC"
    return f"v{found.number} (set by {found.by}{at}{_because(found.reason)})"


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _tagged(wanted: _Wanted, request: Request, *, forced: bool = False) -> Outcome:
    body = DatasetTagged(
        dataset=wanted.dataset.name,
        tag=wanted.name,
        number=wanted.version.number,
        previous=wanted.before.number if wanted.before is not None else None,
        by=request.by,
        reason=reason_of(request),
        forced=True if forced else None,
    )
    result = {"dataset": body.dataset, "tag": body.tag, "number": body.number}
    emit = Emit(project=request.project, body=body, dedupe=("command", request.id))
    return Outcome(result={**result, "changed": True, "previous": body.previous}, actions=(emit,))


def find_version(state: State, request: Request, dataset: Dataset, number: int) -> Version:
    """One committed version; refuses with what there is."""
    version = state.get(Version, version_key(request.project, dataset.name, number))
    if version is None:
        there = f"it has v1 to v{dataset.latest}" if dataset.latest else "it has none yet"
        raise Refused("version-unknown", f"dataset {dataset.name} has no v{number}; {there}", "forebay dataset show")
    return version


def find_dataset(state: State, request: Request) -> Dataset:
    """The dataset that a request names; refuses with close matches."""
    wanted = request.args.get("dataset")
    if not isinstance(wanted, str) or not wanted:
        raise Refused("bad-request", "no dataset is named", "name one, for example pick-place")
    name = slug(wanted)
    found = state.get(Dataset, place(request.project, name))
    if found is not None:
        return found
    close = difflib.get_close_matches(name, [d.name for d in of_project(state, request.project)], n=3)
    hint = f"did you mean {' or '.join(close)}?" if close else "forebay dataset list shows what is there"
    raise Refused("dataset-unknown", f"no dataset {wanted!r} in project {request.project}", hint, {"close": close})


def of_project(state: State, project: str, *, after: str = "", limit: int = 1000) -> list[Dataset]:
    """Datasets of one project by name, from the first after `after`."""
    found = state.all(Dataset, after=place(project, after), limit=limit)
    return [dataset for dataset in found if dataset.project == project]


def _tag_name(request: Request) -> str:
    try:
        return check_name(str(request.args.get("tag", "")))
    except InvalidNameError as error:
        raise Refused("bad-request", f"the tag name: {error}", "choose another name") from error


def reason_of(request: Request) -> str | None:
    reason = request.args.get("reason")
    return str(reason)[:500] if reason else None
