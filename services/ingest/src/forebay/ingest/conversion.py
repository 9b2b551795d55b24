"""From accepted episodes in landing folders to one version root. Used by the worker `convert`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.ingest.adapters import carried_meta, lerobot_tables
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.domain import structure
from forebay.ingest.domain.info_file import INFO_FILE, parse_info, read_document
from forebay.ingest.domain.path_template import fields_of, parse_template
from forebay.ingest.domain.version_plan import AcceptedEpisode, Source, VersionPlan, plan_version
from forebay.ingest.errors import ConversionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """One episode as the log knows it."""

    id: str
    source_index: int
    length: int
    tasks: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one upload gives to the version."""

    upload: str
    landing: Path
    sha256: Mapping[str, str]
    episodes: Sequence[Accepted]


def plan_shares(shares: Sequence[Share]) -> VersionPlan:
    """Read the uploads' metadata again and plan the version; raises `ConversionError` when it has changed."""
    return plan_version([share_source(share) for share in shares if share.episodes])


def share_source(share: Share) -> Source:
    """Read one upload's metadata again."""
    folder = DatasetFolder(share.landing)
    document, _ = read_document(folder.read(INFO_FILE))
    info, _ = parse_info(document or {})
    tasks = None if info is None else lerobot_tables.read_tasks(folder, info)[0]
    if info is None or tasks is None:
        msg = f"upload {share.upload}: its metadata was readable when it was checked and is not any more ({share.landing})"
        raise ConversionError(msg)
    for_data, for_video = fields_of(info.version)
    video = parse_template(info.video_path, for_video, info.version) if info.video_path and info.cameras else None
    table = lerobot_tables.read_episodes(folder, info, parse_template(info.data_path, for_data, info.version), video)
    declared = {episode.index: episode for episode in table.episodes}
    episodes = []
    for episode in sorted(share.episodes, key=lambda episode: episode.source_index):
        found = declared.get(episode.source_index)
        if found is None or found.length != episode.length:
            msg = f"upload {share.upload}: episode {episode.source_index} is not what was accepted ({episode.length} frames)"
            raise ConversionError(msg)
        episodes.append(
            AcceptedEpisode(
                id=episode.id,
                upload=share.upload,
                source_index=episode.source_index,
                origin=share.upload,
                declared=found,
                tasks=episode.tasks,
                digest=episode.digest,
            )
        )
    announced = [name for name in share.sha256 if name in folder.files] or None
    return Source(
        origin=share.upload,
        info=info,
        tasks=tasks,
        sha256=share.sha256,
        episodes=tuple(episodes),
        labels=carried_meta.read_labels(folder, info),
        task_notes=lerobot_tables.task_notes(folder, info),
        files=carried_meta.carried_files(folder, info, share.sha256),
        beside=tuple(carried_meta.beside(folder, structure.files_used(table.episodes), announced)),
    )
