"""Builders for the registry's tests: events, a little registry in memory, and whole histories."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from forebay.contracts.body import EventBody, FileRef
from forebay.contracts.catalogue import spec_of
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.identifiers import canonical_json, stable_id
from forebay.contracts.parts import PROJECT_PARTS, Source
from forebay.contracts.reasons import Reason
from forebay.contracts.v1 import datasets, episodes, jobs, models
from forebay.registry.app import definition
from forebay.registry.domain.nodes import DOCUMENTS
from forebay.registry.ports import EpisodeList, ListUnavailableError
from forebay.runtime.machine import Emit, NothingPending, Request, Work
from forebay.runtime.state import MemoryState

PROJECT = "arm-lab"
START = datetime(2026, 1, 10, 8, 0, tzinfo=UTC)
MANIFEST = "e" * 64


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class KnownLists:
    """Episode lists by digest, as if each version's file were there."""

    def __init__(self) -> None:
        self.lists: dict[str, EpisodeList] = {}

    def add(self, ids: Sequence[str]) -> FileRef:
        body = canonical_json({"episodes": [{"episode": one, "index": index} for index, one in enumerate(ids)]})
        digest = hashlib.sha256(body).hexdigest()
        self.lists[digest] = EpisodeList({one: index for index, one in enumerate(ids)})
        return FileRef(uri=f"/lists/{digest}.json", sha256=digest, bytes=len(body))

    def read(self, ref: FileRef) -> EpisodeList:
        if ref.sha256 not in self.lists:
            raise ListUnavailableError(f"{ref.uri} cannot be read: No such file or directory")
        return self.lists[ref.sha256]


def event(
    body: EventBody,
    *,
    project: str = PROJECT,
    time: datetime = START,
    id: str | None = None,  # noqa: A002 the envelope's word
) -> Event[EventBody]:
    """The event that the owner of a body would publish."""
    part = spec_of(body).owners[0]
    source = Source(part, project if part in PROJECT_PARTS else None)
    identity = id or stable_id(project, body.event, json.dumps(body.to_json(), sort_keys=True))
    return Event(id=identity, source=source, project=project, body=body, time=time, recorded=time)


def recorded(one: Event[EventBody], seq: int, stored_at: datetime | None = None) -> Recorded[EventBody]:
    return Recorded(event=one, seq=seq, stored_at=stored_at or START + timedelta(seconds=seq), body_sha256="b" * 64)


@dataclass
class Registry:
    """The registry over a state in memory: own events are folded as soon as they are decided."""

    lists: KnownLists = field(default_factory=KnownLists)
    state: MemoryState = field(default_factory=MemoryState)
    said: list[Event[EventBody]] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    files: str = "whole"
    """What a look at the files of any model finds."""

    def __post_init__(self) -> None:
        self.service = definition(self.lists)

    def say(self, *bodies: EventBody, project: str = PROJECT, time: datetime | None = None) -> None:
        for body in bodies:
            self.hear(event(body, project=project, time=time or START + timedelta(seconds=len(self.said))))

    def hear(self, one: Event[EventBody]) -> None:
        if one.identity in self.known:
            return
        self.known.add(one.identity)
        self.said.append(one)
        found = recorded(one, len(self.said))
        self.service.evolve(self.state, found)
        for action in self.service.decide(self.state, NothingPending(), found):
            self.act(action)

    def act(self, action: object) -> None:
        if isinstance(action, Work):
            self.work.append(action)
        elif isinstance(action, Emit):
            body = action.body
            self.hear(
                msgspec.structs.replace(
                    event(body, project=action.project, id=action.event_id),
                    time=START + timedelta(seconds=len(self.said)),
                )
            )

    def command(self, name: str, /, *, project: str = PROJECT, **args: Any) -> dict[str, Any]:
        if name == "model-release":
            args = {"check": f"mc-{len(self.said)}", **args}
        outcome = self.service.commands[name](self.state, NothingPending(), request(args, project))
        for action in outcome.actions:
            self.act(action)
        if outcome.result.get("pending"):  # what the worker would say of files that are there
            self._checked(project, outcome.result)
            return self.command(name, project=project, **args)
        return outcome.result

    def _checked(self, project: str, waiting: dict[str, Any]) -> None:
        work = next(one for one in self.work if one.payload.get("check") == waiting["check"])
        about = {field: work.payload[field] for field in ("model", "number", "artefact_sha256", "check")}
        found = models.ModelFilesChecked(
            **about, status=self.files, findings=() if self.files == "whole" else ("gone",)
        )
        self.say(found, project=project)

    def ask(self, name: str, /, *, project: str = PROJECT, **args: Any) -> dict[str, Any]:
        answer = self.service.questions[name](self.state, request(args, project))
        json.dumps(answer)
        return answer

    def codes(self, subject: str | None = None) -> set[str]:
        """Codes of every contradiction that is known, published or not."""
        found: set[str] = set()
        after: str | None = None
        while True:
            page = self.ask("contradictions", limit=50, **({} if after is None else {"after": after}))
            found |= {one["code"] for one in page["contradictions"] if subject in {None, one["subject"]}}
            after = page["after"]
            if after is None:
                return found

    def published(self) -> list[models.LineageContradictionFound]:
        return [one.body for one in self.said if isinstance(one.body, models.LineageContradictionFound)]


