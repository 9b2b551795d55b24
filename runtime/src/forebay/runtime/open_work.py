"""Open work in memory: by key, and in the lanes in which it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.runtime.records import WorkRecord


class OpenWork:
    """Pieces of work that are neither done nor parked.

    A lane is a group of pieces that run one at a time, or a piece without a group. Lanes
    stand in line: whichever has waited longest is first, and one that has had its turn
    goes to the end.
    """

    def __init__(self, records: Iterable[WorkRecord] = ()) -> None:
        self.by_key: dict[str, WorkRecord] = {}
        self._lanes: dict[str, dict[str, dict[str, WorkRecord]]] = {}
        for record in sorted(records, key=lambda record: record.asked_at):
            self.put(record)

    def put(self, record: WorkRecord) -> None:
        """Open it, or change what is open."""
        self.by_key[record.key] = record
        self._lanes.setdefault(record.work, {}).setdefault(record.lane, {})[record.key] = record

    def remove(self, record: WorkRecord) -> None:
        """It is done or parked; fine when it is not open."""
        if self.by_key.pop(record.key, None) is None:
            return
        lanes = self._lanes[record.work]
        lane = lanes.pop(record.lane)
        del lane[record.key]
        if lane:
            lanes[record.lane] = lane

    def kinds(self) -> list[str]:
        """Kinds of work that were ever open."""
        return list(self._lanes)

    def due(self, kind: str, now: float) -> Iterator[tuple[str, list[WorkRecord]]]:
        """The lanes of a kind in which something is due at `now` (seconds since the epoch), each with all of its work."""
        for name, lane in self._lanes.get(kind, {}).items():
            if any(record.not_before <= now for record in lane.values()):
                yield name, list(lane.values())
