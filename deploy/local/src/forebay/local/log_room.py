"""How full the log is: it refuses new events when it is full, so somebody has to hear of it well before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from forebay.contracts.parts import Part, Source
from forebay.contracts.subjects import STREAM
from forebay.runtime.connection import connect
from forebay.runtime.errors import Unreachable

WARN_AT = 0.7
_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRoom:
    """The stream's own figures."""

    events: int
    bytes: int
    max_bytes: int

    @property
    def share(self) -> float:
        return self.bytes / self.max_bytes if self.max_bytes > 0 else 0.0

    @property
    def warning(self) -> str:
        """What to tell a person, or nothing."""
        if self.share < WARN_AT:
            return ""
        return (
            f"the log is {self.share:.0%} full; when it is full, publishers keep their events and the story stands still."
            " Give it room: FOREBAY_LOG_MAX_BYTES, then forebay bus apply --update"
        )

    def __str__(self) -> str:
        return (
            f"{self.events:,} events, {self.bytes / 1e6:,.1f} MB of {self.max_bytes / 1e9:,.1f} GB ({self.share:.0%})"
        )


async def look(url: str, operator_key: Path) -> LogRoom | None:
    """Ask the bus as the operator; None when it does not answer."""
    from nats.errors import Error as NatsError  # noqa: PLC0415 the CLI's help must not pay for it

    try:
        client = await connect(url, Source(Part.OPERATOR), operator_key)
    except Unreachable:
        return None
    try:
        answer = json.loads((await client.request(f"$JS.API.STREAM.INFO.{STREAM}", b"", timeout=_TIMEOUT_S)).data)
    except (NatsError, TimeoutError):
        return None
    finally:
        await client.close()
    if "error" in answer:
        return None
    state, config = answer["state"], answer["config"]
    return LogRoom(events=int(state["messages"]), bytes=int(state["bytes"]), max_bytes=int(config["max_bytes"]))
