"""What the works `convert` and `derive` need to know before they write: episodes of uploads and of earlier versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from forebay.ingest.adapters.landing_folder import LandingFolders
from forebay.ingest.adapters.origins import Origin, UploadOrigin, VersionOrigin, read_episode_list
from forebay.ingest.conversion import Accepted, Share
from forebay.ingest.domain.documents import Episode, Upload, Version, place
from forebay.ingest.domain.evolve import episode_id
from forebay.ingest.domain.membership import Ranges, leave_out, within
from forebay.ingest.domain.version_plan import Source, VersionPlan
from forebay.ingest.earlier_version import Earlier
from forebay.ingest.errors import ConversionError
from forebay.runtime.work import WorkContext

MOST_NAMED = 100
"""Files and sentences that travel in an event; a version's own episode list has all of them."""
_LONGEST = 1000


def told(notes: Iterable[str]) -> tuple[str, ...]:
    """Sentences, short enough for an event."""
    return tuple(note[:_LONGEST] for note in notes)[:MOST_NAMED]


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Reads ingest's own documents, and the lists that lie in the pool."""

    landings: LandingFolders
    project: str
    context: WorkContext

    async def share(self, id_: str, left_out: Ranges = ()) -> Share:
        """The accepted episodes of one upload, but for those left out or withdrawn."""
        upload = await self.context.get(Upload, place(self.project, id_))
        if upload is None or upload.manifest is None:
            msg = f"upload {id_} is not known, although a version is made of it"
            raise ConversionError(msg)
        folder = await self.context.in_thread(self.landings.folder, self.project, id_, upload.landing_uri)
        manifest = await self.context.in_thread(self.landings.manifest, folder, upload.manifest)
        episodes = [_accepted(e) for e in await self._all(upload) if e.state == "ACCEPTED"]
        kept = [episode for episode in episodes if not within(episode.source_index, left_out)]
        digests = {name: digest for name, (digest, _) in manifest.files.items()}
        return Share(upload=id_, landing=folder, sha256=digests, episodes=kept)

    async def earlier(self, version: Version, left_out: dict[str, Ranges]) -> Earlier:
        """The episodes of an earlier version that are neither left out nor withdrawn."""
        root = Path(version.root)
        listed = await self.context.in_thread(read_episode_list, root)
        kept: dict[str, Accepted] = {}
        for entry in listed["episodes"]:
            id_ = episode_id(self.project, version.dataset, str(entry["upload"]), int(entry["source_index"]))
            episode = await self.context.get(Episode, place(self.project, id_))
            if episode is None or episode.state != "ACCEPTED":
                continue
            if not within(episode.source_index, left_out.get(episode.upload, ())):
                kept[episode.listed_id] = _accepted(episode)
        return Earlier(number=version.number, root=root, kept=kept)

    async def left_out(self, uploads: Iterable[str], plan: VersionPlan) -> dict[str, Ranges] | None:
        """Accepted episodes of these uploads that the plan does not hold."""
        held = {episode.accepted.id for episode in plan.episodes}
        missing: list[Episode] = []
        for id_ in uploads:
            upload = await self.context.get(Upload, place(self.project, id_))
            if upload is not None:
                missing += [e for e in await self._all(upload) if e.accepted and e.listed_id not in held]
        return leave_out({}, missing) or None

    async def _all(self, upload: Upload) -> list[Episode]:
        found = []
        for index in range(upload.highest + 1):
            id_ = episode_id(self.project, upload.dataset, upload.id, index)
            episode = await self.context.get(Episode, place(self.project, id_))
            if episode is not None:
                found.append(episode)
        return found


def _accepted(episode: Episode) -> Accepted:
    return Accepted(
        id=episode.listed_id,
        source_index=episode.source_index,
        length=episode.length,
        tasks=episode.tasks,
        digest=episode.sha256 or "",
    )


def origins_of(
    sources: Iterable[Source], landings: dict[str, Path], root: Path | None, videos: Path | None = None
) -> dict[str, Origin]:
    """What each source of a plan is read through."""
    found: dict[str, Origin] = {}
    for source in sources:
        if source.version and root is not None:
            found[source.origin] = VersionOrigin(root, source.info, videos)
        else:
            found[source.origin] = UploadOrigin(landings[source.origin])
    return found
