"""Stored statistics against the rows: minimum, maximum, mean, deviation and quantiles of every number that a robot wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.limits import DEFAULT_LIMITS, Limits
from forebay.ingest.domain.recording import Feature
from forebay.ingest.domain.spread import Array, Spread, Stretch, spread_of
from forebay.ingest.domain.stored_quantiles import QUANTILES, quantiles_in, worst_quantile

NAMES = ("min", "max", "mean", "std")
STORED = (*NAMES, *QUANTILES)
WIDEST = 512
"""Values per row: what is wider is a picture, and nobody normalises its pixels one by one."""
_STD_SHARE = 0.05
"""Share of itself that a standard deviation may differ by; whether it divides by rows or by one less is no difference."""
_MEAN_SHARE = 0.1
"""Share of the standard deviation that a mean may differ by."""
_ROUNDING = 2.0**-24
"""Share of a value that float32 loses in one addition. Recorders add up rows, and squares of rows, in float32."""
_MOST_ADDITIONS = 10_000
_WORDS = {"min": "minimum", "max": "maximum", "mean": "mean", "std": "standard deviation"}


@dataclass(slots=True, kw_only=True)
class Moments:
    """Count, mean and squared distance of rows, added up block by block."""

    count: int = 0
    mean: Array | None = None
    squares: Array | None = None

    def add(self, table: Array) -> None:
        """Rows of equal width."""
        self.merge(len(table), table.mean(axis=0), table.var(axis=0) * len(table))

    def merge(self, count: int, mean: Array | None, squares: Array | None) -> None:
        """Another set of rows; one of another width makes the whole useless."""
        if not count or mean is None or squares is None:
            return
        if self.mean is None or self.squares is None:
            self.count, self.mean, self.squares = count, mean, squares
            return
        if len(mean) != len(self.mean):
            return
        total = self.count + count
        shift = mean - self.mean
        self.mean = self.mean + shift * (count / total)
        self.squares = self.squares + squares + shift**2 * (self.count * count / total)
        self.count = total

    @property
    def std(self) -> Array | None:
        return None if self.squares is None else np.sqrt(self.squares / self.count)


@dataclass(slots=True, kw_only=True)
class Summary:
    """What the rows of one feature give."""

    moments: Moments
    low: Array
    high: Array
    spread: Spread | None = None

    def value(self, name: str) -> Array | None:
        return {"min": self.low, "max": self.high, "mean": self.moments.mean, "std": self.moments.std}[name]


def summarise(
    parts: Iterable[tuple[Moments, Array | None, Array | None]], stretches: Iterable[Stretch] = ()
) -> Summary | None:
    """The rows of several episodes together; None when they have no common width or no finite numbers."""
    whole = Moments()
    low: Array | None = None
    high: Array | None = None
    for moments, least, most in parts:
        if least is None or most is None or moments.mean is None or (low is not None and len(low) != len(least)):
            return None
        low = least if low is None else np.minimum(low, least)
        high = most if high is None else np.maximum(high, most)
        whole.merge(moments.count, moments.mean, moments.squares)
    if low is None or high is None or not np.isfinite(low).all() or not np.isfinite(high).all():
        return None
    return Summary(moments=whole, low=low, high=high, spread=spread_of(stretches))


def check_statistics(
    feature: Feature,
    stored: Mapping[str, Any],
    rows: Summary,
    file: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    episode: int | None = None,
) -> list[Breach]:
    """One breach per feature, for the statistic that is furthest off. What is no number is not judged."""
    scale = np.maximum(rows.high - rows.low, np.maximum(np.abs(rows.low), np.abs(rows.high)) * 1e-3) + 1e-6
    allowed = scale * limits.statistics_tolerance
    worst: tuple[float, str, int, float, float] | None = None
    for name in _WORDS:
        want = rows.value(name)
        have = _numbers(stored.get(name))
        if have is not None and len(have) != len(rows.low):
            return [_of_another_width(feature, file, (len(have), len(rows.low)), episode)]
        if want is None or have is None or len(want) != len(have):
            continue
        off = np.where(_is_rounding(name, have, want, rows), 0.0, np.abs(have - want) / _allowed(name, allowed, rows))
        dim = int(np.argmax(np.where(np.isfinite(off), off, 0.0)))
        if np.isfinite(off[dim]) and off[dim] > 1 and (worst is None or off[dim] > worst[0]):
            worst = (float(off[dim]), name, dim, float(have[dim]), float(want[dim]))
    if worst is not None:
        _, name, dim, have_value, want_value = worst
        text = f"the stored {_WORDS[name]} is {have_value:.6g}, its {rows.moments.count} rows give {want_value:.6g}"
        return [_breach(feature, file, episode, (name, dim, have_value, want_value), text)]
    wrong = None if rows.spread is None else worst_quantile(quantiles_in(stored), rows.spread, allowed)
    if wrong is None:
        return []
    text = f"the stored {wrong.name} is {wrong.stored:.6g}, its {rows.moments.count} rows give {wrong.rows:.6g} ({wrong.why})"
    if wrong.others:
        text += f"; {listed(list(wrong.others))} are wrong too"
    return [_breach(feature, file, episode, (wrong.name, wrong.dim, wrong.stored, wrong.rows), text)]


def _allowed(name: str, allowed: Array, rows: Summary) -> Array:
    """The range of a joint that hardly moves but once says nothing about its mean and deviation: their own size does."""
    std = rows.moments.std
    if std is None or name not in {"mean", "std"}:
        return allowed
    share = _STD_SHARE + 1 / max(rows.moments.count, 1) if name == "std" else _MEAN_SHARE
    return np.minimum(allowed, std * share + 1e-9)


def _breach(
    feature: Feature, file: str, episode: int | None, values: tuple[str, int, float, float], text: str
) -> Breach:
    name, dim, have, want = values
    who = "" if episode is None else f"episode {episode}, "
    return Breach(
        rule=rules.STATISTICS,
        episodes=None if episode is None else (episode,),
        feature=feature.key,
        file=file,
        expected=f"{name}[{dim}] = {want:.6g}",
        found=f"{name}[{dim}] = {have:.6g}",
        message=f"{who}{feature.key}[{dim}]: {text}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStatistics:
    """What is stored about one feature in every episode."""

    episodes: tuple[int, ...]
    values: Array
    """Of shape (episodes, `STORED`, width); NaN where an episode has no such statistic."""

    def entries(self) -> Iterator[tuple[int, dict[str, Array]]]:
        """Each episode with its statistics by name."""
        for number, episode in enumerate(self.episodes):
            there = zip(STORED, self.values[number], strict=True)
            yield episode, {name: value for name, value in there if not np.isnan(value).all()}


def check_episodes(stored: EpisodeStatistics, check: Callable[[int, dict[str, Array]], list[Breach]]) -> list[Breach]:
    """One breach per feature, which names the first episode whose statistics are not those of its rows."""
    found = [breach for episode, entry in stored.entries() for breach in check(episode, entry)]
    if len(found) < 2:
        return found
    episodes = tuple(sorted(episode for breach in found for episode in breach.episodes or ()))
    text = f"{found[0].message} ({len(found)} such episodes: {listed(list(episodes))})"
    return [replace(found[0], episodes=episodes, message=text)]


def _is_rounding(name: str, have: Array, want: Array, rows: Summary) -> npt.NDArray[np.bool_]:
    """What a sum in float32 over these rows explains: a value of 40 with a deviation of 0.002 may get 0, a constant some.

    The error of a mean grows with the largest value, that of a variance with the square of it. Over a constant every
    addition may err to the same side; over values that differ the errors cancel, and it grows with the root of the rows.
    """
    count = min(rows.moments.count, _MOST_ADDITIONS)
    peak = np.maximum(np.abs(rows.low), np.abs(rows.high))
    std = rows.moments.std
    alike = np.ones(len(want), dtype=np.bool_) if std is None else std <= count * _ROUNDING * peak
    share = np.where(alike, count, 2 * np.sqrt(count)) * _ROUNDING
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "mean":
            return np.asarray(np.abs(have - want) <= share * peak)
        if name == "std":
            return np.asarray(np.abs(have**2 - want**2) <= share * peak**2)
    return np.zeros(len(want), dtype=np.bool_)


def _of_another_width(feature: Feature, file: str, widths: tuple[int, int], episode: int | None) -> Breach:
    have, want = widths
    who = "" if episode is None else f"episode {episode}, "
    return Breach(
        rule=rules.STATISTICS,
        episodes=None if episode is None else (episode,),
        feature=feature.key,
        file=file,
        expected=f"{want} values",
        found=f"{have} values",
        message=f"{who}{feature.key}: the stored statistics have {have} values, its rows {want}",
    )


def _numbers(value: Any) -> Array | None:
    try:
        found = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if len(found) and np.isfinite(found).any() else None
