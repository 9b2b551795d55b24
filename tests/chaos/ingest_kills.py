"""Ingest is killed at random moments while uploads are judged and converted; what comes out is what an undisturbed run gives.

`python -m tests.chaos.ingest_kills --kills 200` by hand, `tests/system/test_ingest_kills.py` in short.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
from forebay.contracts.parts import Part
from forebay.contracts.subjects import DEAD_STREAM
from forebay.contracts.v1.datasets import MANIFEST_FILE, DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeHeld, EpisodeRejected
from forebay.runtime.client import Client
from forebay.runtime.log import LogReader

from services.ingest.tests.valid_datasets import Shape, build
from tests.chaos.examine import quiet
from tests.chaos.long_run import long_run
from tests.chaos.story import PROJECT
from tests.eventually import eventually
from tests.servers.installation import Installation, installation

EPISODES = 50
CALM = "calm"
_COMMITTED_WITHIN_S = 120.0


@dataclass(slots=True)
class Outcome:
    """One run in figures."""

    kills: int = 0
    uploads: int = 0
    during: Counter[str] = field(default_factory=Counter)
    """State of the upload when ingest was killed."""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "uploads": self.uploads,
            "killed_while": dict(self.during),
            "problems": self.problems,
            "seconds": round(self.seconds, 1),
        }


class IngestKills:
    """One run on one installation."""

    def __init__(self, place: Installation, client: Client, folder: Path, *, kills: int, seed: int) -> None:
        self._place = place
        self._client = client
        self._folder = folder
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311 a chosen order, no secret
        self._uploads: dict[str, str] = {}
        self._calm_s = 0.0
        """What judging and converting took undisturbed; a kill comes at a random moment of it."""
        self.outcome = Outcome()

    async def run(self) -> Outcome:
        began = time.monotonic()
        await asyncio.to_thread(build, self._folder, _shape())
        await self._upload(CALM)
        uploaded = time.monotonic()
        await eventually(lambda: self._there(CALM), what=f"{CALM} is a version", within=_COMMITTED_WITHIN_S)
        self._calm_s = time.monotonic() - uploaded
        await self._committed(CALM)
        while self.outcome.kills < self._kills:
            dataset = f"killed-{len(self._uploads)}"
            await self._upload(dataset)
            while self.outcome.kills < self._kills and not self._there(dataset):
                await self._kill(dataset)
        for dataset in self._uploads:
            await self._committed(dataset)
        await eventually(lambda: quiet(self._place, self._client), what="everything is done", within=120, every=0.2)
        await self._examine()
        self.outcome.seconds = time.monotonic() - began
        self.outcome.uploads = len(self._uploads)
        return self.outcome

    async def _upload(self, dataset: str) -> None:
        ran = await self._place.cli("upload", str(self._folder), "--dataset", dataset, "--project", PROJECT, "--json")
        assert ran.code == 0, ran.err
        self._uploads[dataset] = str(ran.json()["upload"])

    def _root(self, dataset: str) -> Path:
        return self._place.home.pool / "datasets" / PROJECT / dataset

    def _there(self, dataset: str) -> bool:
        return (self._root(dataset) / "v1").exists()

    async def _is_committed(self, dataset: str) -> bool:
        """By its name on disk: ingest itself may not be there to be asked."""
        return self._there(dataset) and await quiet(self._place, self._client)

    async def _committed(self, dataset: str) -> None:
        await eventually(
            lambda: self._is_committed(dataset), what=f"{dataset} is a version", within=_COMMITTED_WITHIN_S, every=0.1
        )

    async def _kill(self, dataset: str) -> None:
        """End ingest with SIGKILL some time after it came up."""
        await eventually(lambda: self._place.child(Part.INGEST).state == "healthy", what="ingest is healthy", within=60)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._random.uniform(0, self._calm_s)):
                await asyncio.Event().wait()
        victim = self._place.child(Part.INGEST)
        self.outcome.during[self._stage(dataset)] += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.outcome.kills += 1
        await eventually(lambda: self._place.child(Part.INGEST).pid != victim.pid, what="ingest is back", within=60)

    def _stage(self, dataset: str) -> str:
        root = self._root(dataset)
        if (root / "v1").exists():
            return "committed on disk"
        return "converting" if any(root.glob(".v1.*")) else "judging or before"

    # afterwards

    async def _examine(self) -> None:
        problems = self.outcome.problems
        wanted = await asyncio.to_thread(_content, self._root(CALM) / "v1")
        for dataset, upload in self._uploads.items():
            found = await asyncio.to_thread(_content, self._root(dataset) / "v1")
            problems += [
                f"{dataset}: {name} differs from the undisturbed run" for name in wanted if found[name] != wanted[name]
            ]
            problems += await asyncio.to_thread(_strays, self._root(dataset), dataset)
            reports = list((self._place.home.pool / "reports").rglob(f"*{upload}*"))
            if len(reports) != 1:
                problems.append(f"{dataset}: {len(reports)} reports of {upload}")
        problems += await self._look_at_log()
        ran = await self._place.cli("rebuild", str(Part.INGEST), "--project", PROJECT, "--json")
        if ran.code != 0 or not ran.json()["equal"]:
            problems.append(f"ingest's store is not what the log says: {ran.out or ran.err}")
        _, dead = await LogReader(self._client.nc, DEAD_STREAM).ends()
        if dead:
            problems.append(f"{dead} dead letters")

    async def _look_at_log(self) -> list[str]:
        """Every episode judged once, every version committed once."""
        verdicts: dict[str, set[str]] = {upload: set() for upload in self._uploads.values()}
        versions: dict[str, set[str]] = {dataset: set() for dataset in self._uploads}
        async for batch in self._client.batches():
            for message in batch:
                event = message.decode()
                body = event.body
                if isinstance(body, EpisodeAccepted | EpisodeHeld | EpisodeRejected):
                    verdicts[body.upload].add(event.identity)
                elif isinstance(body, DatasetVersionCommitted):
                    versions[body.dataset].add(event.identity)
        found = [
            f"{upload}: {len(ids)} verdicts for {EPISODES} episodes"
            for upload, ids in verdicts.items()
            if len(ids) != EPISODES
        ]
        return found + [f"{dataset}: {len(ids)} versions" for dataset, ids in versions.items() if len(ids) != 1]


def _shape() -> Shape:
    """Fifty episodes in several data and video files."""
    return Shape(
        lengths=tuple(8 + number % 5 for number in range(EPISODES)),
        rate="30",
        data=tuple(number // 20 for number in range(EPISODES)),
        videos={"observation.images.front": tuple(number // 10 for number in range(EPISODES))},
        tasks=tuple(number % 2 for number in range(EPISODES)),
        width=4,
        seed=11,
    )


def _content(root: Path) -> dict[str, str]:
    """Digests of everything in a version that does not carry its dataset's name."""
    found = {f"meta/{path.name}": path.read_bytes() for path in sorted((root / "meta").rglob("*")) if path.is_file()}
    frames = lance.dataset(str(root / "frames.lance")).to_table().to_pydict()
    found["frames"] = repr(frames).encode()
    videos = lance.dataset(str(root / "videos.lance"))
    for number in range(videos.count_rows()):
        blob = videos.take_blobs("video_bytes", indices=[number])[0]
        assert blob is not None, f"video {number} has no bytes"
        with blob:
            found[f"video {number}"] = blob.read()
    episodes = json.loads((root / "episodes.json").read_bytes())["episodes"]
    found["episodes"] = repr([(entry["index"], entry["length"], entry["source_index"]) for entry in episodes]).encode()
    return {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}


def _strays(folder: Path, dataset: str) -> list[str]:
    """Files in a dataset's folder that belong to no version, and files of a version that are damaged."""
    root = folder / "v1"
    sealed = {entry["path"]: entry["sha256"] for entry in json.loads((root / MANIFEST_FILE).read_bytes())["files"]}
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    known = {f"v1/{name}" for name in (*sealed, MANIFEST_FILE)}
    found = [f"{dataset}: {name} belongs to no version" for name in sorted(there.keys() - known)]
    found += [f"{dataset}: {name} is missing" for name in sorted(known - there.keys())]
    found += [
        f"{dataset}: {name} is damaged"
        for name, digest in sealed.items()
        if f"v1/{name}" in there and hashlib.sha256(there[f"v1/{name}"].read_bytes()).hexdigest() != digest
    ]
    return found


async def run_kills(kills: int, *, seed: int, folder: Path) -> Outcome:
    """Everything from an empty folder to the answer."""
    async with installation(folder / "home", [PROJECT]) as place, place.operator() as client:
        return await IngestKills(place, client, folder / "recordings", kills=kills, seed=seed).run()


if __name__ == "__main__":
    sys.exit(long_run(__doc__, lambda kills, seed, folder: run_kills(kills, seed=seed, folder=folder)))
