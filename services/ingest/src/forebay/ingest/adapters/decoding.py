"""What runs inside a decoder: everything that hands bytes from outside to a decoding library.

The libraries are imported when a function is called, so that the process that only
hands out work never loads them.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.frames import VideoScan
from forebay.ingest.domain.path_template import PathTemplate
from forebay.ingest.domain.pictures import PictureWatch
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.domain.signals import EpisodeScan
from forebay.ingest.domain.stored_statistics import EpisodeStatistics
from forebay.ingest.errors import UnreadableFileError

if TYPE_CHECKING:
    from forebay.ingest.adapters.image_scans import ImageScan

Report = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The episode table of a dataset."""

    episodes: list[Episode]
    breaches: list[Breach]
    entries: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One parquet file of rows, and the episodes that are declared in it."""

    path: Path
    name: str
    users: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRows:
    """What one data file holds."""

    scans: dict[int, EpisodeScan]
    breaches: list[Breach]
    problem: str | None = None
    """Why reading stopped; what came before counts."""


def read_episodes(
    folder: DatasetFolder, info: Info, data: PathTemplate, video: PathTemplate | None, _report: Report
) -> Listing:
    """The episode table, read to its end."""
    from forebay.ingest.adapters import lerobot_tables

    table = lerobot_tables.read_episodes(folder, info, data, video)
    return Listing(episodes=table.episodes, breaches=table.breaches, entries=table.entries, complete=table.complete)


def read_tasks(folder: DatasetFolder, info: Info, _report: Report) -> tuple[dict[int, str] | None, list[Breach]]:
    """Task number -> text; None when there is no usable table."""
    from forebay.ingest.adapters import lerobot_tables

    return lerobot_tables.read_tasks(folder, info)


def read_statistics(folder: DatasetFolder, info: Info, _report: Report) -> dict[str, EpisodeStatistics]:
    """What is stored about single episodes, by feature."""
    from forebay.ingest.adapters.episode_statistics import read_episode_statistics

    return read_episode_statistics(folder, info)


def scan_rows(info: Info, file: DataFile, before: dict[int, EpisodeScan], report: Report) -> FileRows:
    """Scan one data file. `before` has what other files gave of the same episodes; it is continued."""
    from forebay.ingest.adapters.row_scans import RowReader

    try:
        breaches = RowReader(info, before, report).read(file.path, file.name, file.users)
    except UnreadableFileError as error:
        return FileRows(scans=before, breaches=[], problem=str(error))
    return FileRows(scans=before, breaches=breaches)


def scan_images(info: Info, file: DataFile, report: Report) -> ImageScan:
    """Decode the pictures that stand in one data file."""
    from forebay.ingest.adapters import image_scans

    return image_scans.scan_images(info, file.path, file.name, report)


def scan_frames(path: Path, name: str, threads: int, watch: PictureWatch, report: Report) -> VideoScan:
    """Decode one video to its end, or to where it breaks."""
    from forebay.ingest.adapters.pyav_video import scan_video

    return scan_video(path, name, report, threads=threads, watch=watch)
