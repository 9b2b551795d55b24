"""`make bench-rebuild`: events per second of the registry's fold, from a real log into SQLite.

One synthetic history goes into a real nats-server; each size is a prefix of it. The
baseline, measured in the same run over the same log and the same codec, is what a
projection does without the runtime: the newest event of each thing as a document,
one transaction per event, SQLite as it comes. It keeps far less than the registry
does (no facts per field, no edges, no repeated ids). Prints one JSON line per figure;
`-per-core` counts processor seconds, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.catalogue import spec_of
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event
from forebay.contracts.identifiers import stable_id
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.registry.app import definition
from forebay.runtime.log import LogReader, read_all
from forebay.runtime.rebuild import rebuild
from nats.aio.client import Client as NatsClient

from tests.servers.nats import NatsServer, nats_server

PROJECT = "arm-lab"
SIZES = (5_000, 20_000, 60_000)
NAIVE = 2_000
"""Events of the baseline: each costs it a flush to disk, and it does not become faster with more."""
SHA = "5" * 64
START = datetime(2026, 1, 1, tzinfo=UTC)
EPISODES, SAVES = 10, 5
"""Per job: 20 episode events, 10 checkpoint events, 3 of its attempt, and its own."""
MADE_WITH = models.Compatibility(
    datasets=("dataset:pick@v1",),
    code_revision="c" * 40,
    parameters_sha256=SHA,
    optimizer=True,
    scheduler=True,
    rng=True,
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: wall and processor time."""

    events: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.events / self.cpu_seconds


# ---------------------------------------------------------------- the history


def history() -> Iterator[EventBody]:
    """Uploads, versions, jobs and checkpoints in the proportions of a busy laboratory, without end."""
    for run in itertools.count(1):
        upload, job = "up-" + stable_id("upload", run)[:24], f"pick-{run}"
        for number in range(EPISODES):
            yield from _episode(upload, number)
        yield _submitted(job, run)
        yield datasets.LeaseGranted(job=job, inputs=(_pinned(),))
        yield jobs.WorkloadAdmitted(job=job, attempt=1, resources=jobs.Resources())
        yield jobs.AttemptStarted(job=job, attempt=1, host="lab-1", process="4711@1767225600")
        for save in range(SAVES):
            yield from _checkpoint(job, 100 * (save + 1))
        yield jobs.AttemptEnded(job=job, attempt=1, exit_code=0, reason=Reason.COMPLETED, message="exit code 0")


def _episode(upload: str, number: int) -> Iterator[EventBody]:
    episode = "ep-" + stable_id(upload, number)[:24]
    yield episodes.EpisodeUploaded(
        episode=episode,
        upload=upload,
        dataset="pick",
        source_index=number,
        length=300,
        tasks=("pick the cube",),
        rows=episodes.RowWindow(file="data/chunk-000/file-000.parquet", start=300 * number, stop=300 * number + 300),
        videos=(
            episodes.TimeWindow(
                camera="observation.images.front",
                file="videos/observation.images.front/chunk-000/file-000.mp4",
                start=10.0 * number,
                stop=10.0 * number + 10,
            ),
        ),
        robot="so101",
    )
    yield episodes.EpisodeAccepted(
        episode=episode, upload=upload, dataset="pick", source_index=number, length=300, rules_version="1"
    )


def _submitted(job: str, run: int) -> jobs.JobSubmitted:
    spec = jobs.JobSpec(
        name="pick",
        project=PROJECT,
        command=("python", "train.py"),
        datasets=(jobs.DatasetInput(name="dataset:pick@train-ready"),),
        parameters={"lr": 0.001, "batch": 64},
        code_revision="c" * 40,
    )
    return jobs.JobSubmitted(job=job, run=run, spec=spec, spec_sha256=SHA, submitted_by="trainer")


def _pinned() -> datasets.PinnedInput:
    return datasets.PinnedInput(
        kind="dataset",
        logical="dataset:pick@train-ready",
        name="pick",
        number=1,
        root="/pool/datasets/arm-lab/pick/v1",
        manifest_sha256=SHA,
    )


