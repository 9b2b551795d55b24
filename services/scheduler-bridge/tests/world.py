"""A log, a state and an outbox in memory: the bridge's pure functions run as the runtime runs them.

Events are stored one after the other, folded, decided on; what is decided waits in
the outbox until `store_own` puts it into the log, so tests can let foreign events
come in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from forebay.contracts.body import EventBody
from forebay.contracts.codec import encode
from forebay.contracts.envelope import Event, Recorded
from forebay.contracts.parts import PROJECT_PARTS, Part, Source
from forebay.contracts.v1 import cache, datasets, episodes, jobs
from forebay.runtime.machine import Action, Emit, Request, Work, event_of
from forebay.runtime.state import MemoryState
from forebay.scheduler_bridge.app import definition
from forebay.scheduler_bridge.domain.amounts import Amount
from forebay.scheduler_bridge.domain.backend import Backend
from forebay.scheduler_bridge.domain.decide import LocalBridge
from forebay.scheduler_bridge.domain.documents import Entry, Job
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES

B = TypeVar("B", bound=EventBody)
SHA = "a" * 64
START = datetime(2026, 1, 10, 8, tzinfo=UTC)
GB = 1_000_000_000
MACHINE = Amount(millicpus=4000, memory_bytes=8 * GB, gpus=2)


class Outbox:
    """What is decided and not yet in the log."""

    def __init__(self) -> None:
        self.events: list[Event[EventBody]] = []

    def of(self, body_type: type[B], project: str | None = None) -> list[B]:
        return [
            event.body
            for event in self.events
            if isinstance(event.body, body_type) and project in {None, event.project}
        ]


class World:
    """One bridge and its log."""

    def __init__(self, total: Amount = MACHINE, project: str = "arm-lab", *, backend: Backend | None = None) -> None:
        self.service = definition(backend or LocalBridge(total=total, rules=LOCAL_RULES))
        self.state = MemoryState()
        self.outbox = Outbox()
        self.log: list[Recorded[EventBody]] = []
        self.work: list[Work] = []
        self.project = project
        self.now = START
        self._seen: set[str] = set()
        self._requests = 0

    # ------------------------------------------------------------ the log

    def say(self, body: EventBody, part: Part = Part.INGEST, *, id: str | None = None, settle: bool = True) -> None:  # noqa: A002
        """A part publishes; the bridge folds it, and (with `settle`) everything that follows from it."""
        source = Source(part, self.project if part in PROJECT_PARTS else None)
        self.tick()
        event: Event[EventBody] = Event(
            id=id or f"{body.event}-{len(self.log)}", source=source, project=self.project, body=body, time=self.now
        )
        self.store(event)
        if settle:
            self.settle()

    def tick(self, seconds: float = 1.0) -> None:
        self.now += timedelta(seconds=seconds)

    def store(self, event: Event[EventBody]) -> None:
        """The log takes an event, and the bridge folds it and decides."""
        encode(event)
        recorded = Recorded(event=event, seq=len(self.log) + 1, stored_at=self.now)
        self.log.append(recorded)
        self.outbox.events = [own for own in self.outbox.events if own.identity != event.identity]
        if event.identity in self._seen:
            return
        self._seen.add(event.identity)
        self.service.evolve(self.state, recorded)
        self.accept(self.service.decide(self.state, self.outbox, recorded), cause=event.identity)

    def accept(self, actions: Iterable[Action], *, cause: str | None = None) -> None:
        for action in tuple(actions):
            if isinstance(action, Work):
                self.work.append(action)
            elif isinstance(action, Emit):
                event = event_of(self.service, action, causation=cause, correlation=None)
                known = {own.identity for own in self.outbox.events} | self._seen
                if event.identity not in known:
                    self.outbox.events.append(event)

    def store_own(self, index: int = 0) -> bool:
        """One decided event reaches the log; False when there is none."""
        if not self.outbox.events:
            return False
        self.store(self.outbox.events[index % len(self.outbox.events)])
        return True

    def settle(self) -> None:
        """Store own events until nothing more follows."""
        steps = 0
        while self.store_own():
            self.tick(0.001)
            steps += 1
            assert steps < 10_000, "the bridge answers itself for ever"

    # ----------------------------------------------------------- asking

    def command(self, name: str, *, settle: bool = True, client: str | None = None, **args: Any) -> dict[str, Any]:
        self._requests += 1
        self.tick()
        request = Request(id=client or f"req-{self._requests}", project=self.project, by="ada", args=args, now=self.now)
        outcome = self.service.commands[name](self.state, self.outbox, request)
        self.accept(outcome.actions)
        if settle:
            self.settle()
        return outcome.result

    def ask(self, name: str, **args: Any) -> dict[str, Any]:
        request = Request(id="q", project=self.project, by="ada", args=args, now=self.now)
        return self.service.questions[name](self.state, request)

    def job(self, job_id: str) -> Job:
        job = self.state.get(Job, f"{self.project}/{job_id}")
        assert job is not None
        return job

    def said(self, body_type: type[B], job: str | None = None) -> list[B]:
        """Bodies of one type in the log, in order."""
        return [
            recorded.body
            for recorded in self.log
            if isinstance(recorded.body, body_type) and job in {None, getattr(recorded.body, "job", None)}
        ]

    def history(self, job_id: str) -> list[Entry]:
        return self.state.find(Entry, "of", f"{self.project}/{job_id}")

    # ------------------------------------------------------ story in short

    def submit(self, name: str = "pick", *, settle: bool = True, **fields: Any) -> str:
        result = self.command("submit", spec=spec(name, **fields), settle=settle)
        return str(result["job"])

    def run_attempt(self, job: str, attempt: int = 1) -> None:
        """The agent checks, and the command runs."""
        check = jobs.PreflightCheck.model_validate(
            {"name": "output", "status": "pass", "reason": "OutputWritable", "message": "writable"}
        )
        self.say(jobs.PreflightReported(job=job, attempt=attempt, checks=(check,), seconds=0.1), Part.AGENT)
        body = jobs.AttemptStarted(
            job=job, attempt=attempt, host="bench", process="7@1", recovers=attempt - 1 if attempt > 1 else None
        )
        self.say(body, Part.BRIDGE, id=f"started-{job}-{attempt}")

    def end_attempt(self, job: str, attempt: int = 1, **fields: Any) -> None:
        values: dict[str, Any] = {"exit_code": 0, "reason": "Completed", "message": "exit code 0", **fields}
        body = jobs.AttemptEnded.model_validate({"job": job, "attempt": attempt, **values})
        self.say(body, Part.BRIDGE, id=f"ended-{job}-{attempt}")


def spec(name: str = "pick", **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": ["python", "train.py"], **fields}


def pinned(logical: str = "dataset:pick-place@train-ready", number: int = 1, **fields: Any) -> datasets.PinnedInput:
    name = logical.partition(":")[2].partition("@")[0]
    return datasets.PinnedInput.model_validate(
        {
            "kind": logical.partition(":")[0],
            "logical": logical,
            "name": name,
            "number": number,
            "root": f"/pool/{name}/v{number}",
            "manifest_sha256": SHA,
            "bytes": 1_200_000_000,
            **fields,
        }
    )


def granted(job: str, *inputs: datasets.PinnedInput) -> datasets.LeaseGranted:
    return datasets.LeaseGranted(job=job, inputs=inputs or (pinned(),))


def upload(dataset: str = "pick-place") -> episodes.UploadStarted:
    return episodes.UploadStarted(
        upload="up-1",
        dataset=dataset,
        source_ref="/data",
        source_format="lerobot-v3.0",
        landing_uri="/pool/landing",
        expected_episodes=1,
        expected_files=1,
        expected_bytes=1,
    )


def planned(job: str, plan: str = "plan-1", name: str = "pick-place", number: int = 1, **fields: Any) -> EventBody:
    return cache.CachePlanned.model_validate(
        {
            "plan": plan,
            "job": job,
            "digest": SHA,
            "name": name,
            "number": number,
            "root": "/pool",
            "files": 3,
            "total_bytes": 1_200_000_000,
            "aligned_bytes": 1_210_000_000,
            "whole_bytes": 2_000_000_000,
            "ranges": {"uri": "file:///plan", "sha256": SHA, "bytes": 10},
            **fields,
        }
    )


def ready(plan: str = "plan-1") -> EventBody:
    return cache.CacheReady(
        plan=plan,
        name="pick-place",
        number=1,
        verified_bytes=1_200_000_000,
        origin_bytes=1,
        place="/pool/pick-place/v1",
        adapter="folder",
        proof="readable",
        seconds=1.0,
    )


def make_ready(world: World, job: str) -> None:
    """Ingest pins and leases, the cache warms."""
    world.say(granted(job))
    world.say(planned(job), Part.CACHE)
    world.say(ready(), Part.CACHE)
