"""The work `convert`: write the accepted episodes of a dataset as one version, and report it once it was read back.

Idempotent: a root that a killed run had finished is taken over, a half-written one
is removed, and the committed event has one identity.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.ingest.adapters.lance_version import CommittedVersion, commit_version
from forebay.ingest.adapters.landing_folder import LandingFolders
from forebay.ingest.conversion import Accepted, Share, plan_shares
from forebay.ingest.domain.documents import Dataset, Episode, Upload, place
from forebay.ingest.domain.evolve import episode_id
from forebay.ingest.domain.rules import RULES_VERSION
from forebay.ingest.domain.version_plan import VersionPlan
from forebay.ingest.errors import ConversionError, StorageUnavailableError
from forebay.ingest.workers.telling import Teller
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

_WAIT_FOR_POOL_S = 5.0
_WAIT_FOR_ROOM_S = 30.0


@dataclass(frozen=True, slots=True)
class Converter:
    """Writes one version."""

    landings: LandingFolders
    datasets: Path
    """`<pool>/datasets`"""

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        dataset, number = str(item.payload["dataset"]), int(item.payload["number"])
        known = await context.get(Dataset, place(item.project, dataset))
        if known is not None and known.latest >= number:
            return ()
        tell = Teller(context)
        root = self.datasets / item.project / dataset / f"v{number}"
        try:
            shares = [await self._share(item.project, str(upload), context) for upload in item.payload["uploads"]]
            plan, made = await asyncio.to_thread(self._commit, shares, root, tell)
        except StorageUnavailableError as error:
            raise RetryLater(_WAIT_FOR_POOL_S, str(error)) from error
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise RetryLater(_WAIT_FOR_ROOM_S, f"the pool has no room for {root}") from error
            raise
        newest = await context.get(Upload, place(item.project, str(item.payload["upload"])))
        body = DatasetVersionCommitted(
            dataset=dataset,
            number=number,
            root=str(made.root),
            access_plan="C",
            format=made.format,
            tables=made.tables,
            episodes=made.episodes,
            episode_count=len(plan.episodes),
            frame_count=plan.frames,
            bytes=made.bytes,
            manifest_sha256=made.manifest.sha256,
            checksums=made.manifest,
            uploads=tuple(plan.sources),
            parent=number - 1 or None,
            parent_reason="episodes added" if number > 1 else None,
            source_ref=newest.source_ref if newest is not None else None,
            source_revision=newest.source_revision if newest is not None else None,
            rules_version=RULES_VERSION,
        )
        tell.done(version=number, episodes=body.episode_count)
        return [Emit(project=item.project, body=body, dedupe=(dataset, number))]

    async def _share(self, project: str, id_: str, context: WorkContext) -> Share:
        upload = await context.get(Upload, place(project, id_))
        if upload is None or upload.manifest is None:
            msg = f"upload {id_} is not known, although a version is made of it"
            raise ConversionError(msg)
        folder = self.landings.folder(project, id_, upload.landing_uri)
        manifest = await asyncio.to_thread(self.landings.manifest, folder, upload.manifest)
        episodes = []
        for index in range(upload.highest + 1):
            episode = await context.get(Episode, place(project, episode_id(project, upload.dataset, id_, index)))
            if episode is not None and episode.state == "ACCEPTED":
                episodes.append(
                    Accepted(
                        id=episode.id,
                        source_index=episode.source_index,
                        length=episode.length,
                        tasks=episode.tasks,
                        digest=episode.sha256 or "",
                    )
                )
        digests = {name: digest for name, (digest, _) in manifest.items()}
        return Share(upload=id_, landing=folder, sha256=digests, episodes=episodes)

    def _commit(self, shares: list[Share], root: Path, tell: Teller) -> tuple[VersionPlan, CommittedVersion]:
        plan = plan_shares(shares)
        return plan, commit_version(plan, {share.upload: share.landing for share in shares}, root, tell.stage)
