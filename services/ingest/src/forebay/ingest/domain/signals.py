"""Checks on the stored rows of one episode, fed block by block so that memory stays flat.

`EpisodeScan` is the running state of one episode; `check_signals` turns it into breaches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.clock import Clock, FloatArray, IntArray, Places
from forebay.ingest.domain.followed import Followed
from forebay.ingest.domain.motion import MOTION_FEATURES, Travel
from forebay.ingest.domain.recording import ACTIONS, STATES, Episode, Feature
from forebay.ingest.domain.spread import Stretch, stretch_of
from forebay.ingest.domain.stored_statistics import WIDEST, Moments

_MISSING = " missing values"


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorBlock:
    """One feature of one block of rows."""

    lengths: IntArray
    """Values in each row."""
    values: FloatArray | None
    """All values in row order; None when they are no numbers."""
    nulls: int = 0
    floating: bool = True
    outer: IntArray | None = None
    """Entries of the first axis in each row, where rows are nested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Consecutive rows of one episode in one file."""

    file: str
    times: FloatArray | None
    frame_index: IntArray
    index: IntArray | None
    task_index: IntArray | None
    """Each None where the file has no such column; another rule reports it."""
    vectors: dict[str, VectorBlock] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.frame_index)


@dataclass(slots=True)
class NonFinite:
    frame: int
    dim: int
    what: str
    count: int = 0


@dataclass(slots=True)
class FeatureScan:
    """What was seen of one feature in one episode."""

    widths: dict[int, int] = field(default_factory=dict)
    """Length of a row -> the first frame that has it (bounded)."""
    outers: dict[int, int] = field(default_factory=dict)
    """The same for the first axis of nested rows."""
    nulls: int = 0
    non_finite: NonFinite | None = None
    all_zero: bool = True
    low: FloatArray | None = None
    high: FloatArray | None = None
    moments: Moments = field(default_factory=Moments)
    spread: list[Stretch] = field(default_factory=list)

    def add(self, block: VectorBlock, first_frame: int) -> None:
        self.nulls += block.nulls
        _note(self.widths, block.lengths, first_frame)
        if block.outer is not None:
            _note(self.outers, block.outer, first_frame)
        if block.values is None:
            self.all_zero = False
            return
        if block.floating:
            self._look_for_non_finite(block, first_frame)
        self.all_zero = self.all_zero and not bool(np.any(block.values))
        uniform = len(block.lengths) > 0 and bool(np.all(block.lengths == block.lengths[0]))
        if not uniform or block.lengths[0] == 0:
            return
        table = block.values.reshape(len(block.lengths), -1)
        low, high = table.min(axis=0), table.max(axis=0)
        if self.non_finite is None:
            self.moments.add(table)
            if table.shape[1] <= WIDEST:
                self.spread.append(stretch_of(table))
        if self.low is None or self.high is None:
            self.low, self.high = low, high
        elif len(low) == len(self.low):
            self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    def _look_for_non_finite(self, block: VectorBlock, first_frame: int) -> None:
        if block.values is None:
            return
        bad = np.flatnonzero(~np.isfinite(block.values))
        if not len(bad):
            return
        if self.non_finite is None:
            ends = np.cumsum(block.lengths)
            row = int(np.searchsorted(ends, bad[0], side="right"))
            dim = int(bad[0] - (ends[row - 1] if row else 0))
            value = block.values[bad[0]]
            what = "NaN" if np.isnan(value) else ("+Inf" if value > 0 else "-Inf")
            self.non_finite = NonFinite(frame=first_frame + row, dim=dim, what=what)
        self.non_finite.count += len(bad)


def _note(lengths: dict[int, int], rows: IntArray, first_frame: int) -> None:
    for length in np.unique(rows)[:8]:
        if len(lengths) < 8:
            lengths.setdefault(int(length), first_frame + int(np.argmax(rows == length)))


@dataclass(slots=True)
class EpisodeScan:
    """Everything seen of one episode's rows so far."""

    rows: int = 0
    files: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """File -> the row in it that the episode starts at, put here by whoever feeds the scan."""
    pieces: int = 0
    """Separate stretches of rows; more than one per file means rows of others lie between."""
    first_index: int | None = None
    last_index: int = -1
    clock: Clock = field(default_factory=Clock)
    odd_frames: Places = field(default_factory=Places)
    odd_indices: Places = field(default_factory=Places)
    tasks: dict[int, int] = field(default_factory=dict)
    features: dict[str, FeatureScan] = field(default_factory=dict)
    travel: Travel = field(default_factory=Travel)
    followed: Followed | None = None
    """Of the one action beside the one state."""
    digest: str = ""
    """Digest of the rows, put here by whoever feeds the scan."""

    def add(self, block: RowBlock, fps: float) -> None:
        """Take in the next rows."""
        if block.times is not None:
            self.clock.add(block.times, fps)
        wanted = np.arange(self.rows, self.rows + block.rows)
        self.odd_frames.add(wanted[block.frame_index != wanted])
        if block.index is not None:
            self._count(block.index, wanted)
        if block.task_index is not None:
            kinds, counts = np.unique(block.task_index, return_counts=True)
            for task, count in zip(kinds[:1000], counts[:1000], strict=True):
                self.tasks[int(task)] = self.tasks.get(int(task), 0) + int(count)
        for key, vector in block.vectors.items():
            self.features.setdefault(key, FeatureScan()).add(vector, self.rows)
        self._travel(block, fps)
        self._follow(block)
        self.files[block.file] = self.files.get(block.file, 0) + block.rows
        self.rows += block.rows

    def _count(self, index: IntArray, frames: IntArray) -> None:
        if self.first_index is None:
            self.first_index, self.last_index = int(index[0]), int(index[0]) - 1
        self.odd_indices.add(frames[np.diff(index, prepend=self.last_index) != 1])
        self.last_index = int(index[-1])

    def _follow(self, block: RowBlock) -> None:
        state = next((block.vectors[key] for key in STATES if key in block.vectors), None)
        action = next((block.vectors[key] for key in ACTIONS if key in block.vectors), None)
        if state is None or action is None or state.values is None or action.values is None:
            return
        if len(state.values) != len(action.values) or len(state.values) % block.rows:
            return
        self.followed = self.followed or Followed()
        self.followed.add(state.values.reshape(block.rows, -1), action.values.reshape(block.rows, -1))

    def _travel(self, block: RowBlock, fps: float) -> None:
        vector = next((block.vectors[key] for key in MOTION_FEATURES if key in block.vectors), None)
        if vector is None or vector.values is None or len(vector.values) % block.rows:
            return
        self.travel.add(vector.values.reshape(block.rows, -1), self.rows, fps)


