"""Makes the streams and durable consumers of contracts, or says how the existing ones differ.

Speaks the JetStream API as JSON, so that a field that a client library does not
know cannot get lost on the way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import BUS_PROBE
from forebay.contracts.streams import ConsumerDefinition, StreamDefinition, consumers, streams
from forebay.local.errors import LocalError, StartError
from forebay.runtime.connection import connect

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient

PROBE_STREAM = StreamDefinition(
    name="FOREBAY_PROBE",
    config={
        "name": "FOREBAY_PROBE",
        "description": "The last message that proved that the bus stores what it acknowledges",
        "subjects": [BUS_PROBE],
        "storage": "file",
        "retention": "limits",
        "discard": "old",
        "max_bytes": 64 << 10,
        "max_msgs": 1,
        "num_replicas": 1,
    },
)
"""Of this machine only: an event stream must hold nothing but events."""
_NOT_FOUND = 404
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done about one stream or consumer."""

    name: str
    action: str
    """made, unchanged, updated, differs"""
    differences: tuple[str, ...] = ()


async def apply(url: str, admin_key: Path, *, update: bool = False, max_bytes: int) -> list[Applied]:
    """Make what is missing and compare the rest; with `update` also change what differs."""
    nc = await connect(url, Source(Part.ADMIN), admin_key)
    try:
        done = [await _stream(nc, item, update=update) for item in (*streams(max_bytes=max_bytes), PROBE_STREAM)]
        return done + [await _consumer(nc, item, update=update) for item in consumers()]
    finally:
        await nc.close()


async def _stream(nc: NatsClient, item: StreamDefinition, *, update: bool) -> Applied:
    found = await _call(nc, f"STREAM.INFO.{item.name}", {}, missing_ok=True)
    if found is None:
        await _call(nc, f"STREAM.CREATE.{item.name}", item.config)
        return Applied(name=item.name, action="made")
    differences = compare(item.config, found["config"])
    if differences and update:
        await _call(nc, f"STREAM.UPDATE.{item.name}", item.config)
        return Applied(name=item.name, action="updated", differences=differences)
    return Applied(name=item.name, action="differs" if differences else "unchanged", differences=differences)


async def _consumer(nc: NatsClient, item: ConsumerDefinition, *, update: bool) -> Applied:
    label = f"{item.stream}/{item.name}"
    found = await _call(nc, f"CONSUMER.INFO.{item.stream}.{item.name}", {}, missing_ok=True)
    differences = compare(item.config, found["config"]) if found else ()
    if found and not (differences and update):
        return Applied(name=label, action="differs" if differences else "unchanged", differences=differences)
    request = {"stream_name": item.stream, "config": item.config, "action": "update" if found else "create"}
    await _call(nc, f"CONSUMER.DURABLE.CREATE.{item.stream}.{item.name}", request)
    return Applied(name=label, action="updated" if found else "made", differences=differences)


def compare(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[str, ...]:
    """One line per field that differs; what the server leaves out is its zero value."""
    return tuple(
        f"{name}: is {found.get(name)!r}, should be {value!r}"
        for name, value in sorted(wanted.items())
        if found.get(name) != value and (found.get(name) or value)
    )


async def _call(
    nc: NatsClient, name: str, request: dict[str, Any], *, missing_ok: bool = False
) -> dict[str, Any] | None:
    from nats.errors import Error as NatsError  # noqa: PLC0415 the CLI's help must not pay for it

    try:
        answer = await nc.request(
            f"$JS.API.{name}", json.dumps(request).encode() if request else b"", timeout=_TIMEOUT_S
        )
    except (NatsError, TimeoutError) as error:
        msg = f"the bus did not answer {name} ({type(error).__name__})"
        raise StartError(msg, "look into logs/nats-server.log of the home folder") from error
    reply: dict[str, Any] = json.loads(answer.data)
    problem = reply.get("error")
    if problem is None:
        return reply
    if missing_ok and problem.get("code") == _NOT_FOUND:
        return None
    msg = f"the bus refused {name}: {problem.get('description')} (code {problem.get('err_code')})"
    raise LocalError(msg, "compare with contracts/streams.json; see: forebay bus apply --help")
