"""CloudEvents 1.0, binary mode: headers carry the envelope, the body is JSON.

The decoder believes the subject, because that is what NATS checked, and refuses
an envelope or a body that disagrees with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from pydantic import ValidationError

from forebay.contracts.body import MAX_BODY_BYTES, EventBody
from forebay.contracts.catalogue import BY_NAME, EventSpec, event_type, spec_at, spec_of
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.errors import ContractError, EnvelopeMismatchError, InvalidBodyError, UnknownEventError
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.parts import PROJECT_PARTS, parse_source
from forebay.contracts.subjects import Subject, parse_subject
from forebay.contracts.upcasting import upcast

SCHEMA_ROOT = "https://forebay.dev/schemas"
_TYPE = re.compile(r"dev\.forebay\.([A-Za-z]+)\.v(\d{1,4})")
_HEADER_SAFE = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '"%')
_PLAIN = re.compile(r"[!#$&-~]*")
"""Nearly every attribute: nothing to be encoded, and looking is much cheaper than encoding."""
MAX_HEADER = 1024
"""No attribute of ours comes near it; a longer one is not ours."""


@dataclass(frozen=True, slots=True)
class Message:
    """What goes over the wire."""

    subject: str
    headers: dict[str, str]
    body: bytes


def _attribute(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else quote(value, safe=_HEADER_SAFE)


def encode(event: Event[EventBody]) -> Message:
    """Build the message of an event.

    Raises `InvalidBodyError` when the body is larger than 64 KiB, `ContractError`
    when the sender does not own the event or speaks for another project.
    """
    spec = spec_of(event.body)
    _check_speaker(spec, event)
    body = canonical_json(event.body.to_json())
    if len(body) > MAX_BODY_BYTES:
        msg = f"{spec.name} {event.id}: the body has {len(body)} bytes, at most {MAX_BODY_BYTES} are allowed; send the list by reference"
        raise InvalidBodyError(msg)
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": event.id,
        "ce-source": str(event.source),
        "ce-type": spec.type,
        "ce-time": event.time.astimezone(UTC).isoformat(),
        "ce-recordedtime": event.recorded.astimezone(UTC).isoformat(),
        "ce-datacontenttype": "application/json",
        "ce-dataschema": f"{SCHEMA_ROOT}/{spec.name}.v{spec.body.version}.json",
        "ce-correlationid": event.correlation,
        "ce-causationid": event.causation,
        "ce-traceparent": event.traceparent,
    }
    headers = {name: _attribute(value) for name, value in attributes.items() if value is not None}
    headers |= {
        "content-type": "application/json",
        "Nats-Msg-Id": _attribute(event.identity),
        "message_id": _attribute(event.identity),
        "correlation_id": _attribute(event.correlation or event.identity),
    }
    if event.traceparent:
        headers["traceparent"] = event.traceparent
    return Message(str(spec.subject(event.project, event.body)), headers, body)


def decode(subject: str, headers: Mapping[str, str] | None, body: bytes) -> Event[EventBody]:
    """Read a message. Raises a `ContractError` that says what disagrees."""
    place = parse_subject(subject)
    told = _attributes(subject, headers or {})
    if told.get("ce-specversion") != "1.0":
        msg = f"message on {subject}: ce-specversion is {told.get('ce-specversion')!r}, expected '1.0'"
        raise EnvelopeMismatchError(msg)
    spec, version = _spec(place, _needed(subject, told, "ce-type"))
    time = told.get("ce-time", "")
    event = Event(
        id=_needed(subject, told, "ce-id"),
        source=parse_source(_needed(subject, told, "ce-source")),
        project=place.project,
        body=_body(spec, version, body),
        time=_time(subject, "ce-time", time),
        recorded=_time(subject, "ce-recordedtime", told.get("ce-recordedtime") or time),
        correlation=told.get("ce-correlationid"),
        causation=told.get("ce-causationid"),
        traceparent=told.get("traceparent") or told.get("ce-traceparent"),
    )
    _check_speaker(spec, event)
    if spec.earlier_keys.get(version, spec.key_of)(event.body) != place.key:
        expected = spec.subject(place.project, event.body)
        msg = f"{spec.name} {event.id}: it came on {subject}, but its body belongs on {expected}"
        raise EnvelopeMismatchError(msg)
    return event


def decode_recorded(
    subject: str, headers: Mapping[str, str] | None, body: bytes, *, seq: int, stored_at: datetime
) -> Recorded[EventBody]:
    """Like `decode`, with the message's place in the log."""
    event = decode(subject, headers, body)
    return Recorded(event=event, seq=seq, stored_at=stored_at, body_sha256=hashlib.sha256(body).hexdigest())


