"""A long run under steady load: memory, file descriptors and threads of every service must stay flat.

`python -m tests.chaos.soak --minutes 60`, or `make soak MINUTES=60`. Small datasets are
uploaded, small jobs run and questions are asked without a pause, all on a real
installation. One line per minute; the verdict is judged over the second half. Caches are
made small (FOREBAY_CACHED_DOCUMENTS, FOREBAY_STORE_CACHE_BYTES), so that they are full long before that: what
still grows then is a leak.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.sdk.collector import Collector
from forebay.sdk.link import BusLink

from services.ingest.tests.valid_datasets import Shape, build
from tests.chaos.growth import Growth, Limits, Sample, sample
from tests.chaos.job import __file__ as job_file
from tests.servers.installation import Installation, installation

PROJECT = "soak"
EPISODES, FRAMES = 2, 12
CACHED_DOCUMENTS, STORE_CACHE_BYTES = 500, 2 << 20
SAMPLE_EVERY_S = 10.0
QUESTION_EVERY_S = 0.2
OPEN_WORK = 4
"""Uploads come as fast as ingest gets through them, so that nothing piles up."""
_DELIVERED_WITHIN_S = 120.0
_PASSING = {"catching-up", "not-stored-yet"}
_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED"}


@dataclasses.dataclass(slots=True)
class Done:
    """What the load has done so far."""

    uploads: int = 0
    jobs: int = 0
    answers: int = 0
    refused: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)


class Load:
    """Uploads, jobs and questions, one of each at a time, until cancelled."""

    def __init__(self, place: Installation, client: Client, folder: Path, *, upload_every_s: float) -> None:
        self._place = place
        self._client = client
        self._folder = folder
        self._upload_every_s = upload_every_s
        self.done = Done()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for activity in (self._upload, self._train, self._ask_around):
                tasks.create_task(activity())

    async def _upload(self) -> None:
        collector = Collector(home=self._place.home.root, project=PROJECT)
        key = self._place.home.key(f"collector.{PROJECT}")
        async with BusLink(self._place.record().nats_url, key, collector.outbox) as link:
            for number in itertools.count():
                began = time.monotonic()
                folder = self._folder / f"arm-{number}"
                await asyncio.to_thread(build, folder, _shape(number))
                said = await asyncio.to_thread(collector.upload, folder, f"arm-{number}")
                left = await link.drain(_DELIVERED_WITHIN_S)
                assert left == 0, f"{left} events were not delivered within {_DELIVERED_WITHIN_S} s"
                collector.delivered(said.upload)
                await asyncio.to_thread(shutil.rmtree, folder)
                self.done.uploads += 1
                while (await self._ask("ingest", "health", {}))["work"] > OPEN_WORK:
                    await asyncio.sleep(QUESTION_EVERY_S)
                await asyncio.sleep(max(0.0, began + self._upload_every_s - time.monotonic()))

    async def _train(self) -> None:
        """One job after the other, each on the newest dataset."""
        for number in itertools.count():
            while not self.done.uploads:
                await asyncio.sleep(1)
            dataset = f"dataset:arm-{self.done.uploads - 1}@train-ready"
            spec = {
                "name": f"job-{number}",
                "project": PROJECT,
                "command": [sys.executable, job_file, "0.1", "works"],
                "datasets": [{"name": dataset, "columns": ["action"]}],
                "resources": {"cpu": 0.25, "memory_bytes": 64 << 20},
                "restart": {"max_attempts": 3, "allow_cold_start": True},
            }
            asked = {"spec": spec, "wait_for_dataset": True}
            job = (await self._ask("scheduler-bridge", "submit", asked, f"submit-{number}"))["job"]
            while (state := await self._state(job)) not in _ENDED:
                await asyncio.sleep(0.5)
            self.done.jobs += 1
            if state != "SUCCEEDED":
                self.done.failed.append(f"{job} is {state}")

    async def _state(self, job: str) -> str:
        return str((await self._ask("scheduler-bridge", "job", {"job": job}))["state"])

    async def _ask_around(self) -> None:
        """The questions that people and screens ask again and again."""
        questions: list[tuple[str, str, Callable[[], dict[str, Any]]]] = [
            ("ingest", "datasets", lambda: {"limit": 20}),
            ("ingest", "dataset", lambda: {"dataset": f"arm-{self.done.uploads}"}),
            ("ingest", "episodes", lambda: {"dataset": f"arm-{self.done.uploads // 2}"}),
            ("cache", "plans", lambda: {"limit": 20}),
            ("scheduler-bridge", "jobs", lambda: {"limit": 20}),
            ("scheduler-bridge", "why", lambda: {"job": f"job-{self.done.jobs}"}),
            ("registry", "models", dict),
            ("registry", "search", lambda: {"dataset": f"arm-{self.done.uploads // 2}"}),
            ("registry", "lineage", lambda: {"id": f"dataset:arm-{self.done.uploads // 2}"}),
            *((part, "health", dict) for part in ("ingest", "cache", "scheduler-bridge", "registry")),
        ]
        for service, question, args in itertools.cycle(questions):
            with contextlib.suppress(Refused):
                await self._ask(service, question, args())
            await asyncio.sleep(QUESTION_EVERY_S)

    async def _ask(self, service: str, question: str, args: dict[str, Any], request: str | None = None) -> Any:
        while True:
            try:
                answer = await self._client.ask(service, PROJECT, question, args, id=request)
            except Unreachable:
                pass
            except Refused as refused:
                self.done.refused += 1
                if refused.code not in _PASSING:
                    raise
            else:
                self.done.answers += 1
                return answer.result
            await asyncio.sleep(1)


def _shape(number: int) -> Shape:
    return Shape(
        lengths=(FRAMES,) * EPISODES,
        rate="30",
        data=(0,) * EPISODES,
        videos={"observation.images.front": (0,) * EPISODES},
        tasks=(0,) * EPISODES,
        width=2,
        seed=number,
    )


class Soak:
    """One run on one installation: the load, and somebody who watches the processes."""

    def __init__(self, place: Installation, load: Load, *, seconds: float, limits: Limits) -> None:
        self._place = place
        self._load = load
        self._seconds = seconds
        self._limits = limits
        self._samples: list[Sample] = []

    async def run(self) -> dict[str, Any]:
        """The report; `problems` is empty when everything stayed flat."""
        load = asyncio.create_task(self._load.run())
        watch = asyncio.create_task(self._watch())
        try:
            await asyncio.wait({load, watch}, return_when=asyncio.FIRST_COMPLETED)
            if load.done():
                load.result()
            watch.result()
        finally:
            for task in (load, watch):
                task.cancel()
            await asyncio.gather(load, watch, return_exceptions=True)
        return self._report()

    async def _watch(self) -> None:
        began = time.monotonic()
        spoken = 0
        for name in (signal.SIGTERM, signal.SIGINT):  # an early end has a report as well
            asyncio.get_running_loop().add_signal_handler(name, lambda: setattr(self, "_seconds", 0.0))
        while (at := time.monotonic() - began) < self._seconds:
            now = await asyncio.to_thread(sample, self._place.record(), at)
            self._samples.append(now)
            if at // 60 >= spoken:
                spoken += 1
                sys.stderr.write(self._line(now))
                sys.stderr.flush()
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _line(self, now: Sample) -> str:
        done = self._load.done
        figures = " | ".join(str(figure) for figure in now.figures.values())
        return f"{now.at_s / 60:5.1f} min  {done.uploads} uploads {done.jobs} jobs {done.answers} answers | {figures}\n"

    def _report(self) -> dict[str, Any]:
        growth = Growth(self._samples)
        done = self._load.done
        return {
            "minutes": round(self._samples[-1].at_s / 60, 1),
            **dataclasses.asdict(done),
            "growth": growth.to_json(),
            "problems": [*growth.problems(self._limits), *done.failed],
        }


@asynccontextmanager
async def small_caches(folder: Path) -> AsyncIterator[None]:
    """Services that are started meanwhile find a settings file that keeps their caches small."""
    file = folder / "settings.toml"
    file.write_text(f"cached_documents = {CACHED_DOCUMENTS}\nstore_cache_bytes = {STORE_CACHE_BYTES}\n")
    name = "FOREBAY_SETTINGS"
    os.environ[name] = str(file)  # noqa: TID251 the supervisor passes on what it finds
    try:
        yield
    finally:
        del os.environ[name]  # noqa: TID251


async def soak(folder: Path, *, seconds: float, upload_every_s: float, limits: Limits) -> dict[str, Any]:
    """Everything from an empty folder to the report."""
    async with (
        small_caches(folder),
        installation(folder / "home", [PROJECT]) as place,
        place.operator() as client,
    ):
        load = Load(place, client, folder, upload_every_s=upload_every_s)
        return await Soak(place, load, seconds=seconds, limits=limits).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--upload-every", type=float, default=1.0, help="seconds from one upload to the next, at least")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-soak-") as folder:
        report = asyncio.run(
            soak(Path(folder), seconds=given.minutes * 60, upload_every_s=given.upload_every, limits=Limits())
        )
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
        sys.stdout.flush()  # what was written fills a hundred thousand files: removing them takes a while
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
