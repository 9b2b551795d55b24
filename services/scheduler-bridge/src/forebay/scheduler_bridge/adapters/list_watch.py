"""List a collection of the Kubernetes API, then watch it for ever: what informers do, as an async iterator.

Resumes where it was after a cut, takes bookmarks, lists again when the server has
forgotten that place (410), and waits longer after each failure. `observe` in
`workers/` turns what it yields into facts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from forebay.scheduler_bridge.adapters.kubernetes_api import Json, KubernetesApi
from forebay.scheduler_bridge.errors import ApiRefusedError, ApiSilentError

PAGE = 500
WATCH_S = (240, 300)
"""The server ends a watch after so many seconds; spread, so that not all end together."""
GONE = 410
MISSING = frozenset({404})
"""The kind is not served: Kueue is not installed, or not yet."""
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 15.0


@dataclass(frozen=True, slots=True)
class Listed:
    """Everything there is now; whatever is not in it is gone."""

    objects: list[Json]
    since: datetime | None = None
    """Until when its changes were heard before; None: this is the first list."""


@dataclass(frozen=True, slots=True)
class Put:
    """One object as it is now."""

    object: Json


@dataclass(frozen=True, slots=True)
class Gone:
    """One object's last state before it was deleted."""

    object: Json


@dataclass(frozen=True, slots=True)
class Trouble:
    """It cannot be read now, and why; it is tried again for ever."""

    cause: str
    missing: bool = False


Seen = Listed | Put | Gone | Trouble


@dataclass(slots=True)
class ListWatch:
    """One collection, e.g. `/apis/batch/v1/jobs`, with its own place in the server's history."""

    api: KubernetesApi
    path: str
    query: dict[str, str] = field(default_factory=dict)
    pause: Callable[[float], float] = lambda seconds: seconds * random.uniform(0.5, 1.0)  # noqa: S311 spreads load
    _version: str | None = None
    _failures: int = 0
    _heard: datetime | None = None

    async def run(self) -> AsyncIterator[Seen]:
        """Never ends; what fails is yielded as `Trouble`."""
        while True:
            try:
                if self._version is None:
                    since, self._heard = self._heard, datetime.now(UTC)
                    yield Listed(await self._list(), since)
                async for seen in self._watch():
                    self._failures = 0
                    if seen is not None:
                        yield seen
            except ApiRefusedError as error:
                self._version = None  # list again; after a refusal our place is worth nothing
                if error.status != GONE:
                    yield Trouble(str(error), missing=error.status in MISSING)
                    await self._wait()
            except ApiSilentError as error:
                yield Trouble(str(error))
                await self._wait()

    async def _list(self) -> list[Json]:
        objects: list[Json] = []
        query: dict[str, str | int] = {**self.query, "limit": PAGE}
        while True:
            try:
                answer = await self.api.get(self.path, **query)
            except ApiRefusedError as error:
                if error.status != GONE or "continue" not in query:
                    raise
                # The pages took longer than the server remembers: once more, in one piece.
                objects, query = [], dict(self.query)
                continue
            metadata = answer.get("metadata") or {}
            kind = str(answer.get("kind", "")).removesuffix("List")
            version = answer.get("apiVersion")
            objects += [{"kind": kind, "apiVersion": version, **item} for item in answer.get("items") or ()]
            following = metadata.get("continue")
            if not following:
                self._version = str(metadata.get("resourceVersion", ""))
                return objects
            query["continue"] = str(following)

    async def _watch(self) -> AsyncIterator[Seen | None]:
        """Changes from our place on; None for a line that only moves it. Ends when the server ends it."""
        seconds = random.randint(*WATCH_S)  # noqa: S311 spreads load
        query: dict[str, str | int] = {
            **self.query,
            "resourceVersion": self._version or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        async for line in self.api.watch(self.path, query=query, silence_s=seconds + 30.0):
            self._heard = datetime.now(UTC)
            kind, item = line.get("type"), line.get("object") or {}
            if kind == "ERROR":
                status = int(item.get("code") or 0)
                raise ApiRefusedError(
                    path=self.path,
                    status=status,
                    reason=str(item.get("reason", "")),
                    message=str(item.get("message", "")),
                )
            self._version = str((item.get("metadata") or {}).get("resourceVersion") or self._version)
            if kind == "BOOKMARK":
                yield None
            elif kind == "DELETED":
                yield Gone(item)
            else:
                yield Put(item)

    async def _wait(self) -> None:
        self._failures += 1
        await asyncio.sleep(self.pause(min(_LAST_PAUSE, _FIRST_PAUSE * 2**self._failures)))
