"""Answers an event with events and work. Pure; the state already contains the event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.ingest.domain.documents import (
    Dataset,
    Lease,
    Model,
    Pin,
    Tag,
    Upload,
    Version,
    place,
    version_key,
    waiting_for,
)
from forebay.ingest.domain.resolve import TRAIN_READY, resolve
from forebay.runtime.machine import Action, Emit, Pending, Work
from forebay.runtime.state import State

VALIDATE = "validate"
CONVERT = "convert"


def decide(state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:  # noqa: ARG001 the runtime's signature; ids say what is decided already
    """What follows from one event."""
    project, body = recorded.project, recorded.body
    match body:
        case episodes.UploadStarted(dataset=dataset):
            yield from _leases(state, project, "dataset", dataset)
        case episodes.EpisodeUploaded(upload=upload) | episodes.UploadFinished(upload=upload):
            yield from _upload_changed(state, project, upload, waiting=isinstance(body, episodes.UploadFinished))
        case (
            episodes.EpisodeAccepted(upload=upload)
            | episodes.EpisodeHeld(upload=upload)
            | episodes.EpisodeRejected(upload=upload)
        ):
            yield from _verdict_given(state, project, upload)
        case datasets.DatasetVersionCommitted():
            yield _train_ready(state, project, body)
            yield from _next_work(state, project, body.dataset)  # leases: when the tag is back, a moment later
        case datasets.DatasetTagged(dataset=dataset) | datasets.DatasetUntagged(dataset=dataset):
            yield from _leases(state, project, "dataset", dataset)
        case (
            models.ModelVersionRegistered(model=model)
            | models.ModelReleased(model=model)
            | models.ModelRolledBack(model=model)
        ):
            yield from _leases(state, project, "model", model)
        case (
            jobs.JobSubmitted(job=job)
            | jobs.JobSucceeded(job=job)
            | jobs.JobFailed(job=job)
            | jobs.JobCancelled(job=job)
            | datasets.LeaseGranted(job=job)
        ):
            lease = state.get(Lease, place(project, job))
            if lease is not None:
                yield from _lease(state, lease)
        case _:
            pass


# uploads


def _upload_changed(state: State, project: str, id_: str, *, waiting: bool) -> Iterator[Action]:
    upload = state.get(Upload, place(project, id_))
    if upload is None:
        return
    if upload.state == "VALIDATING":
        yield _validate(upload)
    if waiting:
        yield from _leases(state, project, "dataset", upload.dataset)


def _verdict_given(state: State, project: str, id_: str) -> Iterator[Action]:
    upload = state.get(Upload, place(project, id_))
    if upload is not None and upload.state in {"CONVERTING", "REFUSED"}:
        yield from _next_work(state, project, upload.dataset)
        yield from _leases(state, project, "dataset", upload.dataset)


def _next_work(state: State, project: str, dataset: str) -> Iterator[Action]:
    found = state.get(Dataset, place(project, dataset))
    upload = state.get(Upload, place(project, found.active)) if found is not None and found.active else None
    if found is None or upload is None:
        return
    if upload.state == "VALIDATING":
        yield _validate(upload)
    elif upload.state == "CONVERTING":
        sources = [*(source for source in found.sources if source != upload.id), upload.id]
        payload = {"upload": upload.id, "dataset": dataset, "number": upload.version, "uploads": sources}
        yield Work(kind=CONVERT, key=upload.id, project=project, payload=payload)


def _validate(upload: Upload) -> Work:
    return Work(kind=VALIDATE, key=upload.id, project=upload.project, payload={"upload": upload.id})


def _train_ready(state: State, project: str, body: datasets.DatasetVersionCommitted) -> Emit:
    before = state.get(Tag, f"{project}/{body.dataset}/{TRAIN_READY}")
    tagged = datasets.DatasetTagged(
        dataset=body.dataset,
        tag=TRAIN_READY,
        number=body.number,
        previous=before.number if before is not None else None,
        by="ingest",
        reason="every episode in it was accepted",
    )
    return Emit(project=project, body=tagged, dedupe=(body.dataset, body.number, TRAIN_READY))


# leases


def _leases(state: State, project: str, kind: str, name: str) -> Iterator[Action]:
    for lease in state.find(Lease, "waits_for", waiting_for(project, kind, name)):
        yield from _lease(state, lease)


def _lease(state: State, lease: Lease) -> Iterator[Action]:
    """Grant, explain or give back, as the lease stands now."""
    if lease.ended is not None:
        if lease.state == "GRANTED":
            released = datasets.LeaseReleased(job=lease.job, reason=lease.ended)
            yield Emit(project=lease.project, body=released, dedupe=(lease.job,))
    elif lease.state == "WAITING":
        refused = _refusal(state, lease)
        if refused is not None:
            identity = (lease.job, refused.input, refused.reason, refused.message)
            yield Emit(project=lease.project, body=refused, dedupe=identity)
        else:
            inputs = tuple(_pinned(state, lease.project, pin) for pin in lease.pins)
            granted = datasets.LeaseGranted(job=lease.job, inputs=tuple(i for i in inputs if i is not None))
            yield Emit(project=lease.project, body=granted, dedupe=(lease.job,))


def _refusal(state: State, lease: Lease) -> datasets.LeaseRefused | None:
    """The answer for the first input that is not there; one that never will be comes before all others."""
    found: list[datasets.LeaseRefused] = []
    for pin in lease.pins:
        if pin.number is None:
            answer = resolve(state, lease.project, pin)
            reason, message, permanent = answer.reason, answer.message, answer.permanent
        elif _pinned(state, lease.project, pin) is None:
            reason, permanent = Reason.DATASET_WITHDRAWN, False
            message = f"v{pin.number} of {pin.name}, which {pin.logical} was pinned to, is not accepted any more"
        else:
            continue
        found.append(
            datasets.LeaseRefused(job=lease.job, input=pin.logical, reason=reason, message=message, permanent=permanent)
        )
    return next((refusal for refusal in found if refusal.permanent), found[0] if found else None)


def _pinned(state: State, project: str, pin: Pin) -> datasets.PinnedInput | None:
    """The input as the job will get it; None when the pinned version may not be used any more."""
    number = pin.number or 0
    if pin.kind == "model":
        model = state.get(Model, version_key(project, pin.name, number))
        if model is None:
            return None
        return datasets.PinnedInput(
            kind="model",
            logical=pin.logical,
            name=pin.name,
            number=number,
            root=model.uri,
            manifest_sha256=model.artefact_sha256,
        )
    version = state.get(Version, version_key(project, pin.name, number))
    if version is None or not version.accepted:
        return None
    return datasets.PinnedInput.model_validate(
        {
            "kind": "dataset",
            "logical": pin.logical,
            "name": pin.name,
            "number": number,
            "root": version.root,
            "access_plan": version.access_plan,
            "manifest_sha256": version.manifest_sha256,
            "columns": pin.columns,
            "episodes": pin.episodes,
            "episode_count": version.episode_count,
            "bytes": version.bytes,
        }
    )
