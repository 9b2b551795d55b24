"""When the robot moves, by its rows: the spans of every joint in short windows of an episode.

`Travel` is fed while rows are read and stays small; `Motion` compares the spans with
the range of each joint in the whole dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import stored_statistics
from forebay.ingest.domain.recording import ACTIONS, STATES

if TYPE_CHECKING:
    from forebay.ingest.domain.signals import EpisodeScan

FloatArray = npt.NDArray[np.float64]
MOTION_FEATURES = (*STATES, *ACTIONS)
"""What says whether the robot moves, the better one first."""
MOVES = 0.02
"""Share of a joint's range in the dataset that counts as moving."""
_WINDOWS_PER_SECOND = 5
_MAX_SPANS = 4096
"""Seconds of one episode that are looked at."""
_NOISE = -0.25
"""Steps that turn back more than this are noise: for white noise it is -0.5, for a joint that moves about 1."""


@dataclass(slots=True)
class Travel:
    """How far each joint went, in windows of one second and of a fifth of it."""

    seconds: list[tuple[int, int, npt.NDArray[np.float32]]] = field(default_factory=list)
    """Frames `[start, stop)` and the span of each joint in them."""
    windows: list[tuple[int, int, npt.NDArray[np.float32]]] = field(default_factory=list)
    """First frame, frames per window, and the spans of the windows from there on."""
    energy: FloatArray | None = None
    """Sum of the squared steps of each joint."""
    carried: FloatArray | None = None
    """Sum of each step times the next one: positive when a joint keeps its direction."""

    def add(self, table: FloatArray, first: int, fps: float) -> None:
        """The next rows, of which the first one is frame `first`."""
        second = max(round(fps), 1)
        # rows may hold NaN and infinity; other rules say so
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(table), second):
                if len(self.seconds) >= _MAX_SPANS:
                    return
                piece = table[start : start + second + 1]
                self.seconds.append((first + start, first + start + len(piece), np.ptp(piece, axis=0).astype("f4")))
            self._add_windows(table, first, max(round(fps / _WINDOWS_PER_SECOND), 1))
            steps = np.diff(table, axis=0)
            energy, carried = (steps**2).sum(axis=0), (steps[1:] * steps[:-1]).sum(axis=0)
            if self.energy is None or self.carried is None or len(self.energy) != len(energy):
                self.energy, self.carried = energy, carried
            else:
                self.energy, self.carried = self.energy + energy, self.carried + carried

    def _add_windows(self, table: FloatArray, first: int, size: int) -> None:
        starts = range(0, max(len(table) - 1, 1), size)
        spans = [np.ptp(table[start : start + size + 1], axis=0) for start in starts]
        self.windows.append((first, size, np.asarray(spans, dtype=np.float32)))


class Motion:
    """Whether the robot moves, by the rows of the first of `MOTION_FEATURES` that the dataset has."""

    def __init__(self, scans: Mapping[int, EpisodeScan], features: set[str]) -> None:
        self._scans = scans
        self._key = next((key for key in MOTION_FEATURES if key in features), None)
        parts = [scan.features[self._key] for scan in scans.values() if self._key in scan.features]
        rows = stored_statistics.summarise((part.moments, part.low, part.high) for part in parts)
        self._least = None if rows is None else np.maximum((rows.high - rows.low) * MOVES, 1e-9)
        self._steady = None if rows is None else self._steady_joints(len(rows.low))

    def _steady_joints(self, width: int) -> npt.NDArray[np.bool_]:
        """Joints whose steps are more than noise; all of them when none is."""
        energy, carried = np.zeros(width), np.zeros(width)
        for scan in self._scans.values():
            travel = scan.travel
            if travel.energy is not None and travel.carried is not None and len(travel.energy) == width:
                sums = np.isfinite(travel.energy) & np.isfinite(travel.carried)
                energy, carried = energy + np.where(sums, travel.energy, 0), carried + np.where(sums, travel.carried, 0)
        steady = carried >= _NOISE * energy
        return steady if steady.any() else np.ones(width, dtype=np.bool_)

    def moves(self, episode: int, start: int, stop: int) -> bool | None:
        """Between two frames; None when it cannot be said."""
        scan = self._scans.get(episode)
        if scan is None or self._least is None or self._key is None or self._key not in scan.features:
            return None
        seen = scan.features[self._key]
        if seen.low is None or seen.high is None or len(seen.low) != len(self._least):
            return None
        if start == 0 and stop >= scan.rows:
            return bool(np.any(seen.high - seen.low > self._least))
        inside = [span for first, last, span in scan.travel.seconds if first >= start and last <= stop]
        return any(bool(np.any(span > self._least)) for span in inside) if inside else None

    def pace(self, episode: int, steps: int) -> FloatArray | None:
        """How far the joint that moves most goes about each step from frame to frame; from 1 on the robot moves.

        A window beside a pause is part of the pause, since it holds the end of the motion before it, or its start.
        """
        scan = self._scans.get(episode)
        if scan is None or self._least is None or self._steady is None:
            return None
        count = min(steps, max(scan.rows - 1, 0))
        found = np.zeros(count)
        for first, size, spans in scan.travel.windows:
            if spans.shape[1] != len(self._least):
                return None
            pace = (spans / self._least)[:, self._steady].max(axis=1)
            beside = np.concatenate([pace[:1], pace, pace[-1:]])
            calmest = np.minimum(np.minimum(beside[:-2], beside[2:]), pace)
            of_steps = np.repeat(np.where(calmest < 1, calmest, pace), size)[: max(count - first, 0)]
            found[first : first + len(of_steps)] = of_steps
        return found
