"""How the values of a feature are spread: enough of their order to judge quantiles, in little memory.

Every stretch of rows keeps its values at fixed shares (`KNOTS`), exact there and linear
between; the stretches of a dataset are weighed by their rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
KNOTS: Array = np.array([0.0, 0.005, 0.01, 0.02, 0.05, *np.arange(0.1, 0.91, 0.05), 0.95, 0.98, 0.99, 0.995, 1.0])
_ROUNDS = 40

Stretch = tuple[int, npt.NDArray[np.float32]]
"""Rows, and their values at `KNOTS`: an array of shape (knots, width)."""


def stretch_of(table: Array) -> Stretch:
    """What is kept of consecutive rows, all of them finite."""
    with np.errstate(over="ignore"):
        return len(table), np.quantile(table, KNOTS, axis=0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Spread:
    """Stretches of rows of equal width; at least one."""

    rows: Array
    values: npt.NDArray[np.float32]
    """Of shape (stretches, knots, width)."""

    @property
    def count(self) -> int:
        return int(self.rows.sum())

    @property
    def width(self) -> int:
        return int(self.values.shape[2])

    def below(self, dim: int, value: float, *, equal: bool = False) -> float:
        """Share of the rows below a value, or below and equal to it."""
        columns = self.values[:, :, dim].astype(np.float64)
        at = ((columns <= value) if equal else (columns < value)).sum(axis=1)
        left = np.clip(at - 1, 0, len(KNOTS) - 2)
        each = np.arange(len(columns))
        low, high = columns[each, left], columns[each, left + 1]
        part = np.divide(value - low, high - low, out=np.ones_like(low), where=high > low)
        shares = KNOTS[left] + (KNOTS[left + 1] - KNOTS[left]) * np.clip(part, 0, 1)
        shares = np.where(at == 0, 0.0, np.where(at == len(KNOTS), 1.0, shares))
        return float((shares * self.rows).sum() / self.rows.sum())

    def quantiles(self, dim: int, shares: Array) -> Array:
        """For each stretch, the value that its own share of the rows lies below."""
        columns = self.values[:, :, dim].astype(np.float64)
        left = np.clip(np.searchsorted(KNOTS, shares, side="right") - 1, 0, len(KNOTS) - 2)
        each = np.arange(len(columns))
        part = (shares - KNOTS[left]) / (KNOTS[left + 1] - KNOTS[left])
        return np.asarray(columns[each, left] + (columns[each, left + 1] - columns[each, left]) * part)

    def quantile(self, dim: int, share: float) -> float:
        """The value that this share of all rows lies below."""
        if len(self.rows) == 1:
            return float(self.quantiles(dim, np.array([share]))[0])
        low, high = float(self.values[:, 0, dim].min()), float(self.values[:, -1, dim].max())
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            if self.below(dim, middle, equal=True) < share:
                low = middle
            else:
                high = middle
        return high


def spread_of(stretches: Iterable[Stretch]) -> Spread | None:
    """Stretches of one width as one; None when there are none, or of several widths."""
    every = list(stretches)
    if not every or len({values.shape for _, values in every}) != 1:
        return None
    return Spread(np.array([rows for rows, _ in every], dtype=np.float64), np.stack([values for _, values in every]))
