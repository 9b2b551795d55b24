"""The streams and durable consumers of an installation; `forebay bus apply` makes or checks them.

Plain values in NATS's own field names and units (durations in nanoseconds), so
that this package needs no NATS client. Services declare nothing themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forebay.contracts.body import MAX_BODY_BYTES
from forebay.contracts.parts import SERVICES
from forebay.contracts.subjects import DEAD_ROOT, DEAD_STREAM, EVENT_ROOT, STREAM

_SECOND = 1_000_000_000
_GIB = 1 << 30
MAX_MESSAGE_BYTES = 2 * MAX_BODY_BYTES
"""A body of at most 64 KiB and its headers."""
DUPLICATE_WINDOW_S = 120
"""Only an optimisation: what makes an event itself is its id, for ever."""
MAX_DELIVER = 10
"""A message that kills its reader this often is given up by the server, which says so in FOREBAY_DEAD."""
ACK_WAIT_S = 30
BATCH = 500
"""How many messages a service takes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    """One stream, as the JSON of `$JS.API.STREAM.CREATE`."""

    name: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDefinition:
    """One durable consumer, as the `config` of `$JS.API.CONSUMER.DURABLE.CREATE`."""

    stream: str
    name: str
    config: dict[str, Any]


def streams(*, replicas: int = 1, max_bytes: int = 4 * _GIB) -> tuple[StreamDefinition, ...]:
    """The log and the dead letters.

    `replicas` is 1 on a laptop and 3 in production. When the log is full it refuses new
    messages: publishers keep them in their outbox and say so. Dead letters are references
    to what lies in the log and in a service's store; when their stream is full the oldest go.
    """
    dead_subjects = (
        f"{DEAD_ROOT}.>",
        f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{STREAM}.*",
        f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{STREAM}.*",
    )
    return (
        _stream(STREAM, "Every event of Forebay, for ever", (f"{EVENT_ROOT}.>",), replicas, max_bytes),
        _stream(
            DEAD_STREAM,
            "References to what a service gave up on",
            dead_subjects,
            replicas,
            max_bytes // 16,
            discard="old",
        ),
    )


def consumers(*, replicas: int = 1) -> tuple[ConsumerDefinition, ...]:
    """One durable per service over the whole log.

    No filter: a service keeps its own position and needs an unbroken order, so it
    skips what it does not read. The durable only wakes it and counts its lag.
    """
    return tuple(
        ConsumerDefinition(
            stream=STREAM,
            name=str(part),
            config={
                "durable_name": str(part),
                "name": str(part),
                "description": f"Wakes {part}",
                "deliver_policy": "all",
                "ack_policy": "explicit",
                "ack_wait": ACK_WAIT_S * _SECOND,
                "max_deliver": MAX_DELIVER,
                "max_ack_pending": 4 * BATCH,
                "max_waiting": 16,
                "replay_policy": "instant",
                "num_replicas": replicas,
            },
        )
        for part in SERVICES
    )


def _stream(
    name: str, description: str, subjects: tuple[str, ...], replicas: int, max_bytes: int, *, discard: str = "new"
) -> StreamDefinition:
    return StreamDefinition(
        name=name,
        config={
            "name": name,
            "description": description,
            "subjects": list(subjects),
            "storage": "file",
            "retention": "limits",
            "discard": discard,
            "max_bytes": max_bytes,
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_age": 0,
            "max_msg_size": MAX_MESSAGE_BYTES,
            "max_consumers": -1,
            "num_replicas": replicas,
            "duplicate_window": DUPLICATE_WINDOW_S * _SECOND,
            "deny_delete": True,
            "deny_purge": True,
            "allow_direct": True,
            # Each of these would let a sender's header change or remove what others wrote.
            "allow_rollup_hdrs": False,
            "allow_msg_ttl": False,
            "allow_msg_schedules": False,
            "allow_msg_counter": False,
            "allow_atomic": False,
        },
    )
