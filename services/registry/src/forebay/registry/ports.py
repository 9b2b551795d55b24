"""What the registry needs from outside its store, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from forebay.contracts.body import FileRef


@dataclass(frozen=True, slots=True)
class EpisodeList:
    """The episodes of one dataset version: id to dense index, in index order."""

    indices: Mapping[str, int]


class ListUnavailableError(Exception):
    """A version's episode list cannot be read as it was committed; the message says why."""


class EpisodeLists(Protocol):
    """Reads the immutable list that DatasetVersionCommitted names."""

    def read(self, ref: FileRef) -> EpisodeList:
        """The list, checked against its digest. Raises `ListUnavailableError`."""
        ...
