"""`make bench-gate`: from "the data is ready" to an open gate, and from a change on the cluster to its verdict.

A real cluster with Kueue, a real bus, the bridge as its own process; the queue has no
quota, so no pod disturbs the machine. For each job there is a Job of nobody like it:
the same patch by hand and a bare watch of it is the baseline, measured in turns with
the bridge. One JSON line per figure.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from forebay.scheduler_bridge.domain.gate import opening

from tests.cluster import bare_watch
from tests.cluster.bridge.by_hand import any_cluster, bridge_with_kwok
from tests.cluster.bridge.world import Bridge
from tests.performance.figures import Figure
from tests.performance.verdict_lag import percentile, verdict_lags

GATED_BY = "kueue.x-k8s.io/admission-gated-by"
QUEUE = "kueue.x-k8s.io/queue-name"
SUBMITTED_AT_ONCE = 8
_WITHIN_S = 60.0
Json = dict[str, Any]


class Watched:
    """What a bare watch in this process sees, and when."""

    def __init__(self) -> None:
        self.jobs: dict[str, Json] = {}
        self.workloads: dict[str, Json] = {}
        """By name of their Job."""
        self.at: dict[tuple[str, str], float] = {}
        self.opened_at: dict[str, float] = {}
        self._news = asyncio.Event()

    def tell(self, _: str, item: Json) -> None:
        now, metadata = time.time(), item["metadata"]
        self.at[(metadata["uid"], metadata["resourceVersion"])] = now
        name = metadata["name"]
        if item["kind"] == "Job":
            self.jobs[name] = item
            if GATED_BY not in (metadata.get("annotations") or {}):
                self.opened_at.setdefault(name, now)
        elif item["kind"] == "Workload":
            self.workloads[metadata["ownerReferences"][0]["name"]] = item
        self._news.set()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(_WITHIN_S):
            while not holds():
                self._news.clear()
                await self._news.wait()

    def is_gated(self, name: str) -> bool:
        """Kueue has said that it waits for our name."""
        conditions = (self.workloads.get(name, {}).get("status") or {}).get("conditions") or ()
        return any(one.get("reason") == "AdmissionGated" for one in conditions)

    def is_pending(self, name: str) -> bool:
        """Kueue has looked at it since, and has no quota for it."""
        conditions = (self.workloads.get(name, {}).get("status") or {}).get("conditions") or ()
        return any(one["type"] == "QuotaReserved" and one.get("reason") == "Pending" for one in conditions)


class Bench:
    """One bridge, one namespace."""

    def __init__(self, bridge: Bridge, watched: Watched) -> None:
        self._bridge = bridge
        self._watched = watched
        self.writes: list[float] = []

    async def run(self, count: int) -> list[str]:
        """The jobs, each released when the one before it was pending; so are their twins, so that both find Kueue at rest."""
        jobs = await self._at_once([lambda n=n: self._prepare(n) for n in range(count)])  # type: ignore[misc]
        for number, job in enumerate(jobs):
            twin = f"twin-{number}"
            self.writes.append(await self._write(twin))
            await self._watched.until(lambda twin=twin: self._watched.is_pending(twin))  # type: ignore[misc]
            await self._bridge.ready(job)
            await self._watched.until(lambda job=job: self._watched.is_pending(job))  # type: ignore[misc]
            if number % 50 == 49:
                sys.stderr.write(f"{number + 1} of {count} gates opened\n")
        return jobs

    @staticmethod
    async def _at_once(calls: Iterable[Callable[[], Awaitable[str]]]) -> list[str]:
        room = asyncio.Semaphore(SUBMITTED_AT_ONCE)

        async def one(call: Callable[[], Awaitable[str]]) -> str:
            async with room:
                return await call()

        return list(await asyncio.gather(*(one(call) for call in calls)))

    async def _prepare(self, number: int) -> str:
        """A job that waits for its data, and its twin."""
        job = await self._bridge.submit(f"job-{number}", "true", datasets=[{"name": "reach@train-ready"}])
        await self._watched.until(lambda: self._watched.is_gated(job))
        twin = f"twin-{number}"
        await self._bridge.api.create(_twin(self._watched.jobs[job], twin))
        await self._watched.until(lambda: self._watched.is_gated(twin))
        return job

    async def _write(self, twin: str) -> float:
        """The same patch by hand."""
        item = self._watched.jobs[twin]
        annotations = item["spec"]["template"]["metadata"].get("annotations") or {}
        patch = opening(item, annotations)
        assert patch is not None
        began = time.time()
        await self._bridge.api.patch("Job", self._bridge.namespace, twin, patch)
        await self._watched.until(lambda: twin in self._watched.opened_at)
        return self._watched.opened_at[twin] - began


def _twin(job: Json, name: str) -> Json:
    """A Job with the same spec that is nobody's."""
    template = job["spec"]["template"]
    spec = {key: value for key, value in job["spec"].items() if key not in {"selector", "template", "manualSelector"}}
    annotations = template["metadata"].get("annotations") or {}
    labels = {QUEUE: job["metadata"]["labels"][QUEUE]}
    metadata = {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "labels": labels,
        "annotations": {GATED_BY: job["metadata"]["annotations"][GATED_BY]},
    }
    return {
        "kind": "Job",
        "metadata": metadata,
        "spec": {**spec, "template": {"metadata": {"annotations": annotations}, "spec": template["spec"]}},
    }


