"""The bridge is killed at random moments while jobs go through a real Kueue; the log ends up saying what the cluster says.

Called by tests/cluster/bridge/test_bridge_kills.py with few kills, and as `python -m tests.chaos.bridge_kills --kills 200` by hand.
A bare watch runs beside it from the beginning, so every object that ever was is known to somebody who never died.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.runtime.errors import Refused, Unreachable
from forebay.scheduler_bridge.adapters.kueue_gates import PROBE
from forebay.scheduler_bridge.domain.cluster.facts import has_finished
from forebay.testcluster.api import Api
from forebay.testcluster.cluster import TestCluster

from tests.chaos.bridge_examine import Wanted, examine
from tests.chaos.long_run import long_run
from tests.cluster import bare_watch
from tests.cluster.bridge.by_hand import ON_KWOK, Place, any_cluster, bridge_with_kwok, load_agent
from tests.cluster.bridge.world import PROJECT, Bridge
from tests.eventually import eventually

SERVICE = "scheduler-bridge"
JOBS = 50
"""Per twenty kills."""
_KILLS_PER_JOBS = 20
_AT_WORK = 0.6
"""Share of kills that come when it has started and works off what it found."""
_WORK_S = 3.0
"""How long it may work at most; with less than that between all kills nothing would ever get done."""
_WITHIN_S = 300.0
_QUOTA = {"cpu": "1", "memory": "4Gi"}
"""Ten jobs at once."""
Json = dict[str, Any]


@dataclass(slots=True)
class Outcome:
    """One run in figures."""

    kills: int = 0
    jobs: int = 0
    during: Counter[str] = field(default_factory=Counter)
    """Whether the bridge was starting or at work when it was killed."""
    objects: Counter[str] = field(default_factory=Counter)
    """How many the bare watch saw, by kind."""
    events: int = 0
    problems: list[str] = field(default_factory=list)
    start_s: float = 0.0
    """What a start takes here when nobody disturbs it."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "jobs": self.jobs,
            "killed_while": dict(self.during),
            "objects": dict(self.objects),
            "events": self.events,
            "problems": self.problems,
            "start_s": round(self.start_s, 1),
            "seconds": round(self.seconds, 1),
        }


class Witness:
    """A bare watch of the namespace: each object by uid as it was last seen."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.gone: set[str] = set()

    def tell(self, change: str, item: Json) -> None:
        uid = item["metadata"]["uid"]
        self.objects[uid] = item
        if change == "DELETED":
            self.gone.add(uid)

    @property
    def ended(self) -> int:
        """Job objects that are over or gone."""
        return sum(
            uid in self.gone or has_finished(item)
            for uid, item in self.objects.items()
            if item["kind"] == "Job" and item["metadata"]["name"] != PROBE
        )

    def pods_of(self, job: str) -> list[Json]:
        labels = [(item, item["metadata"].get("labels") or {}) for item in self.objects.values()]
        return [item for item, named in labels if item["kind"] == "Pod" and named.get("job-name") == job]

    def words(self, job: str) -> str:
        """What the API shows of a job, in a line."""
        found = []
        for uid, item in self.objects.items():
            metadata, status = item["metadata"], item.get("status") or {}
            if job not in {metadata["name"], (metadata.get("labels") or {}).get("job-name")}:
                continue
            holds = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
            place = (item.get("spec") or {}).get("nodeName", "")
            gone = "gone" if uid in self.gone else ""
            found.append(" ".join(filter(None, (item["kind"], status.get("phase"), place, str(holds), gone))))
        return "; ".join(found)

    def runs(self, job: str) -> Json | None:
        """The job's pod whose training container runs."""
        for pod in self.pods_of(job):
            states = (pod.get("status") or {}).get("containerStatuses") or ()
            if pod["metadata"]["uid"] not in self.gone and any("running" in one.get("state", {}) for one in states):
                return pod
        return None


