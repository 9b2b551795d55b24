"""Every command over a real bus whose services answer with hostile text in every field that may hold any."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from forebay.cli.main import run
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.episodes import EpisodeUploaded, RowWindow
from forebay.runtime.escaping import visible
from nats.aio.msg import Msg

from tests.security.hostile_text import SOME, STYLE, raw
from tests.servers.nats import NatsServer, nats_server

pytestmark = pytest.mark.real_bus

PROJECT = "arm-lab"
X, AT = "§", "2026-11-30T12:00:00+00:00"
"""Where text from outside stands, and a time."""
SERVICES = {
    "ingest": Part.INGEST,
    "cache": Part.CACHE,
    "scheduler-bridge": Part.BRIDGE,
    "registry": Part.REGISTRY,
}
WHOLE = {"complete": False, "missing": [{"id": X, "reason": X}], "contradictions": [{"message": X}], "as_of": None}
NODE = {"id": X, "kind": X, "title": X, "state": X, "contested": [X], "via": {"relation": X, "event": X}}
TREE = {"id": X, "tree": NODE | {"parents": [NODE], "children": [NODE]}, "counts": {"job": 1}, **WHOLE}
ATTEMPT = {
    "attempt": 1, "state": X, "process": {"process": X, "host": X, "recovers": 1}, "training": {"mode": X, "step": 3},
    "ending": {"message": X},
}  # fmt: skip
PLAN = {
    "id": X, "name": X, "number": 1, "columns": [X], "state": X, "verified_bytes": 1, "total_bytes": 1, "jobs": [X],
    "wishes": [X], "since": AT, "used_at": AT, "ttl_left_s": 5, "whole_bytes": 1, "files": 1, "aligned_bytes": 1,
    "origin_bytes": 1, "reused_bytes": 1, "episodes": None, "place": X, "root": X, "proof": X, "ranges_uri": X,
    "freed_bytes": 1, "message": X, "plan": X,
}  # fmt: skip
ROOM = {
    "budget_bytes": None, "held_bytes": 1, "leased_bytes": 1, "evictable_bytes": 1, "project_budget_bytes": None,
    "project_held_bytes": 1, "pool": None, "warnings": [X],
}  # fmt: skip
VERSION = {
    "number": 1, "episodes": 1, "frames": 1, "bytes": 1, "removed": False, "withdrawn": [], "broken": X, "accepted": True,
    "checked_at": AT, "carried": [X], "notes": [X], "withheld": X,
    "access_plan": X, "manifest_sha256": X, "root": "/nowhere", "checked": "c", "places": {}, "placing": "p",
    "placing_problem": X, "dataset": X,
}  # fmt: skip
DATASET = {
    "dataset": X, "tags": {X: 1}, "versions": [VERSION], "latest": 1, "episodes": 1, "frames": 1, "bytes": 1,
    "broken": "", "checked_at": AT, "tagged": [{"tag": X, "number": 1, "by": X, "at": AT, "reason": X}],
    "uploads": [{"upload": X, "state": X, "accepted": 1, "held": 0, "rejected": 0, "expected": 1, "source": X}],
    "registrations": [{"registration": X, "state": X, "uri": X, "version": None, "message": X}],
}  # fmt: skip
EPISODE = {"episode": X, "upload": X, "source_index": 1, "state": X, "rules": [X], "message": X}
CONDITION = {"type": X, "status": X, "reason": X, "message": X, "since": AT}
SAVE = {"step": 1, "checkpoint": X, "attempt": 1, "status": X, "imported": False}
DERIVED = {
    "dataset": X, "base": 1, "version": 2, "kept": 1, "left_out": 0, "frames": 1, "derivation": X, "state": "FAILED",
    "message": X, "root": "/nowhere",
}  # fmt: skip
ANSWERS: dict[str, dict[str, Any]] = {
    "scheduler-bridge.submit": {"job": X, "warnings": [X]},
    "scheduler-bridge.retry": {"job": X, "starts": X, "warnings": [X]},
    "scheduler-bridge.jobs": {
        "jobs": [{"job": X, "state": X, "queued_for": X, "attempts": 1, "submitted_at": AT, "message": X}], "next": None,
    },
    "scheduler-bridge.job": {
        "job": X, "state": X, "submitted_by": X, "inputs": [{"logical": X, "number": 1}], "attempt_list": [ATTEMPT],
        "history": [{"at": AT, "event": X, "message": X}], "next": None,
    },
    "scheduler-bridge.why": {
        "state": X, "sentence": X, "conditions": [CONDITION], "attempts": [ATTEMPT], "waited_seconds": {X: 5.0},
        "unseen": [{"object": X, "message": X}],
    },
    "scheduler-bridge.cancel": {"job": X},
    "registry.lineage": TREE,
    "registry.impact": TREE | {"live": [{"model": X, "channel": X, "number": 1}]},
    "registry.audit": {
        "findings": [{"code": X, "message": X, "events": [X], "settled": settled} for settled in (True, False)],
        "after": None, "checked": 1, **WHOLE,
    },
    "registry.diff": {
        "a": f"model:{X}", "b": f"model:{X}", "differences": [{"group": X, "what": X, "a": X, "b": {"k": 1}}], "same": [X],
        "unknown": [X], **WHOLE,
    },
    "registry.history": {
        "moves": [
            {"evaluation": X, "action": X, "reason": X, "previous": None, "at": AT, "channel": X, "number": 1, "by": X, "until": None}
        ],
        "after": None, "channels": {X: 1}, **WHOLE,
    },
    "registry.search": {
        "models": [
            {"model": X, "number": 1, "metrics": {X: 0.5}, "datasets": [f"dataset:{X}"], "job": X, "step": 1, "channels": [X]}
        ],
        "datasets": [{"dataset": X, "latest": 1, "tasks": [X], "robots": [X]}], "after": None, **WHOLE,
    },
    "registry.model-register": {"model": X, "number": 1, "already": False, "step": 1, "job": X, "artefact_sha256": X},
    "registry.model-files": {
        "model": X, "number": 1, "kept": False, "store": X, "problem": X, "artefact_sha256": X,
        "files": [{"path": X, "sha256": X, "bytes": 1}],
    },
    "registry.model-evaluate": {"model": X, "number": 1, "metrics": {X: 0.5}},
    "registry.model-release": {"number": 1, "gate": [{"passed": True, "metric": X, "rule": X, "message": X}]},
    "registry.checkpoint-delete": {
        "job": X, "checkpoints": [{"checkpoint": X, "step": 1, "uri": X}], "bytes": 1, "already": False,
    },
    "registry.job-delete": {"job": X, "checkpoints": [{"checkpoint": X, "step": 1, "uri": X}], "bytes": 1, "already": True},
    "registry.policies": {
        "policies": [{"model": X, "channel": X, "rules": [{"metric": X, "words": X}], "by": X, "reason": X}], "after": None,
    },
    "registry.models": {"models": [{"model": X, "latest": 1, "job": X, "step": 1, "channels": {X: 1}}], "after": None},
    "registry.resume-preview": {
        "mode": X, "step": 1, "checkpoint": X, "attempt": 1, "job": X, "reasons": [X],
        "skipped": [{"checkpoint": X, "reason": X}], "saves": [SAVE], "attempts": [], **WHOLE,
    },
    "ingest.datasets": {"datasets": [DATASET], "next": None},
    "ingest.dataset": DATASET,
    "ingest.episodes": {"episodes": [EPISODE], "next": None},
    "ingest.members": {
        "dataset": X, "number": 1, "registered": False, "total": 1, "next": None,
        "episodes": [{"name": X, "episode": X, "length": 3, "state": X, "upload": X, "source_index": 1, "tasks": [X]}],
    },
    "ingest.check": {"dataset": X, "number": 1, "check": "c"},
    "ingest.checked": {"check": "c", "whole": False, "message": X},
    "ingest.waivers": {
        "dataset": X,
        "waivers": [
            {
                "number": 1, "rule": X, "episodes": [X], "by": X, "at": AT, "holds": False, "reason": X,
                "revoked": X, "revoked_by": X, "revoked_at": AT,
            }
        ],
    },
    "ingest.revoke-waiver": {"number": 1, "dataset": X, "rule": X, "let_in": [X]},
    "ingest.place": {"dataset": X, "number": 1, "root": X, "placing": "p"},
    "ingest.waive": {
        "rule": X, "dataset": X, "by": X, "episodes": [], "accepted": [X], "still_held": [X],
    },
    "ingest.withdraw": {
        "episode": X, "name": X, "by": X, "dataset": X, "changed": False, "reason": X, "versions": [1], "waiting_jobs": [X], "leased_jobs": [X],
    },
    "ingest.register": {"registration": X, "joined": False},
    "ingest.registration": {
        "registration": X, "dataset": X, "uri": X, "state": "FAILED", "version": None, "message": X,
        "findings": [{"rule": X, "severity": X, "message": X}],
    },
    "ingest.compact": DERIVED,
    "ingest.derivation": DERIVED,
    "ingest.cleanup": {
        "dataset": X, "removed": [], "kept": [{"number": 1, "because": [X]}],
    },
    "ingest.diff": {
        "a": VERSION, "b": VERSION, "tasks": [{X: 1}, {X: 1}], "kept": 1, "tasks_in": [X], "tasks_out": [X],
        "episodes_in": [{"episode": X, "length": 1, "withdrawn": False}], "episodes_in_total": 1, "episodes_out": [],
        "episodes_out_total": 0,
    },
    "cache.list": {"plans": [PLAN], "next": None, "room": ROOM, "open_requests": []},
    "cache.health": {"warnings": [X]},
    "cache.plan": PLAN | {"state": "evicted"},
    "cache.nodes": {"nodes": {X: {"state": X, "verified_bytes": 1, "message": X}}},
    "cache.why": {"name": X, "number": 1, "columns": [X], "id": X, "sentences": [X]},
    "cache.evict": {"evicting": [{"plan": "p"}], "kept": 0},
    "cache.policy": {
        "policy": {"budget_bytes": None, "ttl_days": None, "warm": [{"on": "tag", "tag": X, "columns": [X], "datasets": [X]}]},
        "uses": 3, "ttl_days": 8,
    },
    "cache.warm": {"name": X, "number": 1, "joined": False, "request": X},
}  # fmt: skip
COMMANDS = [
    "jobs", "job j", "why j", "cancel j", "retry j", "dataset tag d t v1", "rules waivers --dataset d", "dataset episodes d@v1",
    "rules revoke 1 --dataset d --reason r", "lineage m", "lineage m --table", "lineage m --mermaid", "impact e",
    "audit m", "diff a b", "history m", "search --task t", "model register m --job j", "model evaluate m --metric a=1",
    "model release m@v1 --channel production", "model policy", "model list", "model fetch m@v1 /nowhere/out",
    "delete j --reason r", "checkpoint delete c --reason r", "resume-point j", "dataset list",
    "dataset show d", "dataset check d@v1", "dataset place d@v1 s3://b/p", "rules waive LR-X-001 --dataset d --reason r",
    "episode withdraw e --reason r", "dataset register s3://b/p", "dataset compact d@v1 --reason r",
    "dataset cleanup d --dry-run", "dataset diff d@v1 d@v2", "cache list", "cache show p", "cache why p",
    "cache evict p", "cache policy", "warm d@v1",
]  # fmt: skip


def filled(value: Any, text: str) -> Any:
    """An answer with text in its places."""
    if isinstance(value, str):
        return value.replace(X, text)
    if isinstance(value, dict):
        return {filled(key, text): filled(one, text) for key, one in value.items()}
    return [filled(one, text) for one in value] if isinstance(value, list) else value


class Liar:
    """Four services that answer every question with text of an attacker's choice."""

    def __init__(self) -> None:
        self.text = "word"
        self.refuses = False
        self.unknown: set[str] = set()

    async def answer(self, message: Msg) -> None:
        _, service, _, question = message.subject.split(".")[:4]
        name = f"{service}.{question}"
        if self.refuses:
            error = {"code": self.text, "message": self.text, "next_action": self.text}
            await message.respond(json.dumps({"ok": False, "error": error}).encode())
            return
        if name not in ANSWERS:
            self.unknown.add(name)
        result = filled(ANSWERS.get(name, {}), self.text)
        await message.respond(json.dumps({"ok": True, "result": result, "as_of_seq": 1, "lag": 0}).encode())


