"""What a service gave up: parked messages and work, and the letters that tell of them.

The store keeps what was parked until somebody retries or dismisses it. A dead letter is
a reference to it in FOREBAY_DEAD, for whoever looks at the bus; it has a queue of its
own in the store and never delays a decided event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from forebay.runtime.documents import decode_document
from forebay.runtime.engine import Engine
from forebay.runtime.errors import Refused
from forebay.runtime.records import DeadLetter, ParkedMessage, WorkRecord
from forebay.runtime.wording import counted

_SHOWN = 300
"""Characters of a cause that a summary shows."""
_PROJECTS = 3


class Parking:
    """What one engine has parked."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def now(self, *, limit: int = 1000) -> list[ParkedMessage | WorkRecord]:
        """What is parked and not dismissed, oldest message first, then work."""
        engine = self._engine
        async with engine.turn():
            keys = [f"{seq:020d}" for seq in sorted(engine.decisions.parked)[:limit]]
            messages = await engine.store.get(ParkedMessage.kind, keys)
            work = await engine.store.get(WorkRecord.kind, sorted(engine.decisions.parked_work)[:limit])
            found: list[ParkedMessage | WorkRecord] = [decode_document(ParkedMessage, messages[key]) for key in keys]
            return found + [decode_document(WorkRecord, body) for body in work.values()]

    async def retry_work(self, key: str) -> None:
        """Open a parked piece of work again. Raises `Refused` when it is not parked."""
        engine = self._engine
        async with engine.turn() as batch:
            record = await self._parked_work(key)
            again = msgspec.structs.replace(record, state="open", failures=0, not_before=0.0)
            engine.decisions.open_work(batch, again)
            engine.decisions.parked_work.pop(key, None)
            await engine.write(batch, None)

    async def dismiss(self, *, by: str, seq: int | None = None, work: str | None = None) -> None:
        """Tell no more of a parked message or piece of work. Raises `Refused` when it is not parked."""
        engine = self._engine
        async with engine.turn() as batch:
            if work is not None:
                record = await self._parked_work(work)
                engine.decisions.dismiss_work(batch, record, by)
            else:
                key = f"{seq:020d}"
                body = (await engine.store.get(ParkedMessage.kind, [key])).get(key)
                if body is None:
                    raise Refused("not-parked", f"message {seq} is not parked in {engine.service.name}")
                engine.decisions.dismiss(batch, decode_document(ParkedMessage, body), by)
            await engine.write(batch, None)

    async def dismiss_all(self, *, by: str, project: str) -> int:
        """Tell no more of all that one project's messages and work have left; returns how many."""
        engine = self._engine
        async with engine.turn() as batch:
            seqs = [seq for seq, of in engine.decisions.parked.items() if of == project]
            keys = [f"{seq:020d}" for seq in seqs]
            messages = await engine.store.get(ParkedMessage.kind, keys)
            for body in messages.values():
                engine.decisions.dismiss(batch, decode_document(ParkedMessage, body), by)
            works = await engine.store.get(WorkRecord.kind, list(engine.decisions.parked_work))
            records = [one for body in works.values() if (one := decode_document(WorkRecord, body)).project == project]
            for record in records:
                engine.decisions.dismiss_work(batch, record, by)
            await engine.write(batch, None)
        return len(messages) + len(records)

    async def _parked_work(self, key: str) -> WorkRecord:
        body = (await self._engine.store.get(WorkRecord.kind, [key])).get(key)
        record = decode_document(WorkRecord, body) if body else None
        if record is None or record.state != "parked":
            raise Refused("not-parked", f"work {key!r} is not parked in {self._engine.service.name}")
        return record

    def summary(self) -> str:
        """One sentence for health; empty when nothing is parked."""
        decisions = self._engine.decisions
        messages, work = decisions.parked, decisions.parked_work
        of = ", ".join(f"{name} ({count})" for name, count in Counter(messages.values()).most_common(_PROJECTS))
        counts = [
            counted(len(messages), "message") + f" of project {of}" if messages else "",
            counted(len(work), "piece of work", "pieces of work") if work else "",
        ]
        said = " and ".join(count for count in counts if count)
        if not said:
            return ""
        newest = decisions.newest_parked
        causes = [newest.cause] if newest is not None and newest.seq in messages else list(work.values())[-1:]
        cause = f", the newest because of {causes[0][:_SHOWN]!r}" if causes else ""
        are = "is" if len(messages) + len(work) == 1 else "are"
        return f"{said} {are} parked{cause}; see: forebay dead list"

    # ---------------------------------------------------------------- letters

    async def letters(self, *, after: str, limit: int) -> list[DeadLetter]:
        """Letters that are not in their stream yet, by key."""
        engine = self._engine
        async with engine.turn():
            rows = await engine.store.page(DeadLetter.kind, after=after, limit=limit)
            return [decode_document(DeadLetter, body) for _, body in rows]

    async def letters_told(self, stored: Sequence[DeadLetter], refused: Iterable[DeadLetter]) -> None:
        """Letters that reached their stream, and letters (with the reason in them) that never will."""
        engine = self._engine
        async with engine.turn() as batch:
            for letter in stored:
                batch.delete(DeadLetter, letter.key)
            for letter in refused:
                batch.put(letter)
            await engine.write(batch, None)
            engine.decisions.letters = await engine.store.count(DeadLetter.kind)