def _checkpoint(job: str, step: int) -> Iterator[EventBody]:
    files = tuple(
        models.CheckpointFile(path=name, sha256=stable_id(job, step, name) * 2, bytes=4096)
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    )
    digest = models.checkpoint_digest(files)
    checkpoint = "ck-" + stable_id(job, 1, step, digest)[:24]
    yield models.CheckpointWritten(
        checkpoint=checkpoint,
        job=job,
        attempt=1,
        step=step,
        uri=f"/home/jobs/arm-lab/{job}/output/checkpoints/{step:06d}",
        files=files,
        digest=digest,
        compatibility=MADE_WITH,
        metrics={"loss": 1 / step},
    )
    yield models.CheckpointVerified(checkpoint=checkpoint, job=job, attempt=1, step=step, status="complete")


def first_event() -> EventBody:
    """The version that every job reads."""
    ref = FileRef(uri="/pool/datasets/arm-lab/pick/v1.json", sha256=SHA, bytes=1)
    return datasets.DatasetVersionCommitted(
        dataset="pick",
        number=1,
        root="/pool/datasets/arm-lab/pick/v1",
        access_plan="C",
        format="lance",
        episodes=ref,
        episode_count=10,
        frame_count=3000,
        bytes=1,
        manifest_sha256=SHA,
        checksums=ref,
        uploads=("up-" + stable_id("upload", 1)[:24],),
        rules_version="1",
    )


async def fill(server: NatsServer, count: int) -> None:
    """Write the history into the log, each event by its owner, in order."""
    clients: dict[Part, NatsClient] = {}
    bodies = itertools.islice(itertools.chain([first_event()], history()), count)
    for number, body in enumerate(bodies):
        part = spec_of(body).owners[0]
        source = Source(part, PROJECT if part in PROJECT_PARTS else None)
        if part not in clients:
            clients[part] = await server.connect(part, source.project)
        time_ = START + timedelta(seconds=number)
        event = Event(id=stable_id(number), source=source, project=PROJECT, body=body, time=time_, recorded=time_)
        message = encode(event)
        await clients[part].publish(message.subject, message.body, headers=message.headers)
        if number % 200 == 199:
            await asyncio.gather(*(client.flush() for client in clients.values()))
    await asyncio.gather(*(client.flush() for client in clients.values()))


# ------------------------------------------------------------------- measuring


async def measure_rebuild(reader: LogReader, count: int, folder: Path) -> Measured:
    """The registry's documents from the log, through the runtime."""
    cpu = time.process_time()
    result = await rebuild(definition(), read_all(reader, after=0, until=count), folder / f"rebuilt-{count}.sqlite")
    assert result.events == count, result
    assert result.parked == 0, result
    return Measured(count, result.seconds, time.process_time() - cpu)


async def measure_naive(reader: LogReader, count: int, path: Path) -> Measured:
    """The latest event of each thing as a document, one transaction per event, as projections are often written."""
    started, cpu = time.perf_counter(), time.process_time()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE documents (kind TEXT, key TEXT, body BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID")
    database.execute("CREATE TABLE position (seq INTEGER)")
    database.execute("INSERT INTO position VALUES (0)")
    async for batch in read_all(reader, after=0, until=count):
        for message in batch:
            body = message.decode().body
            spec = spec_of(body)
            document = (spec.entity, spec.key_of(body), json.dumps(body.to_json()))
            database.execute("BEGIN")
            database.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", document)
            database.execute("UPDATE position SET seq = ?", (message.seq,))
            database.execute("COMMIT")
    database.close()
    return Measured(count, time.perf_counter() - started, time.process_time() - cpu)


def figure(name: str, value: float, unit: str, baseline_value: float) -> None:
    """One line for people and programs."""
    line = {
        "name": name,
        "value": round(value, 1),
        "unit": unit,
        "baseline": "one transaction per event",
        "baseline_value": round(baseline_value, 1),
        "ratio": round(value / baseline_value, 2),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def bench(sizes: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as name:
        folder = Path(name)
        async with nats_server(folder / "home", PROJECT) as server:
            await fill(server, max(sizes))
            reader = LogReader(await server.connect(Part.OPERATOR))
            await measure_rebuild(reader, min(sizes), folder / "warm-up")
            for count in sorted(sizes):
                naive = await measure_naive(reader, min(count, NAIVE), folder / f"naive-{count}.sqlite")
                ours = await measure_rebuild(reader, count, folder)
                figure(f"rebuild-sqlite-{count}", ours.per_second, "events/s", naive.per_second)
                figure(f"rebuild-sqlite-{count}-per-core", ours.per_cpu_second, "events/cpu-s", naive.per_cpu_second)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="*", default=SIZES, help="sizes of the log")
    asyncio.run(bench(tuple(parser.parse_args().events)))


if __name__ == "__main__":
    main()
