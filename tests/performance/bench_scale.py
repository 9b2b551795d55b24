"""`make bench-scale`: thousands of jobs on a thousand nodes, and what that costs the bridge.

A real API server, controllers, scheduler and Kueue; the nodes are KWOK's, which end each
pod as soon as it is there. Beside the bridge runs a bare list and watch of the same
objects as a process of its own. One JSON line per figure, progress on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from forebay.contracts.catalogue import spec_of
from forebay.contracts.subjects import STREAM
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.testcluster.cluster import TestCluster

from tests.cluster.bridge.by_hand import ON_KWOK, any_cluster, bridge_with_kwok
from tests.cluster.bridge.world import PROJECT, Bridge
from tests.eventually import eventually
from tests.performance.figures import Figure
from tests.performance.verdict_lag import Version, percentile, verdict_lags

SUBMITTED_AT_ONCE = 16
NODE_GRACE_S = 300
"""KWOK renews few leases a second beside so much else; a node that is silent for less is not lost."""
_LOOK_S = 10.0
_MB = 1 << 20
Json = dict[str, Any]


@dataclass(slots=True)
class Cost:
    """A process between two moments."""

    process: psutil.Process
    began: float = 0.0
    cpu_s: float = 0.0

    def start(self) -> None:
        self.began, self.cpu_s = time.monotonic(), self._cpu()

    def cores(self) -> float:
        return (self._cpu() - self.cpu_s) / (time.monotonic() - self.began)

    def peak_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / _MB
        msg = "the kernel tells no VmHWM"
        raise LookupError(msg)

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def bare_process(cluster: TestCluster, namespace: str, file: Path) -> AsyncIterator[psutil.Process]:
    """A bare list and watch; its lines are in the file when it has ended."""
    words = ("-m", "tests.cluster.bare_watch", str(cluster.kubeconfig), namespace, str(file))
    process = await asyncio.create_subprocess_exec(sys.executable, *words)
    try:
        await eventually(file.exists, what="the bare watch writes", within=30)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


class Run:
    """One bridge and many jobs."""

    def __init__(self, bridge: Bridge, jobs: int, within: float) -> None:
        self._bridge = bridge
        self._jobs = jobs
        self._deadline = time.monotonic() + within
        self.seconds = 0.0

    async def run(self) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._submit())
            group.create_task(self._until_done())
        self.seconds = time.monotonic() - began

    async def _submit(self) -> None:
        room = asyncio.Semaphore(SUBMITTED_AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                await self._bridge.submit(f"job-{number}", "true", pod=dict(ON_KWOK), restart={"max_attempts": 1})

        await asyncio.gather(*(one(number) for number in range(self._jobs)))
        sys.stderr.write(f"{self._jobs} jobs submitted\n")

    async def _until_done(self) -> None:
        began, before = time.monotonic(), 0
        while (done := await self._succeeded()) < self._jobs:
            health = (await self._bridge.client.ask("scheduler-bridge", PROJECT, "health", timeout=30)).result
            rate, before = (done - before) / _LOOK_S, done
            sys.stderr.write(
                f"{time.monotonic() - began:5.0f} s: {done} of {self._jobs} jobs have succeeded ({rate:.0f}/s),"
                f" {health['outbox']} events to say, {health['work']} jobs to look at, {health['position']} events\n"
            )
            if time.monotonic() > self._deadline:
                msg = f"{done} of {self._jobs} jobs have succeeded, and the time is up"
                raise TimeoutError(msg)
            await asyncio.sleep(_LOOK_S)

    async def _succeeded(self) -> int:
        """How many subjects have the event, by the server's own count: reading the log would cost the machine more."""
        spec = spec_of(JobSucceeded)
        wanted = {"subjects_filter": f"fb.{PROJECT}.{spec.entity}.*.{spec.token}"}
        answer = await self._bridge.client.nc.request(
            f"$JS.API.STREAM.INFO.{STREAM}", json.dumps(wanted).encode(), timeout=30
        )
        return len(json.loads(answer.data)["state"].get("subjects") or {})


def _seen(file: Path) -> tuple[dict[Version, float], Counter[str]]:
    """When the bare watch saw each version, and how many Job objects each name had."""
    seen: dict[Version, float] = {}
    uids: dict[str, set[str]] = {}
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            seen.setdefault((one["uid"], one["version"]), one["at"])
            if one["kind"] == "Job" and one["name"].startswith("job-"):
                uids.setdefault(one["name"], set()).add(one["uid"])
    return seen, Counter({name: len(found) for name, found in uids.items()})


async def bench(nodes: int, jobs: int, within: float, folder: Path) -> list[Figure]:
    """All figures of one run."""
    quota: dict[str, str | int] = {"cpu": 64 * nodes, "memory": f"{256 * nodes}Gi"}
    async with (
        any_cluster(node_grace_s=NODE_GRACE_S) as cluster,
        bridge_with_kwok(cluster, folder, quota, nodes=nodes) as place,
    ):
        bridge, file = place.bridge, folder / "bare.jsonl"
        assert bridge.process is not None
        async with bare_process(cluster, bridge.namespace, file) as process:
            ours, bare = Cost(psutil.Process(bridge.process.pid)), Cost(process)
            ours.start()
            bare.start()
            run = Run(bridge, jobs, within)
            await run.run()
            cores, bare_cores = ours.cores(), bare.cores()
            peak, bare_peak = ours.peak_mb(), bare.peak_mb()
        seen, objects = _seen(file)
        lags = await verdict_lags(bridge.client, seen)
    verdicts = [1000 * one for one in lags.seconds]
    facts = [1000 * one for one in lags.fact_seconds]
    sys.stderr.write(
        f"{jobs} jobs on {nodes} nodes in {run.seconds:.0f} s ({jobs / run.seconds:.1f}/s): {len(seen)} versions seen,"
        f" {lags.facts} facts, {len(verdicts)} verdicts, {lags.events} events\n"
    )
    beside = "a bare list and watch of the same objects beside it"
    raw = "the raw fact itself on the bus"
    duplicates = sum(count - 1 for count in objects.values())
    return [
        _figure("bridge-cpu", cores, "cores", beside, bare_cores),
        _figure("bridge-memory-peak", peak, "MB", beside, bare_peak),
        _figure("verdict-lag-p50", percentile(verdicts, 0.5), "ms", raw, percentile(facts, 0.5)),
        _figure("verdict-lag-p99", percentile(verdicts, 0.99), "ms", raw, percentile(facts, 0.99)),
        _figure(
            "jobs-with-a-second-object", duplicates, "jobs", "Job objects that a bare watch saw", sum(objects.values())
        ),
    ]


def _figure(name: str, value: float, unit: str, baseline: str, baseline_value: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, baseline=baseline, baseline_value=baseline_value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--within", type=float, default=3600, help="seconds until it gives up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        for figure in asyncio.run(bench(given.nodes, given.jobs, given.within, Path(folder))):
            figure.print()


if __name__ == "__main__":
    main()
