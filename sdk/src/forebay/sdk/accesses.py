"""Which versions a job used on which day: what the cache's times to live are learned from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from forebay.contracts.v1.cache import DatasetAccessed
from forebay.contracts.v1.datasets import PinnedInput


class Accesses:
    """Says each use once: job, version and day are its identity, however many attempts there are."""

    def __init__(self, job: str, inputs: Iterable[PinnedInput]) -> None:
        self._job = job
        self._inputs = tuple(inputs)
        self._last: date | None = None

    def on(self, day: date) -> Iterator[DatasetAccessed]:
        """The uses of a day, the first time it is asked about."""
        if day == self._last:
            return
        self._last = day
        for kind, name, number in sorted({(one.kind, one.name, one.number) for one in self._inputs}):
            yield DatasetAccessed.model_validate(
                {"job": self._job, "kind": kind, "name": name, "number": number, "day": day}
            )
