"""Which episodes a version holds, from the log alone: those accepted in its uploads, but for what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.ingest.domain.documents import Episode, Version, place
from forebay.runtime.state import State

Ranges = tuple[tuple[int, int], ...]
"""Source indices `[first, last]`, ascending."""


def to_ranges(indices: Iterable[int]) -> Ranges:
    """Neighbours in one range, so that long lists stay short."""
    found: list[tuple[int, int]] = []
    for index in sorted(set(indices)):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return tuple(found)


def within(index: int, ranges: Ranges) -> bool:
    """Whether one of the ranges has this index."""
    return any(first <= index <= last for first, last in ranges)


def holds(version: Version, episode: Episode) -> bool:
    """Whether the episode's rows are in the version, whatever became of the episode since."""
    left_out = version.left_out.get(episode.upload, ())
    return episode.accepted and episode.upload in version.uploads and not within(episode.source_index, left_out)


def copies(state: State, episode: Episode) -> list[Episode]:
    """The episode, and those of later uploads that are the same recording under its id."""
    return [episode, *state.find(Episode, "same_as_key", episode.key)]


def members(state: State, version: Version) -> list[Episode]:
    """The version's episodes by their dense numbers."""
    found: list[Episode] = []
    for upload in version.uploads:
        mine = [e for e in state.find(Episode, "upload_key", place(version.project, upload)) if holds(version, e)]
        found += sorted(mine, key=lambda episode: episode.source_index)
    return found


def leave_out(before: Mapping[str, Ranges], episodes: Iterable[Episode]) -> dict[str, Ranges]:
    """`before` and these episodes, by upload."""
    indices: dict[str, set[int]] = {
        upload: {index for first, last in ranges for index in range(first, last + 1)}
        for upload, ranges in before.items()
    }
    for episode in episodes:
        indices.setdefault(episode.upload, set()).add(episode.source_index)
    return {upload: to_ranges(found) for upload, found in sorted(indices.items()) if found}
