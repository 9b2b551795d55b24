"""How far a long benchmark is: a line on standard error every few seconds."""

from __future__ import annotations

import resource
import sys
import time

_EVERY_S = 5.0


class Progress:
    """One stage of a run. Calling it with how much is done costs next to nothing."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._next = self._began + _EVERY_S

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_S
        pace = done / (now - self._began)
        left = (self._total - done) / pace if pace else 0.0
        sys.stderr.write(f"{self._what}: {done:,} of {self._total:,}, {pace:,.0f}/s, {left:.0f} s left\n")


def say_peak() -> None:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stderr.write(f"peak memory of this process: {peak:,.0f} MB\n")
