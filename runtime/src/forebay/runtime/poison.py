"""Messages that processes die on: counted before each try, so that the deadly one is found and parked.

Called by the engine only.
"""

from __future__ import annotations

import msgspec

from forebay.runtime.records import READING, Reading
from forebay.runtime.stores.port import Put, Store, WriteBatch

FATAL_READS = 6
"""How many processes may die while folding one message before it is parked as poison."""
SINGLE_AFTER = 3
"""From this many deaths on, messages are folded one by one, so that the deadly one stands alone."""


def fatal() -> RuntimeError:
    """What a message is parked with that processes died on."""
    return RuntimeError(f"{FATAL_READS} processes died while folding it")


async def note_reading(store: Store, seq: int) -> int:
    """Write down that `seq` is being folded; returns how often it was tried, this time included."""
    body = (await store.get(READING, ["now"])).get("now")
    before = msgspec.json.decode(body, type=Reading) if body else None
    tries = before.tries + 1 if before is not None and before.seq == seq else 1
    note = Put(READING, "now", msgspec.json.encode(Reading(seq=seq, tries=tries)))
    await store.write(WriteBatch(puts=[note]))
    return tries
