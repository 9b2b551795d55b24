"""How many new pictures per second a camera really gives while the robot moves.

A camera slower than its rows, or one that hangs now and then, fills the rows with
copies of its last picture. A copy hardly differs from the picture before it, while the
pictures before and after the copies do: that tells it from a scene that moves slowly,
and from the noise of a codec, which codes a copy anew at a key frame. A robot that
pauses is no fault of the camera, so only steps in which it moves count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.limits import DEFAULT_LIMITS, Limits
from forebay.ingest.domain.motion import Motion
from forebay.ingest.domain.pictures import EpisodePictures

_COPY = 0.2
"""Share of the steps beside it that the step to a copy may have: 0.02 to 0.2 was seen in AV1 and H.264 at quality 30."""
_FEWEST = 3
"""Copies in an episode that are worth a word."""
_SLOW = 0.7
"""Share of new pictures in slow motion, beside that in fast motion, below which the scene is slow and not the camera."""
_CATCHES_UP = 1.5
"""How much larger than others the step after a camera hung is, at least."""
_SOME = 4

Steps = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One camera in one episode."""

    episode: int
    file: str
    moving: int
    """Pictures that came while the robot moved in sight of the camera."""
    copies: int
    """Those of them that repeat the picture before."""
    first: int
    """Frame of the first copy."""
    longest: int
    """Copies in a row, at most."""

    def per_second(self, fps: float) -> float:
        return fps * (1 - self.copies / self.moving)


def check_rates(
    seen: Iterable[EpisodePictures], fps: float, motion: Motion, limits: Limits = DEFAULT_LIMITS
) -> list[Breach]:
    """One breach per camera that repeats pictures while the robot moves, with its rate in each such episode."""
    slow: dict[str, list[Rate]] = {}
    for one in seen:
        rate = rate_of(one, fps, motion, limits)
        if rate is not None and rate.copies >= max(_FEWEST, limits.repeated_share * rate.moving):
            slow.setdefault(one.camera, []).append(rate)
    return [_slow(camera, sorted(rates, key=lambda rate: rate.episode), fps) for camera, rates in sorted(slow.items())]


def rate_of(one: EpisodePictures, fps: float, motion: Motion, limits: Limits = DEFAULT_LIMITS) -> Rate | None:
    """The camera's rate in one episode; None when too little moves to say it."""
    steps = one.steps
    pace = motion.pace(one.episode, len(steps))
    if pace is None or not len(pace):
        return None
    steps = steps[: len(pace)]
    least = limits.frozen_levels / 2
    copies = copies_in(steps, round(fps), least)
    moving = (pace >= 1) & (copies | _visible(steps, least))
    count = int(moving.sum())
    if count < limits.frozen_min_frames:
        return None
    if _is_slow_scene(copies[moving], pace[moving]) and not _catches_up(steps, copies):
        return None
    hit = copies & moving
    return Rate(
        episode=one.episode,
        file=one.file,
        moving=count,
        copies=int(hit.sum()),
        first=int(hit.argmax()) + 1,
        longest=_longest(hit),
    )


def copies_in(steps: Steps, most: int, least: float) -> Flags:
    """Which steps from picture to picture lead to a copy.

    At most `most` copies in a row, between two steps of at least `least` grey levels.
    """
    copies = np.zeros(len(steps), dtype=np.bool_)
    for run in range(1, min(max(most, 1), len(steps) - 2) + 1):
        within = np.lib.stride_tricks.sliding_window_view(steps[1:-1], run).max(axis=1)
        beside = np.minimum(steps[: len(within)], steps[run + 1 : run + 1 + len(within)])
        for at in np.flatnonzero((beside >= least) & (within <= _COPY * beside)):
            copies[at + 1 : at + 1 + run] = True
    return copies


def _visible(steps: Steps, least: float) -> Flags:
    """Steps in or beside which the picture changes: elsewhere the camera does not see what moves."""
    changes = np.concatenate([[False], steps >= least, [False]])
    return np.asarray(changes[:-2] | changes[1:-1] | changes[2:])


def _is_slow_scene(copies: Flags, pace: Steps) -> bool:
    """Whether new pictures become rare where the robot moves slowly: a slow camera repeats at any pace."""
    third = len(pace) // 3
    if third < _SOME:
        return False
    order = np.argsort(pace, kind="stable")
    slow, fast = copies[order[:third]], copies[order[-third:]]
    return float(1 - slow.mean()) < _SLOW * float(1 - fast.mean())


def _catches_up(steps: Steps, copies: Flags) -> bool:
    """Whether the picture jumps after copies: the scene went on while the camera hung."""
    new = ~copies[1:]
    after, others = steps[1:][new & copies[:-1]], steps[1:][new & ~copies[:-1]]
    return min(len(after), len(others)) >= _SOME and bool(np.median(after) >= _CATCHES_UP * np.median(others))


def _longest(flags: Flags) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _slow(camera: str, rates: list[Rate], fps: float) -> Breach:
    parts = tuple(_of_episode(camera, rate, fps) for rate in rates)
    if len(parts) == 1:
        return parts[0]
    copies, moving = sum(rate.copies for rate in rates), sum(rate.moving for rate in rates)
    each = listed([f"{rate.per_second(fps):.1f} in episode {rate.episode}" for rate in rates])
    worst = max(rates, key=lambda rate: rate.copies / rate.moving)
    return Breach(
        rule=rules.CAMERA_RATE,
        episodes=tuple(rate.episode for rate in rates),
        feature=camera,
        file=worst.file,
        frame=worst.first,
        expected=f"{fps:g} new pictures per second",
        found=f"{fps * (1 - copies / moving):.1f} new pictures per second",
        message=f"{camera}: {copies} of {moving} pictures repeat the one before while the robot moves; rows come at {fps:g}"
        f" per second, new pictures at {each}",
        parts=parts,
    )


def _of_episode(camera: str, rate: Rate, fps: float) -> Breach:
    return Breach(
        rule=rules.CAMERA_RATE,
        episodes=(rate.episode,),
        feature=camera,
        file=rate.file,
        frame=rate.first,
        expected=f"{fps:g} new pictures per second",
        found=f"{rate.per_second(fps):.1f} new pictures per second",
        message=f"episode {rate.episode}, {camera}: {rate.copies} of {rate.moving} pictures repeat the one before while the"
        f" robot moves (at most {rate.longest} in a row, first at frame {rate.first}); rows come at {fps:g} per second, new"
        f" pictures at {rate.per_second(fps):.1f}",
    )
