"""Open work in memory: by key, and in the lanes in which it runs. Which lane is next is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from forebay.runtime.records import WorkRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """How many runs of one kind of work there may be at once."""

    total: int
    per_project: int
    """Below `total`, so that a project's work never waits for another project's to end."""

    @classmethod
    def shared(cls, total: int) -> Slots:
        """The last slot is never taken by a project that holds all the others."""
        return cls(total=total, per_project=max(1, total - 1))

    @classmethod
    def unshared(cls, total: int) -> Slots:
        """Whoever is first; for work whose order was decided elsewhere."""
        return cls(total=total, per_project=total)


@dataclass(slots=True)
class _Lane:
    turn: int
    """Its place in the line of its kind."""
    project: str
    records: dict[str, WorkRecord] = field(default_factory=dict)


class OpenWork:
    """Pieces of work that are neither done nor parked.

    A lane is a group of pieces that run one at a time, or a piece without a group. A
    project's lanes stand in line: whichever has waited longest is first, and one that
    has had its turn goes to the end.
    """

    def __init__(self, records: Iterable[WorkRecord] = ()) -> None:
        self.by_key: dict[str, WorkRecord] = {}
        self._lanes: dict[str, dict[str, dict[str, _Lane]]] = {}
        """By kind, project and name, each project's in the order of their turns."""
        self._turn = 0
        for record in sorted(records, key=lambda record: record.asked_at):
            self.put(record)

    def put(self, record: WorkRecord) -> None:
        """Open it, or change what is open."""
        self.by_key[record.key] = record
        lanes = self._lanes.setdefault(record.work, {}).setdefault(record.project, {})
        lane = lanes.get(record.lane)
        if lane is None:
            lane = lanes[record.lane] = _Lane(self._next_turn(), record.project)
        lane.records[record.key] = record

    def remove(self, record: WorkRecord) -> None:
        """It is done or parked; fine when it is not open."""
        if self.by_key.pop(record.key, None) is None:
            return
        lanes = self._lanes[record.work][record.project]
        lane = lanes.pop(record.lane)
        del lane.records[record.key]
        if lane.records:
            lane.turn = self._next_turn()
            lanes[record.lane] = lane
        elif not lanes:
            del self._lanes[record.work][record.project]

    def kinds(self) -> list[str]:
        """Kinds of work that were ever open."""
        return list(self._lanes)

    def next_due(
        self, kind: str, now: float, running: Mapping[tuple[str, str], object], slots: Slots
    ) -> tuple[str, str, list[WorkRecord]] | None:
        """Project, name and work of the lane to start next; None when there is no room or nothing is due.

        `running` are the lanes that run, by project and name. The project with the
        fewest of them is first, then whichever has waited longest.
        """
        if len(running) >= slots.total:
            return None
        held: dict[str, int] = {}
        for project, _ in running:
            held[project] = held.get(project, 0) + 1
        best: tuple[int, int, str, str] | None = None
        for project, lanes in self._lanes.get(kind, {}).items():
            runs = held.get(project, 0)
            if runs >= slots.per_project or (best is not None and best[0] < runs):
                continue
            for name, lane in lanes.items():
                if (project, name) in running or all(one.not_before > now for one in lane.records.values()):
                    continue
                best = min(best or (runs, lane.turn, project, name), (runs, lane.turn, project, name))
                break
        if best is None:
            return None
        _, _, project, name = best
        return project, name, list(self._lanes[kind][project][name].records.values())

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn
