"""Progress of work that runs in a process or thread of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from forebay.runtime.work import WorkContext

_EVERY_S = 0.1


class Teller:
    """Turns steps into reports, a few per second."""

    def __init__(self, report: Callable[[Mapping[str, Any]], None]) -> None:
        self._report = report
        self._stage = ""
        self._told = 0.0

    def stage(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if stage == self._stage and now - self._told < _EVERY_S:
            return
        self._stage, self._told = stage, now
        self._report({"stage": stage, "at": done, "of": max(done, total)})

    def counter(self, stage: str, total: int) -> Callable[[int], None]:
        """A function that counts steps of one stage."""
        done = 0

        def count(step: int) -> None:
            nonlocal done
            done += step
            self.stage(stage, done, total)

        return count


def from_thread(context: WorkContext) -> Teller:
    """For work in a thread: reports are passed on to the event loop that this is called on."""
    loop = asyncio.get_running_loop()

    def report(payload: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(context.progress, payload)

    return Teller(report)


def tell_done(context: WorkContext, **result: Any) -> None:
    """The work is over."""
    context.progress({"stage": "done", "done": True, **result})
