"""A realistic history of a laboratory for the registry's benchmark, spooled to a file as log messages.

`SCALE=1`: 100,000 episodes, 2,000 dataset versions, 5,000 jobs, 200,000 checkpoints, 10,000 models.
Every tenth version starts a dataset; each of the next nine holds one more upload than the one before.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.catalogue import spec_of
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event
from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.runtime.log import LogMessage

from tests.performance.progress import Progress

PROJECT = "arm-lab"
EPISODES_OF_UPLOAD, VERSIONS_OF_DATASET = 50, 10
SAVES, MODELS = 40, 2
"""Per job."""
_SHA = "5" * 64
_START = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Size:
    scale: float

    @property
    def versions(self) -> int:
        return max(VERSIONS_OF_DATASET, int(2000 * self.scale))

    @property
    def jobs(self) -> int:
        return max(10, int(5000 * self.scale))

    @property
    def messages(self) -> int:
        of_version, of_job = 2 * EPISODES_OF_UPLOAD + 2, 2 * SAVES + 2 * MODELS + 5
        return self.versions * of_version + self.jobs * of_job


@dataclass(slots=True)
class Made:
    """Ids to ask for."""

    messages: int = 0
    episodes: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


class History:
    """Generates one history; the same seed gives the same one."""

    def __init__(self, size: Size, lists: Path, seed: int = 7) -> None:
        self._size = size
        self._lists = lists
        self._random = random.Random(seed)  # noqa: S311 a chosen order, no secret
        self._versions: list[str] = []
        self.made = Made()

    def bodies(self) -> Iterator[EventBody]:
        """Uploads and versions come before the jobs that read them, as in life; jobs are spread between them."""
        each = self._size.jobs / self._size.versions
        done = 0
        for number in range(self._size.versions):
            yield from self._version(number)
            while done < (number + 1) * each and done < self._size.jobs:
                done += 1
                yield from self._job(done)

    def _version(self, number: int) -> Iterator[EventBody]:
        dataset, version = f"pick-{number // VERSIONS_OF_DATASET}", number % VERSIONS_OF_DATASET + 1
        upload = _upload(dataset, version)
        for index in range(EPISODES_OF_UPLOAD):
            yield from self._episode(upload, dataset, index)
        uploads = tuple(_upload(dataset, one + 1) for one in range(version))
        held = [_episode_id(one, index) for one in uploads for index in range(EPISODES_OF_UPLOAD)]
        ref = self._list(f"{dataset}-{version}", held)
        root = f"/pool/datasets/{PROJECT}/{dataset}/v{version}"
        yield datasets.DatasetVersionCommitted(
            dataset=dataset,
            number=version,
            root=root,
            access_plan="C",
            format="lance",
            episodes=ref,
            episode_count=len(held),
            frame_count=300 * len(held),
            bytes=10**9,
            manifest_sha256=_SHA,
            checksums=ref,
            uploads=uploads,
            parent=version - 1 or None,
            rules_version="1",
        )
        yield datasets.DatasetTagged(dataset=dataset, tag="train-ready", number=version, by="ingest")
        self._versions.append(f"{dataset}@v{version}")

    def _episode(self, upload: str, dataset: str, index: int) -> Iterator[EventBody]:
        episode = _episode_id(upload, index)
        self.made.episodes.append(f"episode:{episode}")
        yield episodes.EpisodeUploaded(
            episode=episode,
            upload=upload,
            dataset=dataset,
            source_index=index,
            length=300,
            tasks=("pick the cube",),
            rows=episodes.RowWindow(file="data/chunk-000/file-000.parquet", start=300 * index, stop=300 * index + 300),
            robot="so101",
        )
        yield episodes.EpisodeAccepted(
            episode=episode, upload=upload, dataset=dataset, source_index=index, length=300, rules_version="1"
        )

    def _list(self, name: str, held: list[str]) -> FileRef:
        rows = [{"episode": one, "index": index, "length": 300} for index, one in enumerate(held)]
        body = canonical_json({"episodes": rows})
        path = self._lists / f"{name}.json"
        path.write_bytes(body)
        return FileRef(uri=str(path), sha256=hashlib.sha256(body).hexdigest(), bytes=len(body))

    def _job(self, run: int) -> Iterator[EventBody]:
        job = f"pick-{run}"
        name, _, number = self._random.choice(self._versions).partition("@v")
        logical = f"dataset:{name}@train-ready"
        spec = jobs.JobSpec(
            name="pick",
            project=PROJECT,
            command=("python", "train.py"),
            datasets=(jobs.DatasetInput(name=logical),),
            parameters={"lr": 0.001, "batch": 64},
            code_revision="c" * 40,
        )
        yield jobs.JobSubmitted(job=job, run=run, spec=spec, spec_sha256=_SHA, submitted_by="trainer")
        pinned = datasets.PinnedInput(
            kind="dataset",
            logical=logical,
            name=name,
            number=int(number),
            root=f"/pool/datasets/{PROJECT}/{name}/v{number}",
            manifest_sha256=_SHA,
        )
        yield datasets.LeaseGranted(job=job, inputs=(pinned,))
        yield jobs.WorkloadAdmitted(job=job, attempt=1, resources=jobs.Resources())
        yield jobs.AttemptStarted(job=job, attempt=1, host="lab-1", process="4711@1767225600")
        saved = [written for step in range(SAVES) for written in self._save(job, f"dataset:{name}@v{number}", step)]
        yield from saved
        yield jobs.AttemptEnded(job=job, attempt=1, exit_code=0, reason=Reason.COMPLETED, message="exit code 0")
        written = [body for body in saved if isinstance(body, models.CheckpointWritten)]
        for body in written[-MODELS:]:
            yield from self._model(job, body, len(self.made.models) + 1)

    def _save(self, job: str, dataset: str, step: int) -> Iterator[EventBody]:
        files = (models.CheckpointFile(path="model.safetensors", sha256=stable_id(job, step) * 2, bytes=4096),)
        digest = models.checkpoint_digest(files)
        checkpoint = "ck-" + stable_id(job, 1, step, digest)[:24]
        made_with = models.Compatibility(datasets=(dataset,), code_revision="c" * 40, optimizer=True, scheduler=True)
        yield models.CheckpointWritten(
            checkpoint=checkpoint,
            job=job,
            attempt=1,
            step=100 * (step + 1),
            uri=f"/home/jobs/{PROJECT}/{job}/output/checkpoints/{step:06d}",
            files=files,
            digest=digest,
            compatibility=made_with,
            metrics={"loss": 1 / (step + 1)},
        )
        yield models.CheckpointVerified(
            checkpoint=checkpoint, job=job, attempt=1, step=100 * (step + 1), status="complete"
        )

    def _model(self, job: str, source: models.CheckpointWritten, number: int) -> Iterator[EventBody]:
        model = f"policy-{number // 20}"
        version = number % 20 + 1
        self.made.models.append(f"model:{model}@v{version}")
        yield models.ModelVersionRegistered(
            model=model,
            number=version,
            job=job,
            attempt=1,
            checkpoint=source.checkpoint,
            step=source.step,
            uri=source.uri,
            artefact_sha256=source.digest,
            datasets=source.compatibility.datasets,
            by="trainer",
        )
        yield models.EvaluationRecorded(
            evaluation=f"ev-{number}",
            model=model,
            number=version,
            artefact_sha256=source.digest,
            metrics={"success": 0.9},
            source="eval_info.json",
            by="trainer",
        )

    def spool(self, path: Path) -> Made:
        """Write every event as the log would hold it."""
        progress = Progress("generating", self._size.messages)
        with path.open("wb") as file:
            for number, body in enumerate(self.bodies()):
                message = encode(event_of(number, body))
                packed = msgspec.msgpack.encode((message.subject, message.headers, message.body))
                file.write(len(packed).to_bytes(4, "big"))
                file.write(packed)
                self.made.messages = number + 1
                progress(number)
        return self.made


def event_of(number: int, body: EventBody) -> Event[EventBody]:
    """The event by its owner, a second after the one before."""
    part: Part = spec_of(body).owners[0]
    time = _START + timedelta(seconds=number)
    source = Source(part, PROJECT if part in PROJECT_PARTS else None)
    return Event(id=stable_id(number), source=source, project=PROJECT, body=body, time=time, recorded=time)


async def batches(path: Path) -> AsyncIterator[list[LogMessage]]:
    """The spooled log, as `read_all` gives it."""
    decode = msgspec.msgpack.Decoder(tuple[str, dict[str, str], bytes]).decode
    seq = 0
    with path.open("rb") as file:
        found: list[LogMessage] = []
        while size := file.read(4):
            subject, headers, data = decode(file.read(int.from_bytes(size, "big")))
            seq += 1
            stored = _START + timedelta(seconds=seq)
            found.append(LogMessage(seq=seq, subject=subject, headers=headers, data=data, stored_at=stored))
            if len(found) == _BATCH:
                yield found
                found = []
        if found:
            yield found


def _upload(dataset: str, version: int) -> str:
    return "up-" + stable_id(dataset, version)[:24]


def _episode_id(upload: str, index: int) -> str:
    return "ep-" + stable_id(upload, index)[:24]
