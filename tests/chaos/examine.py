"""After the kills: nothing lost, nothing twice, and every store is what the log says."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

from forebay.contracts.parts import SERVICES
from forebay.contracts.subjects import DEAD_STREAM
from forebay.runtime.client import Client
from forebay.runtime.errors import Refused, Unreachable
from forebay.runtime.log import LogReader
from forebay.runtime.rebuild import rebuild

from tests.chaos.story import EPISODES, PROJECT, Story
from tests.servers.installation import Installation

_ONCE_PER_JOB = ("JobSubmitted", "LeaseGranted", "JobGateOpened", "JobSucceeded", "LeaseReleased")
_SHOWN = 5
_ONCE_PER_ATTEMPT = ("WorkloadAdmitted", "AttemptStarted", "AttemptEnded", "PreflightReported", "PreflightPassed")


@dataclass(slots=True)
class Findings:
    """What was looked at, and what is wrong."""

    problems: list[str] = field(default_factory=list)
    events: int = 0
    repeated: int = 0
    """Messages that the log holds again: harmless, since every reader knows an event by its identity."""
    digests: dict[str, str] = field(default_factory=dict)


async def quiet(place: Installation, client: Client) -> bool:
    """Whether every service is healthy, has read everything and has nothing left to say or do."""
    _, last = await client.log_reader.ends()
    for part in SERVICES:
        try:
            health = (await client.ask(part, PROJECT, "health", {}, timeout=5)).result
        except (Unreachable, Refused):
            return False
        if not health["ready"] or health["position"] != last or health["outbox"] or health["work"]:
            return False
    return True


async def examine(place: Installation, client: Client, story: Story) -> Findings:
    """Everything that must hold when the dust has settled."""
    found = Findings()
    seen = await _read_log(client, found)
    _check_uploads(story, seen, found)
    _check_jobs(story, seen, found)
    _check_starts(place, story, found)
    found.problems += [f"job {job} is {state}" for job, state in (await story.states()).items() if state != "SUCCEEDED"]
    extra = set(await story.states()) - set(story.said.jobs)
    found.problems += [f"job {job} exists, but nobody was told so" for job in sorted(extra)]
    _, dead = await LogReader(client.nc, DEAD_STREAM).ends()
    if dead:
        found.problems.append(f"{dead} dead letters")
    await _check_digests(place, client, found)
    return found


Seen = dict[str, list[Any]]


async def _read_log(client: Client, found: Findings) -> Seen:
    """Bodies by event name, each identity once."""
    bodies: dict[str, bytes] = {}
    seen: Seen = defaultdict(list)
    async for batch in client.batches():
        for message in batch:
            event = message.decode()
            found.events += 1
            identity = event.identity
            if identity in bodies:
                found.repeated += 1
                if bodies[identity] != message.data:
                    found.problems.append(f"{event.body.event} {identity} is in the log with two bodies")
                continue
            bodies[identity] = message.data
            seen[event.body.event].append(event.body)
    return seen


def _check_uploads(story: Story, seen: Seen, found: Findings) -> None:
    """Each delivered upload is whole in the log, judged, and exactly one version."""
    for upload, dataset in story.said.uploads.items():
        for event, wanted in (("UploadStarted", 1), ("EpisodeUploaded", EPISODES), ("UploadFinished", 1)):
            count = sum(body.upload == upload for body in seen[event])
            if count != wanted:
                found.problems.append(f"{upload}: {count} {event}, {wanted} were delivered")
        verdicts = Counter(
            b.episode
            for e in ("EpisodeAccepted", "EpisodeHeld", "EpisodeRejected")
            for b in seen[e]
            if b.upload == upload
        )
        if len(verdicts) != EPISODES or set(verdicts.values()) != {1}:
            found.problems.append(f"{upload}: verdicts per episode are {dict(verdicts)}")
        versions = [body.number for body in seen["DatasetVersionCommitted"] if body.dataset == dataset]
        if versions != [1]:
            found.problems.append(f"dataset {dataset} has versions {versions}")


def _check_jobs(story: Story, seen: Seen, found: Findings) -> None:
    """Each job went through its whole life, each step once."""
    for job, fails_first in story.said.jobs.items():
        for event in _ONCE_PER_JOB:
            count = sum(body.job == job for body in seen[event])
            if count != 1:
                found.problems.append(f"{job}: {count} times {event}")
        attempts = [1, 2] if fails_first else [1]
        for event in _ONCE_PER_ATTEMPT:
            got = sorted(body.attempt for body in seen[event] if body.job == job)
            if got != attempts:
                found.problems.append(f"{job}: {event} for attempts {got}, expected {attempts}")
    written = Counter(body.checkpoint for body in seen["CheckpointWritten"])
    verified = Counter(body.checkpoint for body in seen["CheckpointVerified"])
    if set(written) != set(verified):
        found.problems.append(f"checkpoints written but not verified: {sorted(set(written) - set(verified))}")


def _check_starts(place: Installation, story: Story, found: Findings) -> None:
    """What the training command itself wrote: one start per attempt, whatever anybody says."""
    for job, fails_first in story.said.jobs.items():
        file = place.home.jobs / PROJECT / job / "output" / "starts"
        starts = (
            [int(line.split()[0]) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        )
        if starts != ([1, 2] if fails_first else [1]):
            found.problems.append(f"{job}: its command was started for attempts {starts}")


async def _check_digests(place: Installation, client: Client, found: Findings) -> None:
    """A fresh fold of the log has the digest of the live store; else the documents that differ are named."""
    for part in SERVICES:
        ran = await place.cli("rebuild", part, "--project", PROJECT, "--json")
        if ran.code not in {0, 1} or not ran.out.strip():
            found.problems.append(f"rebuild of {part} failed ({ran.code}): {ran.err.strip()}")
            continue
        result = ran.json()
        found.digests[str(part)] = str(result["live_digest"])
        if not result["equal"]:
            found.problems.append(f"{part}: rebuilt {result['rebuilt_digest']}, live {result['live_digest']}")
            found.problems += await _differences(place, client, part)


async def _differences(place: Installation, client: Client, part: str) -> list[str]:
    """Documents that a fresh fold and the live store do not share, the first few of them in full."""
    (point,) = (point for point in entry_points(group="forebay.services") if point.name == part)
    fresh = place.home.root / f"{part}.rebuilt.sqlite"
    await rebuild(point.load()(), client.batches(), fresh)
    rows = []
    for file in (place.home.store(part), fresh):
        with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
            kept = store.execute("SELECT kind, key, body FROM documents WHERE kind NOT LIKE '\\_%' ESCAPE '\\'")
            rows.append({(kind, key): body for kind, key, body in kept})
    live, folded = rows
    names = sorted(name for name in live.keys() | folded.keys() if live.get(name) != folded.get(name))
    return [f"{part} {name}: live {live.get(name)!r}, folded {folded.get(name)!r}" for name in names[:_SHOWN]]
