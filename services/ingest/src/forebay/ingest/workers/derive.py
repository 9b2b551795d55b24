"""The work `derive`: write the version that a person asked for out of an earlier one.

Rows are numbered anew, videos are shared; with `rewrite` they are encoded anew, so
that the pixels of episodes left out are gone. Idempotent: a root that answers this
very request is taken over.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from forebay.contracts.v1.datasets import DatasetDerivationFailed, DatasetVersionCommitted
from forebay.ingest.adapters.episode_records import EpisodeRecords
from forebay.ingest.adapters.lance_version import CommittedVersion, commit_version, find_answer
from forebay.ingest.adapters.landing_folder import LandingFolders
from forebay.ingest.adapters.version_check import find_damage
from forebay.ingest.adapters.video_cuts import Quality
from forebay.ingest.domain.documents import Derivation, Version, place, version_key
from forebay.ingest.domain.rules import RULES_VERSION
from forebay.ingest.domain.version_plan import VersionPlan, plan_version
from forebay.ingest.earlier_version import Earlier, earlier_source, rewrite_videos
from forebay.ingest.errors import ConversionError, ReadBackError, StorageUnavailableError
from forebay.ingest.workers.convert import WAIT_FOR_POOL_S, no_room
from forebay.ingest.workers.gathering import MOST_NAMED, Gatherer, origins_of, told
from forebay.ingest.workers.telling import Teller, from_thread, tell_done
from forebay.runtime.disk_room import is_disk_full
from forebay.runtime.errors import RetryLater
from forebay.runtime.machine import Emit
from forebay.runtime.work import WorkContext, WorkItem


@dataclass(frozen=True, slots=True)
class DerivedWriter:
    """Writes one derived version."""

    landings: LandingFolders
    datasets: Path
    """`<pool>/datasets`"""
    records: EpisodeRecords

    async def __call__(self, item: WorkItem, context: WorkContext) -> Iterable[Emit]:
        wish = await context.get(Derivation, place(item.project, item.key))
        if wish is None or wish.state != "WRITING" or wish.version is None:
            return ()
        base = await context.get(Version, version_key(item.project, wish.dataset, wish.base))
        tell = from_thread(context)
        try:
            return [await self._derive(wish, base, context, tell)]
        except StorageUnavailableError as error:
            raise RetryLater(WAIT_FOR_POOL_S, str(error)) from error
        except (ConversionError, ReadBackError) as error:
            if is_disk_full(error):
                raise no_room(self.datasets, f"v{wish.version} of {wish.dataset}") from error
            # nothing that waiting mends, and others of the dataset wait behind it
            tell_done(context, failed=str(error))
            body = DatasetDerivationFailed(derivation=wish.id, dataset=wish.dataset, message=str(error)[:1000])
            return [Emit(project=item.project, body=body, dedupe=(wish.id,))]
        except Exception as error:
            if is_disk_full(error):
                raise no_room(self.datasets, f"v{wish.version} of {wish.dataset}") from error
            raise

    async def _derive(self, wish: Derivation, base: Version | None, context: WorkContext, tell: Teller) -> Emit:
        if base is None or base.removed is not None:
            msg = f"v{wish.base} of {wish.dataset} is gone"
            raise ConversionError(msg)
        damage = await context.in_thread(find_damage, base)
        if damage is not None:
            raise ConversionError(damage.message)
        gather = Gatherer(self.landings, wish.project, context)
        earlier = await gather.earlier(base, wish.left_out)
        root = self.datasets / wish.project / wish.dataset / f"v{wish.version}"
        plan, made = await context.in_thread(self._commit, wish, earlier, root, tell)
        listed = await context.in_thread(self.records.keep, made.episodes.uri)
        body = DatasetVersionCommitted(
            dataset=wish.dataset,
            number=wish.version or 0,
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
            uploads=base.uploads,
            parent=base.number,
            parent_reason=wish.reason,
            filter=wish.filter,
            rules_version=RULES_VERSION,
            carried=made.carried[:MOST_NAMED],
            notes=told(made.notes),
            left_out=await gather.left_out(base.uploads, plan),
            derivation=wish.id,
        )
        tell_done(context, version=wish.version, episodes=body.episode_count)
        return Emit(project=wish.project, body=body, dedupe=(wish.dataset, wish.version))

    def _commit(
        self, wish: Derivation, earlier: Earlier, root: Path, tell: Teller
    ) -> tuple[VersionPlan, CommittedVersion]:
        source = earlier_source(earlier)
        if not wish.rewrite:
            if source.kept is not None:
                source = replace(source, kept=replace(source.kept, rows_shared=False))
            plan = plan_version([source])
            origins = origins_of([source], {}, earlier.root)
            return plan, commit_version(plan, origins, root, tell.stage, request=wish.id)
        made = find_answer(root, wish.id, tell.stage)
        if made is not None:
            return plan_version([source]), made
        scratch = root.parent / f".rewrite.{wish.id}"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            quality = Quality() if wish.crf is None else Quality(crf=wish.crf)
            source = rewrite_videos(
                source, earlier.root, scratch, quality, lambda done, total: tell.stage("encoded", done, total)
            )
            plan = plan_version([source])
            origins = origins_of([source], {}, earlier.root, scratch)
            return plan, commit_version(plan, origins, root, tell.stage, request=wish.id)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
