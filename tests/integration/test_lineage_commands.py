"""The commands about lineage as a person runs them: real nats-server, a running registry, real files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from forebay.cli.main import run
from forebay.contracts.codec import encode
from forebay.contracts.parts import Part
from forebay.contracts.v1.episodes import EpisodeWithdrawn
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.registry.app import definition, workers_of
from forebay.registry.settings import RegistrySettings
from forebay.runtime.app import run_service

from services.registry.tests.histories import (
    PROJECT,
    accepted,
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
    written,
)
from services.registry.tests.test_service_on_nats import say
from services.registry.tests.test_verify_checkpoint import event_for, lerobot, put
from tests.eventually import eventually
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus


class Person:
    """Runs commands in this process, as `forebay …` would, and reads what they print."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    async def __call__(self, *args: str, code: int = 0) -> str:
        self._capsys.readouterr()
        found = await asyncio.to_thread(run, args)
        said = self._capsys.readouterr()
        assert found == code, said.err + said.out
        return said.out if code == 0 else said.err + said.out

    async def json(self, *args: str) -> Any:
        return json.loads(await self(*args, "--json"))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with nats_server(tmp_path / "home", PROJECT) as running:
        yield running


@pytest.fixture
async def person(
    server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Person]:
    """A running registry over a short story, and somebody who asks."""
    home = tmp_path / "home"
    monkeypatch.setenv("FOREBAY_HOME", str(home))
    monkeypatch.setenv("FOREBAY_NATS_URL", server.url)
    monkeypatch.setenv("FOREBAY_PROJECT", PROJECT)
    settings = RegistrySettings(
        home=home, nats_url=server.url, nkey_file=server.key(definition().source), store=tmp_path / "state.sqlite"
    )
    task = asyncio.create_task(run_service(definition(), settings, workers_of(settings)))
    saves = home / "jobs" / PROJECT / "reach-1" / "output" / "checkpoints"
    ref = write_list(tmp_path / "episodes.json", [episode_id(0), episode_id(1)])
    await say(server, uploaded(0), uploaded(1), accepted(0), accepted(1), committed(1, ref, 2), tagged(1))
    await say(server, submitted(parameters={"lr": 0.1}), leased(), started(1))
    for step in (500, 1000):
        body = event_for(put(saves / f"{step:06d}", lerobot(step)), step)
        await say(server, body.model_copy(update={"checkpoint": f"ck-{step}"}))
    await say(server, ended(1), JobSucceeded(job="reach-1", attempt=1, attempts=1))
    asker = Person(home, capsys)

    async def ready() -> bool:
        with suppress(AssertionError):
            found = await asker.json("resume-point", "reach")
            return bool(found["complete"] and found["step"] == 1000)
        return False

    await eventually(ready, what="both saves are checked")
    yield asker
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_model_and_its_story(person: Person, server: NatsServer, tmp_path: Path) -> None:
    """Register, evaluate, gate, release, roll on; then ask back: diff, history, audit, search, lineage in every form."""
    info, gate = tmp_path / "eval_info.json", tmp_path / "gate.yaml"
    gate.write_text("rules:\n  - {metric: pc_success, at_least: -5, compared_with: production}\n", encoding="utf-8")
    for step, success in ((500, 80.0), (1000, 60.0)):
        await person("model", "register", "reach", "--job", "reach", "--checkpoint", str(step))
        info.write_text(json.dumps({"overall": {"pc_success": success, "eval_s": 9.0}}), encoding="utf-8")
        assert "pc_success" in await person("model", "evaluate", "reach", "--metrics", str(info))
    release = ("model", "release", "reach@v1", "--channel", "production", "--policy", str(gate), "--expect", "none")
    assert "✓ pc_success" in await person(*release)
    keep = ("model", "policy", "--channel", "production", "--set", str(gate), "--reason", "cups break")
    assert "pc_success >= production - 5" in await person(*keep)
    assert (await person.json("model", "policy"))["policies"][0]["reason"] == "cups break"
    worse = ("model", "release", "reach@v2", "--channel", "production")
    assert "75 is needed" in await person(*worse, code=1)
    then = (await person.json("history", "reach"))["as_of_seq"]
    await person(*worse, "--force", "a new arm")
    history = await person("history", "reach")
    assert "a new arm" in history
    assert (await person.json("history", "reach", "--as-of", str(then)))["channels"] == {"production": 1}

    whole = await person.json("audit", "reach@v2", "--contents")
    assert (whole["unread_bytes"], [one for one in whole["findings"] if one["code"] == "MODEL_BROKEN"]) == (0, [])

    found = await person.json("lineage", "reach@production", "--as-of", str(then))
    assert (found["tree"]["fields"]["number"], found["complete"]) == (1, True)
    assert found["as_of_seq"] > then
    assert "as the log was at message" in await person("lineage", "reach@v1", "--as-of", str(then))
    assert "true as of message" in await person("lineage", "reach@v1", "--depth", "2")
    assert "written-by" in await person("lineage", "reach", "--table")
    assert "flowchart" in await person("impact", episode_id(0), "--mermaid")
    picture = tmp_path / "reach.svg"
    assert "drew" in await person("lineage", "reach", "--svg", str(picture))
    assert picture.read_text(encoding="utf-8").startswith("<svg")

    assert "pc_success" in await person("diff", "reach@v1", "reach@v2")
    assert "reach@v1" in await person("search", "--task", "reach", "--metric", "pc_success>70")
    await say(server, EpisodeWithdrawn(episode=episode_id(1), dataset="pick", reason="consent", by="owner"))

    async def named() -> bool:
        audit = await person.json("audit")
        assert not {one["code"] for one in audit["findings"] if one["settled"]}
        return "USES_TOMBSTONED_EPISODE" in {one["code"] for one in audit["findings"]}

    await eventually(named, what="the withdrawn episode is named in the audit")
    assert "withdrawn" in await person("audit", "reach@production", "--strict", code=1)


