"""Waiting for a condition with a deadline; the only way a test may wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def eventually(probe: Callable[[], Any], *, what: str, within: float = 10.0, every: float = 0.05) -> Any:
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
