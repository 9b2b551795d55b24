"""A pool on the disk and a log with ingest's real workers behind it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.contracts.body import FileRef
from forebay.contracts.identifiers import canonical_json
from forebay.contracts.v1.episodes import EpisodeUploaded, RowWindow, UploadFinished, UploadStarted
from forebay.ingest.app import workers
from forebay.ingest.domain.evolve import episode_id
from forebay.ingest.settings import IngestSettings
from forebay.runtime.work import Worker
from forebay.sdk.errors import NotADatasetError
from forebay.sdk.lerobot_folder import scan

from .simulated_log import PROJECT, SimulatedLog
from .stories import DATASET

MANIFEST = "manifest.json"
_UNKNOWN: Mapping[str, Any] = {"length": 5, "rows": RowWindow(file="data", start=0, stop=5)}


def _claims(folder: Path) -> list[dict[str, Any]]:
    """What the real collector says of each episode; of a folder that it would not take, something."""
    try:
        found = scan(folder)
    except (NotADatasetError, ValueError):
        return [dict(_UNKNOWN)] * 3
    return [
        {
            "length": one.length,
            "tasks": one.tasks,
            "rows": one.rows,
            "videos": one.videos,
            "robot": found.robot,
        }
        for one in found.episodes
    ]


class Place:
    """A pool, and a log with ingest behind it."""

    def __init__(self, home: Path) -> None:
        self.pool = home / "pool"
        self.pool.mkdir()
        self.log = SimulatedLog()
        self.workers: dict[str, Worker] = workers(IngestSettings(home=home))

    def landing(self, upload: str) -> Path:
        return self.pool / "landing" / PROJECT / upload

    def upload(
        self,
        folder: Path,
        upload: str = "up-1",
        *,
        uri: str | None = None,
        request: str | None = None,
        spoil: Callable[[Path], object] | None = None,
        lie: Mapping[str, Any] | None = None,
    ) -> None:
        """What the collector does: copy, announce. `spoil` changes what lies there, `lie` what is announced."""
        landing = self.landing(upload)
        shutil.copytree(folder, landing, symlinks=True)
        files = sorted(path for path in landing.rglob("*") if path.is_file())
        entries = [
            {
                "path": path.relative_to(landing).as_posix(),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "bytes": path.stat().st_size,
            }
            for path in files
        ]
        content = canonical_json({"files": entries})
        (landing / MANIFEST).write_bytes(content)
        if spoil is not None:
            spoil(landing)
        claims = [claim | dict(lie or {}) for claim in _claims(folder)]
        self.announce(upload, uri or landing.as_uri(), content, claims, request=request)

    def announce(
        self,
        upload: str,
        uri: str,
        manifest: bytes,
        claims: Sequence[Mapping[str, Any]] = 3 * (_UNKNOWN,),
        *,
        request: str | None = None,
    ) -> None:
        episodes = len(claims)
        started = UploadStarted(
            upload=upload,
            dataset=DATASET,
            source_ref="/data/arm",
            source_format="lerobot-v3.0",
            landing_uri=uri,
            expected_episodes=episodes,
            expected_files=1,
            expected_bytes=1,
            collection_request=request,
        )
        self.log.publish(started, f"started-{upload}")
        for index, claim in enumerate(claims):
            uploaded = EpisodeUploaded(
                episode=episode_id(PROJECT, DATASET, upload, index),
                upload=upload,
                dataset=DATASET,
                source_index=index,
                **claim,
            )
            self.log.publish(uploaded, f"episode-{upload}-{index}")
        digest = hashlib.sha256(manifest).hexdigest()
        reference = FileRef(uri=(self.landing(upload) / MANIFEST).as_uri(), sha256=digest, bytes=len(manifest))
        finished = UploadFinished(
            upload=upload, dataset=DATASET, episodes=episodes, files=1, bytes=1, manifest=reference
        )
        self.log.publish(finished, f"finished-{upload}")

    async def work(self) -> None:
        await self.log.run(self.workers)