class Person:
    """Runs commands in this process and reads what they print."""

    def __init__(self, liar: Liar, capsys: pytest.CaptureFixture[str]) -> None:
        self.liar = liar
        self._capsys = capsys

    async def __call__(self, *args: str, text: str) -> str:
        self.liar.text = text
        self._capsys.readouterr()
        assert await asyncio.to_thread(run, args) in {0, 1}
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        assert "this is a defect" not in said.err, said.err
        return said.out + said.err


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsServer]:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FOREBAY_PROJECT", PROJECT)
    monkeypatch.setenv("COLUMNS", "4000")
    async with nats_server(tmp_path / "home", PROJECT) as running:
        monkeypatch.setenv("FOREBAY_NATS_URL", running.url)
        yield running


@pytest.fixture
async def person(server: NatsServer, capsys: pytest.CaptureFixture[str]) -> Person:
    liar = Liar()
    for service, part in SERVICES.items():
        client = await server.connect(part)
        await client.subscribe(f"ask.{service}.*.>", cb=liar.answer)
        await client.flush()
    return Person(liar, capsys)


async def test_no_command_shows_raw_text(person: Person) -> None:
    """As many lines as with a harmless word, each mention of it shown whole, nothing that a terminal obeys."""
    problems = []
    for command in COMMANDS:
        calm = await person(*command.split(), text="word")
        assert "word" in calm, (command, calm)
        for hostile in SOME:
            shown = await person(*command.split(), text=hostile)
            if raw(shown):
                problems.append(f"{command}: {raw(shown)!r} of {hostile!r}")
            if shown.count("\n") != calm.count("\n"):
                problems.append(f"{command}: forged lines with {hostile!r}: {shown}")
            if "--mermaid" not in command and shown.count(visible(hostile)) != calm.count("word"):
                problems.append(f"{command}: {hostile!r} is not shown whole: {shown}")
    assert problems == [], "\n".join(problems)
    assert person.liar.unknown == set()


