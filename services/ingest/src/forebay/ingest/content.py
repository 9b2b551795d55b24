"""Has everything decoded that a dataset's tables name: rows and videos at once, on all cores.

Used by `inspection`, which judges what comes back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from forebay.ingest.adapters import decoding
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.decoders import Decoders, Task, cores, value_of
from forebay.ingest.adapters.decoding import DataFile, FileRows, Listing
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.copies import Copies, find_copies
from forebay.ingest.domain.frames import VideoScan
from forebay.ingest.domain.limits import Limits
from forebay.ingest.domain.path_template import PathTemplate
from forebay.ingest.domain.pictures import EpisodePictures, PictureWatch, check_frozen, check_same_pictures
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.domain.signals import EpisodeScan
from forebay.ingest.domain.stored_statistics import EpisodeStatistics
from forebay.ingest.errors import IngestError

if TYPE_CHECKING:
    from forebay.ingest.adapters.image_scans import ImageScan

Tasks = tuple[dict[int, str] | None, list[Breach]]


def read_tables(
    pool: Decoders, folder: DatasetFolder, info: Info, templates: tuple[PathTemplate, PathTemplate | None]
) -> tuple[Listing, Tasks, dict[str, EpisodeStatistics]]:
    """Episode table, task table and statistics per episode; what kills the decoder is a breach like any other unreadable file."""
    size = sum(size for name, size in folder.files.items() if name.startswith("meta/"))
    listing, tasks, statistics = pool.run(
        [
            Task(function=decoding.read_episodes, arguments=(folder, info, *templates), size=size),
            Task(function=decoding.read_tasks, arguments=(folder, info), size=size),
            Task(function=decoding.read_statistics, arguments=(folder, info), size=size),
        ]
    )
    if isinstance(listing, IngestError):
        listing = Listing(episodes=[], breaches=[_unreadable("the episode table", listing)], entries=0, complete=False)
    if isinstance(tasks, IngestError):
        tasks = (None, [_unreadable("the task table", tasks)])
    return listing, tasks, {} if isinstance(statistics, IngestError) else statistics


def _unreadable(what: str, error: IngestError) -> Breach:
    return Breach(
        rule=rules.PARQUET_UNREADABLE,
        file="meta",
        expected="a readable table",
        found=str(error),
        message=f"{what} below meta/ cannot be read: {error}",
    )


class Content:
    """Rows and videos of one dataset, decoded."""

    def __init__(self, pool: Decoders, info: Info) -> None:
        self._pool = pool
        self._info = info
        self._rows: dict[str, FileRows | IngestError] = {}
        self._images: dict[str, ImageScan | IngestError] = {}
        self._videos: dict[str, VideoScan] = {}
        self._aside: dict[str, frozenset[int]] = {}

    def decode(
        self,
        data: Sequence[DataFile],
        videos: Mapping[str, tuple[Path, PictureWatch]],
        on_rows: Callable[[int], None],
        on_frames: Callable[[int], None],
    ) -> None:
        """Decode these files. Nothing is raised for what they contain."""
        threads = max(1, -(-cores() // max(1, len(videos))))
        sizes = {name: path.stat().st_size for name, (path, _) in videos.items()}
        tasks = [
            Task(
                function=decoding.scan_rows,
                arguments=(self._info, file, {}),
                size=file.path.stat().st_size,
                on_steps=on_rows,
            )
            for file in data
        ]
        tasks += [
            Task(
                function=decoding.scan_frames,
                arguments=(path, name, threads, watch),
                size=sizes[name],
                on_steps=on_frames,
            )
            for name, (path, watch) in videos.items()
        ]
        pictured = data if self._info.image_cameras else ()
        tasks += [
            Task(
                function=decoding.scan_images,
                arguments=(self._info, file),
                size=file.path.stat().st_size,
                on_steps=on_frames,
            )
            for file in pictured
        ]
        answers = self._pool.run(tasks)
        self._images.update(zip((file.name for file in pictured), answers[len(data) + len(videos) :], strict=True))
        self._rows.update(zip((file.name for file in data), answers[: len(data)], strict=True))
        for name, answer in zip(videos, answers[len(data) : len(data) + len(videos)], strict=True):
            self._videos[name] = answer if isinstance(answer, VideoScan) else _no_frames(name, sizes[name], answer)

    def set_aside_copies(self, episodes: Sequence[Episode], files: Sequence[DataFile]) -> Copies:
        """Find the rows that lie in a second file; from here on they are not there."""
        rows = {
            name: {index: scan.rows for index, scan in answer.scans.items()}
            for name, answer in self._rows.items()
            if not isinstance(answer, IngestError)
        }
        copies = find_copies(rows, episodes, {file.name: file.users for file in files})
        self._aside.update(copies.aside)
        return copies

    def episodes_in(self, name: str) -> set[int]:
        """The episodes that a data file has rows of."""
        rows = self._rows.get(name)
        return set() if rows is None or isinstance(rows, IngestError) else set(rows.scans)

    def take_rows(self, file: DataFile, scans: dict[int, EpisodeScan]) -> FileRows:
        """What one data file gave, put into `scans`; raises the error that stands in its place.

        An episode that other files have rows of as well is continued, so the file is then read once more.
        """
        rows: FileRows = value_of(self._rows.pop(file.name))
        aside = self._aside.get(file.name, frozenset())
        shared = {index: scans[index] for index in rows.scans.keys() - aside if index in scans}
        if shared:
            size = file.path.stat().st_size
            again = Task(function=decoding.scan_rows, arguments=(self._info, file, shared), size=size)
            rows = value_of(self._pool.run([again])[0])
        scans.update({index: scan for index, scan in rows.scans.items() if index not in aside})
        return rows

    def take_images(self, file: DataFile) -> tuple[tuple[EpisodePictures, ...], list[Breach]]:
        """What the pictures in one data file show, and what is wrong with them."""
        answer = self._images.pop(file.name, None)
        if answer is None:
            return (), []
        if not isinstance(answer, IngestError):
            aside = self._aside.get(file.name, frozenset())
            return tuple(one for one in answer.pictures if one.episode not in aside), answer.breaches
        cameras = listed([camera.key for camera in self._info.image_cameras])
        broken = Breach(
            rule=rules.IMAGE_UNREADABLE,
            episodes=tuple(file.users),
            file=file.name,
            expected="a picture in every row",
            found=str(answer),
            message=f"{file.name}: the pictures of {cameras} cannot be read: {answer}",
        )
        return (), [broken]

    def video(self, name: str) -> VideoScan | None:
        return self._videos.get(name)


def _no_frames(name: str, size: int, error: IngestError) -> VideoScan:
    return VideoScan(file=name, size=size, times=np.empty(0), problem=str(error))


_MOST_LOOSE = 1000
_NUMBER = re.compile(r"(\d{1,9})\.mp4")


def check_loose_videos(pool: Decoders, folder: DatasetFolder, limits: Limits) -> list[Breach]:
    """Frozen cameras among videos that no readable table describes: one folder is one camera, one file an episode."""
    names = [
        name
        for name, size in folder.files.items()
        if name.startswith("videos/") and name.endswith(".mp4") and size > 1024 and name not in folder.far
    ]
    seen: list[EpisodePictures] = []
    tasks: list[Task] = []
    for name in names[:_MOST_LOOSE]:
        number = _NUMBER.search(name)
        camera = next((part for part in name.split("/")[1:-1] if not part.startswith("chunk")), "videos")
        one = EpisodePictures(
            episode=int(number.group(1)) if number else len(tasks), camera=camera, file=name, start=0.0, stop=math.inf
        )
        watch = PictureWatch([one], 1.0, limits)
        arguments = (folder.path(name), name, 1, watch)
        tasks.append(Task(function=decoding.scan_frames, arguments=arguments, size=folder.files[name]))
    for answer in pool.run(tasks):
        seen += answer.pictures if isinstance(answer, VideoScan) else ()
    found = check_frozen(seen, 1.0, lambda *_: None, limits)
    return [breach for breach in found if breach.severity != "warning"] + check_same_pictures(
        seen, lambda *_: False, limits
    )
