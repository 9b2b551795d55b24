"""Datasets that are registered where they lie: the command, the fold and the work that follows.

A registration takes its turn in the dataset's line like an upload, so that version
numbers follow each other; it ends in a version of access plan A, or in a failure
that says why. The data itself is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from forebay.contracts.body import EventBody
from forebay.contracts.errors import InvalidNameError
from forebay.contracts.identifiers import check_name, slug, stable_id
from forebay.contracts.v1.datasets import DatasetRegistrationFailed, DatasetRegistrationRequested
from forebay.ingest.domain.documents import Dataset, Registration, place
from forebay.ingest.domain.line import start_next, take_turn
from forebay.ingest.domain.place_uri import parse_place
from forebay.ingest.errors import PlaceUnknownError
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, Outcome, Pending, Request, Work
from forebay.runtime.state import Fold, State

REGISTER = "register"
MAX_TEXT = 1024


def register(state: State, pending: Pending, request: Request) -> Outcome:  # noqa: ARG001 the runtime's signature
    """`{uri, dataset, endpoint, revision}` -> a version of data that stays where it lies, in its turn."""
    uri, endpoint = _text(request, "uri") or "", _text(request, "endpoint")
    written = _text(request, "dataset")
    if not written:
        raise Refused("bad-request", "no dataset is named", "name one, for example pick-place")
    try:
        name = check_name(slug(written))
        found = parse_place(uri, endpoint)
    except (InvalidNameError, PlaceUnknownError) as error:
        raise Refused("bad-request", str(error), "forebay dataset register --help") from error
    if isinstance(found, Path) and not found.is_absolute():
        raise Refused(
            "bad-request", f"{uri!r} is no absolute path, and ingest works in another folder", "write it whole"
        )
    same = [
        one
        for one in state.find(Registration, "dataset_key", place(request.project, name))
        if one.uri == uri and one.state in {"WAITING", "WRITING"}
    ]
    if same:
        return Outcome(result={"registration": same[0].id, "dataset": name, "joined": True})
    id_ = "rg-" + stable_id(request.project, name, uri, request.id)[:24]
    body = DatasetRegistrationRequested(
        registration=id_,
        dataset=name,
        uri=uri,
        endpoint=endpoint,
        revision=_text(request, "revision"),
        by=request.by,
    )
    emit = Emit(project=request.project, body=body, dedupe=(id_,))
    return Outcome(result={"registration": id_, "dataset": name, "joined": False}, actions=(emit,))


def _text(request: Request, key: str) -> str | None:
    value = request.args.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise Refused("bad-request", f"{key} is no text of at most {MAX_TEXT} characters", "forebay dataset register")
    return value


def registration(state: State, request: Request) -> dict[str, Any]:
    """`{registration}` -> how far it is, and what was found."""
    wanted = str(request.args.get("registration", ""))
    found = state.get(Registration, place(request.project, wanted))
    if found is None:
        text = f"no registration {wanted!r} in {request.project}"
        raise Refused("registration-unknown", text, "forebay dataset register")
    return to_json(found)


def to_json(found: Registration) -> dict[str, Any]:
    return {
        "registration": found.id,
        "dataset": found.dataset,
        "uri": found.uri,
        "endpoint": found.endpoint,
        "revision": found.revision,
        "state": found.state,
        "version": found.version,
        "outcome": found.outcome,
        "message": found.message,
        "findings": [dict(finding) for finding in found.findings],
    }


def fold_registration(fold: Fold, project: str, body: EventBody) -> None:
    """Change the documents that one event about registrations touches."""
    match body:
        case DatasetRegistrationRequested():
            _requested(fold, project, body)
        case DatasetRegistrationFailed():
            _failed(fold, project, body)
        case _:
            pass


def _requested(fold: Fold, project: str, body: DatasetRegistrationRequested) -> None:
    if fold.get(Registration, place(project, body.registration)) is not None:
        return
    mine = take_turn(fold, project, body.dataset, body.registration)
    dataset = fold.get(Dataset, place(project, body.dataset))
    latest = 0 if dataset is None else dataset.latest
    fold.put(
        Registration(
            project=project,
            id=body.registration,
            dataset=body.dataset,
            uri=body.uri,
            endpoint=body.endpoint,
            revision=body.revision,
            by=body.by,
            state="WRITING" if mine else "WAITING",
            version=latest + 1 if mine else None,
        )
    )


def _failed(fold: Fold, project: str, body: DatasetRegistrationFailed) -> None:
    found = fold.get(Registration, place(project, body.registration))
    dataset = fold.get(Dataset, place(project, body.dataset))
    if found is None or dataset is None or found.state != "WRITING":
        return
    findings = tuple(
        {"rule": one.rule, "severity": one.severity, "episode": one.episode, "message": one.message}
        for one in body.findings
    )
    failed = replace(found, state="FAILED", version=None, message=body.message, outcome=body.outcome, findings=findings)
    fold.put(failed)
    if dataset.active == found.id:
        start_next(fold, dataset)


def registration_work(state: State, project: str, id_: str) -> Iterator[Work]:
    """The work of a registration whose turn it is."""
    found = state.get(Registration, place(project, id_))
    if found is not None and found.state == "WRITING":
        yield Work(kind=REGISTER, key=found.id, project=project, payload={"dataset": found.dataset})
