"""A service ends when it is told to, also when a library has swallowed that."""

from __future__ import annotations

import asyncio
import os
import signal

from forebay.runtime.app import until_told


async def test_a_swallowed_cancellation_is_repeated() -> None:
    """SIGTERM arrives in the one moment in which `wait_for` loses it; the process ends all the same."""
    swallowed = False

    async def run() -> None:
        nonlocal swallowed
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed = True
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        await until_told(run, again_s=0.01)
    assert swallowed
