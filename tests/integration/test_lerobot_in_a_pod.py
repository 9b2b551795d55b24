"""`lerobot-train` as it is, killed in the middle of a save: the next pod resumes the way LeRobot resumes.

Real nats-server, a running registry, our two containers and the shim as processes, and a
script that behaves like lerobot-train.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.models import CheckpointWritten
from forebay.registry.app import definition
from forebay.registry.domain.decide import VERIFY
from forebay.registry.settings import RegistrySettings
from forebay.registry.workers.verify_checkpoint import CheckpointVerifier
from forebay.runtime.app import run_service
from forebay.runtime.client import Client

from services.registry.tests.histories import PROJECT, admitted, ended, started, submitted
from services.registry.tests.test_service_on_nats import say
from tests.eventually import WITHIN_S
from tests.servers.nats import NatsServer, nats_server
from tests.servers.pods import LEROBOT, Pod

pytestmark = pytest.mark.real_bus
AGENT = Source(Part.AGENT, PROJECT)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A bus, and a registry that reads along."""
    async with nats_server(tmp_path / "home", PROJECT) as running:
        settings = RegistrySettings(
            home=tmp_path / "home",
            nats_url=running.url,
            nkey_file=running.key(definition().source),
            store=tmp_path / "state.sqlite",
        )
        workers = {VERIFY: CheckpointVerifier(settings.roots())}
        task = asyncio.create_task(run_service(definition(), settings, workers))
        yield running
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def pod(server: NatsServer, folder: Path, number: int) -> Pod:
    """The n-th pod of the job; its output is the claim that all of them share."""
    output = server.home.root / "jobs" / PROJECT / "reach-1" / "output"
    return Pod(
        root=folder / f"pod-{number}",
        output=output,
        uid=f"uid-{number}",
        url=server.url,
        nkey_file=server.key(AGENT),
        trainer="lerobot",
        checkpoints=output / "train" / "checkpoints",
        told={"output_dir": str(output / "train"), "resources": {"cpu": 1, "memory_bytes": 1024}},
        variables={"FOREBAY_FAILURES": str(number - 1), "FOREBAY_BUS_DEADLINE_S": str(WITHIN_S)},
    )


async def steps(server: NatsServer) -> list[tuple[int, int]]:
    """(attempt, step) of every checkpoint on record."""
    source = Source(Part.OPERATOR)
    async with Client.connect(server.url, server.key(source), source) as client:
        events = [message.decode().body async for batch in client.batches() for message in batch]
    return [(body.attempt, body.step) for body in events if isinstance(body, CheckpointWritten)]


async def test_the_second_attempt_resumes_where_last_points(server: NatsServer, tmp_path: Path) -> None:
    """Killed while a save is written whose files are all there: `last` did not move, so it counts for nothing."""
    await say(server, submitted(), admitted(1), started(1))
    first = pod(server, tmp_path, 1)
    assert await first.prepare() == 0, first.printed
    command = (str(LEROBOT), f"--output_dir={first.output}/train", "--steps=60", "--save_freq=20", "--policy.path=x")
    watch = await first.watch()
    code, out = await first.train(*command, lerobot_words=1, DIE_AT="50")
    assert (code, out.splitlines()[0]) == (137, "training from step 0 to 60")
    assert await first.end(watch) == 0
    assert await steps(server) == [(1, 20), (1, 40)]

    await say(server, ended(1, code=137), admitted(2), started(2))
    second = pod(server, tmp_path, 2)
    assert await second.prepare() == 0, second.printed
    assert second.report()["attempt"] == 2
    watch = await second.watch()
    code, out = await second.train(*command, lerobot_words=1, DIE_AT="50")
    assert (code, out) == (0, "training from step 40 to 60\nended at step 60\n")
    assert await second.end(watch) == 0
    assert await steps(server) == [(1, 20), (1, 40), (2, 60)]
    assert (second.output / "train" / "checkpoints" / "000050.incomplete").is_dir()


async def test_saves_of_a_pod_that_was_lost_are_announced_by_the_next(server: NatsServer, tmp_path: Path) -> None:
    """Nobody watched the first attempt to its end; its finished saves count all the same."""
    await say(server, submitted(), admitted(1), started(1))
    first = pod(server, tmp_path, 1)
    assert await first.prepare() == 0, first.printed
    command = (str(LEROBOT), f"--output_dir={first.output}/train", "--steps=60", "--save_freq=20")
    await first.train(*command, lerobot_words=1, DIE_AT="30")
    await say(server, ended(1, code=137), admitted(2), started(2))
    second = pod(server, tmp_path, 2)
    assert await second.prepare() == 0, second.printed
    code, out = await second.train(*command, lerobot_words=1)
    assert (code, out) == (0, "training from step 20 to 60\nended at step 60\n")
    assert (1, 20) in await steps(server)


async def test_without_a_save_a_second_attempt_begins_anew_unless_that_is_forbidden(
    server: NatsServer, tmp_path: Path
) -> None:
    """Nothing was saved, so nothing is lost: what LeRobot would stumble over is set aside. Forbidden: exit code 204."""
    await say(server, submitted(), admitted(1), started(1))
    first = pod(server, tmp_path, 1)
    assert await first.prepare() == 0, first.printed
    command = (str(LEROBOT), f"--output_dir={first.output}/train", "--steps=60", "--save_freq=20")
    await first.train(*command, lerobot_words=1, DIE_AT="10")
    await say(server, ended(1, code=137), admitted(2), started(2))
    second = pod(server, tmp_path, 2)
    second.told = {**second.told, "forbid_cold_start": True}
    assert await second.prepare() == 204, second.printed
    assert second.failed() == {"resume": "ResumeRefused"}
    third = pod(server, tmp_path, 3)
    await say(server, ended(2, code=204), admitted(3), started(3))
    assert await third.prepare() == 0, third.printed
    code, out = await third.train(*command, lerobot_words=1)
    assert (code, out) == (0, "training from step 0 to 60\nended at step 60\n")
    assert (first.output / "train.before-attempt-3" / "checkpoints").is_dir()
