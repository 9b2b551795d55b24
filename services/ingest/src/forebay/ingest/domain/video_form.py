"""The form of a video file: its rate and the size of its pictures, judged by the frames that were decoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.frames import Use, VideoScan, check_video
from forebay.ingest.domain.limits import DEFAULT_LIMITS, Limits
from forebay.ingest.domain.recording import Feature

_FEWEST = 8
_EVEN = 0.1
"""Share of a step by which steps of one rate may differ; containers round times."""
_MOST_UNEVEN = 0.1
"""Share of the steps that may be of another length before a video counts as uneven."""
_EXPLAINED = frozenset({rules.VIDEO_TIMES.id, rules.VIDEO_WINDOW.id, rules.VIDEO_FRAMES.id, rules.VIDEO_SPARE.id})
"""What else is broken by a wrong rate, and would only hide it."""


def check_rate(
    scan: VideoScan, camera: Feature, uses: Sequence[Use], fps: float, limits: Limits = DEFAULT_LIMITS
) -> Breach | None:
    """A video at another rate than the dataset's; one whose frames come unevenly is a warning."""
    if len(scan.times) < _FEWEST:
        return None
    steps = np.diff(scan.times)
    middle = float(np.median(steps))
    if middle <= 0:
        return None
    even = np.abs(steps - middle) <= _EVEN * middle
    uneven = float(np.mean(~even))
    # containers round single times: the mean of the even steps is exact where the median is not
    rate = 1.0 / (float(np.mean(steps[even])) if np.any(even) else middle)
    episodes = tuple(use.episode.index for use in uses)
    longest = max((use.rows for use in uses), default=0)
    drift = abs(rate / fps - 1.0) * longest
    if uneven <= _MOST_UNEVEN and abs(rate / fps - 1.0) > limits.rate_tolerance and drift > 0.5:
        text = f"its {len(scan.times)} frames come at {rate:.4g} per second, info.json says {fps:g}"
        return _rate(scan, camera, episodes, text, found=f"{rate:.4g} frames per second", fps=fps)
    if uneven > _MOST_UNEVEN:
        text = (
            f"its frames come unevenly: {np.count_nonzero(~even)} of {len(steps)} steps differ from {middle:.4f} s"
            f" (from {steps.min():.4f} to {steps.max():.4f} s)"
        )
        return _rate(scan, camera, episodes, text, found="uneven steps", fps=fps, slight=True)
    return None


def _rate(
    scan: VideoScan,
    camera: Feature,
    episodes: tuple[int, ...],
    text: str,
    *,
    found: str,
    fps: float,
    slight: bool = False,
) -> Breach:
    return Breach(
        rule=rules.VIDEO_RATE,
        lowered="warning" if slight else None,
        episodes=episodes,
        feature=camera.key,
        file=scan.file,
        expected=f"{fps:g} frames per second",
        found=found,
        message=f"{scan.file}: {text} (episodes {listed(list(episodes))})",
    )


def check_total(scan: VideoScan, camera: Feature, uses: Sequence[Use], limits: Limits = DEFAULT_LIMITS) -> list[Breach]:
    """Frames against rows without regard to time, for a file whose rate is wrong."""
    rows = sum(use.rows for use in uses)
    have = len(scan.times)
    if abs(have - rows) <= limits.lenient_frames * len(uses):
        return []
    return [
        Breach(
            rule=rules.VIDEO_FRAMES,
            episodes=tuple(use.episode.index for use in uses),
            feature=camera.key,
            file=scan.file,
            expected=str(rows),
            found=str(have),
            message=f"{scan.file}: {have} video frames for {rows} rows ({camera.key}, episodes {listed([use.episode.index for use in uses])})",
        )
    ]


def check_size(scan: VideoScan, camera: Feature, uses: Sequence[Use]) -> list[Breach]:
    """Height and width may stand in any order in the shape: some write the channels first."""
    if not scan.height or not scan.width:
        return []
    sides = list(camera.shape)
    for side in (scan.height, scan.width):
        if side not in sides:
            break
        sides.remove(side)
    else:
        return []
    return [
        Breach(
            rule=rules.PICTURE_SIZE,
            episodes=tuple(use.episode.index for use in uses),
            feature=camera.key,
            file=scan.file,
            expected=f"pictures of shape {list(camera.shape)}",
            found=f"{scan.height} by {scan.width}",
            message=f"{scan.file}: the pictures are {scan.height} high and {scan.width} wide, info.json declares the shape"
            f" {list(camera.shape)} for {camera.key}",
        )
    ]


def check_file(
    scan: VideoScan,
    camera: Feature,
    uses: list[Use],
    fps: float,
    limits: Limits = DEFAULT_LIMITS,
    *,
    all_known: bool = True,
) -> list[Breach]:
    """Every broken rule of one video file; a wrong rate is told instead of all that follows from it."""
    broken = check_video(scan, camera, uses, fps, all_known=all_known, limits=limits)
    broken += check_size(scan, camera, uses)
    rate = check_rate(scan, camera, uses, fps, limits)
    if rate is None:
        return broken
    if rate.severity == "error":
        broken = [breach for breach in broken if breach.rule.id not in _EXPLAINED]
        broken += check_total(scan, camera, uses, limits)
    return [rate, *broken]
