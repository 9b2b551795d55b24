"""The AsyncAPI 3 document of all events, headers included, made from the table."""

from __future__ import annotations

from typing import Any

from forebay.contracts.catalogue import EVENTS, EventSpec
from forebay.contracts.identifiers import ID_PATTERN
from forebay.contracts.subjects import EVENT_ROOT, STREAM

_ENVELOPE: dict[str, tuple[str, bool]] = {
    "ce-specversion": ("Always 1.0: CloudEvents in binary mode", True),
    "ce-id": ("With the source: what makes this event itself, for ever", True),
    "ce-source": ("`/forebay/<part>` or `/forebay/<part>/<project>`; must fit the subject", True),
    "ce-type": ("`dev.forebay.<Event>.v<version>`; must fit the subject", True),
    "ce-time": ("When it happened (RFC 3339, percent-encoded as CloudEvents asks)", True),
    "ce-recordedtime": ("When the sender wrote it down", False),
    "ce-datacontenttype": ("application/json", False),
    "ce-dataschema": ("Address of the body's JSON schema", False),
    "ce-correlationid": ("The event or request that the whole story began with", False),
    "ce-causationid": ("The event that this one answers", False),
    "ce-traceparent": ("W3C trace context of the origin", False),
    "traceparent": ("W3C trace context of this hop", False),
    "content-type": ("application/json", True),
    "Nats-Msg-Id": ("Source and id; spares the stream a repetition within its window", True),
    "message_id": ("The same, under the name that FastStream reads", False),
    "correlation_id": ("The same as ce-correlationid, under the name that FastStream reads", False),
}


def asyncapi(*, version: str = "1.0.0") -> dict[str, Any]:
    """The whole document. Bodies are referred to, so that each schema is written once."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Forebay events",
            "version": version,
            "description": "Every event of Forebay. One NATS JetStream stream holds them all; questions and progress are not in it.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:4222",
                "protocol": "nats",
                "security": [{"$ref": "#/components/securitySchemes/nkey"}],
            }
        },
        "channels": {spec.name: _channel(spec) for spec in EVENTS},
        "operations": {f"publish{spec.name}": _operation(spec) for spec in EVENTS},
        "components": {
            "messageTraits": {"envelope": {"headers": _headers()}},
            "messages": {spec.name: _message(spec) for spec in EVENTS},
            "securitySchemes": {
                "nkey": {"type": "asymmetricEncryption", "description": "An nkey per part, see permissions.json"}
            },
        },
    }


def _channel(spec: EventSpec) -> dict[str, Any]:
    return {
        "address": f"{EVENT_ROOT}.{{project}}.{spec.entity}.{{key}}.{spec.token}",
        "description": f"Published by {', '.join(spec.owners)} when: {spec.trigger}.",
        "parameters": {
            "project": {"description": f"A project id ({ID_PATTERN}), or _cluster for facts about the cluster itself"},
            "key": {"description": spec.key},
        },
        "messages": {spec.name: {"$ref": f"#/components/messages/{spec.name}"}},
        "x-jetstream": {"stream": STREAM},
    }


def _operation(spec: EventSpec) -> dict[str, Any]:
    channel = f"#/channels/{spec.name}"
    return {
        "action": "send",
        "channel": {"$ref": channel},
        "messages": [{"$ref": f"{channel}/messages/{spec.name}"}],
        "x-owners": [str(owner) for owner in spec.owners],
    }


def _message(spec: EventSpec) -> dict[str, Any]:
    return {
        "name": spec.type,
        "title": spec.name,
        "summary": (spec.body.__doc__ or "").strip().splitlines()[0],
        "traits": [{"$ref": "#/components/messageTraits/envelope"}],
        "payload": {"$ref": f"./schemas/{spec.name}.v{spec.body.version}.json"},
    }


def _headers() -> dict[str, Any]:
    return {
        "type": "object",
        "required": [name for name, (_, required) in _ENVELOPE.items() if required],
        "properties": {name: {"type": "string", "description": text} for name, (text, _) in _ENVELOPE.items()},
    }
