"""The times of one episode's rows: do they count up from 0 by the frame, and what it means when they do not.

Readers look a row's picture up at its time. So what counts is whether the nearest
picture is the row's own: a clock that wanders by less than half a frame spoils
nothing, one that runs away pairs rows with foreign pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.recording import Episode

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

TIME_TOLERANCE = 1e-4
"""Seconds; LeRobot's own tolerance when it looks a frame up."""
_FLOAT32_STEP = 2.0**-22
"""Relative distance of neighbouring float32 values, doubled: timestamps are stored in float32."""
_MAX_PLACES = 50
_EVEN = 0.002
"""Share by which the steps of one rate may differ: what rounding to milliseconds does."""
_FEW = 3
_MANY = 8
"""Episodes that break the rule in one way, and that are still told one by one."""
_WANDERS = "at most 0.0001 s from frame / fps"


@dataclass(slots=True)
class Places:
    """Frames where something happened: the first few, and how many in all."""

    frames: list[int] = field(default_factory=list)
    count: int = 0

    def add(self, frames: IntArray) -> None:
        self.count += len(frames)
        self.frames.extend(int(frame) for frame in frames[: _MAX_PLACES - len(self.frames)])


@dataclass(slots=True)
class Clock:
    """What was seen of the times so far."""

    rows: int = 0
    first: float = 0.0
    last: float = 0.0
    odd_step: float = 0.0
    """The first step that is not 1/fps."""
    shortest: float = np.inf
    longest: float = 0.0
    off: float = 0.0
    """How far a time is from the first one plus frame / fps, at worst."""
    off_at: int = 0
    restarts: Places = field(default_factory=Places)
    odd_steps: Places = field(default_factory=Places)

    def add(self, times: FloatArray, fps: float) -> None:
        """Take in the times of the next rows."""
        frames = np.arange(self.rows, self.rows + len(times))
        if self.rows == 0:
            self.first = float(times[0])
            steps, at = np.diff(times), frames[1:]
        else:
            steps, at = np.diff(times, prepend=self.last), frames
        tolerance = TIME_TOLERANCE + np.abs(times[len(times) - len(steps) :]) * _FLOAT32_STEP
        # `not (a <= b)` instead of `a > b`: a NaN must count as odd
        back = ~(steps > 0)
        odd = ~(np.abs(steps - 1.0 / fps) <= tolerance) & ~back
        self.restarts.add(at[back])
        if np.any(odd) and not self.odd_steps.count:
            self.odd_step = float(steps[odd][0])
        self.odd_steps.add(at[odd])
        if len(steps):
            self.shortest = min(self.shortest, float(steps.min()))
            self.longest = max(self.longest, float(steps.max()))
        off = np.abs(times - self.first - frames / fps)
        worst = int(np.argmax(off))
        if off[worst] > self.off:
            self.off, self.off_at = float(off[worst]), int(frames[worst])
        self.rows += len(times)
        self.last = float(times[-1])

    @property
    def rate(self) -> float | None:
        """Rows per second, when all steps are about equal."""
        even = self.rows > _FEW and self.shortest > 0 and self.longest - self.shortest <= _EVEN * self.longest
        return (self.rows - 1) / (self.last - self.first) if even else None


def check_clock(episode: Episode, clock: Clock, fps: float, file: str | None) -> list[Breach]:
    """The one thing that is wrong with the times of an episode, if any."""
    if not clock.rows:
        return []

    def tell(text: str, expected: str, found: str, frame: int, *, slight: bool = False) -> list[Breach]:
        return [
            Breach(
                rule=rules.TIMESTAMPS,
                lowered="warning" if slight else None,
                episodes=(episode.index,),
                feature="timestamp",
                file=file,
                frame=frame,
                expected=expected,
                found=found,
                message=f"episode {episode.index}: {text}",
            )
        ]

    step = f"steps of 1/{fps:g} s = {1 / fps:.6f} s"
    starts_near = abs(clock.first) <= 1 / fps + TIME_TOLERANCE
    if clock.restarts.count:
        frames, count = clock.restarts.frames, f"{clock.restarts.count} restarts"
        return tell(f"time goes backwards or stands still at frames {listed(frames)} ({count})", step, count, frames[0])
    if clock.odd_steps.count and starts_near and clock.off < 0.5 / fps:
        text = (
            f"time wanders by up to {clock.off:.6f} s from frame / {fps:g} (at frame {clock.off_at}); that is less than half"
            f" a frame, so each row is nearest to its own picture, but LeRobot stops beyond {TIME_TOLERANCE:g} s unless its"
            " tolerance_s is raised"
        )
        return tell(text, _WANDERS, f"{clock.off:.6f} s", clock.off_at, slight=True)
    if clock.odd_steps.count:
        frame, odd = clock.odd_steps.frames[0], clock.odd_steps.count
        text = f"the time step is {clock.odd_step:.6f} s at frame {frame}, and wrong at {odd} of {clock.rows - 1} steps"
        found = f"{clock.odd_step:.6f} s"
        if clock.rate is not None:
            text = f"its rows come at {clock.rate:.4g} per second (steps of {1 / clock.rate:.6g} s), info.json says {fps:g}"
            found = f"{clock.rate:.4g} rows per second"
        return tell(text, step, found, frame)
    if not abs(clock.first) <= TIME_TOLERANCE:
        late = "; each row is paired with the next picture, the last with none" if starts_near else ""
        text = f"time starts at {clock.first:.6f} s instead of 0{late}"
        return tell(text, "0 s", f"{clock.first:.6f} s", 0, slight=starts_near)
    return []


def gathered(breaches: Sequence[Breach]) -> list[Breach]:
    """What the clock of one recorder does to episode after episode is told once, as of the first."""
    groups: dict[tuple[str, str | None], list[Breach]] = {}
    found: list[Breach] = []
    for breach in breaches:
        if breach.rule is rules.TIMESTAMPS:
            groups.setdefault((breach.severity, breach.expected), []).append(breach)
        else:
            found.append(breach)
    for (_, expected), group in groups.items():
        alike = expected == _WANDERS or len({breach.found for breach in group}) == 1
        if len(group) < _FEW or (not alike and len(group) <= _MANY):
            found += group
            continue
        episodes = tuple(sorted(index for breach in group for index in breach.episodes or ()))
        worst = max(group, key=lambda breach: breach.found or "") if expected == _WANDERS else group[0]
        text = f"{worst.message} ({len(group)} such episodes: {listed(list(episodes))})"
        found.append(replace(worst, episodes=episodes, message=text, parts=tuple(group)))
    return found