def request(args: dict[str, Any], project: str = PROJECT) -> Request:
    return Request(id="r", project=project, by="tester", args=args, now=START)


def fold(events: Iterable[Event[EventBody]]) -> MemoryState:
    """Fold events as a log would hold them: sequence and storing time follow the order given."""
    state, service = MemoryState(), definition(KnownLists())
    for seq, one in enumerate(events, 1):
        service.evolve(state, recorded(one, seq))
    return state


def digest(events: Iterable[Event[EventBody]]) -> str:
    return fold(events).digest(DOCUMENTS)


# ------------------------------------------------------------------ one of each


def episode_id(number: int, upload: str = "up-1") -> str:
    return "ep-" + stable_id(upload, number)[:24]


def uploaded(number: int, upload: str = "up-1", dataset: str = "pick") -> episodes.EpisodeUploaded:
    return episodes.EpisodeUploaded(
        episode=episode_id(number, upload),
        upload=upload,
        dataset=dataset,
        source_index=number,
        length=300,
        tasks=("reach the target",),
        rows=episodes.RowWindow(file="data/chunk-000/file-000.parquet", start=300 * number, stop=300 * number + 300),
        videos=(
            episodes.TimeWindow(camera="front", file="videos/f.mp4", start=10.0 * number, stop=10.0 * number + 10),
        ),
        robot="arm2",
    )


def accepted(
    number: int, upload: str = "up-1", dataset: str = "pick", *, files_say: str | None = None
) -> episodes.EpisodeAccepted:
    """`files_say`: the task and robot that the files have, where the collector claimed something else."""
    rows = episodes.RowWindow(file="data/chunk-000/file-001.parquet", start=0, stop=300)
    found = None if files_say is None else episodes.EpisodeContent(tasks=(files_say,), rows=rows, robot=files_say)
    return episodes.EpisodeAccepted(
        episode=episode_id(number, upload),
        upload=upload,
        dataset=dataset,
        source_index=number,
        length=300,
        rules_version="1",
        as_read=found,
    )


def rejected(number: int, upload: str = "up-1", dataset: str = "pick") -> episodes.EpisodeRejected:
    return episodes.EpisodeRejected(
        episode=episode_id(number, upload),
        upload=upload,
        dataset=dataset,
        source_index=number,
        length=300,
        rules_version="1",
        findings=(episodes.Finding(rule="no-nan", severity="error", message="NaN in action", frame=7),),
    )


def committed(
    number: int, ref: FileRef, count: int, uploads: tuple[str, ...] = ("up-1",), *, dataset: str = "pick", **more: Any
) -> datasets.DatasetVersionCommitted:
    values: dict[str, Any] = {
        "root": f"/pool/datasets/{dataset}/v{number}",
        "access_plan": "C",
        "format": "lance",
        "episode_count": count,
        "frame_count": 300 * count,
        "bytes": 1000,
        "manifest_sha256": MANIFEST,
        "checksums": FileRef(uri="/c.json", sha256=sha("c"), bytes=1),
        "rules_version": "1",
    }
    return datasets.DatasetVersionCommitted(
        dataset=dataset, number=number, episodes=ref, uploads=uploads, **(values | more)
    )


