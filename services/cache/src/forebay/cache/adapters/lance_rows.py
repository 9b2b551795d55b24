"""What only the library can tell about a table's rows: which ones a filter selects, and where blobs lie.

It reads nothing but columns that are planned anyway: those of the filter, and the
descriptors of blobs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forebay.cache.adapters.origin import Origin
from forebay.cache.errors import DataUnreadableError, PlanError


@dataclass(frozen=True, slots=True)
class RowSpans:
    """Physical rows of one fragment, as spans `[first, last]` in order."""

    firsts: tuple[int, ...]
    lasts: tuple[int, ...]

    def touches(self, start: int, end: int) -> bool:
        """Whether one of the rows is in `[start, end)`."""
        at = bisect_left(self.lasts, start)
        return at < len(self.firsts) and self.firsts[at] < end


NO_ROWS = RowSpans((), ())


class LanceRows:
    """One version of one table, opened with the library when it is first asked."""

    def __init__(self, origin: Origin, path: str, version: int) -> None:
        self._origin = origin
        self._path = path
        self._version = version
        self._opened: Any = None
        self._found: dict[str, Mapping[int, RowSpans]] = {}

    @property
    def _dataset(self) -> Any:
        if self._opened is None:
            import lance  # noqa: PLC0415 takes longer than everything else together

            uri, options = self._origin.lance(self._path)
            try:
                self._opened = lance.dataset(uri, version=self._version, storage_options=options)
            except (ValueError, OSError) as error:
                msg = f"{self._path} version {self._version} does not open: {error}"
                raise DataUnreadableError(msg) from error
        return self._opened

    def values(self, column: str) -> tuple[str, ...]:
        """The different values of one small text column."""
        found = self._dataset.to_table(columns=[column]).column(column).unique().to_pylist()
        self._count()
        return tuple(sorted(str(value) for value in found))

    def spans(self, rows: str) -> Mapping[int, RowSpans]:
        """Fragment -> its rows that an SQL filter selects."""
        if rows not in self._found:
            self._found[rows] = self._find(rows)
        return self._found[rows]

    def _find(self, rows: str) -> Mapping[int, RowSpans]:
        import numpy as np  # noqa: PLC0415 only plans of some rows need it

        batches = self._scan(columns=[], filter=rows, with_row_address=True)
        found = [np.empty(0, dtype=np.uint64), *(batch.column("_rowaddr").to_numpy() for batch in batches)]
        addresses = np.sort(np.concatenate(found)).astype(np.int64)
        if not addresses.size:
            return {}
        breaks = np.flatnonzero(np.diff(addresses) != 1) + 1
        firsts = addresses[np.concatenate([[0], breaks])]
        lasts = addresses[np.concatenate([breaks, [addresses.size]]) - 1]
        spans: dict[int, tuple[list[int], list[int]]] = {}
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            mine = spans.setdefault(first >> 32, ([], []))
            mine[0].append(first & 0xFFFFFFFF)
            mine[1].append(last & 0xFFFFFFFF)
        return {fragment: RowSpans(tuple(one), tuple(two)) for fragment, (one, two) in spans.items()}

    def descriptors(self, column: str, rows: str | None) -> Iterator[tuple[int, dict[str, Any]]]:
        """(fragment, where its payload is said to be) of each blob of a column."""
        scan = self._scan(columns=[column], filter=rows, with_row_address=True, blob_handling="blobs_descriptions")
        for batch in scan:
            addresses: list[int] = batch.column("_rowaddr").to_pylist()
            blobs: list[Any] = batch.column(column).to_pylist()
            for address, blob in zip(addresses, blobs, strict=True):
                if blob is not None and blob["position"] is not None:
                    yield address >> 32, blob

    def _count(self) -> None:
        """What the library read counts like what we read ourselves."""
        self._origin.read_bytes += self._dataset.io_stats_incremental().read_bytes

    def _scan(self, **options: Any) -> Iterator[Any]:
        try:
            yield from self._dataset.scanner(**options).to_batches()
            self._count()
        except (ValueError, OSError) as error:
            chosen = options.get("filter")
            msg = f"{self._path} cannot be scanned{f' with the filter {chosen!r}' if chosen else ''}: {_first_line(error)}"
            raise PlanError(msg) from error


def _first_line(error: Exception) -> str:
    """What the library says, without the places in its source."""
    return str(error).splitlines()[0].split(", /home/", 1)[0] if str(error) else type(error).__name__
