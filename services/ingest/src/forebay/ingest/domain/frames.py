"""Checks of videos against rows: is there a picture for every row, at the right time.

They judge the frames that were really decoded; durations and frame counts in
container headers are never believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.limits import DEFAULT_LIMITS, Limits
from forebay.ingest.domain.pictures import EpisodePictures
from forebay.ingest.domain.recording import Episode, Feature, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoScan:
    """What decoding one video file gave."""

    file: str
    size: int
    times: npt.NDArray[np.float64]
    """Presentation time of every decoded frame, ascending, in seconds."""
    codec: str | None = None
    height: int = 0
    width: int = 0
    pictures: tuple[EpisodePictures, ...] = ()
    """What they show, for each episode in the file."""
    problem: str | None = None
    """Why decoding stopped early, or could not start."""

    def seconds(self, fps: float) -> float:
        """How long it plays, its last frame included."""
        return float(self.times[-1]) + 1.0 / fps if self.usable else 0.0

    @property
    def usable(self) -> bool:
        return len(self.times) > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One episode's use of a video file."""

    episode: Episode
    window: Window
    rows: int


def check_video(
    scan: VideoScan,
    camera: Feature,
    uses: list[Use],
    fps: float,
    *,
    all_known: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> list[Breach]:
    """Every broken video rule of one file. `uses` are the episodes that lie in it.

    `all_known` is False when episodes exist that could not be located: frames that
    nobody uses may be theirs, so nothing is said of them.
    """
    if not scan.usable:
        return [_unreadable(scan, camera, [use.episode.index for use in uses])]
    ordered = sorted(uses, key=lambda use: (use.window.start, use.episode.index))
    found = _check_codec(scan, camera)
    half, end = 0.5 / fps, float(scan.times[-1]) + 1.0 / fps
    cut: list[int] = []
    told: set[int] = set()
    held = [use for use in ordered if use.rows]
    for number, use in enumerate(held, 1):
        after = held[number] if number < len(held) else None
        if scan.problem is not None and use.window.start + (use.rows - 0.5) / fps > end:
            cut.append(use.episode.index)
            continue
        own = [] if use.window.whole else _check_own_pictures(scan, camera, use, after, fps=fps, limits=limits)
        if own:
            found += own
            told.add(use.episode.index)
            continue
        if not use.window.whole:
            found += _check_window(scan, camera, use, fps, limits)
        if use.window.start + (use.rows - 0.5) / fps > scan.times[0] or len(scan.times) < use.rows:  # else told by time
            found += _check_count(scan, camera, use, fps, limits)
        found += _check_times(scan, camera, use, fps, limits)
    if cut:
        found.append(_unreadable(scan, camera, cut))
    elif scan.problem is not None:
        found.append(_unreadable(scan, camera, [], lowered=True))
    wrong = {n for b in found if b.rule is rules.VIDEO_WINDOW and b.severity == "error" for n in b.episodes or ()}
    found += _check_neighbours(scan, camera, ordered, half, wrong)
    lost = any(use.episode.length and not use.rows for use in uses)  # their rows are missing, not an episode
    if not cut and not lost and (all_known or all(use.window.whole for use in uses)):
        found += _check_spare(scan, camera, ordered, fps=fps, limits=limits, told=told)
    return found


def _unreadable(scan: VideoScan, camera: Feature, episodes: list[int], *, lowered: bool = False) -> Breach:
    if scan.size == 0:
        text, found = "is an empty file (0 bytes)", "0 bytes"
    elif not scan.usable:
        text = f"cannot be opened, {scan.problem}: cut upload, recorder crash, or no video; {scan.size} bytes"
        found = f"{scan.size} bytes, no frame: {scan.problem}"
    else:
        text = f"stops decoding after {len(scan.times)} frames ({scan.problem}); {scan.size} bytes"
        found = f"{len(scan.times)} frames, then {scan.problem}"
    return Breach(
        rule=rules.VIDEO_UNREADABLE,
        lowered="warning" if lowered else None,
        episodes=tuple(episodes),
        feature=camera.key,
        file=scan.file,
        expected="a video that decodes to its end",
        found=found,
        message=f"{scan.file} {text}" + (f" (episodes {listed(episodes)})" if episodes else ""),
    )


def _check_codec(scan: VideoScan, camera: Feature) -> list[Breach]:
    if camera.codec is None or scan.codec is None or _codec_name(camera.codec) == _codec_name(scan.codec):
        return []
    return [
        Breach(
            rule=rules.VIDEO_CODEC,
            feature=camera.key,
            file=scan.file,
            expected=camera.codec,
            found=scan.codec,
            message=f"{scan.file}: the stream is {scan.codec}, info.json declares {camera.codec} for {camera.key}",
        )
    ]


def _codec_name(text: str) -> str:
    """One name for the spellings of a codec: encoders are called otherwise than what they make."""
    name = text.lower().strip()
    for known, spellings in {
        "av1": ("av1", "libsvtav1", "libaom-av1", "av01", "libdav1d"),
        "h264": ("h264", "libx264", "avc", "avc1", "h.264"),
        "hevc": ("hevc", "h265", "libx265", "hvc1", "hev1", "h.265"),
        "mpeg4": ("mpeg4", "mp4v"),
    }.items():
        if name in spellings or name.startswith(f"{known}_"):
            return known
    return name


def _frames_between(scan: VideoScan, start: float, stop: float) -> int:
    return int(np.searchsorted(scan.times, stop) - np.searchsorted(scan.times, start))


def _check_window(scan: VideoScan, camera: Feature, use: Use, fps: float, limits: Limits) -> list[Breach]:
    window, tolerance = use.window, (limits.lenient_frames + 0.5) / fps
    end = float(scan.times[-1]) + 1.0 / fps
    asked = f"{window.start:.3f}-{window.stop:.3f} s"
    if window.stop > end + tolerance or window.start >= end:
        text = f"asks for {asked}, but the file ends at {end:.3f} s ({len(scan.times)} frames)"
        expected = f"an end at or before {end:.3f} s"
    elif abs((window.stop - window.start) * fps - use.rows) > limits.lenient_frames + 0.5:
        frames = (window.stop - window.start) * fps
        text = f"the window {asked} is {frames:.1f} frames long, but the episode has {use.rows} rows"
        expected = f"{use.rows} frames ({use.rows / fps:.3f} s)"
    else:
        return []
    return [_of(rules.VIDEO_WINDOW, scan, camera, use, text, expected=expected, found=asked)]


def _check_own_pictures(
    scan: VideoScan, camera: Feature, use: Use, after: Use | None, *, fps: float, limits: Limits
) -> list[Breach]:
    """Pictures in the episode's own window against its rows, where the window ends where the next one, or the file, does.

    A row beyond the window would get the first picture of the next episode, so one picture short is an error there.
    """
    window, half = use.window, 0.5 / fps
    have = _frames_between(scan, window.start - half, window.stop - half)
    border = float(scan.times[-1]) + 2 * half if after is None else after.window.start
    tiled = abs(border - window.stop) <= half
    if not tiled or have == use.rows or abs((window.stop - window.start) * fps - have) > 0.5:
        return []
    text = f"{have} video frames for {use.rows} rows in its window {window.start:.3f}-{window.stop:.3f} s"
    foreign = after is not None and have < use.rows
    if after is not None and foreign:
        rows = use.rows - have
        which = "its last row" if rows == 1 else f"its last {rows} rows"
        text += f"; {which} would show frames of episode {after.episode.index}"
    slight = abs(have - use.rows) <= limits.lenient_frames and not foreign
    found = _of(rules.VIDEO_FRAMES, scan, camera, use, text, expected=str(use.rows), found=str(have), slight=slight)
    return [found]


def _check_count(scan: VideoScan, camera: Feature, use: Use, fps: float, limits: Limits) -> list[Breach]:
    start, half = use.window.start, 0.5 / fps
    have = _frames_between(scan, start - half, start + use.rows / fps - half)
    if use.window.whole and len(scan.times) == use.rows:
        return []  # the file has a frame for every row; that they come at other times is told by time
    if have == use.rows:
        return []
    text = f"{have} video frames for {use.rows} rows"
    slight = abs(have - use.rows) <= limits.lenient_frames
    found = _of(rules.VIDEO_FRAMES, scan, camera, use, text, expected=str(use.rows), found=str(have), slight=slight)
    return [found]


def _check_times(scan: VideoScan, camera: Feature, use: Use, fps: float, limits: Limits) -> list[Breach]:
    """Distance between each row's time and the nearest frame; rows without any frame are told by count."""
    half = 0.5 / fps
    count = min(use.rows, len(scan.times) + 1)  # a declared length may be any number
    wanted = use.window.start + np.arange(count) / fps
    wanted = wanted[wanted <= scan.times[-1] + half]
    if not len(wanted):
        return []
    right = np.clip(np.searchsorted(scan.times, wanted), 0, len(scan.times) - 1)
    left = np.maximum(right - 1, 0)
    apart = np.minimum(np.abs(scan.times[right] - wanted), np.abs(scan.times[left] - wanted))
    worst = int(np.argmax(apart))
    if apart[worst] <= limits.video_time_tolerance_s:
        return []
    text = f"frame {worst} is asked for at {wanted[worst]:.6f} s, the nearest video frame is {apart[worst]:.6f} s away"
    if apart[worst] == scan.times[0] - wanted[worst]:
        text += f", because the first one comes at {scan.times[0]:.6f} s"
    return [
        _of(
            rules.VIDEO_TIMES,
            scan,
            camera,
            use,
            text,
            expected=f"at most {limits.video_time_tolerance_s:g} s",
            found=f"{apart[worst]:.6f} s",
            frame=worst,
            slight=bool(apart[worst] < 0.5 * half),
        )
    ]


def _of(
    rule: rules.Rule,
    scan: VideoScan,
    camera: Feature,
    use: Use,
    text: str,
    *,
    expected: str,
    found: str,
    frame: int | None = None,
    slight: bool = False,
) -> Breach:
    return Breach(
        rule=rule,
        lowered="warning" if slight else None,
        episodes=(use.episode.index,),
        feature=camera.key,
        file=scan.file,
        frame=frame,
        expected=expected,
        found=found,
        message=f"episode {use.episode.index}, {camera.key}: {text} ({scan.file})",
    )


def _check_neighbours(
    scan: VideoScan, camera: Feature, ordered: list[Use], half: float, wrong: set[int]
) -> list[Breach]:
    """Windows that overlap. Who lies beside a window that is known to be wrong is not blamed for it."""
    found: list[Breach] = []
    used = [use for use in ordered if use.rows]
    for number, (before, after) in enumerate(pairwise(used)):
        overlap = before.window.stop - after.window.start
        # pictures that both need, whatever the windows say: one is a window that starts a frame early
        shared = min(before.window.stop, before.window.start + before.rows * 2 * half) - after.window.start
        if (before.episode.index in wrong) != (after.episode.index in wrong) or (
            overlap <= 3 * half and shared <= half
        ):
            continue
        start = used[number - 1].window.stop if number else 0.0
        stop = used[number + 2].window.start if number + 2 < len(used) else float(scan.times[-1]) + 2 * half
        late = before.window.start - start > half and stop - after.window.stop <= half
        one, other = (before, after) if late else (after, before)
        text = f"overlaps episode {other.episode.index} by {overlap:.3f} s"
        if shared > half:
            text += ", so rows of both would show the same frames"
        expected = f"{after.window.start:.3f} s or earlier" if late else f"{before.window.stop:.3f} s or later"
        actual = f"{before.window.stop:.3f} s" if late else f"{after.window.start:.3f} s"
        end = "an end" if late else "a start"
        found.append(_of(rules.VIDEO_WINDOW, scan, camera, one, text, expected=f"{end} at {expected}", found=actual))
    return found


def _check_spare(
    scan: VideoScan, camera: Feature, ordered: list[Use], *, fps: float, limits: Limits, told: set[int]
) -> list[Breach]:
    """Frames that lie in no episode's window: before, between and after.

    Of the episodes in `told` it is known already that their windows hold more or fewer frames than they have rows.
    """
    half = 0.5 / fps
    spare, at = 0, 0.0
    covered = -half
    for use in ordered:
        gap = max(_frames_between(scan, covered, use.window.start - half), 0)
        if gap and not spare:
            at = max(covered, 0.0)
        spare += gap
        stop = use.window.start + use.rows / fps
        covered = max(covered, (max(stop, use.window.stop) if use.episode.index in told else stop) - half)
    tail = max(_frames_between(scan, covered, float("inf")), 0)
    if tail and not spare:
        at = max(covered, 0.0)
    alone = ordered[0] if len(ordered) == 1 else None
    if alone is not None and alone.rows and tail > limits.lenient_frames and spare == 0:
        have = len(scan.times)
        if have == alone.rows:
            return []
        text = f"{have} video frames for {alone.rows} rows"
        return [_of(rules.VIDEO_FRAMES, scan, camera, alone, text, expected=str(alone.rows), found=str(have))]
    total = spare + tail
    if not total:
        return []
    return [
        Breach(
            rule=rules.VIDEO_SPARE,
            feature=camera.key,
            file=scan.file,
            expected="every frame in an episode's window",
            found=f"{total} frames of {len(scan.times)}",
            message=f"{scan.file}: {total} of {len(scan.times)} frames belong to no episode (first at {at:.3f} s)",
        )
    ]


def uses_by_file(episodes: list[Episode], camera: str, rows_of: Callable[[int], int]) -> dict[str, list[Use]]:
    """The episodes in each video file of one camera. `rows_of` gives the stored rows of an episode."""
    files: dict[str, list[Use]] = {}
    for episode in episodes:
        for window in episode.windows:
            if window.camera == camera:
                use = Use(episode=episode, window=window, rows=rows_of(episode.index))
                files.setdefault(window.file, []).append(use)
    return files