async def bench(count: int, folder: Path) -> list[Figure]:
    """All figures of one run."""
    async with any_cluster() as cluster, bridge_with_kwok(cluster, folder, {"cpu": 0, "memory": 0}, nodes=0) as place:
        bridge, watched = place.bridge, Watched()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(bare_watch.follow(bridge.api, kind, bridge.namespace, watched.tell))
                for kind in ("Job", "Workload")
            ]
            run = Bench(bridge, watched)
            jobs = await run.run(count)
            for task in tasks:
                task.cancel()
        lags = await verdict_lags(bridge.client, watched.at)
    # From the bus's word that the last condition holds to the bare watch that shows the gate open.
    gates, writes = _ms([watched.opened_at[job] - lags.warm[f"plan-{job}"] for job in jobs]), _ms(run.writes)
    decisions = _ms([lags.opened[job] - lags.warm[f"plan-{job}"] for job in jobs])
    verdicts = _ms(lags.seconds)
    by_hand = f"the same patch of {count} Jobs like them by hand, until the same bare watch shows it"
    sys.stderr.write(f"{len(gates)} gates, {len(verdicts)} verdicts of objects, {lags.events} events in the log\n")
    beyond = percentile(gates, 0.99) - percentile(writes, 0.99)
    whole = "the gate release of which it is a part"
    return [
        _figure("gate-decision-p50", percentile(decisions, 0.5), whole, percentile(gates, 0.5)),
        _figure("gate-decision-p99", percentile(decisions, 0.99), whole, percentile(gates, 0.99)),
        _figure("gate-release-p50", percentile(gates, 0.5), by_hand, percentile(writes, 0.5)),
        _figure("gate-release-p99", percentile(gates, 0.99), by_hand, percentile(writes, 0.99)),
        _figure("gate-release-p99-beyond-the-write", beyond, "its p99 by hand", percentile(writes, 0.99)),
        _figure("fact-to-verdict-p50", percentile(verdicts, 0.5), by_hand, percentile(writes, 0.5)),
        _figure("fact-to-verdict-p99", percentile(verdicts, 0.99), by_hand, percentile(writes, 0.99)),
    ]


def _ms(seconds: Sequence[float]) -> list[float]:
    return [1000 * one for one in seconds]


def _figure(name: str, value: float, baseline: str, baseline_value: float) -> Figure:
    return Figure(name=name, value=value, unit="ms", baseline=baseline, baseline_value=baseline_value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        for figure in asyncio.run(bench(count, Path(folder))):
            figure.print()


if __name__ == "__main__":
    main()
