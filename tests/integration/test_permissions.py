"""Who may speak and hear, tried on a real nats-server with the generated configuration.

Nothing is mocked: each attack is sent, then the log is read as admin to see whether it arrived.
"""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from forebay.contracts.body import FileRef
from forebay.contracts.envelope import Event
from forebay.contracts.parts import SERVICES, Part, Source
from forebay.contracts.streams import consumers, streams
from forebay.contracts.v1.episodes import UploadFinished
from forebay.runtime.client import Client
from forebay.runtime.errors import Unreachable
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from tests.eventually import WITHIN_S, eventually
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus
STARTED_A = "fb.arm-lab.upload.u1.started"
STARTED_B = "fb.dog-lab.upload.u1.started"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "home", "arm-lab", "dog-lab") as running:
        yield running


async def last_seq(server: NatsServer) -> int:
    admin = await server.connect(Part.ADMIN)
    info = json.loads((await admin.request("$JS.API.STREAM.INFO.FOREBAY", b"")).data)
    return int(info["state"]["last_seq"])


async def stored(client: NatsClient, subject: str, headers: dict[str, str] | None = None) -> dict[str, object]:
    """The acknowledgement of a publish, as the server said it."""
    reply: dict[str, object] = json.loads(
        (await client.request(subject, b"{}", headers=headers, timeout=WITHIN_S)).data
    )
    return reply


async def is_refused(client: NatsClient, subject: str, body: bytes = b"") -> bool:
    """Whether a request gets no answer at all from anybody."""
    try:
        await client.request(subject, body, timeout=0.5)
    except (NatsError, TimeoutError):
        return True
    return False


async def test_without_a_key_nobody_gets_in(server: NatsServer) -> None:
    """There is no default user."""
    with pytest.raises(NatsError, match=r"(?i)authorization"):
        await nats.connect(server.url, max_reconnect_attempts=0, allow_reconnect=False)


async def test_each_part_publishes_its_own_event(server: NatsServer) -> None:
    """What the table of events gives to a part, the server takes from it."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    ingest = await server.connect(Part.INGEST)
    agent = await server.connect(Part.AGENT, "dog-lab")
    assert (await stored(collector, STARTED_A))["seq"] == 1
    assert (await stored(ingest, "fb.dog-lab.lease.job-1.granted"))["seq"] == 2
    assert (await stored(agent, "fb.dog-lab.checkpoint.ab.written", {"ce-id": "1"}))["seq"] == 3
    admin = await server.connect(Part.ADMIN)
    found = json.loads((await admin.request("$JS.API.STREAM.MSG.GET.FOREBAY", b'{"seq":3}')).data)["message"]
    assert base64.b64decode(found["hdrs"]) == b"NATS/1.0\r\nce-id: 1\r\n\r\n", (
        "crossing accounts adds nothing to a message"
    )


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(STARTED_B, id="the same event in another project"),
        pytest.param("fb.arm-lab.lease.job-1.granted", id="an event of a service in its own project"),
        pytest.param("fb.arm-lab.checkpoint.ab.written", id="an event of the agent in its own project"),
        pytest.param("fb._cluster.node.n1.lost", id="a fact about the cluster"),
        pytest.param("dead.ingest.parked", id="a dead letter"),
        pytest.param("$JS.ACK.FOREBAY.ingest.1.1.1.1.1", id="an acknowledgement of a service"),
    ],
)
async def test_a_collector_cannot_publish(server: NatsServer, subject: str) -> None:
    """A collector speaks only its own events, only in its own project."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    assert await is_refused(collector, subject, b"{}")
    assert await last_seq(server) == 0


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        pytest.param("$JS.API.DIRECT.GET.FOREBAY", b'{"seq":1}', id="by sequence"),
        pytest.param("$JS.API.DIRECT.GET.FOREBAY", b'{"last_by_subj":"fb.dog-lab.>"}', id="by subject in the body"),
        pytest.param(f"$JS.API.DIRECT.GET.FOREBAY.{STARTED_B}", b"", id="by subject"),
        pytest.param("$JS.API.DIRECT.GET.FOREBAY.fb.>", b"", id="by a wildcard over projects"),
        pytest.param("$JS.API.STREAM.MSG.GET.FOREBAY", b'{"seq":1}', id="through the stream API"),
        pytest.param("$JS.API.STREAM.INFO.FOREBAY", b"", id="the stream's state"),
        pytest.param("$JS.API.CONSUMER.MSG.NEXT.FOREBAY.ingest", b"1", id="through a service's durable"),
        pytest.param(
            "$JS.API.CONSUMER.CREATE.FOREBAY",
            b'{"stream_name":"FOREBAY","config":{"deliver_subject":"_INBOX_collector_arm-lab.x"}}',
            id="through a consumer of its own",
        ),
        pytest.param("ask.ingest.dog-lab.datasets", b"{}", id="by asking about another project"),
        pytest.param("ask.ingest.arm-lab.datasets", b"{}", id="by asking at all"),
    ],
)
async def test_a_collector_cannot_read(server: NatsServer, subject: str, body: bytes) -> None:
    """No way leads from one project's collector to another project's events or to anybody's answers."""
    other = await server.connect(Part.COLLECTOR, "dog-lab")
    await stored(other, STARTED_B)
    ingest = await server.connect(Part.INGEST)
    await ingest.subscribe("ask.ingest.>", cb=_answer)
    await ingest.flush()
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    assert await is_refused(collector, subject, body)