_READ = (
    "ce-specversion",
    "ce-type",
    "ce-id",
    "ce-source",
    "ce-time",
    "ce-recordedtime",
    "ce-correlationid",
    "ce-causationid",
    "ce-traceparent",
    "traceparent",
)


def _attributes(subject: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Envelope attributes of one message, percent-decoded, with a bound on their size; empty ones are left out."""
    found = {name: value for name in _READ if (value := headers.get(name))}
    if len(text := "".join(found.values())) > MAX_HEADER:
        for name, value in found.items():
            if len(value) > MAX_HEADER:
                msg = (
                    f"message on {subject}: header {name} has {len(value)} characters, at most {MAX_HEADER} are allowed"
                )
                raise EnvelopeMismatchError(msg)
    return {name: unquote(value) for name, value in found.items()} if "%" in text else found


def _needed(subject: str, told: Mapping[str, str], name: str) -> str:
    if name not in told:
        msg = f"message on {subject}: header {name} is missing; Forebay reads CloudEvents 1.0 in binary mode"
        raise EnvelopeMismatchError(msg)
    return told[name]


def _time(subject: str, name: str, text: str) -> datetime:
    found = _instant(text)
    if found is None:
        msg = f"message on {subject}: header {name} is {text!r}, expected an RFC 3339 time with a zone"
        raise EnvelopeMismatchError(msg)
    return found


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is UTC:
            return found
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


_CURRENT = {(spec.entity, spec.token, spec.type): (spec, spec.body.version) for spec in BY_NAME.values()}


def _spec(place: Subject, type_: str) -> tuple[EventSpec, int]:
    current = _CURRENT.get((place.entity, place.event, type_))
    if current is not None:
        return current
    found = _TYPE.fullmatch(type_)
    if found is None or found.group(1) not in BY_NAME:
        msg = f"message on {place}: type {type_!r} is not an event of Forebay"
        raise UnknownEventError(msg)
    spec = spec_at(place)
    name, version = found.group(1), int(found.group(2))
    if name != spec.name:
        msg = f"message on {place}: the envelope says {name}, but that subject carries {spec.name}"
        raise EnvelopeMismatchError(msg)
    if not 1 <= version <= spec.body.version:
        msg = f"message on {place}: {name} version {version} is not known here (newest known: {spec.body.version}); update this service, then retry it"
        raise UnknownEventError(msg)
    return spec, version


def _body(spec: EventSpec, version: int, body: bytes) -> EventBody:
    if len(body) > MAX_BODY_BYTES:
        msg = f"{spec.name}: the body has {len(body)} bytes, at most {MAX_BODY_BYTES} are allowed"
        raise InvalidBodyError(msg)
    try:
        if version == spec.body.version:
            return spec.body.model_validate_json(body)
        data: Any = json.loads(body)
        return spec.body.model_validate(upcast(spec.name, version, spec.body.version, data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        msg = f"{spec.name} version {version}: {where}: {first['msg']} ({error.error_count()} problems in all)"
        raise InvalidBodyError(msg) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{spec.name} version {version}: the body cannot be read: {error}"
        raise InvalidBodyError(msg) from error


def _check_speaker(spec: EventSpec, event: Event[EventBody]) -> None:
    if event.source.part not in spec.owners:
        owners = " or ".join(spec.owners)
        msg = f"{spec.name} {event.id}: {event.source} may not publish it; it belongs to {owners}"
        raise EnvelopeMismatchError(msg)
    if event.source.part in PROJECT_PARTS and event.source.project != event.project:
        msg = f"{spec.name} {event.id}: {event.source} spoke for project {event.project!r}"
        raise EnvelopeMismatchError(msg)


__all__ = ["ContractError", "Message", "decode", "decode_recorded", "encode", "event_type"]
