"""What the pictures of an episode show: do they change, are they its own.

Decoded frames come as small grids of mean brightness (`cells`), a batch at a time; means
over a cell take the noise of lossy codecs away and leave what moves. `PictureWatch` is
fed while a file is decoded; the checks judge what it kept, which is small per episode.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.limits import DEFAULT_LIMITS, Limits
from forebay.ingest.domain.recording import Episode

Cells = npt.NDArray[np.float32]

_NOISY_SHARE = 0.04
"""Share of the cells that the codec alone may change by more than its usual noise."""
_LOOK_AHEAD = 16
"""Pictures that are compared at once with the first of a stretch."""
_HANGING = 0.2
"""Share of the other steps that the steps of a camera that hangs may have: between equal pictures there is the codec only."""
_BLACK = 24.0
"""Grey levels: black is 16 in most videos, and a covered lens has some noise."""
_STOLEN_NEAR = 4.0
"""Grey levels: two pictures are one but for the codec."""
_STOLEN_JUMP = 20.0
"""Grey levels: two pictures are surely not one."""


@dataclass(slots=True, kw_only=True)
class EpisodePictures:
    """One camera in one episode."""

    episode: int
    camera: str
    file: str
    start: float
    stop: float
    frames: int = 0
    first: Cells | None = None
    last: Cells | None = None
    first_step: float = 0.0
    """Grey levels between the first picture and the second."""
    later_steps: float = 0.0
    """Sum of the steps after it."""
    low: Cells | None = None
    high: Cells | None = None
    still_from: int = 0
    still_frames: int = 0
    """The longest stretch of pictures that stay near its first one."""
    still_drift: float = 0.0
    """Grey levels between the first and the last picture of that stretch, in the cell that changes most."""
    still_steps: float = 0.0
    """Sum of the steps from picture to picture in it."""
    brightness: float = 0.0
    """Sum of the mean brightnesses of its pictures."""
    digest: str = ""
    """Equal for equal pictures in the same order; there once the file is done."""
    _steps: list[npt.NDArray[np.float32]] = field(default_factory=list)
    _anchor: Cells | None = None
    _anchor_at: int = 0
    _anchor_steps: float = 0.0
    """Sum of the steps up to it."""

    @property
    def range(self) -> float:
        """Grey levels by which the liveliest cell changes over the episode."""
        return 0.0 if self.low is None or self.high is None else float(np.max(self.high - self.low))

    @property
    def mean_step(self) -> float:
        """Grey levels from one picture to the next, without the first step."""
        return self.later_steps / max(self.frames - 2, 1)

    @property
    def hangs(self) -> bool:
        """Whether the longest stretch is calm beside the rest, as no live camera is that sees a scene without motion."""
        rest = self.frames - self.still_frames
        others = (self.first_step + self.later_steps - self.still_steps) / max(rest, 1)
        return self.still_steps / max(self.still_frames - 1, 1) <= _HANGING * others

    @property
    def steps(self) -> npt.NDArray[np.float64]:
        """Grey levels from each picture to the next, in the cell that changes most."""
        return np.concatenate([np.empty(0), *self._steps])[1:]

    def take(self, cells: Cells, levels: float) -> None:
        """The next pictures: cells of shape (pictures, rows, columns)."""
        if self.last is None or self.last.shape != cells.shape[1:]:
            self.first, self.low, self.high = cells[0], cells[0], cells[0]
            self._anchor, self._anchor_at = cells[0], self.frames
            self._anchor_steps = self.first_step + self.later_steps
            before = cells[0]
        else:
            before = self.last
        together = np.concatenate([before[None], cells])
        apart = np.abs(np.diff(together, axis=0)).reshape(len(cells), -1)
        steps = apart.max(axis=1)
        walked = self.first_step + self.later_steps + np.cumsum(steps, dtype=np.float64)
        self._take_steps(steps)
        self._steps.append(steps)
        self.brightness += float(cells.mean(axis=(1, 2), dtype=np.float64).sum())
        self.low = np.minimum(self.low, cells.min(axis=0)) if self.low is not None else None
        self.high = np.maximum(self.high, cells.max(axis=0)) if self.high is not None else None
        self._take_still(cells, _differ(apart, levels).tolist(), walked, levels)
        self.last = cells[-1].copy()
        self.frames += len(cells)

    def _take_steps(self, steps: npt.NDArray[np.float32]) -> None:
        """How far each picture is from the one before it; the very first has none."""
        start = 2 - self.frames
        if 0 <= start - 1 < len(steps):
            self.first_step = float(steps[start - 1])
        self.later_steps += float(steps[max(start, 0) :].sum(dtype=np.float64))

    def _take_still(self, cells: Cells, moved: list[bool], walked: npt.NDArray[np.float64], levels: float) -> None:
        """Find the stretches that stay near their first picture.

        `moved`: more than noise away from the one before; `walked`: the sum of the steps up to each.
        """
        at = 0
        while at < len(cells) and self._anchor is not None:
            number = self.frames + at
            if number <= self._anchor_at + 1:
                window = 1
                near = int(number == self._anchor_at or not moved[at])
            else:
                ahead = cells[at : at + _LOOK_AHEAD]
                far = _differ(np.abs(ahead - self._anchor).reshape(len(ahead), -1), levels)
                window = len(ahead)
                near = int(far.argmax()) if far.any() else window
            length = number + near - self._anchor_at
            if length > self.still_frames:
                self.still_from, self.still_frames = self._anchor_at, length
                if near:
                    self.still_drift = float(np.abs(cells[at + near - 1] - self._anchor).max())
                    self.still_steps = float(walked[at + near - 1]) - self._anchor_steps
            if near < window:
                self._anchor, self._anchor_at = cells[at + near].copy(), number + near
                self._anchor_steps = float(walked[at + near])
                near += 1
            at += near


def _differ(apart: Cells, levels: float) -> npt.NDArray[np.bool_]:
    """For each row of differences: more than codec noise, that is some cells by more than `levels`, or one by far more.

    Strong compression lets single cells jump; what moves changes several, or one by a lot.
    """
    many = np.count_nonzero(apart > levels, axis=1) > _NOISY_SHARE * apart.shape[1]
    return np.asarray(many | (apart.max(axis=1) > 2 * levels))


class PictureWatch:
    """Gives the frames of one file to the episodes in whose windows they lie."""

    def __init__(self, uses: Iterable[EpisodePictures], fps: float, limits: Limits = DEFAULT_LIMITS) -> None:
        self._waiting = sorted(uses, key=lambda use: use.start, reverse=True)
        self._half = 0.5 / fps
        self._levels = limits.frozen_levels
        self._open: list[EpisodePictures] = []
        self._episodes = tuple(reversed(self._waiting))
        self._hashes: dict[int, hashlib._Hash] = {}

    def take(self, times: npt.NDArray[np.float64], cells: Cells, content: npt.NDArray[Any]) -> None:
        """The next frames, in the order of their times. `content` is what makes one equal to another."""
        first, last = float(times.min()), float(times.max())
        while self._waiting and self._waiting[-1].start - self._half <= last:
            self._open.append(self._waiting.pop())
        for use in self._open:
            start, stop = use.start - self._half, use.stop - self._half
            if start <= first and last < stop:
                self._show(use, cells, content)
                continue
            inside = (times >= start) & (times < stop)
            if inside.any():
                self._show(use, cells[inside], content[inside])
        self._open = [use for use in self._open if last < use.stop - self._half]

    def _show(self, use: EpisodePictures, cells: Cells, content: npt.NDArray[Any]) -> None:
        use.take(cells, self._levels)
        number = id(use)
        if number not in self._hashes:
            self._hashes[number] = hashlib.sha256(usedforsecurity=False)
        self._hashes[number].update(np.ascontiguousarray(content).data)

    def finish(self) -> tuple[EpisodePictures, ...]:
        """What was seen of each episode."""
        for use in self._episodes:
            if id(use) in self._hashes:
                use.digest = self._hashes[id(use)].hexdigest()
        return self._episodes


def pictures_by_file(episodes: Iterable[Episode], fps: float) -> dict[str, list[EpisodePictures]]:
    """What is to be seen in every video file: episodes where the episode table says they are."""
    found: dict[str, list[EpisodePictures]] = {}
    for episode in episodes:
        for window in episode.windows:
            stop = math.inf if window.whole else window.start + episode.length / fps
            one = EpisodePictures(
                episode=episode.index, camera=window.camera, file=window.file, start=window.start, stop=stop
            )
            found.setdefault(window.file, []).append(one)
    return found


Motion = Callable[[int, int, int], bool | None]
"""Does the robot move in episode e between frames a and b; None: it cannot be said."""


def check_frozen(
    seen: Iterable[EpisodePictures], fps: float, moves: Motion, limits: Limits = DEFAULT_LIMITS
) -> list[Breach]:
    """Cameras that show one picture for a whole episode (one breach per camera), or for a long stretch of it."""
    frozen: dict[str, list[EpisodePictures]] = {}
    resting: dict[str, list[EpisodePictures]] = {}
    found: list[Breach] = []
    for one in seen:
        if one.frames < limits.frozen_min_frames:
            continue
        # one picture more may differ: the first after a scene change takes the codec a frame to settle
        if one.frames - one.still_frames <= max(1.0, (1 - limits.frozen_share) * one.frames):
            # a camera that shows a robot at rest is no broken camera
            moving = moves(one.episode, 0, one.frames)
            (resting if moving is False else frozen).setdefault(one.camera, []).append(one)
            continue
        long = one.still_frames >= max(limits.still_seconds * fps, limits.still_share * one.frames)
        # a camera that hangs shows its last picture to the end; one whose scene moves slowly drifts away from it
        if (
            long
            and one.hangs
            and one.still_drift <= limits.frozen_levels
            and moves(one.episode, one.still_from, one.still_from + one.still_frames)
        ):
            found.append(_still(one, fps))
    found += [_frozen(camera, ones) for camera, ones in sorted(frozen.items())]
    found += [_frozen(camera, ones, resting=True) for camera, ones in sorted(resting.items())]
    return found


def _frozen(camera: str, ones: list[EpisodePictures], *, resting: bool = False) -> Breach:
    episodes = tuple(sorted({one.episode for one in ones}))
    worst = max(ones, key=lambda one: one.still_frames / one.frames)
    most = max(one.range for one in ones)
    changes = (
        f"changes by at most {most:.1f} of 255 grey levels, no more than codec noise"
        if most
        else "does not change at all"
    )
    robot = "; the robot does not move either" if resting else ""
    shown = f"shows one still picture in {len(episodes)} episodes ({listed(list(episodes))}): it {changes}{robot}"
    brightest = max(float(np.max(one.high)) for one in ones if one.high is not None)
    if brightest <= _BLACK:
        shown = (
            f"is black in {len(episodes)} episodes ({listed(list(episodes))}): no part is brighter than {brightest:.0f} of 255;"
            " look at its lens cap, cable and exposure"
        )
    what = "black" if brightest <= _BLACK else "distinct"
    return Breach(
        rule=rules.FROZEN,
        lowered="warning" if resting and what != "black" else None,
        episodes=episodes,
        feature=camera,
        file=worst.file,
        frame=worst.still_from,
        expected="a picture that changes",
        found=f"1 {what} picture in {worst.still_frames} of {worst.frames} frames",
        message=f"{camera} {shown}",
    )


def _still(one: EpisodePictures, fps: float) -> Breach:
    stop = one.still_from + one.still_frames
    return Breach(
        rule=rules.STILL,
        episodes=(one.episode,),
        feature=one.camera,
        file=one.file,
        frame=one.still_from,
        expected="a picture that changes while the robot moves",
        found=f"{one.still_frames} equal frames",
        message=f"episode {one.episode}, {one.camera}: the picture stands still from frame {one.still_from} to {stop - 1}"
        f" ({one.still_frames / fps:.1f} s of {one.frames / fps:.1f} s), while the robot moves",
    )


def check_same_pictures(
    seen: Iterable[EpisodePictures], same_rows: Callable[[int, int], bool], limits: Limits = DEFAULT_LIMITS
) -> list[Breach]:
    """Episodes of one camera with equal pictures. Whole recordings that repeat are told elsewhere (`same_rows`)."""
    groups: dict[tuple[str, str, int], list[EpisodePictures]] = {}
    for one in seen:
        if one.frames >= limits.frozen_min_frames:
            groups.setdefault((one.camera, one.digest, one.frames), []).append(one)
    found: list[Breach] = []
    for (camera, digest, frames), ones in groups.items():
        first = ones[0]
        others = [one for one in ones[1:] if not same_rows(first.episode, one.episode)]
        if not others:
            continue
        episodes = tuple(sorted({first.episode, *(one.episode for one in others)}))
        found.append(
            Breach(
                rule=rules.SAME_PICTURES,
                episodes=episodes,
                feature=camera,
                file=first.file,
                expected="pictures of its own in each episode",
                found=f"{len(episodes)} episodes with the same {frames} pictures",
                message=f"{camera} shows the same {frames} pictures in episodes {listed(list(episodes))} (content {digest[:12]})",
            )
        )
    return found


def check_same_cameras(seen: Iterable[EpisodePictures], limits: Limits = DEFAULT_LIMITS) -> list[Breach]:
    """Two cameras that show the same pictures in an episode: one was written twice."""
    by_episode: dict[tuple[int, str, int], list[EpisodePictures]] = {}
    for one in seen:
        if one.frames >= limits.frozen_min_frames:
            by_episode.setdefault((one.episode, one.digest, one.frames), []).append(one)
    pairs: dict[tuple[str, ...], list[EpisodePictures]] = {}
    for ones in by_episode.values():
        cameras = tuple(sorted({one.camera for one in ones}))
        if len(cameras) > 1:
            pairs.setdefault(cameras, []).append(ones[0])
    return [
        Breach(
            rule=rules.SAME_PICTURES,
            episodes=tuple(sorted(one.episode for one in ones)),
            feature=cameras[1],
            file=ones[0].file,
            expected="pictures of its own for each camera",
            found=f"the pictures of {cameras[0]}",
            message=f"{listed(list(cameras))} show the same pictures in episodes {listed([one.episode for one in ones])}",
        )
        for cameras, ones in pairs.items()
    ]


def check_stolen(seen: Iterable[EpisodePictures]) -> list[Breach]:
    """First pictures that are the last, or the first, of the episode before."""
    by_camera: dict[str, list[EpisodePictures]] = {}
    for one in seen:
        by_camera.setdefault(one.camera, []).append(one)
    found: list[Breach] = []
    for camera, ones in sorted(by_camera.items()):
        hit: dict[str, list[int]] = {}
        ordered = sorted(ones, key=lambda one: one.episode)
        for before, after in pairwise(ordered):
            source = _stolen_from(before, after)
            if source is not None:
                hit.setdefault(source, []).append(after.episode)
        for source, episodes in hit.items():
            found.append(
                Breach(
                    rule=rules.STOLEN_FRAME,
                    episodes=tuple(episodes),
                    feature=camera,
                    file=next(one.file for one in ordered if one.episode == episodes[0]),
                    frame=0,
                    expected="a first picture of its own",
                    found=f"the {source} picture of the episode before",
                    message=f"{camera}: frame 0 of episode {listed(episodes)} is the {source} picture of the episode before;"
                    " frame 1 shows another scene",
                )
            )
    return found


def _stolen_from(before: EpisodePictures, after: EpisodePictures) -> str | None:
    if after.frames < 3 or before.frames < 2 or after.first is None or after.episode != before.episode + 1:
        return None
    jump = after.first_step
    if jump < _STOLEN_JUMP:
        return None  # the scene goes on from there: nothing was reset between the two
    for source, picture, factor in (("last", before.last, 1.2), ("first", before.first, 3.0)):
        if picture is None or picture.shape != after.first.shape or jump < factor * after.mean_step:
            continue
        if float(np.max(np.abs(after.first - picture))) <= _STOLEN_NEAR:
            return source
    return None