@pytest.mark.parametrize(
    "subject", [">", "fb.>", STARTED_B, "_INBOX_collector_dog-lab.>", "_INBOX.>", "_R_.>", "progress.>", "ask.>"]
)
async def test_a_collector_cannot_listen(server: NatsServer, subject: str) -> None:
    """A subscription outside the own inbox is refused, so nothing is overheard."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    heard: list[Msg] = []

    async def keep(message: Msg) -> None:
        heard.append(message)

    await collector.subscribe(subject, cb=keep)
    await collector.flush()
    other = await server.connect(Part.COLLECTOR, "dog-lab")
    await stored(other, STARTED_B)
    await collector.flush()
    assert heard == []


async def test_a_collector_reads_back_its_own_last_message(server: NatsServer) -> None:
    """What a publish answered "duplicate" can be checked without reading by sequence."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    await stored(collector, STARTED_A, {"Nats-Msg-Id": "mine"})
    again = await stored(collector, STARTED_A, {"Nats-Msg-Id": "mine"})
    assert again["duplicate"] is True
    found = await collector.request(f"$JS.API.DIRECT.GET.FOREBAY.{STARTED_A}", b"")
    assert found.headers is not None
    assert found.headers["Nats-Msg-Id"] == "mine"
    assert int(found.headers["Nats-Sequence"]) == again["seq"]


async def test_a_guessed_message_id_is_seen_to_be_foreign(server: NatsServer) -> None:
    """First leak: another project's message under our id answers "duplicate", and reading back shows nothing of ours."""
    thief = await server.connect(Part.COLLECTOR, "dog-lab")
    await stored(thief, STARTED_B, {"Nats-Msg-Id": "guessed"})
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    assert (await stored(collector, STARTED_A, {"Nats-Msg-Id": "guessed"}))["duplicate"] is True
    found = await collector.request(f"$JS.API.DIRECT.GET.FOREBAY.{STARTED_A}", b"")
    assert (found.headers or {}).get("Status") == "404"


