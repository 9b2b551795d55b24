"""Pods on a real nats-server: the bridge's doorkeeper lets each in for its own job, and the server holds it to that.

The API server is the only part that is played, by a table of tokens; tests/cluster has a real one.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import TOKEN_AUDIENCE
from forebay.contracts.v1.models import CheckpointWritten
from forebay.local.errors import StartError
from forebay.local.identities import ISSUER
from forebay.runtime.client import Client
from forebay.runtime.connection import PodToken, connect
from forebay.runtime.errors import NotAdmitted
from forebay.runtime.state import MemoryState, State
from forebay.scheduler_bridge.adapters.user_jwt import Issuer
from forebay.scheduler_bridge.domain.cluster.documents import Carrier, ClusterObject
from forebay.scheduler_bridge.domain.documents import Job
from forebay.scheduler_bridge.errors import ApiSilentError
from forebay.scheduler_bridge.workers.admit import Doorkeeper
from forebay.sdk.link import BusLink
from forebay.sdk.outbox import outbox_of
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from tests.eventually import WITHIN_S, eventually
from tests.integration.test_permissions import is_refused, last_seq, stored
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus
PROJECT, NAMESPACE = "arm-lab", "robots"
AGENT = Source(Part.AGENT, PROJECT)
NOW = datetime(2026, 11, 30, tzinfo=UTC)
SECRET = "a-token-that-nobody-may-read"  # noqa: S105 looked for in logs


@dataclass
class World:
    """A bus, a doorkeeper, and what it knows: the record, and whose tokens the API server vouches for."""

    server: NatsServer
    folder: Path
    state: MemoryState = field(default_factory=MemoryState)
    vouched: dict[str, str] = field(default_factory=dict)
    """Token -> uid of its pod."""
    api_answers: bool = True
    probes: dict[str, Callable[[], Any]] = field(default_factory=dict)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
        if not self.api_answers:
            msg = f"{path}: no answer from the API server: gone"
            raise ApiSilentError(msg)
        uid = self.vouched.get(body["spec"]["token"])
        extra = {"authentication.kubernetes.io/pod-uid": [uid]}
        user = {"username": f"system:serviceaccount:{NAMESPACE}:default", "extra": extra}
        return {"status": {"authenticated": uid is not None, "audiences": [TOKEN_AUDIENCE], "user": user}}

    async def read(self, question: Callable[[State], str | None]) -> str | None:
        return question(self.state)

    def probe(self, name: str, value: Callable[[], Any]) -> None:
        self.probes[name] = value

    def runs(self, job: str, project: str = PROJECT) -> str:
        """A job on the cluster, with its Job object and one running pod; the pod's uid."""
        uid = f"pod-of-{job}"
        self.state.put(
            Job(
                project=project, id=job, name=job, run=1, spec={}, spec_sha256="0", submitted_by="ada",
                submitted_at=NOW, submitted_event="e",
            )
        )  # fmt: skip
        self.state.put(Carrier(project=project, job=job, uid=f"job-{job}"))
        self.sees(job, uid, project=project)
        return uid

    def sees(self, job: str, uid: str, *, project: str = PROJECT, phase: str = "Running") -> None:
        metadata = {"uid": uid, "ownerReferences": [{"kind": "Job", "name": job, "uid": f"job-{job}"}]}
        body = {"kind": "Pod", "metadata": metadata, "status": {"phase": phase}}
        self.state.put(ClusterObject(project=project, job=job, uid=uid, body=body, digest="d", at=NOW, event="e"))

    def token(self, uid: str) -> Path:
        """The file that the kubelet keeps in that pod."""
        path = self.folder / uid
        path.write_text(f"{SECRET}-{uid}\n")
        self.vouched[f"{SECRET}-{uid}"] = uid
        return path

    async def connect(self, job: str, uid: str | None = None, project: str = PROJECT) -> NatsClient:
        """As our containers in a pod connect."""
        source = Source(Part.AGENT, project)
        client = await connect(self.server.url, source, PodToken(self.token(uid or f"pod-of-{job}"), job))
        self.server.clients.append(client)
        return client

    @asynccontextmanager
    async def door(self) -> AsyncIterator[None]:
        """A bridge that answers; leaving this is its end."""
        bridge = Source(Part.BRIDGE)
        keeper = Doorkeeper(
            lambda: connect(self.server.url, bridge, self.server.key(bridge), retry=True),
            self,
            Issuer.read(self.server.home.key(ISSUER)),
            {PROJECT: NAMESPACE},
        )
        task = asyncio.create_task(keeper(self))
        await eventually(lambda: "pods" in self.probes, what="the doorkeeper runs")
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A running bus without a bridge."""
    async with nats_server(tmp_path / "home", PROJECT, "dog-lab", pods=True) as server:
        yield World(server, tmp_path)


def written(job: str, step: int = 1) -> Event[EventBody]:
    body = CheckpointWritten(
        checkpoint=f"ck-{job}-{step}", job=job, attempt=1, step=step, uri="x", files=(), digest="0" * 64
    )
    return Event(id=f"{job}-{step}", source=AGENT, project=PROJECT, body=body)


async def test_a_pod_says_what_its_job_may_say(world: World) -> None:
    """Its report and its checkpoints, acknowledged; a repeat is seen to be its own."""
    world.runs("pick-1")
    token = PodToken(world.token("pod-of-pick-1"), "pick-1")
    async with world.door(), Client.connect(world.server.url, token, AGENT) as client:
        assert await client.publish_many([written("pick-1"), written("pick-1", 2)]) == [1, 2]
        assert await client.publish(written("pick-1", 2)) == 2
        assert (await stored(client.nc, "fb.arm-lab.job.pick-1.preflight-reported"))["seq"] == 3
    assert world.probes["pods"]() == "1 admitted, 0 refused"


NOT_ITS_OWN = {
    "a checkpoint of another job": "fb.arm-lab.checkpoint.other-1.written",
    "a checkpoint as older versions said it": "fb.arm-lab.checkpoint.ab.written",
    "a report of another job": "fb.arm-lab.job.other-1.preflight-reported",
    "a job of that name in another project": "fb.dog-lab.checkpoint.pick-1.written",
    "an event of the bridge about its own job": "fb.arm-lab.job.pick-1.succeeded",
    "an event of agents about no job": "fb.arm-lab.dataset.reach.accessed",
    "a question about any job": "ask.registry.arm-lab.resume-point",
    "a question about another job": "ask.registry.arm-lab.resume-point.other-1",
    "a question in another project": "ask.registry.dog-lab.resume-point.pick-1",
    "another question": "ask.registry.arm-lab.lineage.pick-1",
    "the log by sequence": "$JS.API.DIRECT.GET.FOREBAY",
    "another job's last word": "$JS.API.DIRECT.GET.FOREBAY.fb.arm-lab.checkpoint.other-1.written",
    "the log through the stream API": "$JS.API.STREAM.MSG.GET.FOREBAY",
    "the log's state": "$JS.API.STREAM.INFO.FOREBAY",
    "a consumer of the log": "$JS.API.CONSUMER.CREATE.FOREBAY",
    "a question to the doorkeeper": "$SYS.REQ.USER.AUTH",
}


async def test_a_pod_can_neither_say_nor_ask_nor_read_what_is_not_its_jobs(world: World) -> None:
    """The server refuses it, whatever the pod's code does."""
    world.runs("pick-1")
    async with world.door():
        other = await world.connect("other-1", world.runs("other-1"))
        await stored(other, "fb.arm-lab.checkpoint.other-1.written")
        registry = await world.server.connect(Part.REGISTRY)
        await registry.subscribe("ask.registry.>", cb=_answer)
        await registry.flush()
        pod = await world.connect("pick-1")
        refused = await asyncio.gather(*(is_refused(pod, subject, b"{}") for subject in NOT_ITS_OWN.values()))
    assert [what for what, no in zip(NOT_ITS_OWN, refused, strict=True) if not no] == []
    assert await last_seq(world.server) == 1


