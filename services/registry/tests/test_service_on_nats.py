"""The registry as a process would run it: real nats-server, real files, restart, equal digests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from forebay.contracts.body import EventBody
from forebay.contracts.catalogue import spec_of
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.registry.app import VERIFIERS, definition, workers_of
from forebay.registry.domain.decide import VERIFY
from forebay.registry.settings import RegistrySettings
from forebay.runtime.app import run_service
from forebay.runtime.client import Answer, Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.rebuild import rebuild

from services.registry.tests.histories import (
    PROJECT,
    accepted,
    admitted,
    committed,
    ended,
    episode_id,
    event,
    leased,
    started,
    submitted,
    tagged,
    uploaded,
    write_list,
)
from services.registry.tests.test_verify_checkpoint import event_for, own, put
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus
OPERATOR = Source(Part.OPERATOR)
NOT_YET = frozenset({"catching-up", "verification-pending", "unknown-checkpoint", "unknown-id"})
"""What the registry may say before it has folded what was just published."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "home", PROJECT) as running:
        yield running


@asynccontextmanager
async def registry(server: NatsServer, folder: Path) -> AsyncIterator[None]:
    service = definition()
    settings = RegistrySettings(
        home=folder, nats_url=server.url, nkey_file=server.key(service.source), store=folder / "state.sqlite"
    )
    task = asyncio.create_task(run_service(service, settings, workers_of(settings), slots={VERIFY: VERIFIERS}))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def say(server: NatsServer, *bodies: EventBody) -> None:
    """Publish each body as its owner."""
    for body in bodies:
        part = spec_of(body).owners[0]
        source = Source(part, PROJECT if part in PROJECT_PARTS else None)
        async with Client.connect(server.url, server.key(source), source) as client:
            await client.publish(event(body))


async def ask(client: Client, question: str, **args: object) -> Answer:
    """Ask until the registry answers at all."""

    async def answered() -> Answer | None:
        try:
            return await client.ask("registry", PROJECT, question, args)
        except Unreachable:
            return None
        except Refused as refused:
            if refused.code in NOT_YET:
                return None
            raise

    found = await eventually(answered, what=f"the registry answers {question}")
    assert isinstance(found, Answer)
    return found


async def test_from_checkpoint_to_release(server: NatsServer, tmp_path: Path) -> None:
    """Files are verified, the second attempt resumes, a model is registered, released and traced; a restart changes nothing."""
    home = tmp_path / "place"
    saves = home / "jobs" / PROJECT / "reach-1" / "output" / "checkpoints"
    good = event_for(put(saves / "000500", own(500)), 500)
    broken = event_for(put(saves / "001000", own(1000) | {"model.safetensors": b""}), 1000)
    broken = broken.model_copy(update={"checkpoint": "ck-2"})
    ref = write_list(tmp_path / "episodes.json", [episode_id(0), episode_id(1)])
    async with Client.connect(server.url, server.key(OPERATOR), OPERATOR, retry=True) as operator:
        async with registry(server, home):
            await say(server, uploaded(0), uploaded(1), accepted(0), accepted(1), committed(1, ref, 2), tagged(1))
            await say(server, submitted(), leased(), started(1), good, broken, ended(1, code=1), admitted(2))
            agent = Source(Part.AGENT, PROJECT)
            async with Client.connect(server.url, server.key(agent), agent) as client:
                point = await ask(client, "resume-point", job="reach-1", attempt=2)
            assert (point.result["mode"], point.result["step"]) == ("resume", 500)
            assert "empty file" in point.result["skipped"][0]["reason"]
            await say(server, started(2), ended(2), JobSucceeded(job="reach-1", attempt=2, attempts=2))
            model = await ask(operator, "model-register", model="reach", job="reach-1")
            assert model.result["checkpoint"] == good.checkpoint
            await ask(operator, "model-evaluate", model="reach", metrics={"success": 0.9}, source="eval.json")

            async def kept() -> bool:
                return bool((await ask(operator, "model-files", model="reach")).result["kept"])

            await eventually(kept, what="the files are kept")
            waiting = await ask(operator, "model-release", model="reach", channel="production")
            assert waiting.result["pending"]
            for path in (saves / "000500").iterdir():
                path.unlink()  # it has been kept, so nobody needs it there

            async def moved() -> bool:
                args = {"model": "reach", "channel": "production", "check": waiting.result["check"]}
                return "pending" not in (await operator.ask("registry", PROJECT, "model-release", args)).result

            await eventually(moved, what="the files are read, and the channel moves")
            impact = await ask(operator, "impact", id=episode_id(1))
            assert impact.result["live"] == [{"model": "reach", "channel": "production", "number": 1}]
            before = await ask(operator, "digest")
        async with registry(server, home):
            lineage = await ask(operator, "lineage", id="reach@production")
            assert lineage.result["complete"] is True
            after = await ask(operator, "digest")
        assert after.result == before.result
        shadow = await rebuild(definition(), operator.batches(), tmp_path / "shadow.sqlite")
        assert shadow.digest == before.result["digest"]


async def test_commands_at_once(server: NatsServer, tmp_path: Path) -> None:
    """Registrations that meet get different numbers; of two releases that meet one waits and then wins or repeats."""
    home = tmp_path / "place"
    saves = home / "jobs" / PROJECT / "reach-1" / "output" / "checkpoints"
    found = [event_for(put(saves / f"{step:06d}", own(step)), step) for step in (100, 200, 300)]
    found = [one.model_copy(update={"checkpoint": f"ck-{number}"}) for number, one in enumerate(found)]
    async with (
        Client.connect(server.url, server.key(OPERATOR), OPERATOR, retry=True) as operator,
        registry(server, home),
    ):
        await say(server, submitted(), leased(), started(1), *found)
        registering = [
            ask(operator, "model-register", model="reach", job="reach-1", checkpoint=one.checkpoint) for one in found
        ]
        numbers = sorted(answer.result["number"] for answer in await asyncio.gather(*registering))
        assert numbers == [1, 2, 3]

        async def release(number: int) -> str:
            args = {"model": "reach", "number": number, "channel": "canary", "forced_reason": "test", "previous": None}
            args["check"] = f"mc-{number}"

            async def answered() -> str | None:
                try:
                    answer = await operator.ask("registry", PROJECT, "model-release", args)
                except Refused as refused:
                    return refused.code
                return None if answer.result.get("pending") else "moved"

            return str(await eventually(answered, what="the release is decided"))

        outcomes = await asyncio.gather(*(release(number) for number in numbers))
        assert outcomes.count("moved") == 1
        assert set(outcomes) <= {"moved", "not-stored-yet", "moved-meanwhile"}
        models = (await ask(operator, "models")).result["models"]
        assert models[0]["channels"]["canary"] in numbers