class BridgeKills:
    """One run against one cluster."""

    def __init__(self, place: Place, witness: Witness, folder: Path, *, kills: int, seed: int) -> None:
        self._bridge: Bridge = place.bridge
        self._queue = place.queue
        self._witness = witness
        self._folder = folder
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311 a chosen order, no secret
        self._wanted: dict[str, Wanted] = {}
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        began = time.monotonic()
        await self._bridge.stop()
        await self._bridge.start()
        self.outcome.start_s = time.monotonic() - began
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(group))
            group.create_task(self._kill())
        await eventually(self._all_ended, what="every job has ended", within=_WITHIN_S, every=0.5)
        await eventually(self._quiet, what="the bridge has nothing left to do", within=60, every=0.2)
        self.outcome.jobs = len(self._wanted)
        self.outcome.objects = Counter(item["kind"] for item in self._witness.objects.values())
        found = await examine(self._bridge, self._witness, self._wanted, self._folder)
        self.outcome.problems += found.problems
        self.outcome.events = found.events
        used = await self._bridge.quota_used(self._queue)
        if used:
            self.outcome.problems.append(f"{used} workloads still hold quota")
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    @property
    def _total(self) -> int:
        return max(JOBS, JOBS * self._kills // _KILLS_PER_JOBS)

    # killing

    async def _kill(self) -> None:
        while self.outcome.kills < self._kills:
            if self._random.random() < _AT_WORK:
                await eventually(self._answers, what="the bridge answers", within=_WITHIN_S)
                await self._pause(self._random.uniform(0, _WORK_S))
            else:
                await self._pause(self._random.uniform(0, self.outcome.start_s))
            process = self._bridge.process
            assert process is not None
            assert process.returncode is None, "the bridge ended by itself: " + self._last_words()
            self.outcome.during["at work" if await self._answers() else "starting"] += 1
            await self._bridge.stop(signal.SIGKILL)
            self.outcome.kills += 1
            if self.outcome.kills % _KILLS_PER_JOBS == 0:
                done = f"{self.outcome.kills} of {self._kills} kills, {self._witness.ended} of {self._total} jobs ended"
                sys.stderr.write(done + "\n")
            await self._bridge.launch()

    def _last_words(self) -> str:
        return (self._bridge.folder / "bridge.log").read_text(encoding="utf-8")[-2000:]

    async def _answers(self) -> bool:
        with contextlib.suppress(Unreachable, Refused):
            await self._bridge.client.ask(SERVICE, PROJECT, "health", timeout=1)
            return True
        return False

    @staticmethod
    async def _pause(seconds: float) -> None:
        """A chosen moment, not a condition."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()

    # using; patiently, because the bridge may be dead at any moment

    async def _feed(self, group: asyncio.TaskGroup) -> None:
        """Job after job, spread over the kills, and never more than one wave of them under way."""
        for number in range(self._total):
            turn = number * self._kills // self._total
            await eventually(
                lambda number=number, turn=turn: self.outcome.kills >= turn and number - self._witness.ended < JOBS,  # type: ignore[misc]
                what=f"it is job {number}'s turn",
                within=3600,
            )
            self._use(number, group)

    def _use(self, number: int, group: asyncio.TaskGroup) -> None:
        """One job, until nobody has to do anything about it any more."""
        kind = ("deleted", "cancelled", "failing", "failing")[number % JOBS] if number % JOBS < 4 else "plain"
        if kind == "plain" and number % 4 == 0:
            kind = "data"
        group.create_task(getattr(self, f"_{kind}")(f"{kind}-{number}"))

    async def _plain(self, name: str) -> None:
        await self._submit(name, Wanted("SUCCEEDED"), pod=dict(ON_KWOK))

    async def _data(self, name: str) -> None:
        """Its data gets ready a moment later."""
        job = await self._submit(name, Wanted("SUCCEEDED"), pod=dict(ON_KWOK), datasets=[{"name": "reach@train-ready"}])
        await self._pause(self._random.uniform(0, self.outcome.start_s))
        await self._bridge.ready(job)

    async def _failing(self, name: str) -> None:
        """Two attempts on the real node."""
        await self._submit(name, Wanted("FAILED", attempts=2), "exit 3", max_attempts=2)

    async def _cancelled(self, name: str) -> None:
        job = await self._submit(name, Wanted("CANCELLED"), "sleep 600")
        await eventually(lambda: self._runs(job), what=f"{job} runs", within=_WITHIN_S, every=0.5)
        await self._ask("cancel", {"job": job})

    async def _deleted(self, name: str) -> None:
        """Its pod is deleted while it runs, so it runs again."""
        command = '[ "$FOREBAY_ATTEMPT" != 1 ] || sleep 600'
        job = await self._submit(name, Wanted("SUCCEEDED", attempts=2), command, max_attempts=3)
        await eventually(lambda: self._runs(job), what=f"{job} runs", within=_WITHIN_S, every=0.5)
        pod = self._witness.runs(job)
        assert pod is not None
        await self._bridge.api.delete("Pod", self._bridge.namespace, pod["metadata"]["name"])

    async def _runs(self, job: str) -> bool:
        """By the bridge's own word: what is deleted before it could see it, it cannot know."""
        answer = await self._ask("why", {"job": job})
        assert answer["state"] == "RUNNING", answer["sentence"]
        return True

    async def _submit(
        self, name: str, wanted: Wanted, command: str = "true", *, max_attempts: int = 1, **fields: Any
    ) -> str:
        spec: Json = {
            "name": name,
            "image": "forebay.test/busybox:1",
            "command": ["sh", "-c", command],
            "resources": {"cpu": "10m", "memory": "32Mi"},
            "pod": {"imagePullPolicy": "IfNotPresent"},
            "restart": {"max_attempts": max_attempts, "allow_cold_start": True},
        }
        answer = await self._ask("submit", {"spec": spec | fields, "wait_for_dataset": True})
        job = str(answer["job"])
        self._wanted[job] = wanted
        return job

    async def _ask(self, question: str, args: Json) -> Json:
        """The answer, asked for again and again under one id."""
        order = uuid.uuid4().hex

        async def once() -> Json:
            try:
                return (
                    await self._bridge.client.ask(SERVICE, PROJECT, question, args, timeout=3, id=order, by="chaos")
                ).result
            except Unreachable:
                return {}
            except Refused as refused:
                if refused.code in {"catching-up", "not-stored-yet"}:
                    return {}
                raise

        found: Json = await eventually(once, what=f"{question} {args} is answered", within=_WITHIN_S)
        return found

    # afterwards

    async def _all_ended(self) -> bool:
        answer = await self._ask("jobs", {"limit": 1000})
        going = {
            one["job"]: f"{one['message']}; the API: {self._witness.words(one['job'])}"
            for one in answer["jobs"]
            if one["ended_at"] is None
        }
        assert not going, f"these have not ended: {going}"
        return True

    async def _quiet(self) -> bool:
        """Everything read, said and done, and every object of the cluster at rest."""
        _, last = await self._bridge.client.log_reader.ends()
        health = await self._ask("health", {})
        assert health["healthy"], health
        assert health["position"] == last, health
        assert not health["outbox"], health
        assert not health["work"], health
        assert health["cluster"] == "watched", health
        return await self._bridge.quota_used(self._queue) == 0


@asynccontextmanager
async def watched(api: Api, namespace: str) -> AsyncIterator[Witness]:
    """A bare watch for as long as it lasts."""
    witness = Witness()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(bare_watch.follow(api, one, namespace, witness.tell)) for one in bare_watch.KINDS]
        yield witness
        for task in tasks:
            task.cancel()


