"""Events of the usual stories, for tests of the fold and the decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from forebay.contracts.body import FileRef
from forebay.contracts.parts import Part
from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.contracts.v1.episodes import (
    EpisodeAccepted,
    EpisodeRejected,
    EpisodeUploaded,
    Finding,
    RowWindow,
    UploadFinished,
    UploadStarted,
)
from forebay.contracts.v1.jobs import JobSpec, JobSubmitted
from forebay.contracts.v1.models import ModelVersionRegistered
from forebay.ingest.domain.evolve import episode_id

from .simulated_log import PROJECT, SimulatedLog

DATASET = "pick-place"


def sha(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def reference(name: str) -> FileRef:
    return FileRef(uri=f"file:///pool/{name}", sha256=sha(name), bytes=1)


def start_upload(log: SimulatedLog, upload: str = "up-1", episodes: int = 2, dataset: str = DATASET) -> None:
    body = UploadStarted(
        upload=upload,
        dataset=dataset,
        source_ref="/data/arm",
        source_format="lerobot-v3.0",
        landing_uri=f"file:///pool/landing/{PROJECT}/{upload}",
        expected_episodes=episodes,
        expected_files=3,
        expected_bytes=9,
    )
    log.publish(body, f"started-{upload}")


def upload_episode(log: SimulatedLog, index: int, upload: str = "up-1", dataset: str = DATASET) -> None:
    body = EpisodeUploaded(
        episode=episode_id(PROJECT, dataset, upload, index),
        upload=upload,
        dataset=dataset,
        source_index=index,
        length=5,
        tasks=("pick",),
        rows=RowWindow(file="data/chunk-000/file-000.parquet", start=0, stop=5),
    )
    log.publish(body, f"episode-{upload}-{index}")


def finish_upload(log: SimulatedLog, upload: str = "up-1", episodes: int = 2, dataset: str = DATASET) -> None:
    body = UploadFinished(
        upload=upload, dataset=dataset, episodes=episodes, files=3, bytes=9, manifest=reference(f"{upload}/manifest")
    )
    log.publish(body, f"finished-{upload}")


def whole_upload(log: SimulatedLog, upload: str = "up-1", episodes: int = 2, dataset: str = DATASET) -> None:
    start_upload(log, upload, episodes, dataset)
    for index in range(episodes):
        upload_episode(log, index, upload, dataset)
    finish_upload(log, upload, episodes, dataset)


def accept(log: SimulatedLog, index: int, upload: str = "up-1", dataset: str = DATASET) -> None:
    body = EpisodeAccepted(**_verdict(index, upload, dataset), tasks=("pick",), sha256=sha((upload, index)))
    log.publish(body, f"verdict-{upload}-{index}", Part.INGEST)


def reject(log: SimulatedLog, index: int, upload: str = "up-1", dataset: str = DATASET) -> None:
    finding = Finding(rule="LR-SIGNAL-001", severity="error", message="NaN", episode=index)
    body = EpisodeRejected(**_verdict(index, upload, dataset), findings=(finding,))
    log.publish(body, f"verdict-{upload}-{index}", Part.INGEST)


def _verdict(index: int, upload: str, dataset: str) -> dict[str, Any]:
    id_ = episode_id(PROJECT, dataset, upload, index)
    common = {"episode": id_, "upload": upload, "dataset": dataset, "source_index": index}
    return {**common, "length": 5, "rules_version": "1"}


def commit(log: SimulatedLog, number: int = 1, uploads: tuple[str, ...] = ("up-1",), dataset: str = DATASET) -> None:
    body = DatasetVersionCommitted(
        dataset=dataset,
        number=number,
        root=f"/pool/datasets/{PROJECT}/{dataset}/v{number}",
        access_plan="C",
        format="lerobot-v3.0-lance",
        episodes=reference(f"{dataset}/{number}/episodes"),
        episode_count=2,
        frame_count=10,
        bytes=100,
        manifest_sha256=sha((dataset, number)),
        checksums=reference(f"{dataset}/{number}/checksums"),
        uploads=uploads,
        rules_version="1",
    )
    log.publish(body, f"committed-{dataset}-{number}", Part.INGEST)


def committed_dataset(log: SimulatedLog, dataset: str = DATASET, upload: str = "up-1") -> None:
    """An upload whose two episodes were accepted and committed as v1."""
    whole_upload(log, upload, dataset=dataset)
    for index in range(2):
        accept(log, index, upload, dataset)
    commit(log, 1, (upload,), dataset)


def submit(log: SimulatedLog, *datasets: str, job: str = "train-1", models: tuple[str, ...] = (), **first: Any) -> None:
    """A job on datasets and models; `first` adds columns or episodes to the first dataset."""
    inputs: list[Mapping[str, Any]] = [{"name": name} for name in datasets]
    if inputs:
        inputs[0] = {**inputs[0], **first}
    spec = JobSpec.model_validate(
        {
            "name": "train",
            "project": PROJECT,
            "command": ["true"],
            "datasets": inputs,
            "models": [{"name": name} for name in models],
        }
    )
    body = JobSubmitted(job=job, run=1, spec=spec, spec_sha256=sha(spec), submitted_by="kim")
    log.publish(body, f"submitted-{job}", Part.BRIDGE)


def register_model(log: SimulatedLog, number: int = 1, model: str = "base") -> None:
    body = ModelVersionRegistered(
        model=model,
        number=number,
        job="train-0",
        attempt=1,
        checkpoint="ck-1",
        step=10,
        uri=f"file:///pool/models/{model}/{number}",
        artefact_sha256=sha((model, number)),
        by="kim",
    )
    log.publish(body, f"model-{model}-{number}", Part.REGISTRY)