@pytest.mark.parametrize("part", [Part.COLLECTOR, Part.AGENT, Part.INGEST, Part.OPERATOR])
async def test_nobody_creates_consumers(server: NatsServer, part: Part) -> None:
    """Second leak: a consumer's deliver subject would be a mouth into any project; only admin makes consumers."""
    client = await server.connect(part, "arm-lab" if part in {Part.COLLECTOR, Part.AGENT} else None)
    config = {"deliver_subject": STARTED_B, "ack_policy": "none", "durable_name": "mouth", "name": "mouth"}
    body = json.dumps({"stream_name": "FOREBAY", "config": config}).encode()
    for subject in (
        "CREATE.FOREBAY",
        "CREATE.FOREBAY.mouth",
        "CREATE.FOREBAY.mouth.fb.>",
        "DURABLE.CREATE.FOREBAY.mouth",
    ):
        assert await is_refused(client, f"$JS.API.CONSUMER.{subject}", body)
    admin = await server.connect(Part.ADMIN)
    names = json.loads((await admin.request("$JS.API.CONSUMER.NAMES.FOREBAY", b"")).data)["consumers"]
    assert sorted(names) == sorted(str(part) for part in SERVICES)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Nats-Rollup": "all"}, id="rollup of the whole stream"),
        pytest.param({"Nats-Rollup": "sub"}, id="rollup of the subject"),
        pytest.param({"Nats-TTL": "1s"}, id="a message that removes itself"),
        pytest.param({"Nats-Schedule": "@at 2030-01-01T00:00:00Z", "Nats-Schedule-Target": STARTED_B}, id="a schedule"),
        pytest.param({"Nats-Incr": "+1"}, id="a counter"),
        pytest.param({"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}, id="a batch"),
    ],
)
async def test_headers_that_change_the_log_are_refused(server: NatsServer, headers: dict[str, str]) -> None:
    """Third leak: no header removes, delays or redirects a message."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    await stored(collector, STARTED_A)
    answer = await stored(collector, STARTED_A, headers)
    assert "error" in answer
    assert await last_seq(server) == 1


@pytest.mark.parametrize(
    ("part", "question", "body"),
    [
        pytest.param(Part.COLLECTOR, STARTED_A, b"{}", id="a collector's publish acknowledged into another project"),
        pytest.param(Part.COLLECTOR, f"$JS.API.DIRECT.GET.FOREBAY.{STARTED_A}", b"", id="a collector's read"),
        pytest.param(Part.INGEST, "$JS.API.DIRECT.GET.FOREBAY", b'{"seq":1}', id="a service's read"),
        pytest.param(Part.INGEST, "$JS.API.CONSUMER.MSG.NEXT.FOREBAY.ingest", b"1", id="a service's durable"),
        pytest.param(Part.OPERATOR, "$JS.API.STREAM.MSG.GET.FOREBAY", b'{"seq":1}', id="an operator's read"),
        pytest.param(Part.AGENT, "ask.registry.arm-lab.resume-point", b"{}", id="an agent's question"),
    ],
)
async def test_a_reply_subject_is_no_mouth(server: NatsServer, part: Part, question: str, body: bytes) -> None:
    """Fourth leak: NATS does not check reply subjects, so an answer could be sent into somebody else's log subject."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    await stored(collector, STARTED_A, {"ce-source": "/forebay/collector/dog-lab"})
    registry = await server.connect(Part.REGISTRY)
    await registry.subscribe("ask.registry.>", cb=_answer)
    await registry.flush()
    attacker = await server.connect(part, "arm-lab" if part in {Part.COLLECTOR, Part.AGENT} else None)
    before = await last_seq(server)
    for target in (STARTED_B, "fb.arm-lab.lease.job-1.granted", "fb.dog-lab.lease.job-1.released"):
        await attacker.publish(question, body, reply=target)
    await attacker.flush()
    await registry.flush()
    admin = await server.connect(Part.ADMIN)
    await stored_marker(server)
    subjects = [await _subject_at(admin, seq) for seq in range(before + 1, await last_seq(server) + 1)]
    assert set(subjects) <= {STARTED_A, "fb.arm-lab.upload.marker.started"}


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param("fb.arm-lab.job.j1.admitted", id="an event of another service"),
        pytest.param(STARTED_A, id="an event of a collector"),
        pytest.param("fb.arm-lab.deadline.cache.passed", id="another service's deadline"),
        pytest.param("dead.cache.parked", id="another service's dead letter"),
        pytest.param("$JS.ACK.FOREBAY.cache.1.1.1.1.1", id="another service's acknowledgement"),
        pytest.param("$JS.API.CONSUMER.MSG.NEXT.FOREBAY.cache", id="another service's durable"),
        pytest.param("$JS.API.STREAM.PURGE.FOREBAY", id="a purge"),
        pytest.param("$JS.API.STREAM.DELETE.FOREBAY", id="deleting the log"),
        pytest.param("$JS.API.STREAM.UPDATE.FOREBAY", id="changing the stream"),
        pytest.param("ask.cache.arm-lab.plans", id="a question to another service"),
    ],
)
async def test_a_service_cannot_say(server: NatsServer, subject: str) -> None:
    """A service publishes only what it owns, asks nobody, and cannot touch the stream."""
    cache = await server.connect(Part.CACHE)
    await cache.subscribe("ask.cache.>", cb=_answer)
    await cache.flush()
    ingest = await server.connect(Part.INGEST)
    assert await is_refused(ingest, subject, b"1")
    assert await last_seq(server) == 0


