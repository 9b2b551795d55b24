"""Folds events into ingest's documents. Pure; nothing but the log decides what they say."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Recorded
from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import parse_logical_name, stable_id
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.ingest.domain.claims import claimed_by, content_of
from forebay.ingest.domain.documents import (
    Dataset,
    Episode,
    Lease,
    Manifest,
    Model,
    ModelName,
    Pin,
    Recording,
    Upload,
    Version,
    place,
)
from forebay.ingest.domain.fold_versions import fold_version
from forebay.ingest.domain.line import after_verdicts, take_turn
from forebay.ingest.domain.membership import copies, holds
from forebay.ingest.domain.pinning import pin_waiting, put_pinned
from forebay.ingest.domain.registering import fold_registration
from forebay.ingest.domain.verdict_values import Told
from forebay.ingest.domain.waiving import episode_returned, look_again, rule_waived, waiver_revoked
from forebay.runtime.state import Fold

FOLD_VERSION = 10
MAX_SOURCE_INDEX = 1_000_000
"""Higher episode numbers are taken for a mistake; workers go through all numbers up to the highest."""

READS: frozenset[type[EventBody]] = frozenset(
    {
        episodes.UploadStarted,
        episodes.EpisodeUploaded,
        episodes.UploadFinished,
        episodes.EpisodeAccepted,
        episodes.EpisodeHeld,
        episodes.EpisodeRejected,
        episodes.EpisodeWithdrawn,
        episodes.RuleWaived,
        episodes.WaiverRevoked,
        datasets.DatasetVersionCommitted,
        datasets.DatasetDerivationRequested,
        datasets.DatasetDerivationFailed,
        datasets.DatasetRegistrationRequested,
        datasets.DatasetRegistrationFailed,
        datasets.DatasetVersionChecked,
        datasets.DatasetVersionRemoved,
        datasets.DatasetVersionPlaced,
        datasets.DatasetTagged,
        datasets.DatasetUntagged,
        datasets.LeaseGranted,
        datasets.LeaseReleased,
        models.ModelVersionRegistered,
        models.ModelReleased,
        models.ModelRolledBack,
        jobs.JobSubmitted,
        jobs.JobSucceeded,
        jobs.JobFailed,
        jobs.JobCancelled,
    }
)


def episode_id(project: str, dataset: str, upload: str, source_index: int) -> str:
    """The stable id of an episode, as the collector makes it."""
    return "ep-" + stable_id(project, dataset, upload, source_index)[:24]


def evolve(fold: Fold, recorded: Recorded[EventBody]) -> None:
    """Change the documents that one event touches."""
    _of_uploads(fold, recorded.project, recorded.body)
    fold_version(fold, recorded.project, recorded.body, recorded.stored_at)
    fold_registration(fold, recorded.project, recorded.body)
    _of_models(fold, recorded.project, recorded.body)
    _of_jobs(fold, recorded.project, recorded.body)
    _of_waivers(fold, recorded.project, recorded.body, recorded.stored_at)


def _of_waivers(fold: Fold, project: str, body: EventBody, now: datetime) -> None:
    match body:
        case episodes.RuleWaived():
            rule_waived(fold, project, body, now)
        case episodes.WaiverRevoked():
            waiver_revoked(fold, project, body, now)
        case (
            episodes.EpisodeAccepted(dataset=dataset)
            | episodes.EpisodeHeld(dataset=dataset)
            | episodes.EpisodeRejected(dataset=dataset)
            | datasets.DatasetVersionCommitted(dataset=dataset)
        ):
            look_again(fold, place(project, dataset), now)
        case _:
            pass


def _of_uploads(fold: Fold, project: str, body: EventBody) -> None:
    match body:
        case episodes.UploadStarted():
            _upload_started(fold, project, body)
        case episodes.EpisodeUploaded():
            _episode_uploaded(fold, project, body)
        case episodes.UploadFinished():
            _upload_finished(fold, project, body)
        case episodes.EpisodeAccepted() | episodes.EpisodeHeld() | episodes.EpisodeRejected():
            _episode_judged(fold, project, body)
        case episodes.EpisodeWithdrawn():
            _episode_withdrawn(fold, project, body)
        case _:
            pass


def _of_models(fold: Fold, project: str, body: EventBody) -> None:
    match body:
        case models.ModelVersionRegistered():
            _model_registered(fold, project, body)
        case models.ModelReleased(model=model, channel=channel, number=number):
            _channel_moved(fold, project, model, channel, number)
        case models.ModelRolledBack(model=model, channel=channel, to_number=number):
            _channel_moved(fold, project, model, channel, number)
        case _:
            pass


def _of_jobs(fold: Fold, project: str, body: EventBody) -> None:
    match body:
        case jobs.JobSubmitted():
            _job_submitted(fold, project, body)
        case datasets.LeaseGranted(job=job):
            _change_lease(fold, project, job, state="GRANTED")
        case datasets.LeaseReleased(job=job):
            _change_lease(fold, project, job, state="RELEASED")
        case jobs.JobSucceeded(job=job) | jobs.JobFailed(job=job) | jobs.JobCancelled(job=job):
            _job_ended(fold, project, job, body.event)
        case _:
            pass


# uploads


def _upload_started(fold: Fold, project: str, body: episodes.UploadStarted) -> None:
    if fold.get(Upload, place(project, body.upload)) is not None:
        return
    fold.put(
        Upload(
            project=project,
            id=body.upload,
            dataset=body.dataset,
            source_ref=body.source_ref,
            source_revision=body.source_revision,
            landing_uri=body.landing_uri,
            request=body.collection_request,
            expected_episodes=body.expected_episodes,
            replaces=bool(body.replaces),
        )
    )
    if fold.get(Dataset, place(project, body.dataset)) is None:
        fold.put(Dataset(project=project, name=body.dataset))


def _episode_uploaded(fold: Fold, project: str, body: episodes.EpisodeUploaded) -> None:
    upload = fold.get(Upload, place(project, body.upload))
    known = body.episode == episode_id(project, body.dataset, body.upload, body.source_index)
    if upload is None or upload.dataset != body.dataset or not known or body.source_index > MAX_SOURCE_INDEX:
        return  # a foreign id: nothing that ingest could find again under it
    if fold.get(Episode, place(project, body.episode)) is not None:
        return
    fold.put(
        Episode(
            project=project,
            id=body.episode,
            upload=body.upload,
            dataset=body.dataset,
            source_index=body.source_index,
            length=body.length,
            tasks=body.tasks,
            claimed=claimed_by(body),
        )
    )
    _advance(fold, replace(upload, uploaded=upload.uploaded + 1, highest=max(upload.highest, body.source_index)))


def _upload_finished(fold: Fold, project: str, body: episodes.UploadFinished) -> None:
    upload = fold.get(Upload, place(project, body.upload))
    if upload is None or upload.dataset != body.dataset or upload.announced is not None:
        return
    manifest = Manifest(uri=body.manifest.uri, sha256=body.manifest.sha256, bytes=body.manifest.bytes)
    _advance(fold, replace(upload, announced=body.episodes, manifest=manifest))


def _advance(fold: Fold, upload: Upload) -> None:
    """An upload that is complete is checked at once, or after the others of its dataset."""
    if upload.state == "ARRIVING" and upload.complete:
        mine = take_turn(fold, upload.project, upload.dataset, upload.id)
        upload = replace(upload, state="VALIDATING" if mine else "WAITING")
    fold.put(upload)
    after_verdicts(fold, upload)


def _episode_judged(
    fold: Fold,
    project: str,
    body: episodes.EpisodeAccepted | episodes.EpisodeHeld | episodes.EpisodeRejected,
) -> None:
    episode = fold.get(Episode, place(project, body.episode))
    upload = fold.get(Upload, place(project, body.upload))
    if episode is not None and episode.freed and isinstance(body, episodes.EpisodeAccepted):
        if episode.state == "HELD":
            episode = _with_verdict(episode, body)
            _remember_recording(fold, project, body)
        fold.put(replace(episode, freed=False))
        episode_returned(fold, episode)
        return
    if episode is None or upload is None or episode.rules_version is not None:
        return
    if episode.state == "WITHDRAWN":  # nobody wants its verdict any more, but the upload waits for it
        fold.put(replace(episode, rules_version=body.rules_version, claimed=None))
        changed = replace(upload, rejected=upload.rejected + 1)
        fold.put(changed)
        after_verdicts(fold, changed)
        return
    judged = _with_verdict(episode, body)
    first = None if judged.same_as is None else fold.get(Episode, place(project, judged.same_as))
    if first is not None and first.withdrawn is not None:  # while this upload was being checked
        reason, by = first.withdrawn, first.withdrawn_by
        judged = replace(judged, state="REJECTED", accepted=False, message=f"withdrawn: {reason}", withdrawn_by=by)
    state = judged.state
    fold.put(judged)
    _remember_recording(fold, project, body)
    changed = replace(
        upload,
        accepted=upload.accepted + (state == "ACCEPTED"),
        held=upload.held + (state == "HELD"),
        rejected=upload.rejected + (state == "REJECTED"),
    )
    fold.put(changed)
    after_verdicts(fold, changed)


def _with_verdict(
    episode: Episode, body: episodes.EpisodeAccepted | episodes.EpisodeHeld | episodes.EpisodeRejected
) -> Episode:
    accepted, held = isinstance(body, episodes.EpisodeAccepted), isinstance(body, episodes.EpisodeHeld)
    findings = body.warnings if isinstance(body, episodes.EpisodeAccepted) else body.findings
    named = None if isinstance(body, episodes.EpisodeRejected) else body
    return replace(
        episode,
        state="ACCEPTED" if accepted else ("HELD" if held else "REJECTED"),
        accepted=accepted,
        length=body.length,
        rules_version=body.rules_version,
        rules=tuple(dict.fromkeys(finding.rule for finding in findings)),
        message=findings[0].message if findings else None,
        sha256=named.sha256 if named is not None else None,
        same_as=body.same_as if isinstance(body, episodes.EpisodeAccepted) else None,
        tasks=named.tasks if named is not None and (accepted or named.tasks) else episode.tasks,
        findings=tuple(Told(**finding.model_dump()) for finding in findings) if held else (),
        freed=False,
        claimed=None,
        as_read=content_of(body.length, body.as_read) if held and body.as_read is not None else None,
    )


def _remember_recording(fold: Fold, project: str, body: EventBody) -> None:
    if isinstance(body, episodes.EpisodeAccepted) and body.sha256 is not None:
        recording = Recording(project=project, dataset=body.dataset, sha256=body.sha256, episode=body.episode)
        if fold.get(Recording, recording.key) is None:
            fold.put(recording)


def _episode_withdrawn(fold: Fold, project: str, body: episodes.EpisodeWithdrawn) -> None:
    episode = fold.get(Episode, place(project, body.episode))
    if episode is None or episode.withdrawn is not None:
        return
    every = copies(fold, episode)
    for version in fold.find(Version, "dataset_key", place(project, episode.dataset)):
        if any(holds(version, one) for one in every):
            fold.put(replace(version, withdrawn=(*version.withdrawn, episode.id)))
    for one in every:
        fold.put(replace(one, state="WITHDRAWN", withdrawn=body.reason, withdrawn_by=body.by))
        upload = fold.get(Upload, place(project, one.upload))
        if one.accepted and upload is not None and upload.state == "VALIDATING":
            fold.put(replace(upload, accepted=upload.accepted - 1, rejected=upload.rejected + 1))


# models


def _model_registered(fold: Fold, project: str, body: models.ModelVersionRegistered) -> None:
    model = Model(
        project=project,
        name=body.model,
        number=body.number,
        uri=body.uri,
        artefact_sha256=body.artefact_sha256,
        job=body.job,
    )
    if fold.get(Model, model.key) is not None:
        return
    fold.put(model)
    known = fold.get(ModelName, place(project, body.model)) or ModelName(project=project, name=body.model)
    fold.put(replace(known, latest=max(body.number, known.latest)))
    pin_waiting(fold, project, "model", body.model)


def _channel_moved(fold: Fold, project: str, model: str, channel: str, number: int) -> None:
    known = fold.get(ModelName, place(project, model)) or ModelName(project=project, name=model)
    fold.put(replace(known, channels={**known.channels, channel: number}))
    pin_waiting(fold, project, "model", model)


# leases


def _job_submitted(fold: Fold, project: str, body: jobs.JobSubmitted) -> None:
    if fold.get(Lease, place(project, body.job)) is not None:
        return
    pins = [
        replace(_pin("dataset", d.name, columns=d.columns, episodes=d.episodes), access=d.access, number=d.version)
        for d in body.spec.datasets
    ]
    pins += [replace(_pin("model", m.name), number=m.version) for m in body.spec.models]
    put_pinned(fold, Lease(project=project, job=body.job, pins=tuple(pins)))


def _pin(kind: str, text: str, *, columns: tuple[str, ...] = (), episodes: tuple[int, int] | None = None) -> Pin:
    try:
        name = parse_logical_name(text, kind=kind)
    except InvalidNameError:
        return Pin(kind=kind, logical=text, name="", selector="")
    return Pin(kind=kind, logical=text, name=name.name, selector=name.selector, columns=columns, episodes=episodes)


def _change_lease(fold: Fold, project: str, job: str, *, state: str) -> None:
    lease = fold.get(Lease, place(project, job))
    if lease is not None:
        fold.put(replace(lease, state=state))


def _job_ended(fold: Fold, project: str, job: str, event: str) -> None:
    lease = fold.get(Lease, place(project, job))
    if lease is not None and lease.ended is None:
        fold.put(replace(lease, ended=event, state="OVER" if lease.state == "WAITING" else lease.state))
