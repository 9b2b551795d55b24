"""How long each episode took by the collector's clock, against the rate that the dataset declares.

Timestamps are computed from the frame number, so they agree with the declared rate
whatever the recorder managed; only a clock beside it can tell. Durations may stand in
a collection request or report as a list, a table by episode, or one object per episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed

_PLACES = ("", "report", "collection_report", "operator_report", "measured", "recording")
"""Objects of the document that durations may stand in."""
_LISTS = ("durations_s", "episode_durations_s", "durations", "episode_durations", "measured_durations_s")
_EPISODES = ("episodes", "recorded_episodes")
_NUMBERS = ("episode_index", "episode", "index")
_SECONDS = (
    "duration_s",
    "measured_duration_s",
    "measured_s",
    "duration_seconds",
    "wall_time_s",
    "elapsed_s",
    "seconds",
    "duration",
)
_MILLISECONDS = ("duration_ms", "elapsed_ms")
_STARTS = ("started_at", "start_time", "started", "start")
_ENDS = ("ended_at", "end_time", "stopped_at", "ended", "stopped", "finished_at", "end")
_SHARE = 0.1
"""Difference of the rates that starting and stopping a recording does not explain."""
_START_STOP_S = 0.5
"""Seconds that starting and stopping may take."""
_LONGEST_S = 1e6


def durations_in(document: Mapping[str, Any]) -> dict[int, float]:
    """Episode -> seconds, as far as they can be understood."""
    found: dict[int, float] = {}
    for place in _PLACES:
        holder = document.get(place) if place else document
        if not isinstance(holder, dict):
            continue
        for key in (*_LISTS, *_EPISODES):
            for episode, seconds in _of(holder.get(key)).items():
                found.setdefault(episode, seconds)
    return found


def _of(value: Any) -> dict[int, float]:
    if isinstance(value, dict):
        pairs = [(_number(key), entry) for key, entry in value.items()]
    elif isinstance(value, list):
        pairs = [
            (
                next((_number(entry[key]) for key in _NUMBERS if key in entry), at) if isinstance(entry, dict) else at,
                entry,
            )
            for at, entry in enumerate(value)
        ]
    else:
        return {}
    every = [(number, _seconds(entry)) for number, entry in pairs]
    return {number: seconds for number, seconds in every if number is not None and seconds is not None}


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(entry: Any) -> float | None:
    if not isinstance(entry, dict):
        return _usable(entry)
    for key in _SECONDS:
        if (seconds := _usable(entry.get(key))) is not None:
            return seconds
    for key in _MILLISECONDS:
        if (seconds := _usable(entry.get(key))) is not None:
            return seconds / 1000
    start = next((_moment(entry[key]) for key in _STARTS if key in entry), None)
    end = next((_moment(entry[key]) for key in _ENDS if key in entry), None)
    return None if start is None or end is None else _usable(end - start)


def _usable(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) and 0 < value < _LONGEST_S else None


def _moment(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def check_rate(name: str, durations: Mapping[int, float], rows: Mapping[int, int], fps: float) -> list[Breach]:
    """One breach for all episodes that took longer, or shorter, than their rows at the declared rate."""
    off = [
        index
        for index, seconds in sorted(durations.items())
        if rows.get(index, 0) > 1 and _differs(rows[index] / fps, seconds)
    ]
    judged = [index for index in durations if rows.get(index, 0) > 1]
    if not off:
        return []
    seconds = sum(durations[index] for index in off)
    measured = sum(rows[index] for index in off) / seconds
    first = off[0]
    return [
        Breach(
            rule=rules.MEASURED_RATE,
            episodes=tuple(off),
            feature="fps",
            expected=f"{fps:g} rows per second",
            found=f"{measured:.3g} rows per second",
            message=f"{name} measured {len(off)} of {len(judged)} episodes with {measured:.3g} rows per second, info.json says"
            f" {fps:g} (episode {first}: {rows[first]} rows in {durations[first]:.2f} s, at {fps:g} per second they would take"
            f" {rows[first] / fps:.2f} s; episodes {listed(off)}); timestamps follow from the declared rate and cannot show it",
        )
    ]


def _differs(declared: float, measured: float) -> bool:
    apart = abs(declared - measured)
    return apart > _SHARE * min(declared, measured) and apart > min(_START_STOP_S, declared / 3)
