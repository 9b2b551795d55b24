"""Everything a collector with a valid key can do wrong: services stay healthy, say what they gave up on, and lose nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from forebay.contracts.codec import Message, encode
from forebay.contracts.envelope import Event
from forebay.contracts.parts import SERVICES, Part, Source
from forebay.contracts.v1.episodes import UploadStarted
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused

from tests.chaos.examine import quiet
from tests.eventually import WITHIN_S, eventually
from tests.servers.installation import Installation, installation

PROJECT = "arm-lab"
COLLECTOR = Source(Part.COLLECTOR, PROJECT)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with installation(tmp_path_factory.mktemp("hostile"), [PROJECT, "dog-lab"]) as running:
        yield running


def started(upload: str, **given: Any) -> Event[UploadStarted]:
    body: dict[str, Any] = {
        "upload": upload,
        "dataset": "reach",
        "source_ref": "/recordings",
        "source_format": "lerobot-v3.0",
        "landing_uri": f"pool/landing/{PROJECT}/{upload}",
        "expected_episodes": 2,
        "expected_files": 3,
        "expected_bytes": 100,
    }
    return Event(id=f"id-{upload}", source=COLLECTOR, project=PROJECT, body=UploadStarted(**(body | given)))


async def send(place: Installation, message: Message, **headers: str) -> dict[str, Any]:
    """Publish as the collector would, whatever the codec thinks of it; returns the server's acknowledgement."""
    key = place.home.key("collector.arm-lab")
    async with Client.connect(place.record().nats_url, key, COLLECTOR) as client:
        reply = await client.nc.request(
            message.subject, message.body, headers=message.headers | headers, timeout=WITHIN_S
        )
    acknowledgement: dict[str, Any] = json.loads(reply.data)
    return acknowledgement


async def letters(place: Installation, seq: int) -> list[dict[str, Any]]:
    """Dead letters about one message."""
    ran = await place.cli("dead", "list", "--json")
    assert ran.code == 0, ran.err
    return [row for row in ran.json()["dead"] if row["seq"] == seq]


@pytest.mark.parametrize(
    ("upload", "headers", "body", "cause"),
    [
        pytest.param("h1", {"ce-type": "dev.forebay.UploadStarted.v9"}, None, "version 9", id="an unknown version"),
        pytest.param("h2", {"ce-source": "/forebay/collector/dog-lab"}, None, "spoke for project", id="a false source"),
        pytest.param("h3", {"ce-type": "dev.forebay.LeaseGranted.v1"}, None, "that subject carries", id="a false type"),
        pytest.param("h4", {"ce-id": "x" * 40_000}, None, "at most 1024", id="a huge header"),
        pytest.param("h5", {}, b"\xff\x00not json", "UploadStarted", id="no JSON"),
        pytest.param("h6", {}, b'{"upload": "h6"}', "UploadStarted", id="missing fields"),
        pytest.param("h7", {}, b'{"pad": "' + b"x" * 90_000 + b'"}', "65536", id="a body over 64 KiB"),
    ],
)
async def test_a_message_that_is_no_event_is_parked(
    place: Installation, upload: str, headers: dict[str, str], body: bytes | None, cause: str
) -> None:
    """It stays in the log, a dead letter names the message and what is wrong with it, and later events are folded."""
    good = encode(started(upload))
    sent = await send(place, replace(good, body=good.body if body is None else body), **headers)
    seq = int(sent["seq"])
    found = await eventually(lambda: letters(place, seq), what="a dead letter", every=0.3)
    assert all(cause in letter["cause"] for letter in found), found
    await send(place, encode(started(f"{upload}-after")))
    async with place.operator() as operator:
        answer = await eventually(lambda: _upload(operator, f"{upload}-after"), what="the next upload is known")
    assert answer["expected"] == 2


async def test_a_message_over_the_streams_limit_is_refused_at_once(place: Installation) -> None:
    """The server says no; nothing is stored."""
    good = encode(started("big"))
    sent = await send(place, replace(good, body=b'{"pad": "' + b"x" * 200_000 + b'"}'))
    assert "maximum" in sent["error"]["description"]


async def test_the_same_id_with_another_body_never_overwrites(place: Installation) -> None:
    """The first body stands; the second is on record as a contradiction."""
    first, second = encode(started("twice")), encode(started("twice", expected_episodes=9))
    await send(place, first)
    sent = await send(place, second, **{"Nats-Msg-Id": "another"})
    found = await eventually(lambda: letters(place, int(sent["seq"])), what="a dead letter", every=0.3)
    assert all("body" in letter["cause"] for letter in found), found
    async with place.operator() as operator:
        assert (await _upload(operator, "twice"))["expected"] == 2


async def test_a_clock_a_day_ahead_changes_nothing(place: Installation) -> None:
    """What a sender calls now is kept and never trusted."""
    ahead = msgspec.structs.replace(started("ahead"), time=datetime.now(UTC) + timedelta(days=1))
    await send(place, encode(ahead))
    async with place.operator() as operator:
        answer = await eventually(lambda: _upload(operator, "ahead"), what="the upload is known")
    assert answer["expected"] == 2


async def test_after_all_that_every_store_is_what_the_log_says(place: Installation) -> None:
    """Healthy, quiet, and a fresh fold, parked messages included, has the live digest."""
    async with place.operator() as operator:
        await eventually(lambda: quiet(place, operator), what="all is quiet", every=0.3)
    for part in SERVICES:
        ran = await place.cli("rebuild", part, "--project", PROJECT, "--json")
        assert ran.code == 0, ran.out + ran.err


async def _upload(operator: Client, upload: str) -> dict[str, Any]:
    try:
        return (await operator.ask("ingest", PROJECT, "upload", {"upload": upload})).result
    except Refused:
        return {}
