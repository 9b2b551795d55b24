"""Warm without a job: a person's request, and what the project's policy says about new and tagged versions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from forebay.cache.domain.documents import Policy, Tags, Version, Wish, place, version_place
from forebay.contracts.envelope import Recorded
from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import parse_logical_name, stable_id
from forebay.contracts.v1.cache import WarmRequested
from forebay.contracts.v1.datasets import DatasetTagged, DatasetVersionCommitted, PinnedInput
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit
from forebay.runtime.state import State

_MANY = 1000


def of_policy(state: State, recorded: Recorded[Any]) -> Iterator[Emit]:
    """Requests that the project's policy makes on a committed or tagged version."""
    body: DatasetVersionCommitted | DatasetTagged = recorded.body
    policy = state.get(Policy, recorded.project)
    version = state.get(Version, version_place(recorded.project, "dataset", body.dataset, body.number))
    if policy is None or version is None or version.removed:
        return
    for rule in policy.warm:
        if isinstance(body, DatasetTagged):
            meant = rule.on == "tag" and rule.tag == body.tag
            selector, why = body.tag, f"policy: {rule.tag} was put on {body.dataset}@v{body.number}"
        else:
            meant = rule.on == "commit"
            selector, why = f"v{body.number}", f"policy: {body.dataset}@v{body.number} was committed"
        if meant and any(fnmatchcase(body.dataset, pattern) for pattern in rule.datasets):
            identity = (rule.on, selector, body.dataset, body.number, *rule.columns)
            item = pinned(version, f"dataset:{body.dataset}@{selector}", rule.columns, None)
            yield request(recorded.project, item, by=policy.by or "policy", why=why, identity=identity)


def request(project: str, item: PinnedInput, *, by: str, why: str, identity: tuple[object, ...]) -> Emit:
    """The event of a request; equal identity, same request."""
    wish_id = f"warm-{stable_id(project, *identity)[:20]}"
    return Emit(project=project, body=WarmRequested(request=wish_id, input=item, by=by, reason=why), dedupe=(wish_id,))


def pinned(version: Version, logical: str, columns: tuple[str, ...], episodes: tuple[int, int] | None) -> PinnedInput:
    """A version as a plan's input."""
    return PinnedInput.model_validate(
        {
            "kind": "dataset",
            "logical": logical,
            "name": version.dataset,
            "number": version.number,
            "root": version.root,
            "access_plan": version.access_plan,
            "manifest_sha256": version.manifest_sha256,
            "columns": columns,
            "episodes": episodes,
            "episode_count": version.episode_count,
            "bytes": version.bytes,
        }
    )


def find_version(state: State, project: str, name: str) -> Version:
    """The version that `NAME@TAG` or `NAME@v17` means now. Raises `Refused` with what there is instead."""
    try:
        logical = parse_logical_name(name)
    except InvalidNameError as error:
        raise Refused("bad-name", str(error), "write NAME@TAG or NAME@v17") from error
    versions = {one.number: one for one in state.find(Version, "dataset_key", place(project, logical.name))}
    if not versions:
        known = sorted(
            {one.dataset for one in state.all(Version, after=f"{project}/", limit=_MANY) if one.project == project}
        )
        close = difflib.get_close_matches(logical.name, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see: forebay dataset list"
        raise Refused("dataset-unknown", f"no dataset {logical.name!r} in project {project}", hint)
    tags = state.get(Tags, place(project, logical.name)) or Tags(project=project, dataset=logical.name)
    number = logical.version if logical.version is not None else tags.tags.get(logical.selector)
    found = versions.get(number) if number is not None else None
    if found is None:
        there = ", ".join([*sorted(tags.tags), *(f"v{one}" for one in sorted(versions)[-5:])])
        text = f"dataset {logical.name} has no {logical.selector!r} in project {project} (there are: {there})"
        raise Refused("version-unknown", text, f"see: forebay dataset show {logical.name}")
    if found.removed:
        text = f"{logical.name}@v{found.number} was cleaned up, so nothing is left to warm"
        raise Refused("version-removed", text, f"see: forebay dataset show {logical.name}")
    return found


def open_wish(state: State, project: str, item: PinnedInput) -> Wish | None:
    """An open request for the same bytes, which a new one joins."""
    for wish in state.find(Wish, "standing", project):
        other = PinnedInput.model_validate(wish.input)
        same = (other.name, other.number, other.columns, other.episodes)
        if same == (item.name, item.number, item.columns, item.episodes):
            return wish
    return None
