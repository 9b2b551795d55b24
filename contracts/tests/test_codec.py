"""The codec believes the subject and refuses whatever disagrees with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import MAX_BODY_BYTES
from forebay.contracts.catalogue import EVENTS
from forebay.contracts.codec import decode, encode
from forebay.contracts.envelope import Event
from forebay.contracts.errors import ContractError, EnvelopeMismatchError, InvalidBodyError, UnknownEventError
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.episodes import EpisodeWithdrawn, UploadStarted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SAMPLES = Path(__file__).parents[1] / "samples" / "v1"


def sample(name: str) -> tuple[str, dict[str, str], bytes]:
    data: dict[str, Any] = json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    return data["subject"], data["headers"], json.dumps(data["body"]).encode()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param(
            {"ce-source": "/forebay/collector/dog-lab"}, EnvelopeMismatchError, id="speaks for another project"
        ),
        pytest.param({"ce-source": "/forebay/ingest"}, EnvelopeMismatchError, id="says that another part sent it"),
        pytest.param({"ce-source": "/forebay/collector"}, EnvelopeMismatchError, id="a collector without a project"),
        pytest.param({"ce-source": "/somebody/else"}, EnvelopeMismatchError, id="no part of Forebay"),
        pytest.param({"ce-type": "dev.forebay.UploadFinished.v1"}, EnvelopeMismatchError, id="another event's type"),
        pytest.param({"ce-type": "dev.forebay.UploadStarted.v9"}, UnknownEventError, id="a version from the future"),
        pytest.param({"ce-type": "dev.forebay.UploadStarted.v0"}, UnknownEventError, id="version 0"),
        pytest.param({"ce-type": "dev.forebay.Surprise.v1"}, UnknownEventError, id="an event nobody knows"),
        pytest.param({"ce-specversion": "0.3"}, EnvelopeMismatchError, id="another CloudEvents version"),
        pytest.param({"ce-id": ""}, EnvelopeMismatchError, id="no id"),
        pytest.param({"ce-id": "x" * 5000}, EnvelopeMismatchError, id="a huge header"),
        pytest.param({"ce-time": "yesterday"}, EnvelopeMismatchError, id="a time that is none"),
        pytest.param({"ce-time": "2026-11-29T09:12:31"}, EnvelopeMismatchError, id="a time without a zone"),
    ],
)
def test_an_envelope_that_disagrees_is_refused(change: dict[str, str], error: type[ContractError]) -> None:
    """Each lie in the envelope has its own sentence."""
    subject, headers, body = sample("UploadStarted")
    with pytest.raises(error) as caught:
        decode(subject, headers | change, body)
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "subject",
    [
        "fb.dog-lab.upload.u1.started",
        "fb.arm-lab.upload.other-upload.started",
        "fb.arm-lab.upload.u1.finished",
        "fb.arm-lab.upload.started",
        "fb.ARM.upload.u1.started",
        "xx.arm-lab.upload.u1.started",
        "",
    ],
)
def test_a_message_in_the_wrong_place_is_refused(subject: str) -> None:
    """What NATS checked is the subject, so the body has to belong there."""
    _, headers, body = sample("UploadStarted")
    with pytest.raises(ContractError):
        decode(subject, headers, body)


def test_a_clock_a_day_ahead_is_kept_as_it_is() -> None:
    """The sender's clock is recorded and never trusted; no decision depends on it."""
    subject, headers, body = sample("UploadStarted")
    ahead = datetime.now(UTC) + timedelta(days=1)
    event = decode(subject, headers | {"ce-time": ahead.isoformat().replace("+", "%2B")}, body)
    assert event.time == ahead


def test_unknown_fields_of_a_newer_sender_are_dropped() -> None:
    """A newer minor of the same version stays readable."""
    subject, headers, body = sample("EpisodeWithdrawn")
    event = decode(subject, headers, json.dumps(json.loads(body) | {"new_field": [1, 2]}).encode())
    assert isinstance(event.body, EpisodeWithdrawn)


def test_a_body_over_64_kib_is_refused_on_both_sides() -> None:
    """Long lists go by reference."""
    subject, headers, body = sample("UploadStarted")
    long = json.loads(body) | {"source_ref": "x" * MAX_BODY_BYTES}
    with pytest.raises(InvalidBodyError, match="at most"):
        decode(subject, headers, json.dumps(long).encode())
    event = Event(id="1", source=Source(Part.COLLECTOR, "arm-lab"), project="arm-lab", body=UploadStarted(**long))
    with pytest.raises(InvalidBodyError, match="by reference"):
        encode(event)


def test_a_part_cannot_even_encode_what_it_does_not_own() -> None:
    """The mistake is found before the server refuses it."""
    subject, headers, body = sample("UploadStarted")
    event = decode(subject, headers, body)
    foreign = Event(id=event.id, source=Source(Part.CACHE), project="arm-lab", body=event.body)
    with pytest.raises(EnvelopeMismatchError, match="may not publish"):
        encode(foreign)


_HEADER_NAMES = ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "ce-recordedtime", "ce-correlationid"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from([spec.name for spec in EVENTS]),
    subject=st.none() | st.text(max_size=80),
    headers=st.dictionaries(st.sampled_from(_HEADER_NAMES), st.text(max_size=80), max_size=3),
    fields=st.dictionaries(st.text(max_size=12), _JSON, max_size=3),
    raw=st.none() | st.binary(max_size=200),
    mangle=st.booleans(),
)
def test_whatever_arrives_either_decodes_or_is_a_contract_error(
    *, name: str, subject: str | None, headers: dict[str, str], fields: dict[str, Any], raw: bytes | None, mangle: bool
) -> None:
    """No bytes from outside raise anything but a ContractError, which a reader parks."""
    good_subject, good_headers, good_body = sample(name)
    body: dict[str, Any] = json.loads(good_body)
    if mangle:
        body = dict.fromkeys(body, next(iter(fields.values()), None))
    text = raw if raw is not None else json.dumps(body | fields).encode("utf-8", "surrogatepass")
    try:
        event = decode(subject if subject is not None else good_subject, good_headers | headers, text)
    except ContractError:
        return
    assert event.body.event == name


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"upload":', b"[" * 100_000, b'{"expected_bytes":NaN}', b"1" * 5000],
)
def test_broken_bodies_are_contract_errors(body: bytes) -> None:
    """Truncated, nested to the sky, not UTF-8: parked, never a crash."""
    subject, headers, _ = sample("UploadStarted")
    with pytest.raises(ContractError):
        decode(subject, headers, body)