def tagged(number: int, tag: str = "train-ready", dataset: str = "pick") -> datasets.DatasetTagged:
    return datasets.DatasetTagged(dataset=dataset, tag=tag, number=number, by="ingest")


def submitted(job: str = "reach-1", **spec: Any) -> jobs.JobSubmitted:
    name, _, run = job.rpartition("-")
    return jobs.JobSubmitted(
        job=job,
        run=int(run),
        spec=jobs.JobSpec(name=name, project=PROJECT, command=("python", "train.py"), **spec),
        spec_sha256=sha("spec"),
        submitted_by="tester",
    )


def leased(
    job: str = "reach-1", number: int = 1, episodes: tuple[int, int] | None = None, base: int | None = None
) -> datasets.LeaseGranted:
    inputs = [
        datasets.PinnedInput(
            kind="dataset",
            logical="dataset:pick@train-ready",
            name="pick",
            number=number,
            root=f"/pool/datasets/pick/v{number}",
            manifest_sha256=MANIFEST,
            episodes=episodes,
        )
    ]
    if base is not None:
        inputs.append(
            datasets.PinnedInput(
                kind="model", logical="model:base", name="base", number=base, root="/m", manifest_sha256=MANIFEST
            )
        )
    return datasets.LeaseGranted(job=job, inputs=tuple(inputs))


def admitted(attempt: int, job: str = "reach-1") -> jobs.WorkloadAdmitted:
    return jobs.WorkloadAdmitted(job=job, attempt=attempt, resources=jobs.Resources())


def started(attempt: int = 1, job: str = "reach-1") -> jobs.AttemptStarted:
    return jobs.AttemptStarted(
        job=job, attempt=attempt, host="lab", process=f"{attempt}@1", recovers=attempt - 1 if attempt > 1 else None
    )


def ended(
    attempt: int = 1, job: str = "reach-1", code: int | None = 0, reason: Reason | None = None
) -> jobs.AttemptEnded:
    said = reason or (Reason.COMPLETED if code == 0 else Reason.PROCESS_FAILED)
    return jobs.AttemptEnded(job=job, attempt=attempt, exit_code=code, reason=said, message="ended")


def resumed(attempt: int, step: int | None, job: str = "reach-1", of: int = 1) -> models.ResumeDecided:
    if step is None:
        return models.ResumeDecided(job=job, attempt=attempt, mode="cold", reasons=("first attempt",))
    save = written(step, of, job)
    return models.ResumeDecided(
        job=job,
        attempt=attempt,
        mode="resume",
        checkpoint=save.checkpoint,
        step=step,
        uri=save.uri,
        reasons=("resumed",),
    )


def written(
    step: int, attempt: int = 1, job: str = "reach-1", *, content: str = "", uri: str | None = None, **more: Any
) -> models.CheckpointWritten:
    files = tuple(
        models.CheckpointFile(path=name, sha256=sha(f"{name}{job}{attempt}{step}{content}"), bytes=100)
        for name in ("model.safetensors", "optimizer.safetensors", "state.json")
    )
    found = models.checkpoint_digest(files)
    return models.CheckpointWritten(
        checkpoint="ck-" + stable_id(job, attempt, step, found)[:24],
        job=job,
        attempt=attempt,
        step=step,
        uri=uri or f"/jobs/{job}/attempt-{attempt}/checkpoints/{step:06d}",
        files=files,
        digest=found,
        **more,
    )


def verified(save: models.CheckpointWritten, status: Any = "complete", *findings: str) -> models.CheckpointVerified:
    return models.CheckpointVerified(
        checkpoint=save.checkpoint,
        job=save.job,
        attempt=save.attempt,
        step=save.step,
        status=status,
        findings=findings,
    )


def trained(
    registry: Registry, job: str = "reach-1", *, episodes: int = 3, window: tuple[int, int] | None = None
) -> None:
    """Upload, version 1, a job of two attempts (the second resumes from step 200), three saves."""
    ids = [episode_id(number) for number in range(episodes)]
    registry.say(*(uploaded(number) for number in range(episodes)), *(accepted(number) for number in range(episodes)))
    registry.say(committed(1, registry.lists.add(ids), episodes), tagged(1))
    registry.say(submitted(job), leased(job, 1, window))
    run(registry, job)