def check_signals(episode: Episode, scan: EpisodeScan, features: tuple[Feature, ...]) -> list[Breach]:
    """Every broken signal rule of one episode, except its clock, and dimensions, which are told per feature."""
    found = _check_order(episode, scan)
    for feature in features:
        seen = scan.features.get(feature.key)
        if seen is None:
            continue
        if seen.non_finite is not None:
            bad = seen.non_finite
            found.append(
                Breach(
                    rule=rules.NON_FINITE,
                    lowered=None if feature.is_signal else "warning",
                    episodes=(episode.index,),
                    feature=feature.key,
                    file=next(iter(scan.files), None),
                    frame=bad.frame,
                    expected="finite numbers",
                    found=f"{bad.what} in dimension {bad.dim}",
                    message=f"episode {episode.index}, frame {bad.frame}: {feature.key}[{bad.dim}] is {bad.what}"
                    f" ({bad.count} such values in the episode)",
                )
            )
    return [*found, *_check_dead(episode, scan, features)]


def _check_dead(episode: Episode, scan: EpisodeScan, features: tuple[Feature, ...]) -> list[Breach]:
    """An action that is zero all the time; of an action in several columns one part may be parked, not all."""
    parts = [feature.key for feature in features if feature.is_action and feature.key in scan.features]
    seen = [scan.features[key] for key in parts]
    if not parts or scan.rows < 2 or any(part.nulls or not part.all_zero for part in seen):
        return []
    return [
        Breach(
            rule=rules.DEAD_ACTION,
            episodes=(episode.index,),
            feature=parts[0],
            expected="some value other than 0",
            found=f"0 in all {scan.rows} frames",
            message=f"episode {episode.index}: {listed(parts)} is zero in every one of {scan.rows} frames",
        )
    ]


