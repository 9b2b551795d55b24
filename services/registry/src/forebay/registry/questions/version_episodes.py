"""Which episodes a version holds, and which of them a job read.

A version's list lies in a file that its event names; a list that cannot be read is
said to be missing, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from forebay.contracts.body import FileRef
from forebay.registry.domain.nodes import Node
from forebay.registry.domain.view import first_fact, shown
from forebay.registry.ports import EpisodeList, EpisodeLists, ListUnavailableError

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