async def test_questions_reach_their_service_and_answers_only_the_asker(server: NatsServer) -> None:
    """Operator and agent get answers across accounts; another service hears neither."""
    registry = await server.connect(Part.REGISTRY)
    await registry.subscribe("ask.registry.>", cb=_answer)
    await registry.flush()
    operator = await server.connect(Part.OPERATOR)
    agent = await server.connect(Part.AGENT, "arm-lab")
    assert (await operator.request("ask.registry.arm-lab.models", b"{}")).data == b"yes"
    assert (await agent.request("ask.registry.arm-lab.resume-point", b"{}")).data == b"yes"
    assert await is_refused(agent, "ask.registry.dog-lab.resume-point")
    assert await is_refused(agent, "ask.registry.arm-lab.models")
    with pytest.raises((NatsError, TimeoutError)):
        await operator.request("ask.ingest.arm-lab.datasets", b"{}", timeout=0.5)


async def test_progress_reaches_the_operator_and_is_not_stored(server: NatsServer) -> None:
    """Live progress is core NATS: heard by whoever watches, kept by nobody."""
    operator = await server.connect(Part.OPERATOR)
    heard: asyncio.Queue[Msg] = asyncio.Queue()
    await operator.subscribe("progress.>", cb=heard.put)
    await operator.flush()
    cache = await server.connect(Part.CACHE)
    await cache.publish("progress.cache.arm-lab.plan-1", b"{}")
    async with asyncio.timeout(WITHIN_S):
        assert (await heard.get()).subject == "progress.cache.arm-lab.plan-1"
    assert await last_seq(server) == 0


async def test_a_service_takes_and_acknowledges_its_own_durable(server: NatsServer) -> None:
    """The pull consumer works across the account border: original subjects, acknowledgements, redelivery count."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    for number in range(20):
        await stored(collector, f"fb.arm-lab.upload.u{number}.started")
    ingest = await server.connect(Part.INGEST)
    pull = await ingest.jetstream().pull_subscribe_bind("ingest", "FOREBAY")
    taken = await pull.fetch(20, timeout=WITHIN_S)
    assert [message.metadata.sequence.stream for message in taken] == list(range(1, 21))
    assert taken[0].subject == "fb.arm-lab.upload.u0.started"
    for message in taken:
        await message.ack_sync()
    info = await ingest.jetstream().consumer_info("FOREBAY", "ingest")
    assert (info.num_pending, info.num_ack_pending) == (0, 0)


async def test_a_dead_reader_takes_no_message_with_it(server: NatsServer) -> None:
    """A pull request of a connection that is gone is not served, so nothing waits for its acknowledgement."""
    dead = await server.connect(Part.INGEST)
    await dead.publish(
        "$JS.API.CONSUMER.MSG.NEXT.FOREBAY.ingest", b'{"batch":10,"expires":60000000000}', reply="_INBOX_ingest.gone"
    )
    await dead.flush()
    await dead.close()
    await stored_marker(server)
    ingest = await server.connect(Part.INGEST)
    pull = await ingest.jetstream().pull_subscribe_bind("ingest", "FOREBAY")
    assert len(await pull.fetch(1, timeout=WITHIN_S)) == 1


async def test_seeds_are_for_their_owner_only(server: NatsServer) -> None:
    """Key files are 0600 in a folder of 0700."""
    files = list(server.home.keys.iterdir())
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(server.home.keys.stat().st_mode) == 0o700


async def test_apply_makes_once_and_then_finds_everything_as_it_should_be(server: NatsServer) -> None:
    """A second `bus apply` changes nothing; a stream that somebody changed is named with the field."""
    again = await server.bus.apply(server.url)
    assert {item.action for item in again} == {"unchanged"}
    assert len(again) == len(streams()) + 1 + len(consumers())  # and the stream of the probe
    admin = await server.connect(Part.ADMIN)
    config = json.loads((await admin.request("$JS.API.STREAM.INFO.FOREBAY", b"")).data)["config"]
    reply = await admin.request("$JS.API.STREAM.UPDATE.FOREBAY", json.dumps(config | {"max_msg_size": 1024}).encode())
    assert "error" not in json.loads(reply.data)
    changed = next(item for item in await server.bus.apply(server.url) if item.name == "FOREBAY")
    assert changed.action == "differs"
    assert changed.differences == ("max_msg_size: is 1024, should be 131072",)
    updated = next(item for item in await server.bus.apply(server.url, update=True) if item.name == "FOREBAY")
    assert updated.action == "updated"
    assert {item.action for item in await server.bus.apply(server.url)} == {"unchanged"}


async def test_a_new_project_joins_a_running_server(server: NatsServer) -> None:
    """Old keys and connections stay; the new project's collector is heard after the reload."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    old = server.home.key("collector.arm-lab").read_bytes()
    made = server.bus.init(["cat-lab"], port=server.port)
    assert made.projects == ("arm-lab", "cat-lab", "dog-lab")
    assert set(made.new_identities) == {"collector.cat-lab", "agent.cat-lab"}
    await server.bus.reload(server.url, server.process_id(), ["cat-lab"])
    newcomer = await server.connect(Part.COLLECTOR, "cat-lab")
    assert (await stored(newcomer, "fb.cat-lab.upload.u1.started"))["seq"] == 1
    assert (await stored(collector, STARTED_A))["seq"] == 2
    assert server.home.key("collector.arm-lab").read_bytes() == old


