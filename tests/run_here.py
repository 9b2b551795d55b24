"""The part of `WorkContext` that runs blocking calls, for contexts of tests: threads, no processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class RunHere:
    """Mixed into a test's context."""

    def alive(self) -> None:
        pass

    def progress(self, payload: Mapping[str, Any]) -> None:
        raise NotImplementedError

    async def in_process(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()

        def report(payload: Mapping[str, Any] | None) -> None:
            if payload:
                loop.call_soon_threadsafe(self.progress, payload)

        return await asyncio.to_thread(function, *arguments, report)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(function, *arguments)
