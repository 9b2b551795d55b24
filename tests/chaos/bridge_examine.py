"""After the kills of a bridge: what its log says, held against what a bare watch of the cluster saw."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from forebay.contracts.subjects import DEAD_STREAM
from forebay.contracts.v1 import jobs
from forebay.runtime.log import LogReader
from forebay.runtime.rebuild import rebuild
from forebay.scheduler_bridge.adapters.kueue_gates import PROBE
from forebay.scheduler_bridge.app import definition
from forebay.scheduler_bridge.domain.cluster.objects import digest_of, trim

from tests.cluster.bridge.world import PROJECT, Bridge

Json = dict[str, Any]
_ENDS = {"SUCCEEDED": jobs.JobSucceeded, "FAILED": jobs.JobFailed, "CANCELLED": jobs.JobCancelled}
_CONDITIONS = {"Complete": "SUCCEEDED", "Failed": "FAILED"}
_SHOWN = 20


class Seen(Protocol):
    """What the bare watch knows: each object by uid as it was last, and which of them are gone."""

    objects: dict[str, Json]
    gone: set[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a job must end, and after how many attempts."""

    state: str
    attempts: int = 1


@dataclass(slots=True)
class Record:
    """The log, each event once."""

    said: dict[type[Any], list[Any]] = field(default_factory=lambda: defaultdict(list))
    facts: dict[str, list[jobs.RuntimeFactRecorded]] = field(default_factory=lambda: defaultdict(list))
    """By uid of the object, in order."""
    events: int = 0


@dataclass(slots=True)
class Findings:
    problems: list[str] = field(default_factory=list)
    events: int = 0


async def examine(bridge: Bridge, seen: Seen, wanted: Mapping[str, Wanted], folder: Path) -> Findings:
    """Everything that must hold when the dust has settled."""
    record = await _read(bridge)
    problems = [
        *_one_object_per_job(seen, wanted),
        *_every_object_on_record(seen, record),
        *_jobs_as_wanted(seen, record, wanted),
        *_attempts(seen, record, wanted),
    ]
    live = (await bridge.client.ask("scheduler-bridge", PROJECT, "digest")).result
    fresh = await rebuild(definition(), bridge.client.batches(until=live["position"]), folder / "rebuilt.sqlite")
    if fresh.digest != live["digest"]:
        problems.append(f"rebuilt {fresh.digest}, live {live['digest']} at {live['position']}")
    _, dead = await LogReader(bridge.client.nc, DEAD_STREAM).ends()
    if dead:
        problems.append(f"{dead} dead letters")
    return Findings(problems[:_SHOWN], record.events)


async def _read(bridge: Bridge) -> Record:
    record, known = Record(), set()
    async for batch in bridge.client.batches():
        for message in batch:
            event = message.decode()
            record.events += 1
            if event.identity in known:
                continue
            known.add(event.identity)
            body = event.body
            record.said[type(body)].append(body)
            if isinstance(body, jobs.RuntimeFactRecorded) and "object" in body.data:
                record.facts[str(body.data["object"]["metadata"].get("uid"))].append(body)
    return record


def _one_object_per_job(seen: Seen, wanted: Mapping[str, Wanted]) -> Iterator[str]:
    """Of all Job objects that ever were."""
    made = Counter(item["metadata"]["name"] for item in seen.objects.values() if item["kind"] == "Job")
    del made[PROBE]
    for name, count in made.items():
        if count > 1:
            yield f"{count} Job objects were made for {name}"
        if name not in wanted:
            yield f"Job {name} was made, and nobody submitted it"
    for name in wanted.keys() - made.keys():
        yield f"no Job object was ever made for {name}"


def _every_object_on_record(seen: Seen, record: Record) -> Iterator[str]:
    """The last state of each object is the last that the log says of it, its end included."""
    for uid, item in seen.objects.items():
        name = f"{item['kind']} {item['metadata']['name']} ({uid})"
        if PROBE in name:
            continue
        facts = record.facts.get(uid)
        if not facts:
            yield f"the log says nothing of {name}"
        elif uid in seen.gone:
            if not facts[-1].data.get("gone"):
                yield f"{name} was deleted; the log's last word is {facts[-1].reason} {facts[-1].message}"
        elif facts[-1].data["digest"] != digest_of(trim(item)):
            yield f"{name}: the log's last word is {facts[-1].reason} {facts[-1].message}, the API's another"


def _jobs_as_wanted(seen: Seen, record: Record, wanted: Mapping[str, Wanted]) -> Iterator[str]:
    """Each job submitted once and ended once: as it had to, and as its Job object did."""
    submitted = Counter(body.job for body in record.said[jobs.JobSubmitted])
    yield from (f"{job} was submitted {count} times" for job, count in submitted.items() if count > 1)
    ends: dict[str, list[str]] = defaultdict(list)
    for state, kind in _ENDS.items():
        for body in record.said[kind]:
            ends[body.job].append(state)
    objects = {item["metadata"]["name"]: item for item in seen.objects.values() if item["kind"] == "Job"}
    for job, want in wanted.items():
        if ends[job] != [want.state]:
            yield f"{job} ended as {ends[job]}, it had to be {want.state}"
        conditions = (objects.get(job, {}).get("status") or {}).get("conditions") or ()
        held = [
            _CONDITIONS[one["type"]] for one in conditions if one["type"] in _CONDITIONS and one["status"] == "True"
        ]
        if want.state != "CANCELLED" and held != [want.state]:
            yield f"{job}: its Job object says {held}"


def _attempts(seen: Seen, record: Record, wanted: Mapping[str, Wanted]) -> Iterator[str]:
    """One attempt per pod and one pod per attempt, each started once and ended once."""
    placed = Counter((body.job, body.pod) for body in record.said[jobs.PodScheduled])
    yield from (f"pod {pod} of {job} stands for {count} attempts" for (job, pod), count in placed.items() if count > 1)
    pods: dict[str, int] = Counter(
        str(item["metadata"]["labels"].get("job-name")) for item in seen.objects.values() if item["kind"] == "Pod"
    )
    for kind in (jobs.WorkloadAdmitted, jobs.PodScheduled, jobs.AttemptStarted, jobs.AttemptEnded):
        numbers: dict[str, list[int]] = defaultdict(list)
        for body in record.said[kind]:
            numbers[body.job].append(body.attempt)
        for job, want in wanted.items():
            if sorted(numbers[job]) != list(range(1, want.attempts + 1)):
                yield f"{job}: {kind.event} of attempts {numbers[job]}, {want.attempts} wanted, {pods[job]} pods"