async def _answer(message: Msg) -> None:
    await message.respond(b"yes")


async def stored_marker(server: NatsServer) -> None:
    """Publish one event after everything before it was handled."""
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    await stored(collector, "fb.arm-lab.upload.marker.started")


async def _subject_at(admin: NatsClient, seq: int) -> str:
    reply = json.loads((await admin.request("$JS.API.STREAM.MSG.GET.FOREBAY", json.dumps({"seq": seq}).encode())).data)
    return str(reply["message"]["subject"])


async def test_eventually_names_what_it_waited_for() -> None:
    """A condition that does not come true fails with its name and the last answer."""
    with pytest.raises(AssertionError, match="the sun rises"):
        await eventually(lambda: 0, what="the sun rises", within=0.1)


async def test_unknown_questions_have_no_responders(server: NatsServer) -> None:
    """A service that is down is told apart at once from one that is slow."""
    operator = await server.connect(Part.OPERATOR)
    with pytest.raises(NoRespondersError):
        await operator.request("ask.cache.arm-lab.plans", b"{}", timeout=WITHIN_S)


async def test_the_operator_follows_every_event_once(server: NatsServer) -> None:
    """`forebay watch` sees each event of every part, with its place in the log, and can be narrowed."""
    source = Source(Part.OPERATOR)
    collector = await server.connect(Part.COLLECTOR, "arm-lab")
    ingest = await server.connect(Part.INGEST)
    await stored(collector, STARTED_A)
    async with Client.connect(server.url, server.key(source), source) as operator:
        everything, leases = operator.follow(after=0), operator.follow(after=0, subject="fb.*.lease.>")
        first = await anext(everything)
        await stored(ingest, "fb.dog-lab.lease.job-1.granted")
        async with asyncio.timeout(WITHIN_S):
            second, narrowed = await anext(everything), await anext(leases)
        await everything.aclose()
        await leases.aclose()
    assert [(first.seq, first.subject), (second.seq, second.subject)] == [
        (1, STARTED_A),
        (2, "fb.dog-lab.lease.job-1.granted"),
    ]
    assert narrowed.seq == 2


@pytest.mark.parametrize("count", [0, 1, 7, 450])
async def test_many_events_are_each_confirmed_once(server: NatsServer, count: int) -> None:
    """Bulk publishing returns every sequence, in order, and a repeat returns the same ones."""
    source = Source(Part.COLLECTOR, "arm-lab")
    body = {"dataset": "reach", "episodes": 0, "files": 0, "bytes": 0}
    manifest = FileRef(uri="manifest.json", sha256="0" * 64, bytes=0)
    events = [
        Event(
            id=f"e{n}", source=source, project="arm-lab", body=UploadFinished(upload=f"u{n}", manifest=manifest, **body)
        )
        for n in range(count)
    ]
    async with Client.connect(server.url, server.key(source), source) as collector:
        first = await collector.publish_many(events)
        assert first == list(range(1, count + 1))
        assert await collector.publish_many(events) == first
    assert await last_seq(server) == count


async def test_bulk_publishing_without_a_bus_is_said(server: NatsServer) -> None:
    """When nothing is confirmed the caller hears it, and keeps its events."""
    source = Source(Part.COLLECTOR, "arm-lab")
    manifest = FileRef(uri="manifest.json", sha256="0" * 64, bytes=0)
    body = UploadFinished(upload="u", dataset="reach", episodes=0, files=0, bytes=0, manifest=manifest)
    async with Client.connect(server.url, server.key(source), source, retry=True) as collector:
        await server.stop()
        with pytest.raises(Unreachable):
            await collector.publish_many([Event(id="e", source=source, project="arm-lab", body=body)])
