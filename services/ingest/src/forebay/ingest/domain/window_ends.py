"""Windows that end at the time of their last frame instead of one frame later."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, episodes_named
from forebay.ingest.domain.recording import Episode

_NEAR = 0.25
"""Share of a frame."""


def check_ends(
    episodes: Sequence[Episode], rows_of: Callable[[Episode], int], fps: float, wrong: Container[tuple[int, str]]
) -> list[Breach]:
    """One for each camera. Readers look pictures up from the window's start, so only those that cut by its end lose one.

    `wrong` are episodes and cameras whose videos are reported already: there a frame is missing.
    """
    hit: dict[str, list[int]] = {}
    for episode in episodes:
        rows = rows_of(episode)
        for window in episode.windows:
            if window.whole or rows < 2 or (episode.index, window.camera) in wrong:
                continue
            if abs((window.stop - window.start) * fps - (rows - 1)) < _NEAR:
                hit.setdefault(window.camera, []).append(episode.index)
    return [
        Breach(
            rule=rules.VIDEO_WINDOW,
            lowered="info",
            episodes=tuple(indices),
            feature=camera,
            expected="the end of the last frame",
            found="the start of the last frame",
            message=f"{camera}: to_timestamp is one frame short in {episodes_named(indices)}, the time of the"
            " last frame instead of its end; tools that cut videos by it lose that picture",
        )
        for camera, indices in sorted(hit.items())
    ]
