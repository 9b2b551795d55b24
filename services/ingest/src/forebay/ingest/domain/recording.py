"""A LeRobot dataset as its metadata declares it: values only, nothing checked against the files yet."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

INDEX_COLUMNS = ("frame_index", "episode_index", "index", "task_index")
CLOCK_COLUMN = "timestamp"
ROW_COLUMNS = (CLOCK_COLUMN, *INDEX_COLUMNS)
"""Columns that every row has; the rest are features of the robot."""
COUNTED = "frame_index"
"""The one row column that follows from the rows' order; LeRobot trains without it, and some recorders leave it out."""
RENUMBERED = ("episode_index", "index", "task_index")
"""Columns that a version counts anew, because readers want them dense."""
ACTIONS = ("action", "actions")
STATES = ("observation.state", "state")
"""What recorders call the one vector that a policy writes, and the one that it reads."""
SPLIT_RANGES = re.compile(r"\d{1,15}:\d{1,15}(?: ?, ?\d{1,15}:\d{1,15})*")
"""`0:12`, or `0:8,10:12` in a version that grew from several uploads with splits of their own."""
_SIGNALS = ("action.", "actions.", "observation.", "state.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature of info.json."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    names_known: bool = True
    codec: str | None = None

    @property
    def is_video(self) -> bool:
        return self.dtype == "video"

    @property
    def is_image(self) -> bool:
        return self.dtype == "image"

    @property
    def is_text(self) -> bool:
        """Words beside the rows, which may be missing."""
        return self.dtype in {"string", "language"}

    @property
    def is_free(self) -> bool:
        """Annotations of any number and shape, possibly none in a row: LeRobot's language columns."""
        return self.dtype == "language"

    @property
    def width(self) -> int:
        """Values per row."""
        return math.prod(self.shape)

    @property
    def column(self) -> str:
        """Its column in the frames table; LeRobot's Lance reader has no dots in names."""
        return self.key.replace(".", "_")

    @property
    def is_signal(self) -> bool:
        """State or action: what a policy reads and writes."""
        return self.key in ACTIONS or self.key in STATES or self.key.startswith(_SIGNALS)

    @property
    def is_action(self) -> bool:
        """The action, or a part of it that has a column of its own."""
        return self.key in ACTIONS or self.key.startswith(("action.", "actions."))


def action_and_state(features: Iterable[Feature]) -> tuple[str, str] | None:
    """The one vector that a policy writes and the one that it reads, when they are of one width."""
    widths = {feature.key: feature.width for feature in features}
    action = next((key for key in ACTIONS if key in widths), None)
    state = next((key for key in STATES if key in widths), None)
    return None if action is None or state is None or widths[action] != widths[state] else (action, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """meta/info.json, every field checked for its type."""

    version: str
    fps: float
    features: tuple[Feature, ...]
    data_path: str
    video_path: str | None
    total_episodes: int
    total_frames: int
    total_tasks: int | None
    chunks_size: int = 1000
    """Episodes per chunk in v2.x; in v3.0 files per chunk, which nothing is derived from."""
    splits: tuple[tuple[str, int], ...] = ()
    """Name of each split and the episode it ends before."""
    robot: str | None = None
    unknown: tuple[str, ...] = ()
    """Fields and features that could not be read; what stands here in their place only serves to judge the rest."""
    undeclared: tuple[str, ...] = ()
    """Row columns that `features` does not list; they are taken as if it did."""
    document: dict[str, Any]
    """The file as it was read, with the undeclared columns, for writing it again."""

    @property
    def cameras(self) -> tuple[Feature, ...]:
        return tuple(feature for feature in self.features if feature.is_video)

    @property
    def image_cameras(self) -> tuple[Feature, ...]:
        """Cameras whose pictures stand in the data files."""
        return tuple(feature for feature in self.features if feature.is_image)

    @property
    def row_features(self) -> tuple[Feature, ...]:
        """What stands in the data files beside the row columns and pictures."""
        return tuple(f for f in self.features if not f.is_video and not f.is_image and f.key not in ROW_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Seconds `[start, stop)` of one video file, for one camera."""

    camera: str
    file: str
    start: float
    stop: float
    whole: bool = False
    """True in v2.x: the file is this episode's own, so nobody declared a window and it follows from the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One entry of the episode table."""

    index: int
    length: int
    from_index: int | None
    """First row in the whole dataset; None in v2.x, which does not declare it."""
    to_index: int | None
    data_file: str
    windows: tuple[Window, ...] = ()
    tasks: tuple[str, ...] | None = None
    """None: the table has no such column."""

    def with_rows(self, rows: int, fps: float) -> Episode:
        """The windows that nobody declared, as the stored rows make them: declared lengths may be wrong."""
        windows = tuple(replace(w, stop=w.start + rows / fps) if w.whole else w for w in self.windows)
        return replace(self, windows=windows)
