"""An earlier version as the source of a new one: its episodes, its tables, and its videos shared or encoded anew."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from forebay.ingest.adapters import carried_meta, metadata_tables
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.origins import read_episode_list, video_digests
from forebay.ingest.adapters.video_cuts import Cut, Film, Quality, cut_video
from forebay.ingest.conversion import Accepted
from forebay.ingest.domain.info_file import INFO_FILE, parse_info, read_document
from forebay.ingest.domain.path_template import (
    DATA_FIELDS,
    DEFAULT_DATA_PATH,
    DEFAULT_VIDEO_PATH,
    VIDEO_FIELDS,
    parse_template,
)
from forebay.ingest.domain.recording import Info, Window
from forebay.ingest.domain.version_plan import AcceptedEpisode, KeptTables, Source
from forebay.ingest.errors import ConversionError, IngestError
from forebay.runtime.regular_files import read_regular


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A committed version, and which of its episodes are taken over."""

    number: int
    root: Path
    kept: Mapping[str, Accepted]
    """By stable id."""


def earlier_source(earlier: Earlier) -> Source:
    """Read the version's own metadata; raises `ConversionError` when it is damaged."""
    origin = f"v{earlier.number}"
    listed = read_episode_list(earlier.root)
    try:
        folder = DatasetFolder(earlier.root)
        document, _ = read_document(folder.read(INFO_FILE))
        info, _ = parse_info(document or {})
        tasks, _ = metadata_tables.read_tasks(folder)
        if info is None or tasks is None:
            raise _damaged(earlier, "its info.json or tasks.parquet is not usable")
        video = parse_template(DEFAULT_VIDEO_PATH, VIDEO_FIELDS) if info.cameras else None
        table = metadata_tables.EpisodeTable(folder, info, parse_template(DEFAULT_DATA_PATH, DATA_FIELDS), video)
        table.read()
    except (IngestError, OSError, ValueError) as error:
        raise _damaged(earlier, str(error)) from error
    declared = {episode.index: episode for episode in table.episodes}
    episodes = []
    for entry in listed["episodes"]:
        accepted = earlier.kept.get(entry["episode"])
        if accepted is None:
            continue
        found = declared.get(entry["index"])
        if found is None or found.length != entry["length"]:
            raise _damaged(earlier, f"meta/episodes does not list episode {entry['index']} as it was committed")
        episodes.append(
            AcceptedEpisode(
                id=accepted.id,
                upload=entry["upload"],
                source_index=entry["source_index"],
                origin=origin,
                declared=found,
                tasks=accepted.tasks,
                digest=accepted.digest,
            )
        )
    known = {(v["camera"], v["chunk"], v["file"]): v["sha256"] for v in listed.get("videos", [])}
    digests = {_path(*row): (row, digest) for row, digest in video_digests(earlier.root, known).items()}
    return Source(
        origin=origin,
        info=info,
        tasks=tasks,
        sha256={path: digest for path, (_, digest) in digests.items()},
        episodes=tuple(episodes),
        version=True,
        kept=KeptTables(
            episodes=len(listed["episodes"]),
            places={path: row for path, (row, _) in digests.items()},
        ),
        labels=carried_meta.read_labels(folder, info),
        task_notes=metadata_tables.task_notes(folder),
        files=carried_meta.carried_files(folder, info, {}),
    )


def _path(camera: str, chunk: int, file: int) -> str:
    return DEFAULT_VIDEO_PATH.format(video_key=camera, chunk_index=chunk, file_index=file)


def _damaged(earlier: Earlier, why: str) -> ConversionError:
    return ConversionError(f"{earlier.root} is damaged: {why}; restore its folder, then retry")


def rewrite_videos(
    source: Source, root: Path, folder: Path, quality: Quality, progress: Callable[[int, int], None]
) -> Source:
    """Encode what the kept episodes show into files of their own below `folder`; nothing else is in them."""
    cuts: dict[str, list[Cut]] = {}
    for number, episode in enumerate(source.episodes):
        for window in episode.declared.windows:
            cut = Cut(episode=number, start=window.start, frames=episode.declared.length)
            cuts.setdefault(window.file, []).append(cut)
    places = source.kept.places if source.kept is not None else {}
    total = sum(cut.frames for wanted in cuts.values() for cut in wanted)
    windows: dict[tuple[int, str], Window] = {}
    sha256: dict[str, str] = {}
    done = 0
    for path in sorted(cuts):
        camera, wanted = places[path][0], sorted(cuts[path], key=lambda cut: cut.start)
        _, chunk, number = places[path]
        film = Film(root=root, camera=camera, chunk=chunk, file=number, fps=source.info.fps)
        cut_video(film, wanted, folder / path, quality)
        sha256[path] = hashlib.sha256(read_regular(folder / path)).hexdigest()
        frame = 0
        for cut in wanted:
            start, stop = frame / source.info.fps, (frame + cut.frames) / source.info.fps
            windows[(cut.episode, camera)] = Window(camera=camera, file=path, start=start, stop=stop)
            frame += cut.frames
        done += frame
        progress(done, total)
    episodes = tuple(
        replace(
            episode,
            declared=replace(
                episode.declared,
                windows=tuple(windows[(number, window.camera)] for window in episode.declared.windows),
            ),
        )
        for number, episode in enumerate(source.episodes)
    )
    return replace(source, info=_encoded(source.info, quality), sha256=sha256, episodes=episodes, kept=None)


def _encoded(info: Info, quality: Quality) -> Info:
    """info.json says how the videos are encoded now."""
    document = dict(info.document)
    features = dict(document.get("features", {}))
    for camera in info.cameras:
        entry = dict(features[camera.key])
        for name in ("info", "video_info"):
            if isinstance(entry.get(name), dict):
                entry[name] = {**entry[name], "video.codec": quality.codec, "video.pix_fmt": quality.pixels}
        features[camera.key] = entry
    return replace(info, document={**document, "features": features})
