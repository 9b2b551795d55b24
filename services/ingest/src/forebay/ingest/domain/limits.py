"""Numbers that rules compare with. A project's policy may set them; the keys are theirs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every threshold with its default; the text after a field is what people read."""

    video_time_tolerance_s: float = 1e-4
    """LR-VIDEO-006: seconds between a row's time and its video frame that are not worth a word."""
    lenient_frames: int = 1
    """LR-VIDEO-002: frames that a video may differ from the rows by with a warning only."""
    rate_tolerance: float = 0.0005
    """LR-VIDEO-007: share by which the video's rate may differ from fps."""
    frozen_levels: float = 6.0
    """LR-VIDEO-008: grey levels (of 255) that a still picture may change by: the codec's noise."""
    frozen_min_frames: int = 8
    """LR-VIDEO-008, LR-VIDEO-010: episodes with fewer frames are not judged."""
    frozen_share: float = 0.9
    """LR-VIDEO-008: share of an episode in one still picture that makes a frozen camera."""
    still_seconds: float = 3.0
    """LR-VIDEO-009: shortest standstill that is told, in seconds."""
    still_share: float = 0.25
    """LR-VIDEO-009: and its smallest share of the episode."""
    repeated_share: float = 0.1
    """LR-VIDEO-013: share of pictures that repeat the one before while the robot moves. A camera of 25 in rows at 30 per second repeats one in six, the cameras of good recordings at most one in thirty."""
    statistics_tolerance: float = 0.01
    """LR-META-007: difference of a statistic, as a share of the value's range; a deviation may differ by 5 % of itself and a mean by a tenth of the deviation, whichever is less."""


DEFAULT_LIMITS = Limits()
