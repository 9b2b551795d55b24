"""One pod of a job without a cluster: our two containers and the shim as real processes over folders of a test."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.eventually import WITHIN_S, eventually

LEROBOT = Path(__file__).parent / "lerobot_train.sh"
NOBODY = "nats://127.0.0.1:9"
"""A port where no bus answers."""


@dataclass(slots=True)
class Pod:
    """Folders stand for volumes: `output` outlives pods, everything else is this pod's own."""

    root: Path
    output: Path
    uid: str
    project: str = "arm-lab"
    job: str = "reach-1"
    url: str = NOBODY
    nkey_file: Path | None = None
    trainer: str | None = None
    checkpoints: Path | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the bridge would have written into the pod's annotation."""
    mounts: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        run, pod = self.root / "run", self.root / "pod"
        for folder in (run, pod, self.output, self.root / "state"):
            folder.mkdir(parents=True, exist_ok=True)
        (pod / "inputs.json").write_text(json.dumps(dict(self.told)), encoding="utf-8")
        (pod / "mounts").write_text(self.mounts, encoding="utf-8")
        ours = {
            "FOREBAY_PROJECT": self.project, "FOREBAY_JOB": self.job, "FOREBAY_HOME": self.root / "state",
            "FOREBAY_RUN_DIR": run, "FOREBAY_OUTPUT": self.output, "FOREBAY_INPUTS": pod / "inputs.json",
            "FOREBAY_CHECKPOINTS": self.checkpoints or self.output / "checkpoints", "FOREBAY_NATS_URL": self.url,
            "FOREBAY_POD_UID": self.uid, "FOREBAY_NODE": "gpu-5", "FOREBAY_MOUNT_TABLE": pod / "mounts",
            "FOREBAY_TERMINATION_LOG": self.root / "termination-log", "FOREBAY_BUS_DEADLINE_S": WITHIN_S,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        }  # fmt: skip
        if self.nkey_file is not None:
            ours["FOREBAY_NKEY_FILE"] = self.nkey_file
        if self.trainer is not None:
            ours["FOREBAY_TRAINER"] = self.trainer
        return {name: str(value) for name, value in ours.items()} | dict(self.variables)

    async def prepare(self) -> int:
        """The init container; what it printed is in `printed`."""
        process = await self._start("-m", "forebay.cli", "pod", "prepare")
        return await process.wait()

    async def watch(self) -> asyncio.subprocess.Process:
        """The side-car, once it watches."""
        process = await self._start("-m", "forebay.cli", "pod", "watch")
        await eventually(lambda: "watching" in self.printed, what="the side-car watches")
        return process

    async def _start(self, *words: str) -> asyncio.subprocess.Process:
        environment = self.environment()
        with (self.root / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(sys.executable, *words, env=environment, stdout=log, stderr=log)

    async def train(self, *words: str, lerobot_words: int | None = None, **variables: str) -> tuple[int, str]:
        """The owner's container: the shim around its command, with nothing of ours in its environment but names."""
        environment = {"PATH": "/usr/bin:/bin", "FOREBAY_RUN_DIR": str(self.root / "run"), **variables}
        if lerobot_words is not None:
            environment["FOREBAY_LEROBOT_WORDS"] = str(lerobot_words)
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", str(self.root / "run" / "start.sh"), *words,
            env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    @staticmethod
    async def end(watch: asyncio.subprocess.Process) -> int:
        """As the kubelet ends a side-car after the main container."""
        watch.send_signal(signal.SIGTERM)
        return await watch.wait()

    @property
    def printed(self) -> str:
        return (self.root / "log").read_text(encoding="utf-8")

    def report(self) -> dict[str, Any]:
        """The termination message."""
        found: dict[str, Any] = json.loads((self.root / "termination-log").read_bytes())
        return found

    def failed(self) -> dict[str, str]:
        """Name -> reason of the checks that failed."""
        return {item["name"]: item["reason"] for item in self.report()["checks"] if item["status"] == "fail"}

    def waiting(self) -> Sequence[str]:
        """Names of events in the pod's outbox."""
        lines = [
            line for path in sorted((self.root / "state").rglob("*.jsonl")) for line in path.read_text().splitlines()
        ]
        return [json.loads(line)["event"] for line in lines]