def _check_order(episode: Episode, scan: EpisodeScan) -> list[Breach]:
    found: list[Breach] = []
    for name, places in (("frame_index", scan.odd_frames), ("index", scan.odd_indices)):
        if places.count:
            what = "does not count 0, 1, 2, …" if name == "frame_index" else "does not grow by one"
            found.append(
                Breach(
                    rule=rules.FRAME_ORDER,
                    episodes=(episode.index,),
                    feature=name,
                    file=next(iter(scan.files), None),
                    frame=places.frames[0],
                    expected="one more in each row",
                    found=f"{places.count} rows out of order",
                    message=f"episode {episode.index}: {name} {what} at frames {listed(places.frames)} ({places.count} rows)",
                )
            )
    if scan.pieces > len(scan.files):
        found.append(
            Breach(
                rule=rules.FRAME_ORDER,
                episodes=(episode.index,),
                feature="episode_index",
                expected="one stretch of rows in a file",
                found=f"{scan.pieces} stretches",
                message=f"episode {episode.index}: its rows are torn into {scan.pieces} stretches with other episodes between",
            )
        )
    return found


def check_dimensions(scans: dict[int, EpisodeScan], features: tuple[Feature, ...]) -> list[Breach]:
    """Rows whose length is not the declared one; one breach per feature and wrong length."""
    found: list[Breach] = []
    for feature in features:
        hit: dict[str, list[tuple[int, int]]] = {}
        for episode, scan in scans.items():
            seen = scan.features.get(feature.key)
            if seen is None:
                continue
            wrong = {width: frame for width, frame in seen.widths.items() if width != feature.width}
            if wrong:
                text = " and ".join(str(width) for width in sorted(seen.widths))
                hit.setdefault(text, []).append((episode, min(wrong.values())))
            turned = {n: frame for n, frame in seen.outers.items() if feature.shape and n != feature.shape[0]}
            if turned and not wrong:
                text = " and ".join(f"{n} by {feature.width // n if n else 0}" for n in sorted(turned))
                hit.setdefault(text, []).append((episode, min(turned.values())))
            if seen.nulls:
                hit.setdefault(f"{seen.nulls}{_MISSING}", []).append((episode, 0))
        for text, places in hit.items():
            episodes = tuple(episode for episode, _ in places)
            found.append(
                Breach(
                    rule=rules.DIMENSIONS,
                    lowered="warning" if feature.is_text and text.endswith(_MISSING) else None,
                    episodes=episodes,
                    feature=feature.key,
                    frame=places[0][1],
                    expected=f"{list(feature.shape)}: {feature.width} values per row",
                    found=text,
                    message=f"{feature.key} is declared {list(feature.shape)}, but its rows hold {text}"
                    f" (episodes {listed(list(episodes))}, first at frame {places[0][1]} of episode {episodes[0]})",
                )
            )
    return found


def check_constant(
    scans: dict[int, EpisodeScan], features: tuple[Feature, ...], names: Mapping[str, tuple[str, ...]]
) -> list[Breach]:
    """Dimensions of state and action that never move in the whole dataset."""
    found: list[Breach] = []
    for feature in features:
        seen = [s.features[feature.key] for s in scans.values() if feature.key in s.features and s.rows]
        lows, highs = [s.low for s in seen if s.low is not None], [s.high for s in seen if s.high is not None]
        if not feature.is_signal or not lows or len({len(low) for low in lows}) != 1:
            continue
        if all(scan.all_zero for scan in seen) and feature.key in ACTIONS:
            continue
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        still = [int(dim) for dim in np.flatnonzero(low == high)]
        joints = names.get(feature.key, ())
        told = [f"{dim} ({joints[dim]})" if dim < len(joints) else str(dim) for dim in still]
        if still and sum(scan.rows for scan in scans.values()) > 1:
            found.append(
                Breach(
                    rule=rules.CONSTANT,
                    feature=feature.key,
                    expected="a standard deviation above 0",
                    found=f"dimensions {listed(told)} never change",
                    message=f"{feature.key}: dimensions {listed(told)} hold one value in the whole dataset (standard deviation 0)",
                )
            )
    return found
