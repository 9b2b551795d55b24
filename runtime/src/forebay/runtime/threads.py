"""Threads of their own for calls that may block for ever: a hanging one keeps nobody else from working.

The threads of `asyncio.to_thread` are few and shared by everything. A call through
here takes none of them, and a process can end while it hangs.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from forebay.runtime.errors import NoProgressError

T = TypeVar("T")


class ThreadPerKey:
    """Runs calls in threads of their own, for each key one after the other."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    async def run(self, key: str, function: Callable[..., T], *arguments: Any) -> T:
        """Raises `NoProgressError` while an abandoned call of the same key still hangs: two would only hang both."""
        earlier = self._threads.get(key)
        if earlier is not None and earlier.is_alive():
            earlier.join(0.01)  # it may be on its last step
            if earlier.is_alive():
                raise NoProgressError("an earlier run of it still hangs; see whether its storage answers")
        future: Future[T] = Future()
        context = contextvars.copy_context()

        def call() -> None:
            try:
                result = context.run(function, *arguments)
            except BaseException as error:  # noqa: BLE001 whoever waits gets it
                _settle(future, error=error)
            else:
                _settle(future, result)

        thread = threading.Thread(target=call, name=f"work {key}", daemon=True)
        self._threads[key] = thread
        thread.start()
        try:
            return await asyncio.wrap_future(future)
        finally:
            for name in [name for name, one in self._threads.items() if name != key and not one.is_alive()]:
                del self._threads[name]


def _settle(future: Future[Any], result: Any = None, *, error: BaseException | None = None) -> None:
    if not future.set_running_or_notify_cancel():
        return  # abandoned meanwhile
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
