"""A toy service over real contracts: counts finished uploads per dataset and tags the dataset.

Small enough to reason about, and it uses everything the runtime offers.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.parts import Part, Source
from forebay.contracts.v1.datasets import DatasetTagged
from forebay.contracts.v1.episodes import UploadFinished, UploadStarted
from forebay.contracts.v1.models import DeadlinePassed
from forebay.runtime.documents import Document
from forebay.runtime.errors import Refused
from forebay.runtime.log import LogMessage
from forebay.runtime.machine import Action, Deadline, Emit, Outcome, Pending, Request, Service, Work
from forebay.runtime.state import Fold, State
from forebay.runtime.work import WorkContext, WorkItem

COLLECTOR = Source(Part.COLLECTOR, "lab")
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Upload(Document, frozen=True, kw_only=True):
    kind: ClassVar[str] = "upload"
    indexed: ClassVar[tuple[str, ...]] = ("dataset",)
    id: str
    dataset: str
    finished: bool = False
    tags: int = 0

    @property
    def key(self) -> str:
        return self.id


class Arrival(Document, frozen=True, kw_only=True):
    kind: ClassVar[str] = "arrival"
    arrival: ClassVar[bool] = True
    id: str
    seq: int

    @property
    def key(self) -> str:
        return self.id


def evolve(state: Fold, recorded: Recorded[EventBody]) -> None:
    match recorded.body:
        case UploadStarted() as body:
            state.put(Upload(id=body.upload, dataset=body.dataset))
            state.put(Arrival(id=body.upload, seq=recorded.seq))
        case UploadFinished() as body:
            upload = state.get(Upload, body.upload) or Upload(id=body.upload, dataset=body.dataset)
            if body.dataset == "breaks-evolve":
                raise ZeroDivisionError(body.upload)
            state.put(msgspec.structs.replace(upload, finished=True))
        case DatasetTagged() as body:
            for upload in state.find(Upload, "dataset", body.dataset):
                state.put(msgspec.structs.replace(upload, tags=upload.tags + 1))
        case _:
            pass


def decide(state: State, pending: Pending, recorded: Recorded[EventBody]) -> Iterable[Action]:
    match recorded.body:
        case UploadFinished() as body:
            if body.dataset == "breaks-decide":
                raise ZeroDivisionError(body.upload)
            if any(tagged.dataset == body.dataset for tagged in pending.of(DatasetTagged)):
                return
            yield Work(kind="tag", key=body.upload, project=recorded.project, payload={"dataset": body.dataset})
            yield Deadline(
                project=recorded.project, entity=body.upload, condition="forgotten", at=NOON + timedelta(days=1)
            )
        case UploadStarted() as body if body.source_ref == "tag-at-once":
            yield tagged(recorded.project, body.dataset, body.upload)
        case _:
            return


def tagged(project: str, dataset: str, *dedupe: object) -> Emit:
    body = DatasetTagged(dataset=dataset, tag="train-ready", number=1, by="toy")
    return Emit(project=project, body=body, dedupe=dedupe)


async def tag(item: WorkItem, context: WorkContext) -> Iterable[Emit]:
    context.progress({"done": 1})
    return [tagged(item.project, str(item.payload["dataset"]), item.key)]


def tag_command(state: State, pending: Pending, request: Request) -> Outcome:
    dataset = str(request.args["dataset"])
    if not state.find(Upload, "dataset", dataset):
        raise Refused("unknown-dataset", f"no dataset {dataset!r}", "upload it first")
    return Outcome(result={"dataset": dataset}, actions=(tagged(request.project, dataset, request.id),))


def uploads(state: State, request: Request) -> dict[str, Any]:
    found = state.all(Upload, after=str(request.args.get("after", "")), limit=int(request.args.get("limit", 100)))
    return {"uploads": [msgspec.to_builtins(upload) for upload in found], "complete": True, "missing": []}


SERVICE = Service(
    part=Part.INGEST,
    fold_version=1,
    documents=(Upload, Arrival),
    reads=frozenset({UploadStarted, UploadFinished, DatasetTagged, DeadlinePassed}),
    evolve=evolve,
    decide=decide,
    commands={"tag": tag_command},
    questions={"uploads": uploads},
)


def started(upload: str, dataset: str = "pick", *, ref: str = "folder") -> Event[EventBody]:
    body = UploadStarted(
        upload=upload,
        dataset=dataset,
        source_ref=ref,
        source_format="unknown",
        landing_uri="/landing",
        expected_episodes=1,
        expected_files=1,
        expected_bytes=1,
    )
    return Event(id=f"started-{upload}", source=COLLECTOR, project="lab", body=body, time=NOON, recorded=NOON)


def finished(upload: str, dataset: str = "pick", *, size: int = 1, id: str = "") -> Event[EventBody]:  # noqa: A002
    manifest = FileRef(uri="manifest.json", sha256="0" * 64, bytes=size)
    body = UploadFinished(upload=upload, dataset=dataset, episodes=1, files=1, bytes=size, manifest=manifest)
    return Event(id=id or f"finished-{upload}", source=COLLECTOR, project="lab", body=body, time=NOON, recorded=NOON)


class MemoryLog:
    """A log in memory: gives events sequences, as the stream would."""

    def __init__(self) -> None:
        self.messages: list[LogMessage] = []

    def store(self, *events: Event[EventBody]) -> list[LogMessage]:
        return [self._store(encode(event).subject, encode(event).headers, encode(event).body) for event in events]

    def raw(self, subject: str, headers: dict[str, str], body: bytes) -> LogMessage:
        return self._store(subject, headers, body)

    def _store(self, subject: str, headers: dict[str, str], body: bytes) -> LogMessage:
        seq = len(self.messages) + 1
        self.messages.append(LogMessage(seq=seq, subject=subject, headers=headers, data=body, stored_at=NOON))
        return self.messages[-1]
