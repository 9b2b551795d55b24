"""One dataset's line: uploads, derivations and registrations are worked on one after the other, so that versions follow each other."""

from __future__ import annotations

from msgspec.structs import replace

from forebay.ingest.domain.documents import Dataset, Derivation, Registration, Upload, place
from forebay.runtime.state import Fold


def take_turn(fold: Fold, project: str, name: str, id_: str) -> bool:
    """Queue an upload, a derivation or a registration; True when it is its turn at once."""
    dataset = fold.get(Dataset, place(project, name)) or Dataset(project=project, name=name)
    if dataset.active is None:
        fold.put(replace(dataset, active=id_))
        return True
    fold.put(replace(dataset, waiting=(*dataset.waiting, id_)))
    return False


def after_verdicts(fold: Fold, upload: Upload) -> None:
    """With the last verdict the accepted episodes go on; an upload without any makes room for the next."""
    if upload.state != "VALIDATING" or upload.judged < upload.uploaded:
        return
    dataset = fold.get(Dataset, upload.dataset_key)
    if dataset is None:
        return
    if upload.accepted:
        fold.put(replace(upload, state="CONVERTING", version=dataset.latest + 1))
        return
    fold.put(replace(upload, state="REFUSED"))
    start_next(fold, dataset)


def start_next(fold: Fold, dataset: Dataset) -> None:
    """The one that waits longest takes its turn."""
    following = dataset.waiting[0] if dataset.waiting else None
    fold.put(replace(dataset, active=following, waiting=dataset.waiting[1:]))
    if following is None:
        return
    upload = fold.get(Upload, place(dataset.project, following))
    asked = fold.get(Derivation, place(dataset.project, following)) or fold.get(
        Registration, place(dataset.project, following)
    )
    if upload is not None:
        started = replace(upload, state="VALIDATING")
        fold.put(started)
        after_verdicts(fold, started)
    elif asked is not None:
        fold.put(replace(asked, state="WRITING", version=dataset.latest + 1))