async def test_a_pod_hears_nothing_of_other_jobs(world: World) -> None:
    """Pods of a project share an account, and still each hears only its own inbox."""
    heard: list[Msg] = []

    async def keep(message: Msg) -> None:
        heard.append(message)

    world.runs("pick-1")
    world.runs("other-1")
    async with world.door():
        pod, other = await world.connect("pick-1"), await world.connect("other-1")
        for subject in (">", "fb.>", "ask.>", "_INBOX_agent_arm-lab_other-1.>", "_INBOX_agent_arm-lab.>"):
            await pod.subscribe(subject, cb=keep)
        await pod.flush()
        await stored(other, "fb.arm-lab.checkpoint.other-1.written")
        await pod.flush()
    assert heard == []


async def test_a_reply_subject_is_no_mouth_into_another_job(world: World) -> None:
    """Acknowledgement, read-back and answer sent to another job's subject are not stored there."""
    world.runs("pick-1")
    async with world.door():
        pod = await world.connect("pick-1")
        registry = await world.server.connect(Part.REGISTRY)
        await registry.subscribe("ask.registry.>", cb=_answer)
        await registry.flush()
        own = "fb.arm-lab.checkpoint.pick-1.written"
        await stored(pod, own, {"ce-source": "/forebay/agent/arm-lab"})
        for question in (own, f"$JS.API.DIRECT.GET.FOREBAY.{own}", "ask.registry.arm-lab.resume-point.pick-1"):
            for target in ("fb.arm-lab.checkpoint.other-1.written", "fb.arm-lab.job.other-1.preflight-reported"):
                await pod.publish(question, b"{}", reply=target)
        assert (await pod.request("ask.registry.arm-lab.resume-point.pick-1", b"")).data == b"yes"
        last = (await stored(pod, own))["seq"]
    admin = await world.server.connect(Part.ADMIN)
    info = json.loads((await admin.request("$JS.API.STREAM.INFO.FOREBAY", b'{"subjects_filter":">"}')).data)
    assert info["state"]["subjects"] == {own: last}


