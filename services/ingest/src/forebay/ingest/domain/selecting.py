"""From what a person writes to one version or one episode: `reach@v3`, `reach@golden`, `ep-…`, `reach@v3/17`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import parse_logical_name, split_episode_name, version_number
from forebay.ingest.domain.documents import Dataset, Episode, Tag, Version, place
from forebay.ingest.domain.membership import copies, holds, members
from forebay.ingest.domain.tagging import find_dataset, find_version
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Request
from forebay.runtime.state import State

_HINT = (
    "forebay dataset episodes NAME@vN lists them. One of data that was registered where it lies cannot be named by itself:"
    " take it out there and register again, or upload the folder"
)


def selected(state: State, request: Request) -> tuple[Dataset, Version]:
    """The dataset and version that `name`, `name@v3` or `name@tag` stands for."""
    text = str(request.args.get("dataset", ""))
    name, _, selector = text.partition("@")
    dataset = find_dataset(state, Request(**{**_fields(request), "args": {"dataset": name.removeprefix("dataset:")}}))
    number = version_number(selector) if selector else None
    if selector and number is None:
        try:
            parse_logical_name(f"dataset:{dataset.name}@{selector}", kind="dataset")
        except InvalidNameError as error:
            raise Refused("bad-request", f"{text!r}: {error}", "write for example pick-place@v3") from error
        tag = state.get(Tag, f"{request.project}/{dataset.name}/{selector}")
        if tag is None:
            raise Refused("tag-unknown", f"dataset {dataset.name} has no tag {selector!r}", "forebay dataset show")
        number = tag.number
    return dataset, find_version(state, request, dataset, number or dataset.trunk or dataset.latest)


def _fields(request: Request) -> dict[str, Any]:
    return {"id": request.id, "project": request.project, "by": request.by, "now": request.now}


def find_episode(state: State, request: Request, wanted: str) -> Episode:
    """The episode with a stable id, or with a number in a version: `reach@v3/17`."""
    return find_episodes(state, request, [wanted])[0]


def find_episodes(state: State, request: Request, wanted: Sequence[str]) -> list[Episode]:
    """The same for many; each version's episodes are listed once."""
    found: list[Episode] = []
    versions: dict[str, tuple[Version, list[Episode]]] = {}
    for text in wanted:
        named = split_episode_name(text)
        if named is None:
            episode = state.get(Episode, place(request.project, text))
            if episode is None:
                raise Refused("episode-unknown", f"no episode {text!r} in project {request.project}", _HINT)
            found.append(_first(state, episode))
            continue
        name, index = named
        if name not in versions:
            _, chosen = selected(state, Request(**{**_fields(request), "args": {"dataset": name}}))
            versions[name] = chosen, members(state, chosen)
        version, there = versions[name]
        if index >= len(there):
            has = f"it has 0 to {len(there) - 1}" if there else "none of its episodes are known by themselves"
            message = f"v{version.number} of {version.dataset} has no episode {index}; {has}"
            raise Refused("episode-unknown", message, _HINT)
        found.append(_first(state, there[index]))
    return found


def _first(state: State, episode: Episode) -> Episode:
    """The episode whose id versions list."""
    return state.get(Episode, place(episode.project, episode.listed_id)) or episode


def name_of(state: State, episode: Episode) -> str | None:
    """`reach@v3/17` in the newest version that holds it; None when none does."""
    versions = state.find(Version, "dataset_key", place(episode.project, episode.dataset))
    every = copies(state, episode)
    held = [version for version in versions if any(holds(version, one) for one in every)]
    if not held:
        return None
    listed = [one.listed_id for one in members(state, held[-1])]
    return f"{episode.dataset}@v{held[-1].number}/{listed.index(episode.listed_id)}"
