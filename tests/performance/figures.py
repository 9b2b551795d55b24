"""One benchmark figure as a line of JSON, with the baseline measured in the same run."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

_FEW = 10


def _rounded(value: float) -> float:
    return round(value, 1 if abs(value) >= _FEW else 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`ratio` is value / baseline_value; for rates, more is better."""

    name: str
    value: float
    unit: str
    baseline: str
    baseline_value: float

    @property
    def ratio(self) -> float:
        return self.value / self.baseline_value

    def print(self) -> None:
        rounded = {"value": _rounded(self.value), "baseline_value": _rounded(self.baseline_value)}
        line = asdict(self) | rounded | {"ratio": round(self.ratio, 3)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
