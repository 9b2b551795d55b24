"""Episode lists from files: read once, checked against their digest, kept while they fit.

The file is immutable and named by its digest in the log, so an answer made from it
is still a function of the log; a file that is gone or changed is never guessed at.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec

from forebay.contracts.body import FileRef
from forebay.registry.ports import EpisodeList, ListUnavailableError
from forebay.runtime.regular_files import read_regular

_MAX_BYTES = 512 << 20
_LIST_COSTS = 3
"""A list itself takes as much memory as so many episodes: many short lists are held to the limit as well."""


class _Row(msgspec.Struct):
    episode: str
    index: int


class _Table(msgspec.Struct):
    episodes: list[_Row]


_DECODER = msgspec.json.Decoder(_Table)


class FileEpisodeLists:
    """`EpisodeLists` over the file system, with at most `keep` episodes in memory.

    `records` is the folder of kept lists, named by their digests: they outlive the
    versions, and are found there also when the pool has moved.
    """

    def __init__(self, records: Path | None = None, *, keep: int = 500_000) -> None:
        self._records = records
        self._keep = keep
        self._held = 0
        self._lists: OrderedDict[str, EpisodeList] = OrderedDict()

    def read(self, ref: FileRef) -> EpisodeList:
        known = self._lists.get(ref.sha256)
        if known is not None:
            self._lists.move_to_end(ref.sha256)
            return known
        found = _parse(ref, self._bytes_of(ref))
        self._lists[ref.sha256] = found
        self._held += _cost(found)
        while self._held > self._keep and len(self._lists) > 1:
            _, old = self._lists.popitem(last=False)
            self._held -= _cost(old)
        return found

    def _bytes_of(self, ref: FileRef) -> bytes:
        """The kept list; or the one beside the version's files, where versions are older than kept lists."""
        if self._records is not None:
            kept = self._records / f"{ref.sha256}.json"
            with contextlib.suppress(ListUnavailableError):
                return _bytes_of(ref.model_copy(update={"uri": str(kept)}))
        return _bytes_of(ref)


def _cost(found: EpisodeList) -> int:
    return len(found.indices) + _LIST_COSTS


def _bytes_of(ref: FileRef) -> bytes:
    parsed = urlparse(ref.uri)
    if parsed.scheme not in {"", "file"}:
        raise ListUnavailableError(f"{ref.uri} is not a file that this registry can read")
    path = Path(unquote(parsed.path) if parsed.scheme == "file" else ref.uri)
    try:
        size = path.stat().st_size
        if size != ref.bytes or size > _MAX_BYTES:
            raise ListUnavailableError(f"{path} has {size} bytes, {ref.bytes} were committed")
        body = read_regular(path, limit=_MAX_BYTES)
    except OSError as error:
        raise ListUnavailableError(f"{path} cannot be read: {error.strerror or error}") from error
    if hashlib.sha256(body).hexdigest() != ref.sha256:
        raise ListUnavailableError(f"{path} is not the list that was committed (its sha256 differs)")
    return body


def _parse(ref: FileRef, body: bytes) -> EpisodeList:
    try:
        rows = _DECODER.decode(body).episodes
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ListUnavailableError(f"{ref.uri} is not an episode list: {error}") from error
    return EpisodeList({row.episode: row.index for row in sorted(rows, key=lambda row: row.index)})
