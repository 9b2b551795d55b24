"""Parts of an episode's document: one finding of its verdict, and what it is made of."""

from __future__ import annotations

import msgspec


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of a verdict."""

    rule: str
    severity: str
    message: str
    episode: int | None = None
    feature: str | None = None
    file: str | None = None
    frame: int | None = None
    expected: str | None = None
    found: str | None = None


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What one episode is made of, as its collector claims or as its files say."""

    length: int
    tasks: tuple[str, ...]
    rows: tuple[str, int, int]
    """File, first row, and the row after the last."""
    videos: tuple[tuple[str, str, float, float], ...]
    """Camera, file, and the seconds of its window."""
    robot: str | None