async def run_kills(cluster: TestCluster, kills: int, *, seed: int, folder: Path) -> Outcome:
    """Everything in a namespace of its own, which is taken away at the end."""
    async with bridge_with_kwok(cluster, folder, _QUOTA) as place:
        bridge = place.bridge
        await bridge.start_registry()
        await _claim(bridge.api, bridge.namespace)
        try:
            async with watched(bridge.api, bridge.namespace) as witness:
                return await BridgeKills(place, witness, folder, kills=kills, seed=seed).run()
        finally:
            await bridge.api.delete("PersistentVolume", None, f"pv-{bridge.namespace}")


async def _claim(api: Api, namespace: str) -> None:
    """What datasets are mounted from; pods on KWOK's nodes never look into it."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp"}}
    await api.create({"kind": "PersistentVolume", "metadata": {"name": f"pv-{namespace}"}, "spec": volume})
    spec = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"pv-{namespace}"}
    await api.create(
        {"kind": "PersistentVolumeClaim", "metadata": {"name": "pool", "namespace": namespace}, "spec": spec}
    )


async def _by_hand(kills: int, seed: int, folder: Path) -> Outcome:
    async with any_cluster() as cluster:
        await load_agent(cluster, folder / "image")
        return await run_kills(cluster, kills, seed=seed, folder=folder / "run")


if __name__ == "__main__":
    sys.exit(long_run(__doc__, _by_hand))
