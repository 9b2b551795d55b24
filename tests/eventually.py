"""Waiting for a condition with a deadline; the only way a test may wait.

A deadline is not part of what a test checks: it only ends a test that would wait for ever.
So there is one, far beyond what a busy machine needs, and no test sets a tighter one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

WITHIN_S = 90.0


async def eventually(probe: Callable[[], Any], *, what: str, within: float = WITHIN_S, every: float = 0.05) -> Any:
    """The first true answer of `probe`; an AssertionError itself counts as "not yet".

    Fails with `what` and the last answer when the deadline passes.
    """
    deadline = time.monotonic() + within
    last: object = None
    while True:
        try:
            found = probe()
            value = await found if isinstance(found, Awaitable) else found
            if value:
                return value
            last = value
        except AssertionError as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within} s; last seen: {last!r}")
        await asyncio.sleep(every)


def wait_until(condition: Callable[[], object], *, what: str, within: float = WITHIN_S, every: float = 0.02) -> None:
    """The same for tests that block."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        time.sleep(every)
