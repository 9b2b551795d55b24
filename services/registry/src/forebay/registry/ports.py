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
    """What a look at a save's files found."""

    seen: bool
    """False: the place cannot be looked at from here."""
    problem: str | None = None
    changed: bool = False
    """The problem is another content, not an absence."""
    read: int = 0
    """Bytes that were read to compare contents."""
    unread: int = 0
    """Bytes whose content was not compared, because that was more than was allowed."""


class Artefacts(Protocol):
    """Looks whether the files of a save are still there, with the sizes and, as far as may be read, the contents they had."""

    def look(
        self, project: str, job: str, uri: str, files: Sequence[tuple[str, str, int]], *, may_read: int = 0
    ) -> Look:
        """`files` as (path, sha256, bytes); reads `may_read` bytes at most."""
        ...

    def look_at_kept(self, project: str, files: Sequence[tuple[str, str, int]], *, may_read: int = 0) -> Look:
        """The same for files that the model store keeps."""
        ...


class EpisodeLists(Protocol):
    """Reads the immutable list that DatasetVersionCommitted names."""

    def read(self, ref: FileRef) -> EpisodeList:
        """The list, checked against its digest. Raises `ListUnavailableError`."""
        ...
