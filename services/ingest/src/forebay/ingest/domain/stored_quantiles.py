"""Stored quantiles against the rows.

What LeRobot stores is approximate: from a histogram of each episode, and of several
episodes or datasets an average, or bounds (the smallest q01, the largest q99). So a
quantile that lies further out than that of the rows is fine as long as some episode
reaches there; one that cuts off many rows is not, because policies clip them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forebay.ingest.domain.spread import Array, Spread

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
"""What LeRobot stores."""
_MEDIAN = 0.5
_CUT_OFF = 0.03
"""Share of the rows that lies beyond a stored quantile too much: 4 % beyond q99 instead of 1 %."""
_CUT_OFF_MEDIAN = 0.15
"""The same for the median, which nobody clips at."""
_ORDER = 1.5
"""Rows that two definitions of a quantile may differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongQuantile:
    """A stored quantile that its rows do not give."""

    name: str
    dim: int
    stored: float
    rows: float
    why: str
    others: tuple[str, ...] = ()
    """Other quantiles that are wrong, in any dimension."""


def worst_quantile(stored: Mapping[str, Array], spread: Spread, allowed: Array) -> WrongQuantile | None:
    """The quantile that cuts off most rows beside what it should; `allowed` is the difference per dimension that is not worth a word."""
    found: list[tuple[float, str, int, float, str]] = []
    for name, values in stored.items():
        if len(values) != spread.width or len(allowed) != spread.width:
            continue
        for dim in range(spread.width):
            value = float(values[dim])
            wrong = _judge(QUANTILES[name], dim, value, spread, float(allowed[dim])) if np.isfinite(value) else None
            if wrong is not None:
                found.append((wrong[0], name, dim, value, wrong[1]))
    if not found:
        return None
    _, name, dim, value, why = max(found, key=lambda one: one[0])
    others = tuple(dict.fromkeys(one[1] for one in found if one[1] != name))
    true = spread.quantile(dim, QUANTILES[name])
    return WrongQuantile(name=name, dim=dim, stored=value, rows=true, why=why, others=others)


def _judge(share: float, dim: int, value: float, spread: Spread, allowed: float) -> tuple[float, str] | None:
    """How wrong a quantile is and why; None when it may be right."""
    under = spread.below(dim, value - allowed)
    over = 1 - spread.below(dim, value + allowed, equal=True)
    slack = (_CUT_OFF_MEDIAN if share == _MEDIAN else _CUT_OFF) + _order_of(spread)
    for side, cut, wanted in (("below", under, share), ("above", over, 1 - share)):
        if wanted <= _MEDIAN and cut > wanted + slack:
            return cut / wanted, f"{100 * cut:.0f} % of the rows lie {side} it"
    order = _ORDER / spread.rows
    low = float(spread.quantiles(dim, np.clip(share - order, 0, 1)).min()) - allowed
    high = float(spread.quantiles(dim, np.clip(share + order, 0, 1)).max()) + allowed
    if low <= value <= high:
        return None
    return 0.0, f"no episode's {100 * share:.0f} % quantile lies there"


def _order_of(spread: Spread) -> float:
    """Share of the rows that definitions differ by; an average of short episodes takes it from half of each."""
    return max(_ORDER / spread.count, _ORDER / 2 / float(spread.rows.mean()))


def quantiles_in(entry: Mapping[str, object]) -> dict[str, Array]:
    """The stored quantiles, as far as they are numbers."""
    found: dict[str, Array] = {}
    for name in QUANTILES:
        try:
            values = np.asarray(entry[name], dtype=np.float64).reshape(-1)
        except (TypeError, ValueError, KeyError, OverflowError):
            continue
        if len(values):
            found[name] = values
    return found