async def test_a_message_of_tomorrow(person: Person, server: NatsServer) -> None:
    """A version of an event that this registry cannot read is parked, and the audit names it until it is retried."""
    message = encode(event(written(9000)))
    headers = message.headers | {"ce-type": "dev.forebay.CheckpointWritten.v9"}
    agent = await server.connect(Part.AGENT, PROJECT)
    await agent.jetstream().publish(message.subject, message.body, headers=dict(headers))

    async def named() -> Any:
        return [one for one in (await person.json("audit"))["findings"] if one["code"] == "UNKNOWN_SCHEMA"]

    (found,) = await eventually(named, what="the audit names the message")
    assert "forebay dead retry" in found["message"]


async def test_old_checkpoints(person: Person, tmp_path: Path) -> None:
    """A dry run publishes nothing; an import is copied, checked, and shown for what it is."""
    before = (await person.json("resume-point", "reach"))["as_of_seq"]
    assert "resumed from step 1000" in await person("resume-point", "reach")
    refused = await person(
        "resume-point", "reach", "--checkpoint", "1000", "--dataset", "pick@v9", "--steps", "9", code=1
    )
    assert "nothing to do" in refused
    assert (await person.json("resume-point", "reach"))["as_of_seq"] == before

    old = put(tmp_path / "old" / "checkpoints" / "000700", lerobot(700)).parent
    put(old / "000800", {**lerobot(800), ".incomplete": b""})
    (old / "last").symlink_to(old / "000700")
    done = await person.json("checkpoint", "import", str(old.parent), "--name", "old-act")
    (one,) = done["imported"]
    assert {Path(skip["folder"]).name for skip in done["skipped"]} == {"000800", "last"}
    put(old / "000700", {"pretrained_model/model.safetensors": b"overwritten later"})

    async def checked() -> Any:
        answer = await person.json("lineage", one["checkpoint"])
        return answer if answer["tree"]["state"] == "complete" else None

    found = await eventually(checked, what="the imported save is checked")
    assert found["tree"]["fields"]["imported"] == "warm-start"
    assert not found["complete"]
    good = put(tmp_path / "000900", lerobot(900))
    resume = ("checkpoint", "import", str(good), "--as", "resume")
    assert "--reason" in await person(*resume, "--job", "reach-1", code=2)
    why = ("--reason", "moved here by hand")
    assert "nobody-1" in await person(*resume, "--job", "nobody-1", *why, code=1)
    assert not list((person.home / "imports" / PROJECT / "nobody-1").iterdir())
    assert "imported as resume" in await person(*resume, "--job", "reach-1", *why)
