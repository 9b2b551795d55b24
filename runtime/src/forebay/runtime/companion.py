"""Companions: what runs beside a service's reader and tells it about the world outside the log.

A companion watches something (the API of a cluster, a disk) and says what it sees as
events, through the same outbox as every decision. `app.run_service` starts it when the
log is folded, so it may ask what is on record already before it speaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from forebay.runtime.documents import D
from forebay.runtime.engine import Engine
from forebay.runtime.health import Health
from forebay.runtime.machine import Action
from forebay.runtime.state import State

T = TypeVar("T")


class Company:
    """What a companion may do: read the service's state as it is now, and speak."""

    def __init__(self, engine: Engine, health: Health) -> None:
        self._engine = engine
        self._health = health

    async def say(self, *actions: Action) -> None:
        """Put events into the outbox and work into the workshop at once; what was said before is not said again."""
        await self._engine.say(actions)

    async def settle(self, *actions: Action) -> None:
        """Say it, and come back when its events are in the log and folded: what follows may depend on them."""
        waiting = await self._engine.say(actions)
        if waiting:
            await asyncio.wait(waiting)

    async def get(self, kind: type[D], key: str) -> D | None:
        """One document of the own service as it is now."""
        return await self._engine.document(kind, key)

    async def read(self, question: Callable[[State], T]) -> T:
        """The answer of a pure function of the state. It may be run again when documents must be loaded first."""
        return await self._engine.read(question)

    def probe(self, name: str, value: Callable[[], Any]) -> None:
        """Show a value in the service's health."""
        self._health.probe(name, value)


Companion = Callable[[Company], Coroutine[Any, Any, None]]