def run(registry: Registry, job: str = "reach-1") -> None:
    """Two attempts of a job, the second resuming; it succeeds."""
    registry.say(resumed(1, None, job), started(1, job))
    for step in (100, 200):
        registry.say(written(step, 1, job), verified(written(step, 1, job)))
    registry.say(ended(1, job, None, Reason.PROCESS_KILLED), resumed(2, 200, job), started(2, job))
    registry.say(written(300, 2, job), verified(written(300, 2, job)), ended(2, job))
    registry.say(jobs.JobSucceeded(job=job, attempt=2, attempts=2))


def history() -> list[Event[EventBody]]:
    """A whole story with every kind of event that lineage folds, as the registry itself would continue it."""
    registry = Registry()
    registry.say(
        episodes.UploadStarted(
            upload="up-1",
            dataset="pick",
            source_ref="lerobot/pick",
            source_format="lerobot-v3.0",
            landing_uri="/landing",
            expected_episodes=3,
            expected_files=1,
            expected_bytes=1,
        )
    )
    trained(registry)
    registry.say(
        episodes.EpisodeWithdrawn(episode=episode_id(2), dataset="pick", reason="consent", by="owner"),
        tagged(1, "blessed"),
        datasets.DatasetUntagged(dataset="pick", tag="blessed", number=1, by="owner"),
        committed(2, registry.lists.add([episode_id(0), episode_id(1)]), 2, parent=1, parent_reason="withdrawn"),
        tagged(2),
    )
    registry.command("model-register", model="reach", job="reach-1")
    registry.command("model-evaluate", model="reach", metrics={"success": 0.9}, source="eval.json")
    gate = {"rules": [{"metric": "success", "at_least": 0.8}]}
    registry.command("model-policy", channel="candidate", policy=gate, reason="pilot")
    registry.command("model-release", model="reach", channel="candidate")
    registry.command("model-release", model="reach", channel="production")
    registry.say(
        submitted("finetune-1"),
        leased("finetune-1", 2),
        admitted(1, "finetune-1"),
        jobs.PreflightPassed(job="finetune-1", attempt=1),
        jobs.PodScheduled(job="finetune-1", attempt=1, pod="finetune-1-x", node="gpu-3"),
        rejected(3),
        submitted("broken-1"),
        jobs.JobFailed(job="broken-1", reason=Reason.ATTEMPTS_EXHAUSTED, message="no attempt is left", attempts=3),
    )
    run(registry, "finetune-1")
    registry.command("model-register", model="reach", job="finetune-1")
    registry.command("model-release", model="reach", channel="production", forced_reason="robot waits")
    registry.command("model-release", model="reach", channel="production", rollback=True, reason="worse")
    files = [file.model_dump(mode="json") for file in written(700).files]
    old: dict[str, Any] = {"run": "old-act", "step": 700, "uri": "/imports/old", "source": "/old", "files": files}
    registry.command("checkpoint-import", **old, compatibility={"datasets": ["dataset:pick@v1"]})
    registry.say(
        datasets.DatasetVersionChecked(dataset="pick", number=2, check="c-1", whole=True),
        datasets.DatasetVersionPlaced(
            dataset="pick",
            number=2,
            placing="pl-1",
            access_plan="B",
            root="s3://robots/arm/pick/v2",
            manifest_sha256="ab" * 32,
            bytes=10,
            by="ops",
        ),
        datasets.DatasetVersionRemoved(dataset="pick", number=1, by="ops", reason="space"),
    )
    return registry.said


def write_list(path: Path, ids: Sequence[str]) -> FileRef:
    """An episode list as ingest writes it."""
    rows = [{"episode": one, "index": index, "length": 300} for index, one in enumerate(ids)]
    body = canonical_json({"episodes": rows})
    path.write_bytes(body)
    return FileRef(uri=str(path), sha256=hashlib.sha256(body).hexdigest(), bytes=len(body))
