"""How long after an object of the cluster changed its verdict was on the bus: both read on this machine's one clock.

A verdict names what it followed from, and that what it followed from, down to the raw
fact with its object and version. When a bare watch saw that version is where it begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forebay.contracts.v1 import jobs
from forebay.contracts.v1.cache import CacheReady
from forebay.runtime.client import Client

Version = tuple[str, str]
"""(uid, resourceVersion)"""


@dataclass(slots=True)
class Lags:
    """Seconds per verdict, and what the log held besides."""

    seconds: list[float] = field(default_factory=list)
    fact_seconds: list[float] = field(default_factory=list)
    """Of the raw facts themselves."""
    facts: int = 0
    events: int = 0
    warm: dict[str, float] = field(default_factory=dict)
    """Plan -> when the bus had stored that its data is ready."""
    opened: dict[str, float] = field(default_factory=dict)
    """Job -> when the bus had stored that its gate may open."""


async def verdict_lags(client: Client, seen: Mapping[Version, float]) -> Lags:
    """Of every verdict in the log that an object of the bare watch led to."""
    lags, versions, causes = Lags(), dict[str, Version](), dict[str, str]()
    async for batch in client.batches():
        for message in batch:
            recorded = message.decode()
            event, body = recorded.event, recorded.body
            lags.events += 1
            causes[event.identity] = event.causation or ""
            if isinstance(body, jobs.RuntimeFactRecorded) and "object" in body.data:
                metadata = body.data["object"]["metadata"]
                versions[event.identity] = (str(metadata.get("uid")), str(metadata.get("resourceVersion")))
                lags.facts += 1
                if (began := seen.get(versions[event.identity])) is not None:
                    lags.fact_seconds.append(recorded.stored_at.timestamp() - began)
            if isinstance(body, CacheReady):
                lags.warm[body.plan] = recorded.stored_at.timestamp()
            if isinstance(body, jobs.JobGateOpened):
                lags.opened[body.job] = recorded.stored_at.timestamp()
            if isinstance(body, jobs.VerdictChanged):
                cause = event.causation or ""
                while cause and cause not in versions:
                    cause = causes.get(cause, "")
                began = seen.get(versions[cause]) if cause else None
                if began is not None:
                    lags.seconds.append(recorded.stored_at.timestamp() - began)
    return lags


def percentile(found: Sequence[float], share: float) -> float:
    """The smallest value that this share of them does not exceed."""
    ordered = sorted(found)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]
