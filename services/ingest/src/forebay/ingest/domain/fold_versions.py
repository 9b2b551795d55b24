"""Folds what happens to versions: commits, derivations, tags, checks and removals."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.v1 import datasets
from forebay.ingest.domain.documents import (
    Check,
    Dataset,
    Derivation,
    Lease,
    Registration,
    Tag,
    Upload,
    Version,
    place,
    use_of,
    version_key,
)
from forebay.ingest.domain.line import start_next, take_turn
from forebay.ingest.domain.membership import members
from forebay.ingest.domain.pinning import pin_waiting
from forebay.ingest.domain.resolve import TRAIN_READY
from forebay.runtime.state import Fold

CHECK_ID = "check-"
"""Checks that a person asked for have ids of their own; those of a lease have the job's."""


def fold_version(fold: Fold, project: str, body: EventBody, now: datetime) -> None:
    """Change the documents that one event about versions touches; `now` is when the log stored it."""
    match body:
        case datasets.DatasetVersionCommitted():
            _committed(fold, project, body, now)
        case datasets.DatasetDerivationRequested():
            _requested(fold, project, body)
        case datasets.DatasetDerivationFailed():
            _failed(fold, project, body)
        case datasets.DatasetVersionChecked():
            _checked(fold, project, body, now)
        case datasets.DatasetVersionRemoved():
            _removed(fold, project, body)
        case datasets.DatasetVersionPlaced():
            _placed(fold, project, body)
        case datasets.DatasetTagged():
            _tagged(fold, project, body, now)
        case datasets.DatasetUntagged():
            _untagged(fold, project, body)
        case _:
            pass


def _committed(fold: Fold, project: str, body: datasets.DatasetVersionCommitted, now: datetime) -> None:
    if fold.get(Version, version_key(project, body.dataset, body.number)) is not None:
        return
    version = Version(
        project=project,
        dataset=body.dataset,
        number=body.number,
        root=body.root,
        access_plan=body.access_plan,
        manifest_sha256=body.manifest_sha256,
        episodes_uri=body.episodes.uri,
        episode_count=body.episode_count,
        frame_count=body.frame_count,
        bytes=body.bytes,
        uploads=body.uploads,
        left_out=body.left_out or {},
        parent=body.parent,
        reason=body.parent_reason,
        filter=body.filter,
        withheld=body.withheld,
        carried=body.carried or (),
        notes=body.notes or (),
        checksums_uri=body.checksums.uri,
        checked_at=now,
    )
    # one may have been withdrawn while the version was being written
    withdrawn = tuple(episode.listed_id for episode in members(fold, version) if episode.withdrawn is not None)
    fold.put(replace(version, withdrawn=withdrawn))
    dataset = fold.get(Dataset, place(project, body.dataset)) or Dataset(project=project, name=body.dataset)
    grows = body.derivation is None and body.access_plan == "C"
    dataset = replace(dataset, latest=max(dataset.latest, body.number), trunk=body.number if grows else dataset.trunk)
    fold.put(dataset)
    if dataset.active is not None:
        _answer(fold, project, dataset, dataset.active, body.number)
    pin_waiting(fold, project, "dataset", body.dataset)


def _placed(fold: Fold, project: str, body: datasets.DatasetVersionPlaced) -> None:
    version = fold.get(Version, version_key(project, body.dataset, body.number))
    if version is None:
        return
    places = version.places if body.problem else {**version.places, body.access_plan: body.root}
    fold.put(replace(version, places=places, placing=body.placing, placing_problem=body.problem))
    pin_waiting(fold, project, "dataset", body.dataset)


def _answer(fold: Fold, project: str, dataset: Dataset, active: str, number: int) -> None:
    """Whoever asked for this version is done."""
    upload = fold.get(Upload, place(project, active))
    asked = fold.get(Derivation, place(project, active)) or fold.get(Registration, place(project, active))
    if upload is not None and upload.version == number:
        fold.put(replace(upload, state="COMMITTED", late=()))
        start_next(fold, dataset)
    elif asked is not None and asked.version == number:
        fold.put(replace(asked, state="COMMITTED"))
        start_next(fold, dataset)


