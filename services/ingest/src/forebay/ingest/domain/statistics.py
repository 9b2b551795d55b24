"""Statistics of features, as LeRobot keeps them per episode and for the whole dataset.

Minimum, maximum, mean, standard deviation and count merge exactly. Quantiles do
not: those of the dataset are bounds, the smallest q01 and q10 and the largest q90 and
q99 of its episodes, so that no policy clips values that were recorded; the median is
the mean of the episodes' medians weighted by their frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Statistics = dict[str, Array]

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
MOMENTS = ("min", "max", "mean", "std", "count")


def describe(values: Array) -> Statistics:
    """Statistics of one episode's rows, `values` of shape (frames, width)."""
    found: Statistics = {
        "min": values.min(axis=0),
        "max": values.max(axis=0),
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
        "count": np.array([len(values)], dtype=np.float64),
    }
    levels = np.quantile(values, list(QUANTILES.values()), axis=0)
    return found | {name: levels[number] for number, name in enumerate(QUANTILES)}


def from_lists(entry: Mapping[str, Any]) -> Statistics | None:
    """Statistics as they stand in a file; None when they cannot be used."""
    try:
        found = {name: np.asarray(value, dtype=np.float64) for name, value in entry.items() if value is not None}
    except (TypeError, ValueError, OverflowError):
        return None
    usable = all(name in found for name in MOMENTS) and found["count"].size == 1
    shapes = {found[name].shape for name in found if name != "count"}
    return found if usable and len(shapes) == 1 and all(np.isfinite(value).all() for value in found.values()) else None


def merge(left: Statistics | None, right: Statistics) -> Statistics:
    """Statistics of both sets of frames together."""
    if left is None:
        return right
    first, second = float(left["count"].sum()), float(right["count"].sum())
    total = first + second
    if total == 0:
        return left
    shift = right["mean"] - left["mean"]
    mean = left["mean"] + shift * (second / total)
    variance = (left["std"] ** 2 * first + right["std"] ** 2 * second) / total + shift**2 * first * second / total**2
    found: Statistics = {
        "min": np.minimum(left["min"], right["min"]),
        "max": np.maximum(left["max"], right["max"]),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": np.array([total]),
    }
    for name, share in QUANTILES.items():
        if name in left and name in right:
            found[name] = _merged_quantile(share, (left[name], right[name]), second / total)
    return found


def _merged_quantile(share: float, values: tuple[Array, Array], weight: float) -> Array:
    left, right = values
    if share == QUANTILES["q50"]:
        return left + (right - left) * weight
    return np.minimum(left, right) if share < QUANTILES["q50"] else np.maximum(left, right)


def to_lists(statistics: Statistics) -> dict[str, Any]:
    """As they are written: counts are whole numbers."""
    return {
        name: [int(number) for number in value] if name == "count" else value.tolist()
        for name, value in statistics.items()
    }
