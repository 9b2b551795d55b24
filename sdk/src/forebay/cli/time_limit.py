"""A limit for a whole command that holds whatever hangs: a file system, a thread, the event loop."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from forebay.cli.output import errors

T = TypeVar("T")
_EXIT_CODE = 3
"""Something that the command needs is not reachable."""


@contextlib.contextmanager
def ends_within(seconds: float | None, message: str, next_action: str, *, as_json: bool) -> Iterator[None]:
    """Leave the process after `seconds`, with a sentence and exit code 3; None: no limit.

    A process that waits for a file system can neither raise nor clean up. What a command
    leaves half-done must therefore be safe to leave, as it is after a kill.
    """
    if seconds is None:
        yield
        return
    watch = threading.Timer(seconds, _leave, (message, next_action, as_json))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _leave(message: str, next_action: str, as_json: bool) -> None:
    if as_json:
        body = {"code": "timeout", "message": message, "next_action": next_action, "details": {}}
        text, stream = json.dumps({"ok": False, "error": body}), 1
    else:
        text, stream = f"\r✗ {message}\n  next: {next_action}", 2
        if errors().is_terminal:
            text = f"\x1b[?25h\x1b[K{text}"  # a progress bar hides the cursor
    with contextlib.suppress(OSError):  # straight to the descriptor: whoever hangs may hold the stream's lock
        os.write(stream, f"{text}\n".encode())
    os._exit(_EXIT_CODE)


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, but a call that never returns does not keep the process from ending."""
    import asyncio  # noqa: PLC0415 help must not pay for it

    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(settled: Callable[[], None]) -> None:
        if not result.done():
            settled()

    def run() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 raised again where the result is awaited
            failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(settle, lambda: result.set_exception(failure))
        else:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, lambda: result.set_result(value))

    threading.Thread(target=run, daemon=True, name="upload").start()
    return await result