@pytest.mark.parametrize(
    ("job", "uid", "project"),
    [
        pytest.param("other-1", "pod-of-pick-1", PROJECT, id="another job"),
        pytest.param("none-1", "pod-of-pick-1", PROJECT, id="no job"),
        pytest.param("pick-1", "pod-of-pick-1", "dog-lab", id="another project"),
        pytest.param("over-1", "pod-of-over-1", PROJECT, id="a pod that has ended"),
        pytest.param("ab", "pod-of-ab", PROJECT, id="a name that is no job's"),
    ],
)
async def test_a_pod_is_not_let_in_as(world: World, job: str, uid: str, project: str) -> None:
    """What it claims to be must be what the record says of the pod whose token it shows."""
    world.runs("pick-1")
    world.runs("other-1")
    world.runs("ab")
    world.sees("over-1", world.runs("over-1"), phase="Succeeded")
    async with world.door():
        with pytest.raises(NotAdmitted, match=job):
            await world.connect(job, uid, project)


async def test_a_token_that_the_api_server_does_not_vouch_for_opens_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An old token, a made-up one, none; and no token is ever printed, by us or by the bus."""
    caplog.set_level("DEBUG")
    world.runs("pick-1")
    key = PodToken(world.token("pod-of-pick-1"), "pick-1")
    async with world.door():
        for world.vouched, world.api_answers in ({}, True), ({}, False):
            with pytest.raises(NotAdmitted) as refused:
                await connect(world.server.url, AGENT, key)
            assert SECRET not in f"{refused.value!r} {refused.value.__cause__!r}"
    printed = caplog.text + (world.server.home.logs / "nats-server.log").read_text()
    assert "does not vouch" in printed
    assert SECRET not in printed
    assert world.server.home.key(ISSUER).read_text() not in printed


async def test_a_pod_that_was_not_seen_yet_is_let_in_when_it_is(world: World) -> None:
    """A pod may be quicker than the watch that tells of it."""
    world.runs("pick-1")
    async with world.door():
        coming = asyncio.create_task(world.connect("pick-1", "quick"))
        await eventually(lambda: "quick" in world.vouched.values(), what="it connects")
        world.sees("pick-1", "quick")
        assert (await coming).is_connected


async def test_without_the_bridge_whoever_has_a_key_goes_on_and_a_pod_keeps_what_it_has_to_say(world: World) -> None:
    """Its events wait in its outbox, and are delivered on the same line when bridge and bus are back."""
    world.runs("pick-1")
    outbox = outbox_of(world.folder, AGENT)
    key = PodToken(world.token("pod-of-pick-1"), "pick-1")
    async with BusLink(world.server.url, key, outbox) as link:
        async with world.door():
            outbox.append([written("pick-1")])
            assert await link.deliver_now() == 1
        outbox.append([written("pick-1", 2)])
        assert await link.deliver_now() == 1, "a pod that is in stays in"
        await world.server.stop()
        await world.server.start()
        outbox.append([written("pick-1", 3)])
        collector = await world.server.connect(Part.COLLECTOR, PROJECT)
        assert (await stored(collector, "fb.arm-lab.upload.u1.started"))["seq"] == 3
        assert await link.drain(1) == 1
        async with world.door():
            assert await link.drain(WITHIN_S) == 0
    assert await last_seq(world.server) == 4


async def test_when_its_token_ends_a_pod_comes_back_with_the_newest(world: World) -> None:
    """The server ends the connection with the token; the next event goes over a new one, with what lies there then."""
    world.runs("pick-1")
    outbox = outbox_of(world.folder, AGENT)
    path = world.folder / "token"
    async with world.door(), BusLink(world.server.url, PodToken(path, "pick-1"), outbox) as link:
        client = await _admitted_for_a_moment(world, link, path)
        path.write_text("renewed")
        world.vouched = {"renewed": "pod-of-pick-1"}
        await eventually(lambda: client.closed, what="the server ends the connection")
        outbox.append([written("pick-1")])
        assert await link.drain(WITHIN_S) == 0
        world.sees("pick-1", "pod-of-pick-1", phase="Failed")
        async with BusLink(world.server.url, PodToken(path, "pick-1"), outbox) as another:
            with pytest.raises(NotAdmitted):
                await another.client()


async def _admitted_for_a_moment(world: World, link: BusLink, path: Path) -> Client:
    """Get in with a token that ends in seconds; with a longer one where the machine was too slow for the shortest."""
    for seconds in (2, 5, 15, 45):
        claims = urlsafe_b64encode(json.dumps({"exp": int(time.time()) + seconds}).encode()).decode().rstrip("=")
        path.write_text(f"e30.{claims}.c2ln")
        world.vouched = {path.read_text(): "pod-of-pick-1"}
        with suppress(NotAdmitted):
            return await link.client()
    raise AssertionError("nobody gets in within 45 s")


async def test_a_service_holds_a_pod_to_its_job(world: World) -> None:
    """The subject is what the server checked; a question about another job under it is refused with a reason."""
    world.runs("pick-1")
    token = PodToken(world.token("pod-of-pick-1"), "pick-1")
    async with world.door(), Client.connect(world.server.url, token, AGENT) as client:
        registry = await world.server.connect(Part.REGISTRY)
        await registry.subscribe("ask.registry.*.*.*", cb=_echo)
        await registry.flush()
        answer = await client.ask("registry", PROJECT, "resume-point", {"job": "pick-1"})
        assert answer.result == {"subject": "ask.registry.arm-lab.resume-point.pick-1"}


async def test_new_projects_need_a_restart_where_pods_are_let_in(world: World) -> None:
    """The server reads whom it asks about only at its start; that is said instead of tried."""
    world.server.bus.init(["cat-lab"], port=world.server.port)
    with pytest.raises(StartError, match="only when it starts"):
        await world.server.bus.reload(world.server.url, world.server.process_id(), ["cat-lab"])


async def _answer(message: Msg) -> None:
    with suppress(NatsError):
        await message.respond(b"yes")


async def _echo(message: Msg) -> None:
    await message.respond(
        json.dumps({"ok": True, "result": {"subject": message.subject}, "as_of_seq": 0, "lag": 0}).encode()
    )
