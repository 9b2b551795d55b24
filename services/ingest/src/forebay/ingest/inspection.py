"""Looks at one LeRobot dataset folder from end to end and reports every broken rule.

The adapters read, the checks in `domain` judge; this module only decides what is
looked at next and goes on after every broken part. Used by the command `validate`
and by the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.ingest.adapters import lerobot_tables, metadata_tables
from forebay.ingest.adapters.dataset_folder import DatasetFolder, is_content
from forebay.ingest.adapters.decoders import Decoders, cores
from forebay.ingest.adapters.decoding import DataFile, Listing
from forebay.ingest.adapters.other_kinds import describe_other
from forebay.ingest.content import Content, Tasks, check_loose_videos, read_tables
from forebay.ingest.domain import (
    arrival,
    clock,
    frames,
    info_file,
    missing,
    names,
    numbering,
    report,
    rules,
    signals,
    stray,
    structure,
    video_form,
    whole,
    window_ends,
)
from forebay.ingest.domain.breach import Breach, gathered, listed
from forebay.ingest.domain.collection_request import CollectionRequest
from forebay.ingest.domain.dataset_templates import templates_of
from forebay.ingest.domain.path_template import PathTemplate
from forebay.ingest.domain.pictures import EpisodePictures, PictureWatch, pictures_by_file
from forebay.ingest.domain.policy import NO_POLICY, Policy
from forebay.ingest.domain.recording import Episode, Feature, Info
from forebay.ingest.domain.signals import EpisodeScan
from forebay.ingest.domain.whole import Whole
from forebay.ingest.errors import IngestError, UnreadableFileError

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What is known about a dataset once it was looked at."""

    report: report.Report
    info: Info | None = None
    episodes: list[Episode] = field(default_factory=list)
    tasks: dict[int, str] = field(default_factory=dict)
    statistics: dict[str, Any] | None = None
    pictures: list[EpisodePictures] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Length of every decoded video file."""


def inspect(
    root: Path | DatasetFolder,
    progress: Progress = _silent,
    distrusted: Mapping[str, str] | None = None,
    *,
    decoders: Decoders | None = None,
    policy: Policy = NO_POLICY,
    request: CollectionRequest | None = None,
) -> Inspection:
    """Look at the folder `root`.

    `distrusted` names files that are not what the collector announced, with the
    reason; their content is not believed. `policy` is the project's own judgement,
    `request` what was ordered. Raises nothing for what the files contain.
    """
    with decoders or Decoders() as pool:
        return _Inspector(root, progress, distrusted or {}, pool, (policy, request)).run()


class _Inspector:
    def __init__(
        self,
        root: Path | DatasetFolder,
        progress: Progress,
        distrusted: Mapping[str, str],
        pool: Decoders,
        terms: tuple[Policy, CollectionRequest | None],
    ) -> None:
        self._pool = pool
        self._policy, self._request = terms
        self._folder = root if isinstance(root, DatasetFolder) else DatasetFolder(root)
        self._progress = progress
        self._distrusted = dict(distrusted)
        for name in self._distrusted:
            self._folder.files.pop(name, None)
        self._breaches: list[Breach] = []
        self._scans: dict[int, EpisodeScan] = {}
        self._unreadable: set[str] = set()
        self._lost: set[int] = set()
        self._label: str | None = None
        self._seen = Inspection(report=report.judge("unknown", [], []))

    def run(self) -> Inspection:
        info = self._read_info()
        if info is None:
            return self._without_tables()
        self._seen.info = info
        templates = templates_of(info, self._folder.files)
        self._breaches += templates.breaches
        if self._is_empty(info):
            return self._finish()
        table, tasks, self._episode_statistics = read_tables(
            self._pool, self._folder, info, (templates.data, templates.video)
        )
        self._loose = templates.guessed or (bool(info.cameras) and templates.video is None)
        if self._loose:
            self._breaches += check_loose_videos(self._pool, self._folder, self._policy.limits)
        self._breaches += table.breaches
        self._seen.episodes = table.episodes
        self._entries = table.entries
        listed_all = table.complete and lerobot_tables.lists_episodes(self._folder, info)
        self._table_complete = listed_all
        self._all_listed = listed_all and table.entries == len(table.episodes) >= info.total_episodes
        self._check_files(info, table)
        self._read_descriptions(info, tasks)
        self._decode(info, templates.data)
        self._read_rows()
        self._read_videos(info)
        self._check_episodes(info)
        self._check_whole(info, table)
        return self._finish()

    def _without_tables(self) -> Inspection:
        """Nothing says what belongs together; pictures can be looked at all the same."""
        self._breaches += check_loose_videos(self._pool, self._folder, self._policy.limits)
        return self._finish()

    # what it is

    def _read_info(self) -> Info | None:
        files = self._folder.files
        self._pointers = {pointer.file: pointer for pointer in self._folder.pointers()}
        self._layout = structure.layout_of(list(files))
        if any(name.startswith("meta/") for name in self._pointers):
            self._tell_pointers({})
            return None
        if info_file.INFO_FILE not in files:
            where = self._distrusted.get(info_file.INFO_FILE) or self._folder.refused.get(info_file.INFO_FILE)
            other = describe_other(self._folder.root)
            self._breaches += arrival.check_no_info(list(files), self._layout, self._folder.arriving(), where, other)
            return None
        try:
            document, broken = info_file.read_document(self._folder.read(info_file.INFO_FILE))
        except IngestError as error:
            document, broken = None, [Breach(rule=rules.NOT_A_DATASET, message=str(error), file=info_file.INFO_FILE)]
        if document is None:
            self._breaches += broken
            return None
        stored = info_file.check_storage(document)
        if stored:
            self._breaches += stored
            return None
        version = info_file.check_version(document, self._layout)
        if version and not self._pointers and info_file.is_readable_as(document, self._layout):
            # the label is wrong, the files are not: everything else is judged in the same round
            self._breaches += version
            document = {**document, "codebase_version": self._layout}
        elif version:
            self._label = info_file.refused_label(document)
            if self._pointers:
                self._tell_pointers({})
            else:
                self._breaches += version
            return None
        self._label = None if version else info_file.version_of(document)
        info, broken = info_file.parse_info(document)
        self._breaches += broken
        return info

    def _tell_pointers(self, users: Mapping[str, list[int]]) -> None:
        content = len(users) or sum(is_content(name) for name in self._folder.files)
        self._breaches += structure.check_pointers(list(self._pointers.values()), content, users)

    def _is_empty(self, info: Info) -> bool:
        if info.total_episodes or "total_episodes" in info.unknown or lerobot_tables.lists_episodes(self._folder, info):
            return False
        self._breaches.append(
            Breach(
                rule=rules.EMPTY_DATASET,
                message="0 episodes recorded yet",
                file=info_file.INFO_FILE,
                found="0 episodes",
            )
        )
        return True

    # files and tables

    def _check_files(self, info: Info, table: Listing) -> None:
        users = structure.files_used(table.episodes)
        if self._pointers:
            self._tell_pointers(users)
        if not lerobot_tables.lists_episodes(self._folder, info):
            self._breaches.append(missing.no_table(info, lerobot_tables.tables_of(info)[0], self._folder.files))
        broken = arrival.check_refused(self._folder.refused, users)
        self._unreadable.update(self._distrusted, (breach.file for breach in broken if breach.file is not None))
        self._breaches += [*arrival.check_announced(self._distrusted, users), *broken]
        known = {**self._folder.files, **dict.fromkeys(self._unreadable, 0)}
        gone = [name for name in users if name not in known]
        free = [name for name in known if name not in users]
        moved = missing.relocate(gone, free, across_chunks=lerobot_tables.is_v2(info))
        cameras = {window.file: window.camera for episode in table.episodes for window in episode.windows}
        self._breaches += missing.check_missing(users, known, moved, cameras)
        self._seen.episodes = [missing.where_found(episode, moved) for episode in table.episodes]
        self._users = structure.files_used(self._seen.episodes)
        if gone:
            self._breaches += arrival.check_arriving(self._folder.arriving())
        self._unreadable.update(gone)
        self._unreadable.update(self._pointers)

    def _read_descriptions(self, info: Info, read: Tasks) -> None:
        tasks, broken = read
        self._has_tasks = tasks is not None and not any(breach.severity == "error" for breach in broken)
        self._seen.tasks = tasks or {}
        self._breaches += broken
        self._seen.statistics, broken = lerobot_tables.read_statistics(self._folder, info)
        self._breaches += broken
        statistics = None if self._seen.statistics is None else set(self._seen.statistics)
        self._breaches += structure.check_descriptions(info, statistics)

    def _decode(self, info: Info, template: PathTemplate) -> None:
        """Have everything decoded, rows and videos at once; what they say is looked at afterwards."""
        names = {n for n in self._folder.files if n.startswith(template.folder + "/") and n.endswith(".parquet")}
        placed = {name for name in names if template.places(name)}
        self._aside = sorted(names - placed) if placed and not self._loose and not lerobot_tables.is_v2(info) else []
        names -= set(self._aside)
        names |= {name for name in (e.data_file for e in self._seen.episodes) if name in self._folder.files}
        self._data = [
            DataFile(path=self._folder.path(name), name=name, users=self._users.get(name, []))
            for name in sorted(names - self._unreadable)
        ]
        named = {window.file for episode in self._seen.episodes for window in episode.windows}
        videos = named & self._folder.files.keys()
        self._content = Content(self._pool, info)
        shown = pictures_by_file(self._seen.episodes, info.fps)
        rows = sum(episode.length for episode in self._seen.episodes)
        on_frames = self._counter("frames", rows * (len(info.cameras) + len(info.image_cameras)))
        watches = {
            name: PictureWatch(shown[name], info.fps, self._policy.limits) for name in sorted(videos - self._unreadable)
        }
        near = {
            name: (self._folder.path(name), watch) for name, watch in watches.items() if name not in self._folder.far
        }
        self._content.decode(self._data, near, self._counter("rows", rows), on_frames)
        far = sorted(watches.keys() - near.keys())
        for start in range(0, len(far), cores()):
            some = far[start : start + cores()]
            with ExitStack() as held, ThreadPoolExecutor(len(some)) as fetchers:
                paths = list(fetchers.map(lambda name: held.enter_context(self._folder.near(name)), some))
                fetched = {name: (path, watches[name]) for name, path in zip(some, paths, strict=True)}
                self._content.decode([], fetched, on_frames, on_frames)

    def _counter(self, stage: str, total: int) -> Callable[[int], None]:
        done = 0

        def count(steps: int) -> None:
            nonlocal done
            done += steps
            self._progress(stage, done, total)

        return count

    def _read_rows(self) -> None:
        copies = self._content.set_aside_copies(self._seen.episodes, self._data)
        self._lost = copies.lost
        self._breaches += copies.breaches
        self._stray = dict.fromkeys(self._stray_files(set(copies.aside)), "")
        for file in self._data:
            name, users = file.name, file.users
            try:
                rows = self._content.take_rows(file, self._scans)
                broken = rows.breaches
                if rows.problem is not None:
                    raise UnreadableFileError(rows.problem)  # noqa: TRY301 told like a file that gave no row at all
            except UnreadableFileError as error:
                size = self._folder.files[name]
                broken = [
                    Breach(
                        rule=rules.PARQUET_UNREADABLE,
                        episodes=tuple(users),
                        file=name,
                        expected="a parquet file with its footer",
                        found=str(error),
                        message=f"{name} ({size} bytes) cannot be read: {error}; affected episodes: {listed(users) or 'none listed'}",
                    )
                ]
            pictures, unreadable = self._content.take_images(file)
            if name in self._stray:
                self._stray[name] = stray.look_of(broken)
                continue
            if any(breach.severity == "error" for breach in broken):
                self._unreadable.add(name)
            else:
                broken += unreadable
            self._seen.pictures += pictures
            self._breaches += broken

    def _stray_files(self, copies: set[str]) -> list[str]:
        """Data files that no episode needs: every episode is listed, and they have rows of none."""
        if not self._all_listed:
            return []
        known = {episode.index for episode in self._seen.episodes}
        return [
            file.name
            for file in self._data
            if not file.users and file.name not in copies and not self._content.episodes_in(file.name) & known
        ]

    def _rows_of(self, episode: Episode) -> int:
        """Stored rows; where the rows cannot be read, the declared ones."""
        scan = self._scans.get(episode.index)
        if scan is not None:
            return scan.rows
        return episode.length if episode.data_file in self._unreadable else 0

    def _read_videos(self, info: Info) -> None:
        files: list[tuple[str, Feature, list[frames.Use]]] = []
        lengths = {episode.index: self._rows_of(episode) for episode in self._seen.episodes}
        self._seen.episodes = [e.with_rows(lengths[e.index], info.fps) for e in self._seen.episodes]
        for camera in info.cameras:
            by_file = frames.uses_by_file(self._seen.episodes, camera.key, lengths.__getitem__)
            files += [(name, camera, uses) for name, uses in sorted(by_file.items())]
        all_known = self._scans.keys() <= lengths.keys() and self._entries == len(lengths)
        for name, camera, uses in files:
            scan = self._content.video(name)
            if scan is None:
                continue
            self._seen.pictures += scan.pictures
            self._seen.seconds[name] = scan.seconds(info.fps)
            self._breaches += video_form.check_file(
                scan, camera, uses, info.fps, self._policy.limits, all_known=all_known
            )

    # judgement

    def _check_episodes(self, info: Info) -> None:
        for episode in self._seen.episodes:
            scan = self._scans.get(episode.index)
            if episode.index not in self._lost:
                self._breaches += structure.check_rows(episode, scan, self._unreadable)
            if scan is None:
                continue
            self._breaches += clock.check_clock(episode, scan.clock, info.fps, next(iter(scan.files), None))
            self._breaches += signals.check_signals(episode, scan, info.row_features)
            if self._has_tasks:
                self._breaches += structure.check_tasks(
                    episode, scan, self._seen.tasks, lerobot_tables.tables_of(info)[1]
                )

        if not self._table_complete:
            self._check_unlisted(info)

    def _check_unlisted(self, info: Info) -> None:
        """Rows are judged even where the episode table cannot be used."""
        known = {episode.index for episode in self._seen.episodes}
        for index, scan in sorted(self._scans.items()):
            if index in known:
                continue
            file = next(iter(scan.files), "")
            episode = Episode(index=index, length=scan.rows, from_index=None, to_index=None, data_file=file)
            self._breaches += clock.check_clock(episode, scan.clock, info.fps, file)
            self._breaches += signals.check_signals(episode, scan, info.row_features)
            if self._has_tasks:
                table = lerobot_tables.tables_of(info)[1]
                self._breaches += structure.check_tasks(episode, scan, self._seen.tasks, table)

    def _check_whole(self, info: Info, table: Listing) -> None:
        known = {episode.index for episode in self._seen.episodes}
        listed_scans = {i: scan for i, scan in self._scans.items() if i in known or not self._table_complete}
        self._breaches += signals.check_dimensions(listed_scans, info.row_features)
        self._breaches += signals.check_constant(listed_scans, info.row_features, names.joint_names(info))
        if not self._loose:
            wrong = {(n, b.feature or "") for b in self._breaches if "VIDEO" in b.rule.id for n in b.episodes or ()}
            self._breaches += window_ends.check_ends(self._seen.episodes, self._rows_of, info.fps, wrong)
        self._breaches += whole.check(
            Whole(
                info=info,
                scans=listed_scans,
                pictures=[] if self._loose else self._seen.pictures,
                statistics=self._seen.statistics,
                episode_statistics=self._episode_statistics,
                episode_file=lerobot_tables.statistics_of(info),
                tasks=self._seen.tasks,
                tasks_file=lerobot_tables.tables_of(info)[1],
                complete=table.complete and not self._unreadable,
                limits=self._policy.limits,
                request=self._request,
            )
        )
        if not table.complete or not lerobot_tables.lists_episodes(self._folder, info):
            return
        videos = (name for name in self._folder.files if name.startswith("videos/") and name.endswith(".mp4"))
        shadows = (name for name in self._folder.shadows if name.startswith(("data/", "meta/", "videos/")))
        refused = table.entries != len(known)  # whose videos nobody knows
        self._breaches += stray.check_stray(() if refused or self._loose else videos, self._users, list(shadows))
        self._breaches += stray.check_data(self._aside, self._stray)
        orphans = {index: scan for index, scan in self._scans.items() if not scan.files.keys() <= self._stray.keys()}
        self._breaches += structure.check_orphans(orphans, known | self._named_episodes())
        if table.entries == len(known) and not self._unreadable:
            place = lerobot_tables.tables_of(info)[0]
            self._breaches += numbering.check_numbering(self._seen.episodes, listed_scans, place)
        used = {task for scan in listed_scans.values() for task in scan.tasks}
        counts = structure.Counts(
            # entries that are there twice count for nothing when the rest is what info.json says
            listed=len(known) if len(known) == info.total_episodes else table.entries,
            absent=tuple(n for n in range(min(info.total_episodes, table.entries + 1000)) if n not in known)[:1000],
            declared_frames=sum(episode.length for episode in self._seen.episodes),
            stored_frames=sum(scan.rows for scan in self._scans.values()),
            whole=not self._unreadable,
            statistics_frames=metadata_tables.statistics_frames(self._seen.statistics, info),
            tasks=len(self._seen.tasks) if self._has_tasks else None,
            unused_tasks=sum(task not in used for task in self._seen.tasks),
            videos=len({window.file for episode in self._seen.episodes for window in episode.windows}),
        )
        self._breaches += structure.check_totals(info, counts)

    def _named_episodes(self) -> set[int]:
        """Episodes that some breach speaks of: they are known, only not usable."""
        return {index for breach in self._breaches for index in breach.episodes or ()}

    def _nothing_fetched(self) -> bool:
        """Every file of content is a pointer: what the metadata lists is not here."""
        content = [name for name in self._folder.files if name.endswith((".parquet", ".mp4"))]
        return bool(content) and all(name in self._pointers for name in content)

    def _finish(self) -> Inspection:
        named = self._named_episodes() | {episode.index for episode in self._seen.episodes}
        declared = {episode.index: episode for episode in self._seen.episodes}
        reports = []
        for index in sorted(set() if self._nothing_fetched() else named):
            scan = self._scans.get(index)
            texts = [self._seen.tasks[task] for task in (scan.tasks if scan else ()) if task in self._seen.tasks]
            own = declared[index].tasks if index in declared else None
            reports.append(
                report.EpisodeReport(
                    index=index,
                    outcome="accept",
                    frames=self._rows_of(declared[index]) if index in declared else (scan.rows if scan else 0),
                    tasks=tuple(texts or own or ()),
                    digest=scan.digest if scan is not None and scan.digest else None,
                )
            )
        self._breaches = arrival.unsettle(
            self._breaches, self._folder.changed(), structure.files_used(self._seen.episodes)
        )
        self._breaches = gathered(clock.gathered(self._policy.apply(self._breaches)))
        self._breaches.sort(key=lambda breach: report.RANK[breach.severity])
        version = "unknown" if self._label is None else f"lerobot-{self._label}"
        if version == "unknown" and self._layout != "unknown":
            version = f"lerobot-{self._layout}"
        self._seen.report = report.judge(
            version,
            reports,
            self._breaches,
            files=len(self._folder.files),
            size=sum(self._folder.files.values()),
            on_bad_episode=self._policy.on_bad_episode,
        )
        return self._seen