async def test_json_of_every_command_reads_back(person: Person) -> None:
    """`--json` holds exactly what was answered, and can be printed."""
    for command in COMMANDS:
        if "--" in command and "--task" not in command:
            continue
        for hostile in SOME:
            shown = await person(*command.split(), "--json", text=hostile)
            assert raw(shown) == set()
            assert any(hostile in text for text in _strings(json.loads(shown)))


async def test_colours_of_a_terminal_are_ours(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal there are escape sequences, and all of them set one of our styles."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = 0
    for command in COMMANDS:
        shown = await person(*command.split(), text=SOME[0])
        coloured += "\x1b[" in shown
        assert raw(STYLE.sub("", shown)) == set(), command
    assert coloured > len(COMMANDS) / 2


async def test_a_refusal_is_two_lines(person: Person) -> None:
    """What a service refuses with is its word, and may quote anybody."""
    person.liar.refuses = True
    for hostile in SOME:
        shown = await person("jobs", text=hostile)
        assert raw(shown) == set()
        assert shown == f"✗ {visible(hostile)}\n  next: {visible(hostile)}\n"
        assert json.loads(await person("jobs", "--json", text=hostile))["error"]["message"] == hostile


async def test_pictures_of_hostile_lineage_are_written(person: Person, tmp_path: Path) -> None:
    """SVG and the page of `dataset diff` are files that somebody else opens."""
    picture, page = tmp_path / "a.svg", tmp_path / "a.html"
    for hostile in SOME:
        await person("lineage", "m", "--svg", str(picture), text=hostile)
        await person("dataset", "diff", "d@v1", "d@v2", "--html", str(page), text=hostile)
        for file in (picture, page):
            written = file.read_text(encoding="utf-8")
            assert raw(written) == set()
            assert "<b>|" not in written


async def test_events_are_watched_safely(server: NatsServer, person: Person) -> None:
    """One line for each event, whatever its collector wrote."""
    client = await server.connect(Part.COLLECTOR, PROJECT)
    for number, hostile in enumerate(one for one in SOME if "\ud800" not in one):
        body = EpisodeUploaded(
            episode=f"ep-{number}", upload="up-1", dataset="reach", source_index=number, length=1, tasks=(hostile,),
            rows=RowWindow(file=hostile, start=0, stop=1), robot=hostile,
        )  # fmt: skip
        event = Event(id=f"e{number}", source=Source(Part.COLLECTOR, PROJECT), project=PROJECT, body=body)
        wire = encode(event)
        await client.jetstream().publish(wire.subject, wire.body, headers=dict(wire.headers))
    shown = await person("watch", "--all", "--for", "1", text="word")
    assert raw(shown) == set()
    assert shown.count("EpisodeUploaded") == shown.count("\n") == number + 1


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in _strings(one)]
    return [text for one in value for text in _strings(one)] if isinstance(value, list) else []
