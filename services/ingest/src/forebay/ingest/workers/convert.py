"""The work `convert`: write the accepted episodes of a dataset as its next version, and report it once it was read back.

The version grows from the one before: its tables are shared, and only the new
upload is written. Idempotent: a root that a killed run had finished is taken over, a
half-written one is removed, and the committed event has one identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from forebay.contracts.reasons import Reason
from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.ingest.adapters.episode_records import EpisodeRecords
from forebay.ingest.adapters.lance_version import CommittedVersion, commit_version
from forebay.ingest.adapters.landing_folder import LandingFolders
from forebay.ingest.adapters.version_check import find_damage
from forebay.ingest.conversion import Share, share_source
from forebay.ingest.domain.documents import Dataset, Upload, Version, place, version_key
from forebay.ingest.domain.rules import RULES_VERSION
from forebay.ingest.domain.version_plan import VersionPlan, plan_version
from forebay.ingest.earlier_version import Earlier, earlier_source
from forebay.ingest.errors import StorageUnavailableError
from forebay.ingest.workers.gathering import MOST_NAMED, Gatherer, origins_of, told
from forebay.ingest.workers.telling import Teller, from_thread, tell_done
from forebay.ingest.workers.validate import policy_of
from forebay.runtime.disk_room import RETRY_S, is_disk_full, look
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem

WAIT_FOR_POOL_S = 5.0


def no_room(folder: Path, what: str) -> RetryLater:
    """The pool's disk is full: said with numbers, and tried again until there is room."""
    room = look("pool", folder)
    figures = f"{room.figures}; " if room is not None else ""
    return RetryLater(RETRY_S, f"{Reason.DISK_FULL}: {figures}there was no room for {what}")


@dataclass(frozen=True, slots=True)
class Converter:
    """Writes the version of one upload."""

    landings: LandingFolders
    datasets: Path
    """`<pool>/datasets`"""
    records: EpisodeRecords
    policies: Path
    """Folder of the projects' policies."""

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        dataset, number = str(item.payload["dataset"]), int(item.payload["number"])
        known = await context.get(Dataset, place(item.project, dataset))
        if known is not None and known.latest >= number:
            return ()
        policy = await policy_of(self.policies, item.project, context)
        tell = from_thread(context)
        root = self.datasets / item.project / dataset / f"v{number}"
        gather = Gatherer(self.landings, item.project, context)
        upload = str(item.payload["upload"])
        replaces = bool(item.payload.get("replaces"))
        base = await context.get(Version, version_key(item.project, dataset, int(item.payload.get("base", 0))))
        try:
            late = [int(index) for index in item.payload.get("late", ())]
            earlier, shares = await self._sources(gather, upload, None if replaces else base, late)
            plan, made = await context.in_thread(self._commit, earlier, shares, root, tell)
        except StorageUnavailableError as error:
            raise RetryLater(WAIT_FOR_POOL_S, str(error)) from error
        except Exception as error:
            if is_disk_full(error):
                raise no_room(self.datasets, f"v{number} of {dataset}") from error
            raise
        newest = await context.get(Upload, place(item.project, upload))
        uploads = tuple(dict.fromkeys([*(base.uploads if base is not None and not replaces else ()), upload]))
        listed = await context.in_thread(self.records.keep, made.episodes.uri)
        body = DatasetVersionCommitted(
            dataset=dataset,
            number=number,
            root=str(made.root),
            access_plan="C",
            format=made.format,
            tables=made.tables,
            episodes=listed or made.episodes,
            episode_count=len(plan.episodes),
            frame_count=plan.frames,
            bytes=made.bytes,
            manifest_sha256=made.manifest.sha256,
            checksums=made.manifest,
            uploads=uploads,
            parent=None if base is None else base.number,
            parent_reason=None if base is None else "replaced by another folder" if replaces else "episodes added",
            source_ref=newest.source_ref if newest is not None else None,
            source_revision=newest.source_revision if newest is not None else None,
            rules_version=RULES_VERSION,
            carried=made.carried[:MOST_NAMED],
            notes=told(made.notes),
            left_out=await gather.left_out(uploads, plan),
            withheld=None if newest is None else policy.withholds(newest.accepted, newest.judged),
        )
        tell_done(context, version=number, episodes=body.episode_count)
        return [Emit(project=item.project, body=body, dedupe=(dataset, number))]

    async def _sources(
        self, gather: Gatherer, upload: str, base: Version | None, late: list[int]
    ) -> tuple[Earlier | None, list[Share]]:
        """The version before and the new upload; where that version's files are lost, its uploads again.

        `late` are the episodes of an upload that is in it already, accepted since; empty: the upload is new.
        """
        newest = await gather.share(upload)
        if late:
            newest = replace(newest, episodes=[e for e in newest.episodes if e.source_index in late])
        if base is None:
            return None, [newest]
        if await gather.context.in_thread(find_damage, base) is None:
            return await gather.earlier(base, base.left_out), [newest]
        again = [await gather.share(id_, base.left_out.get(id_, ())) for id_ in base.uploads]
        return None, [*again, newest]

    def _commit(
        self, earlier: Earlier | None, shares: list[Share], root: Path, tell: Teller
    ) -> tuple[VersionPlan, CommittedVersion]:
        sources = [] if earlier is None else [earlier_source(earlier)]
        sources += [share_source(share) for share in shares if share.episodes]
        plan = plan_version(sources)
        landings = {share.upload: share.landing for share in shares}
        origins = origins_of(plan.sources.values(), landings, None if earlier is None else earlier.root)
        return plan, commit_version(plan, origins, root, tell.stage)
