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
        self._ended: dict[str, threading.Event] = {}
        """Set when the last call of a key has come back."""

    async def run(self, key: str, function: Callable[..., T], *arguments: Any) -> T:
        """Raises `NoProgressError` while an abandoned call of the same key still hangs: two would only hang both."""
        earlier = self._ended.get(key)
        if earlier is not None and not earlier.is_set():
            raise NoProgressError("an earlier run of it still hangs; see whether its storage answers")
        ended = self._ended[key] = threading.Event()
        future: Future[T] = Future()
        context = contextvars.copy_context()

        def call() -> None:
            try:
                result = context.run(function, *arguments)
            except BaseException as error:  # noqa: BLE001 whoever waits gets it
                ended.set()
                _settle(future, error=error)
            else:
                ended.set()
                _settle(future, result)

        threading.Thread(target=call, name=f"work {key}", daemon=True).start()
        try:
            return await asyncio.wrap_future(future)
        finally:
            for name in [name for name, event in self._ended.items() if event.is_set()]:
                del self._ended[name]


def _settle(future: Future[Any], result: Any = None, *, error: BaseException | None = None) -> None:
    if not future.set_running_or_notify_cancel():
        return  # abandoned meanwhile
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
