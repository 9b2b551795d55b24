"""The commands `tag` and `untag`: a person moves a name, and says why."""

from __future__ import annotations

import difflib
from typing import Any

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_name, slug
from forebay.contracts.v1.datasets import DatasetTagged, DatasetUntagged
from forebay.ingest.domain.documents import Dataset, Tag, Version, place, version_key
from forebay.ingest.domain.resolve import unusable
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request
from forebay.runtime.state import State


def tag(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """Put a tag on a committed version; a tag that is there already is left alone."""
    dataset, name = find_dataset(state, request), _tag_name(request)
    number = request.args.get("number")
    if not isinstance(number, int) or isinstance(number, bool):
        raise Refused("bad-request", f"the version {number!r} is no number", "name a version, for example v3")
    version = find_version(state, request, dataset, number)
    why_not = unusable(version)
    if why_not is not None:
        raise Refused("version-unusable", why_not.message, "forebay dataset show", {"reason": why_not.reason.value})
    before = state.get(Tag, f"{request.project}/{dataset.name}/{name}")
    _check_expectation(request, dataset.name, name, before)
    result: dict[str, Any] = {"dataset": dataset.name, "tag": name, "number": number}
    if before is not None and before.number == number:
        return Outcome(result={**result, "changed": False})
    body = DatasetTagged(
        dataset=dataset.name,
        tag=name,
        number=number,
        previous=before.number if before is not None else None,
        by=request.by,
        reason=reason_of(request),
    )
    emit = Emit(project=request.project, body=body, dedupe=("command", request.id))
    return Outcome(result={**result, "changed": True, "previous": body.previous}, actions=(emit,))


def untag(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """Take a tag away; jobs that wait for it wait on, jobs that pinned through it are held again."""
    dataset, name = find_dataset(state, request), _tag_name(request)
    found = state.get(Tag, f"{request.project}/{dataset.name}/{name}")
    if found is None:
        raise Refused("tag-unknown", f"dataset {dataset.name} has no tag {name!r}", "forebay dataset show")
    _check_expectation(request, dataset.name, name, found)
    body = DatasetUntagged(
        dataset=dataset.name, tag=name, number=found.number, by=request.by, reason=reason_of(request)
    )
    emit = Emit(project=request.project, body=body, dedupe=("command", request.id))
    return Outcome(result={"dataset": dataset.name, "tag": name, "number": found.number}, actions=(emit,))


def _check_expectation(request: Request, dataset: str, name: str, before: Tag | None) -> None:
    """Compare and set: a tag that is not where the caller saw it last stays where it is. 0 means that there is none."""
    expected = request.args.get("expect")
    if expected is None:
        return
    if not isinstance(expected, int) or isinstance(expected, bool):
        raise Refused("bad-request", f"the expected version {expected!r} is no number", "name a version, or 0 for none")
    there = before.number if before is not None else 0
    if there != expected:
        now = f"names v{there} (set by {before.by})" if before is not None else "names nothing"
        wanted = f"v{expected}" if expected else "nothing"
        raise Refused(
            "tag-moved",
            f"{dataset}@{name} {now}, not {wanted} as expected; it was left alone",
            "look at what changed with: forebay dataset show",
            {"number": there},
        )


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
        raise Refused("bad-request", f"the tag's name: {error}", "choose another name") from error


def reason_of(request: Request) -> str | None:
    reason = request.args.get("reason")
    return str(reason)[:500] if reason else None
