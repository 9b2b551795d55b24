"""Answers an event with events and work. Pure; the state already contains the event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.ingest.domain.documents import (
    Dataset,
    Derivation,
    Episode,
    Lease,
    Model,
    Pin,
    Tag,
    Upload,
    Version,
    place,
    use_of,
    version_key,
    waiting_for,
)
from forebay.ingest.domain.membership import copies, holds
from forebay.ingest.domain.registering import registration_work
from forebay.ingest.domain.resolve import TRAIN_READY, Resolution, resolve, unusable
from forebay.ingest.domain.waiving import accept_freed
from forebay.runtime.machine import Action, Emit, Pending, Work
from forebay.runtime.state import State

VALIDATE = "validate"
CONVERT = "convert"
DERIVE = "derive"
CHECK = "check"
LEASE = "lease"
RELEASE = "release"
REMOVE = "remove"


def decide(state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
    """What follows from one event."""
    project, body, cause = recorded.project, recorded.body, recorded.event.id
    removing = {
        use_of(project, gone.dataset, gone.number) for gone in pending.of(datasets.DatasetVersionRemoved, project)
    }
    for action in _decide(state, project, body, cause):
        # a version that is about to be removed is not leased any more; its removal is heard of in a moment
        if isinstance(action, Emit) and isinstance(action.body, datasets.LeaseGranted):
            inputs = action.body.inputs
            if any(use_of(project, item.name, item.number) in removing for item in inputs if item.kind == "dataset"):
                continue
        yield action


def _decide(state: State, project: str, body: EventBody, cause: str) -> Iterator[Action]:
    yield from _about_uploads(state, project, body, cause)
    yield from _about_versions(state, project, body, cause)
    yield from _about_jobs(state, project, body, cause)


def _about_uploads(state: State, project: str, body: EventBody, cause: str) -> Iterator[Action]:
    match body:
        case episodes.UploadStarted(dataset=dataset):
            yield from _leases(state, project, "dataset", dataset, cause)
        case episodes.EpisodeUploaded(upload=upload):
            yield from _upload_changed(state, project, upload)
        case episodes.UploadFinished(upload=upload):
            yield from _upload_changed(state, project, upload, cause)
        case (
            episodes.EpisodeAccepted(upload=upload)
            | episodes.EpisodeHeld(upload=upload)
            | episodes.EpisodeRejected(upload=upload)
        ):
            yield from _verdict_given(state, project, upload, cause)
            yield from accept_freed(state, project, body.dataset)
        case episodes.RuleWaived(dataset=dataset):
            yield from accept_freed(state, project, dataset)
        case episodes.EpisodeWithdrawn(episode=episode):
            yield from _episode_withdrawn(state, project, episode)
        case _:
            pass


def _about_versions(state: State, project: str, body: EventBody, cause: str) -> Iterator[Action]:
    match body:
        case datasets.DatasetVersionCommitted():
            yield from _train_ready(state, project, body)
            yield from accept_freed(state, project, body.dataset)
            yield from _next_work(state, project, body.dataset)  # leases: when the tag is back, a moment later
        case datasets.DatasetDerivationRequested(dataset=dataset) | datasets.DatasetDerivationFailed(dataset=dataset):
            yield from _next_work(state, project, dataset)
        case (
            datasets.DatasetRegistrationRequested(dataset=dataset) | datasets.DatasetRegistrationFailed(dataset=dataset)
        ):
            yield from _next_work(state, project, dataset)
            yield from _leases(state, project, "dataset", dataset, cause)
        case (
            datasets.DatasetTagged(dataset=dataset)
            | datasets.DatasetUntagged(dataset=dataset)
            | datasets.DatasetVersionPlaced(dataset=dataset)
        ):
            yield from _leases(state, project, "dataset", dataset, cause)
        case datasets.DatasetVersionChecked():
            yield from _version_checked(state, project, body, cause)
        case datasets.DatasetVersionRemoved():
            yield from _version_removed(state, project, body, cause)
        case _:
            pass


def _about_jobs(state: State, project: str, body: EventBody, cause: str) -> Iterator[Action]:
    match body:
        case (
            models.ModelVersionRegistered(model=model)
            | models.ModelReleased(model=model)
            | models.ModelRolledBack(model=model)
        ):
            yield from _leases(state, project, "model", model, cause)
        case (
            jobs.JobSubmitted(job=job)
            | jobs.JobSucceeded(job=job)
            | jobs.JobFailed(job=job)
            | jobs.JobCancelled(job=job)
            | datasets.LeaseGranted(job=job)
        ):
            lease = state.get(Lease, place(project, job))
            if lease is not None:
                yield from _lease(state, lease, cause)
        case _:
            pass


# uploads


def _upload_changed(state: State, project: str, id_: str, finished: str | None = None) -> Iterator[Action]:
    upload = state.get(Upload, place(project, id_))
    if upload is None:
        return
    if upload.state == "VALIDATING":
        yield _validate(upload)
    if finished is not None:
        yield from _leases(state, project, "dataset", upload.dataset, finished)


def _verdict_given(state: State, project: str, id_: str, cause: str) -> Iterator[Action]:
    upload = state.get(Upload, place(project, id_))
    if upload is not None and upload.state in {"CONVERTING", "REFUSED"}:
        yield from _next_work(state, project, upload.dataset)
        yield from _leases(state, project, "dataset", upload.dataset, cause)


def _next_work(state: State, project: str, dataset: str) -> Iterator[Action]:
    found = state.get(Dataset, place(project, dataset))
    if found is None or found.active is None:
        return
    upload = state.get(Upload, place(project, found.active))
    derivation = state.get(Derivation, place(project, found.active))
    if upload is not None and upload.state == "VALIDATING":
        yield _validate(upload)
    elif upload is not None and upload.state == "CONVERTING":
        payload: dict[str, Any] = {"upload": upload.id, "dataset": dataset}
        payload |= {"number": upload.version, "base": found.trunk}
        if upload.late:  # episodes that were accepted later make another work of the same upload
            payload["late"] = list(upload.late)
        elif upload.replaces:
            payload["replaces"] = True
        key = f"{upload.id}-v{upload.version}" if upload.late else upload.id
        yield Work(kind=CONVERT, key=key, project=project, payload=payload)
    elif derivation is not None and derivation.state == "WRITING":
        yield Work(kind=DERIVE, key=derivation.id, project=project, payload={"dataset": dataset})
    else:
        yield from registration_work(state, project, found.active)


def _validate(upload: Upload) -> Work:
    return Work(kind=VALIDATE, key=upload.id, project=upload.project, payload={"upload": upload.id})


def _train_ready(state: State, project: str, body: datasets.DatasetVersionCommitted) -> Iterator[Emit]:
    """A version of an upload is named at once; one that a person asked for, or that holds withdrawn episodes, is not."""
    version = state.get(Version, version_key(project, body.dataset, body.number))
    if body.derivation is not None or body.withheld is not None or (version is not None and version.withdrawn):
        return
    before = state.get(Tag, f"{project}/{body.dataset}/{TRAIN_READY}")
    tagged = datasets.DatasetTagged(
        dataset=body.dataset,
        tag=TRAIN_READY,
        number=body.number,
        previous=before.number if before is not None else None,
        by="ingest",
        reason="every episode in it was accepted",
    )
    yield Emit(project=project, body=tagged, dedupe=(body.dataset, body.number, TRAIN_READY))


def _version_checked(state: State, project: str, body: datasets.DatasetVersionChecked, cause: str) -> Iterator[Action]:
    for lease in state.find(Lease, "waits_for", waiting_for(project, "dataset", body.dataset)):
        if body.whole and lease.job == body.check and not set(lease.uses) <= set(lease.checked):
            continue  # the answers about its other inputs follow
        yield from _lease(state, lease, cause)


def _version_removed(state: State, project: str, body: datasets.DatasetVersionRemoved, cause: str) -> Iterator[Action]:
    payload = {"dataset": body.dataset, "number": body.number}
    yield Work(kind=REMOVE, key=f"{body.dataset}/{body.number}", project=project, payload=payload)
    yield from _leases(state, project, "dataset", body.dataset, cause)


def _episode_withdrawn(state: State, project: str, id_: str) -> Iterator[Action]:
    """Every job that waits for a version with the episode, or has not started on it, hears so; who runs is flagged."""
    episode = state.get(Episode, place(project, id_))
    if episode is None:
        return
    every = copies(state, episode)
    for version in state.find(Version, "dataset_key", place(project, episode.dataset)):
        if not any(holds(version, one) for one in every):
            continue
        for lease in state.find(Lease, "uses", use_of(project, version.dataset, version.number)):
            if lease.ended is None:
                yield from _refuse(lease, _refusals(state, lease))


# leases


def _leases(state: State, project: str, kind: str, name: str, cause: str) -> Iterator[Action]:
    for lease in state.find(Lease, "waits_for", waiting_for(project, kind, name)):
        yield from _lease(state, lease, cause)


def _lease(state: State, lease: Lease, cause: str) -> Iterator[Action]:
    """Grant, explain or give back, as the lease stands now."""
    if lease.ended is not None:
        if lease.state == "GRANTED":
            released = datasets.LeaseReleased(job=lease.job, reason=lease.ended)
            yield Emit(project=lease.project, body=released, dedupe=(lease.job,))
        yield Work(kind=RELEASE, key=lease.job, project=lease.project)
    elif lease.state == "WAITING":
        refusals = _refusals(state, lease)
        if refusals:
            yield from _refuse(lease, refusals)
        elif not set(lease.uses) <= set(lease.checked):
            # before a job is told to start, somebody looks whether its data is really there
            yield Work(kind=LEASE, key=lease.job, project=lease.project, payload={"cause": cause}, again=True)
        else:
            inputs = tuple(_pinned(state, lease.project, pin) for pin in lease.pins)
            granted = datasets.LeaseGranted(job=lease.job, inputs=tuple(i for i in inputs if i is not None))
            yield Emit(project=lease.project, body=granted, dedupe=(lease.job,))


def _refuse(lease: Lease, refusals: list[datasets.LeaseRefused]) -> Iterator[Emit]:
    """The answer for the first input that is not there; one that never will be comes before all others."""
    refused = next((refusal for refusal in refusals if refusal.permanent), refusals[0] if refusals else None)
    if refused is not None:
        identity = (lease.job, refused.input, refused.reason, refused.message)
        yield Emit(project=lease.project, body=refused, dedupe=identity)


def _refusals(state: State, lease: Lease) -> list[datasets.LeaseRefused]:
    found: list[datasets.LeaseRefused] = []
    for pin in lease.pins:
        answer = resolve(state, lease.project, pin) if pin.number is None else _objection(state, lease.project, pin)
        if answer is None:
            continue
        found.append(
            datasets.LeaseRefused(
                job=lease.job,
                input=pin.logical,
                reason=answer.reason,
                message=answer.message,
                permanent=answer.permanent,
            )
        )
    return found


def _objection(state: State, project: str, pin: Pin) -> Resolution | None:
    """Why a pinned version may not be used any more."""
    if pin.kind == "dataset":
        version = state.get(Version, version_key(project, pin.name, pin.number or 0))
        why_not = None if version is None else unusable(version)
        if why_not is not None:
            return why_not
    if _pinned(state, project, pin) is not None:
        return None
    text = f"v{pin.number} of {pin.name}, which {pin.logical} was pinned to, is not accepted any more"
    return Resolution(reason=Reason.DATASET_WITHDRAWN, message=text)


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
    if version is None or not version.accepted or unusable(version) is not None:
        return None
    access = pin.access or version.access_plan
    return datasets.PinnedInput.model_validate(
        {
            "kind": "dataset",
            "logical": pin.logical,
            "name": pin.name,
            "number": number,
            "root": version.places.get(access, version.root) if access != version.access_plan else version.root,
            "access_plan": access,
            "manifest_sha256": version.manifest_sha256,
            "columns": pin.columns,
            "episodes": pin.episodes,
            "episode_count": version.episode_count,
            "bytes": version.bytes,
        }
    )
