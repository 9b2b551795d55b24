"""Disk outbox of one speaker: events wait here until the log has them.

A folder of append-only segments. Each `append` writes one segment atomically, so
after a kill an event is either wholly there or was never promised. `deliver`
publishes segments in order and removes one only after the log answered for all of
its events. Delivering twice changes nothing, because an event's id is its identity.
What can never be stored is set aside under `refused/` with the reason, so that it
does not hold back what comes after it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from forebay.contracts.body import EventBody
from forebay.contracts.catalogue import BY_NAME
from forebay.contracts.envelope import Event
from forebay.contracts.errors import ContractError
from forebay.contracts.parts import Source, parse_source
from forebay.runtime.client import DuplicateIdError

_log = logging.getLogger(__name__)


class Publisher(Protocol):
    """Whoever can store events in the log (`forebay.runtime.client.Client`)."""

    async def publish_many(self, events: Sequence[Event[EventBody]]) -> list[int]:
        """Store events in order; returns their places.

        Raises `Unreachable` when it may work later, `ContractError` or
        `DuplicateIdError` when it never will.
        """
        ...


class Outbox:
    """Events of one source that are not in the log yet."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder = folder
        self.source = source
        self._count = 0
        self.last_seq = 0
        """The last place in the log that this outbox was told: whoever decides on its events must have read so far."""

    def append(self, events: Sequence[Event[EventBody]]) -> None:
        """Keep events on disk; when this returns they survive a kill and a power cut."""
        if not events:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._count += 1
        # time first, so that segments of one process and of later processes sort in order
        name = f"{time.time_ns():020d}-{os.getpid():08d}-{self._count:06d}.jsonl"
        part = self.folder / f".{name}.part"
        with part.open("w", encoding="utf-8") as file:
            for event in events:
                file.write(json.dumps(_to_json(event), ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.rename(self.folder / name)
        sync_folder(self.folder)

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl")) if self.folder.is_dir() else []

    def pending(self) -> int:
        """Count the events that wait."""
        return sum(1 for path in self.segments() for _ in _lines(path))

    async def deliver(self, publisher: Publisher) -> int:
        """Publish what waits, oldest first; returns how many events the log has now.

        Raises `Unreachable` when the bus is; what was not stored stays. Only one
        process delivers at a time, so that order holds; another one returns 0.
        """
        sent = 0
        with self._lock() as mine:
            if not mine:
                return 0
            while segments := self.segments():
                for path in segments:
                    sent += await self._deliver_segment(path, publisher)
                    path.unlink(missing_ok=True)
        return sent

    async def _deliver_segment(self, path: Path, publisher: Publisher) -> int:
        """Publish a segment, event by event when one of them is refused."""
        try:
            events = [_from_json(line) for line in _lines(path)]
        except (ValueError, KeyError) as error:
            self._set_aside(path.name, path.read_text(encoding="utf-8", errors="replace"), error)
            return 0
        try:
            self._stored(await publisher.publish_many(events))
        except (ContractError, DuplicateIdError):
            return sum([await self._deliver_one(event, publisher) for event in events])
        return len(events)

    async def _deliver_one(self, event: Event[EventBody], publisher: Publisher) -> int:
        try:
            self._stored(await publisher.publish_many([event]))
        except (ContractError, DuplicateIdError) as error:
            self._set_aside(f"{event.id}.json", json.dumps(_to_json(event)), error)
            return 0
        return 1

    def _stored(self, places: Sequence[int]) -> None:
        self.last_seq = max(self.last_seq, *places, 0)

    def _set_aside(self, name: str, content: str, error: Exception) -> None:
        folder = self.folder / "refused"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"{content}\n{type(error).__name__}: {error}\n", encoding="utf-8")
        _log.error("an event can never be stored (%s); it was set aside in %s", error, folder / name)

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Hold the delivery lock when it is free; the kernel frees it when its holder dies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".delivering").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def outbox_of(home: Path, source: Source) -> Outbox:
    """The outbox of a collector or agent of one project, under the installation's home."""
    return Outbox(home / "outbox" / f"{source.part}.{source.project}", source)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return  # another process delivered it meanwhile
    for line in text.splitlines():
        yield json.loads(line)


def _to_json(event: Event[EventBody]) -> dict[str, Any]:
    return {
        "id": event.id,
        "source": str(event.source),
        "project": event.project,
        "event": event.body.event,
        "time": event.time.isoformat(),
        "recorded": event.recorded.isoformat(),
        "correlation": event.correlation,
        "causation": event.causation,
        "traceparent": event.traceparent,
        "body": event.body.to_json(),
    }


def _from_json(kept: dict[str, Any]) -> Event[EventBody]:
    return Event(
        id=kept["id"],
        source=parse_source(kept["source"]),
        project=kept["project"],
        body=BY_NAME[kept["event"]].body.model_validate(kept["body"]),
        time=datetime.fromisoformat(kept["time"]),
        recorded=datetime.fromisoformat(kept["recorded"]),
        correlation=kept.get("correlation"),
        causation=kept.get("causation"),
        traceparent=kept.get("traceparent"),
    )