def _requested(fold: Fold, project: str, body: datasets.DatasetDerivationRequested) -> None:
    if fold.get(Derivation, place(project, body.derivation)) is not None:
        return
    mine = take_turn(fold, project, body.dataset, body.derivation)
    dataset = fold.get(Dataset, place(project, body.dataset))
    latest = 0 if dataset is None else dataset.latest
    fold.put(
        Derivation(
            project=project,
            id=body.derivation,
            dataset=body.dataset,
            base=body.base,
            left_out=body.left_out,
            filter=body.filter,
            rewrite=body.rewrite,
            crf=body.crf,
            by=body.by,
            reason=body.reason,
            state="WRITING" if mine else "WAITING",
            version=latest + 1 if mine else None,
        )
    )


def _failed(fold: Fold, project: str, body: datasets.DatasetDerivationFailed) -> None:
    derivation = fold.get(Derivation, place(project, body.derivation))
    dataset = fold.get(Dataset, place(project, body.dataset))
    if derivation is None or dataset is None or derivation.state != "WRITING":
        return
    fold.put(replace(derivation, state="FAILED", message=body.message, version=None))
    if dataset.active == derivation.id:
        start_next(fold, dataset)


def _checked(fold: Fold, project: str, body: datasets.DatasetVersionChecked, now: datetime) -> None:
    version = fold.get(Version, version_key(project, body.dataset, body.number))
    if version is None:
        return
    fold.put(
        replace(
            version,
            checked=body.check,
            checked_at=now,
            broken=None if body.whole else (body.message or "its files are not what was committed"),
            broken_reason=None if body.whole or body.reason is None else body.reason.value,
        )
    )
    if body.check.startswith(CHECK_ID):
        fold.put(
            Check(
                project=project,
                id=body.check,
                dataset=body.dataset,
                number=body.number,
                whole=body.whole,
                message=body.message,
                at=now,
            )
        )
    lease = fold.get(Lease, place(project, body.check))
    if lease is not None and lease.state == "WAITING":
        use = use_of(project, body.dataset, body.number)
        others = tuple(checked for checked in lease.checked if checked != use)
        fold.put(replace(lease, checked=(*others, use) if body.whole else others))


def _removed(fold: Fold, project: str, body: datasets.DatasetVersionRemoved) -> None:
    version = fold.get(Version, version_key(project, body.dataset, body.number))
    if version is not None and version.removed is None:
        fold.put(replace(version, removed=body.reason, accepted=False))


def _tagged(fold: Fold, project: str, body: datasets.DatasetTagged, now: datetime) -> None:
    version = fold.get(Version, version_key(project, body.dataset, body.number))
    if version is None:
        return
    fold.put(replace(version, accepted=True))
    fold.put(
        Tag(
            project=project,
            dataset=body.dataset,
            name=body.tag,
            number=body.number,
            by=body.by,
            reason=body.reason,
            at=now,
        )
    )
    dataset = fold.get(Dataset, place(project, body.dataset))
    if dataset is not None and body.tag == TRAIN_READY and version.access_plan == "C":
        fold.put(replace(dataset, trunk=body.number))
    pin_waiting(fold, project, "dataset", body.dataset)


def _untagged(fold: Fold, project: str, body: datasets.DatasetUntagged) -> None:
    tag = fold.get(Tag, f"{project}/{body.dataset}/{body.tag}")
    if tag is not None and tag.number == body.number:
        fold.delete(Tag, tag.key)
    version = fold.get(Version, version_key(project, body.dataset, body.number))
    if version is not None and body.tag == TRAIN_READY:
        fold.put(replace(version, accepted=False))
