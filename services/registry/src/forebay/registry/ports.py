"""What the registry needs from outside its store, in its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from forebay.contracts.body import FileRef


@dataclass(frozen=True, slots=True)
class EpisodeList:
    """The episodes of one dataset version: id to dense index, in index order."""

    indices: Mapping[str, int]


class ListUnavailableError(Exception):
    """A version's episode list cannot be read as it was committed; the message says why."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a save's files found, without reading them."""

    seen: bool
    """False: the place cannot be looked at from here."""
    problem: str | None = None


class Artefacts(Protocol):
    """Looks whether the files of a save are still there with their sizes."""

    def look(self, project: str, job: str, uri: str, files: Sequence[tuple[str, int]]) -> Look: ...


class EpisodeLists(Protocol):
    """Reads the immutable list that DatasetVersionCommitted names."""

    def read(self, ref: FileRef) -> EpisodeList:
        """The list, checked against its digest. Raises `ListUnavailableError`."""
        ...
