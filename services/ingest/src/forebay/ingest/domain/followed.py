"""An action that only repeats the state: of the same row, or of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach

if TYPE_CHECKING:
    from forebay.ingest.domain.signals import EpisodeScan

Array = npt.NDArray[np.float64]
_SAME = 1e-6
"""Share of the largest value that float32 may lose."""


@dataclass(slots=True)
class Followed:
    """Whether every action so far is the state of its row, or of the row after it."""

    rows: int = 0
    same: bool = True
    next: bool = True
    changes: bool = False
    """The state is not one value all the time, which would be its own next state."""
    _state: Array | None = None
    _action: Array | None = None

    def add(self, state: Array, action: Array) -> None:
        """The next rows, of equal widths."""
        with np.errstate(invalid="ignore", over="ignore"):
            before = self._action
            self.same = self.same and _equal(state, action)
            self.next = self.next and _equal(state[1:], action[:-1])
            if before is not None and self._state is not None:
                self.next = self.next and _equal(state[:1], before)
                self.changes = self.changes or not _equal(state[:1], self._state)
            self.changes = self.changes or bool(np.any(np.ptp(state, axis=0) > 0))
        self.rows += len(state)
        self._state, self._action = state[-1:].copy(), action[-1:].copy()


def _equal(left: Array, right: Array) -> bool:
    if left.shape != right.shape:
        return False
    return bool(np.all(np.abs(left - right) <= _SAME * np.maximum(np.abs(left), 1.0)))


def check_followed(scans: Mapping[int, EpisodeScan], action: str, state: str) -> list[Breach]:
    """One breach when it is so in every episode that moves."""
    seen = [scan.followed for scan in scans.values() if scan.followed is not None and scan.followed.rows > 2]
    moving = [one for one in seen if one.changes]
    if not moving:
        return []
    if all(one.same for one in moving):
        text, found = "its own row", "the state of its row"
        why = "a policy that sees the state can copy it; the commands were not recorded"
    elif all(one.next for one in moving):
        text, found = "the next row", "the next state"
        why = "positions that were reached, not commands: effort and contact do not show in them"
    else:
        return []
    return [
        Breach(
            rule=rules.FOLLOWED_STATE,
            feature=action,
            expected="commands of its own",
            found=found,
            message=f"{action} is {state} of {text} in all {len(moving)} episodes that move: {why}",
        )
    ]
