"""What the sdk's tests stand on: a recorded dataset, attempts with real processes, a publisher that can fail."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.v1.datasets import MANIFEST_FILE
from forebay.runtime.errors import Unreachable

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"
NOBODY = "nats://127.0.0.1:9"
"""A port where no bus answers."""


def record(folder: Path, *, episodes: int = 4, seed: int = 7, broken: int = 1, frame: int = 12) -> Path:
    """Record a small dataset with the example's own script."""
    command = [sys.executable, str(EXAMPLES / "record_arm.py"), str(folder), "--seconds", "1"]
    command += ["--episodes", str(episodes), "--seed", str(seed), "--broken", str(broken), "--broken-frame", str(frame)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@dataclass(slots=True)
class KeptPublisher:
    """The publisher port without a bus: keeps what it is given, and can be down."""

    down: bool = False
    fail_after: int | None = None
    stored: list[Event[EventBody]] = field(default_factory=list)

    async def publish_many(self, events: Sequence[Event[EventBody]]) -> list[int]:
        await asyncio.sleep(0)
        for event in events:
            if self.down or (self.fail_after is not None and len(self.stored) >= self.fail_after):
                raise Unreachable("no bus answers")
            self.stored.append(event)
        return list(range(1, len(events) + 1))

    def names(self) -> list[str]:
        return [event.body.event for event in self.stored]


def pinned(root: Path, *, name: str = "reach", number: int = 1, **more: Any) -> dict[str, Any]:
    """A pinned input as inputs.json holds it; writes the manifest that a version's root has."""
    entries = [
        {"path": path.relative_to(root).as_posix(), "sha256": "0" * 64, "bytes": path.stat().st_size}
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != MANIFEST_FILE
    ]
    content = canonical_json({"files": entries})
    (root / MANIFEST_FILE).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return {
        "kind": "dataset", "logical": f"dataset:{name}@train-ready", "name": name, "number": number,
        "root": root.as_uri(), "access_plan": "A", "manifest_sha256": digest, **more,
    }  # fmt: skip


@dataclass(slots=True)
class Attempt:
    """One attempt as the scheduler prepares it, with the agent as a real process."""

    home: Path
    number: int = 1
    inputs: Sequence[Mapping[str, Any]] = ()
    resources: Mapping[str, Any] = field(default_factory=lambda: {"cpu": 1, "memory_bytes": 1024, "gpus": 0})
    url: str = NOBODY
    nkey_file: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.home / "jobs" / "lab" / "reach-1" / f"attempt-{self.number}"

    @property
    def output(self) -> Path:
        return self.home / "jobs" / "lab" / "reach-1" / "output"

    def environment(self) -> dict[str, str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)
        inputs = {"inputs": list(self.inputs), "resources": dict(self.resources), "allow_cold_start": True}
        (self.folder / "inputs.json").write_text(json.dumps(inputs))
        ours = {
            "FOREBAY_HOME": self.home, "FOREBAY_PROJECT": "lab", "FOREBAY_JOB": "reach-1",
            "FOREBAY_ATTEMPT": self.number, "FOREBAY_ATTEMPT_DIR": self.folder, "FOREBAY_OUTPUT": self.output,
            "FOREBAY_INPUTS": self.folder / "inputs.json", "FOREBAY_NATS_URL": self.url,
            "FOREBAY_BUS_DEADLINE_S": "0.4",
        }  # fmt: skip
        if self.nkey_file is not None:
            ours["FOREBAY_NKEY_FILE"] = self.nkey_file
        path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        return path | {name: str(value) for name, value in ours.items()} | dict(self.settings)

    async def start(self, *command: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "forebay.cli", "run", "--", *command,
            env=self.environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=self.output,
        )  # fmt: skip

    async def run(self, *command: str) -> tuple[int, str]:
        process = await self.start(*command)
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    def exit(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "exit.json").read_text())
        return found

    def process(self) -> dict[str, Any]:
        path = self.folder / "process.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def waiting_events(self) -> list[dict[str, Any]]:
        """What lies in the agent's outbox, in order."""
        segments = sorted((self.home / "outbox" / "agent.lab").glob("*.jsonl"))
        return [json.loads(line) for path in segments for line in path.read_text().splitlines()]


def python(code: str) -> tuple[str, ...]:
    """A training command that runs `code`."""
    return (sys.executable, "-c", code)


SAVE = """
import json, os, pathlib, struct
def save(step, *, tensors=b"\\0" * 16, name=None):
    root = pathlib.Path(os.environ["FOREBAY_OUTPUT"]) / "checkpoints"
    part = root / f"step-{step:06d}.tmp"
    part.mkdir(parents=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (part / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + tensors)
    (part / "state.json").write_text(json.dumps({"step": step, "metrics": {"loss": 1 / (step + 1)}}))
    part.rename(root / f"step-{step:06d}")
"""
"""Code that a training command starts with: `save(step)` writes a checkpoint as the example does."""


def write_save(folder: Path, step: int, *, value: int = 0, cut: int = 0) -> Path:
    """A checkpoint folder, written in this process; `cut` bytes are missing at the end of the weights."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes([value]) * 16
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(content[: len(content) - cut])
    (folder / "state.json").write_text(json.dumps({"step": step, "scheduler": {}, "rng": {}, "metrics": {"loss": 0.5}}))
    return folder


def kill(pid: int, sig: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, sig)
