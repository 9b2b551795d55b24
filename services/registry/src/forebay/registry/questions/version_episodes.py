"""Which episodes a version holds, and which of them a job read.

A version's list lies in a file that its event names; a list that cannot be read is
said to be missing, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import split_episode_name
from forebay.registry.domain.graph import get
from forebay.registry.domain.names import resolve
from forebay.registry.domain.nodes import DATASET, EPISODE, Node, type_of
from forebay.registry.domain.view import first_fact, shown
from forebay.registry.ports import EpisodeList, EpisodeLists, ListUnavailableError
from forebay.runtime.errors import Refused
from forebay.runtime.state import State

Window = tuple[int, int]
"""Dense indices `[first, last)`."""


@dataclass(frozen=True, slots=True)
class Found:
    """A version's list, or why it is not there."""

    episodes: EpisodeList | None
    problem: str = ""


def episodes_of(version: Node | None, lists: EpisodeLists) -> Found:
    """Read the list that the version's event names."""
    ref = shown(version, "episodes")
    if ref is None:
        return Found(None, "no event has committed this version, so its episodes are unknown")
    try:
        return Found(lists.read(FileRef.model_validate(ref)))
    except ListUnavailableError as error:
        return Found(None, f"its episode list is not available: {error}")


def resolve_any(state: State, project: str, text: str, lists: EpisodeLists) -> str:
    """The one node that `text` means: as `resolve`, and an episode by its number in a version, `pick@v1/17`."""
    named = split_episode_name(text.strip().removeprefix(f"{EPISODE}:"))
    if named is None:
        return resolve(state, project, text)
    version = resolve(state, project, named[0] if type_of(named[0]) == DATASET else f"{DATASET}:{named[0]}")
    found = episodes_of(get(state, project, version), lists)
    if found.episodes is None:
        raise Refused(
            "unknown-id", f"{text!r} cannot be looked up: {found.problem}", "name the episode by its id: ep-…"
        )
    ids = [one for one, index in found.episodes.indices.items() if index == named[1]]
    if not ids:
        text = f"{version.partition(':')[2]} has no episode {named[1]}; it has {len(found.episodes.indices)}, counted from 0"
        raise Refused("unknown-id", text, f"forebay dataset episodes {version.partition(':')[2]}")
    return f"{EPISODE}:{ids[0]}"


def episode_name(version: str, index: int) -> str:
    """`pick@v1/17`, of the version's node id."""
    return f"{version.partition(':')[2]}/{index}"


def windows_of(job: Node | None) -> dict[str, list[Window | None]]:
    """Which part of each pinned version a job read; None means all of it."""
    leased = first_fact(job, "LeaseGranted")
    found: dict[str, list[Window | None]] = {}
    for one in shown(job, "inputs", []) if leased is not None else []:
        window = one.get("episodes")
        found.setdefault(one["pinned"], []).append(None if window is None else (window[0], window[1]))
    return found


def inside(index: int, windows: list[Window | None]) -> bool:
    """Whether any of the windows holds a dense index."""
    return not windows or any(window is None or window[0] <= index < window[1] for window in windows)
