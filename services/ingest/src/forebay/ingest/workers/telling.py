"""Progress of work that runs in a thread, told on the loop that watchers are served from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from forebay.runtime.work import WorkContext


class Teller:
    """Passes progress on; made on the event loop, used from any thread."""

    def __init__(self, context: WorkContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()

    def stage(self, stage: str, done: int, total: int) -> None:
        """Called from the thread that works."""
        self._loop.call_soon_threadsafe(self._context.progress, {"stage": stage, "at": done, "of": max(done, total)})

    def counter(self, stage: str, total: int) -> Callable[[int], None]:
        """A function that counts steps of one stage."""
        done = 0

        def count(step: int) -> None:
            nonlocal done
            done += step
            self.stage(stage, done, total)

        return count

    def done(self, **result: Any) -> None:
        """Called on the loop, when the work is over."""
        self._context.progress({"stage": "done", "done": True, **result})
