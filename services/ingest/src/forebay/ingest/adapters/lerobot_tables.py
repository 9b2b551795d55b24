"""The metadata tables of a dataset, whatever version of LeRobot it has: one description for all rules."""

from __future__ import annotations

from typing import Any, Protocol

from forebay.ingest.adapters import lerobot_v2_tables, metadata_tables
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.info_file import INFO_FILE
from forebay.ingest.domain.path_template import PathTemplate
from forebay.ingest.domain.recording import Episode, Info


class EpisodeTable(Protocol):
    """The episodes that a dataset declares."""

    @property
    def episodes(self) -> list[Episode]: ...
    @property
    def breaches(self) -> list[Breach]: ...
    @property
    def entries(self) -> int: ...
    @property
    def complete(self) -> bool: ...


def is_v2(info: Info) -> bool:
    """One file per episode and JSON lines."""
    return info.version.startswith("v2.")


def tables_of(info: Info) -> tuple[str, str]:
    """Where the episode table and the task table lie."""
    if is_v2(info):
        return lerobot_v2_tables.EPISODES_FILE, lerobot_v2_tables.TASKS_FILE
    return metadata_tables.EPISODES_FOLDER, metadata_tables.TASKS_FILE


def statistics_of(info: Info) -> str:
    """Where the statistics of single episodes stand."""
    return lerobot_v2_tables.EPISODE_STATS_FILE if is_v2(info) else metadata_tables.EPISODES_FOLDER


def lists_episodes(folder: DatasetFolder, info: Info) -> bool:
    """Whether there is an episode table at all."""
    if is_v2(info):
        return lerobot_v2_tables.EPISODES_FILE in folder.files
    return bool(metadata_tables.episode_files(folder))


def read_episodes(folder: DatasetFolder, info: Info, data: PathTemplate, video: PathTemplate | None) -> EpisodeTable:
    """The episode table, read to its end."""
    table = (lerobot_v2_tables.EpisodeLines if is_v2(info) else metadata_tables.EpisodeTable)(folder, info, data, video)
    table.read()
    return table


def read_tasks(folder: DatasetFolder, info: Info) -> tuple[dict[int, str] | None, list[Breach]]:
    """Task number -> text; None when there is no usable table."""
    return lerobot_v2_tables.read_tasks(folder) if is_v2(info) else metadata_tables.read_tasks(folder)


def read_statistics(folder: DatasetFolder, info: Info) -> tuple[dict[str, Any] | None, list[Breach]]:
    """Statistics by feature, as far as they can be used."""
    if is_v2(info):
        return lerobot_v2_tables.read_statistics(folder, info)
    return metadata_tables.read_statistics(folder)


def task_notes(folder: DatasetFolder, info: Info) -> dict[int, dict[str, Any]]:
    """What the task table says of tasks beside their texts."""
    return lerobot_v2_tables.task_notes(folder) if is_v2(info) else metadata_tables.task_notes(folder)


def written_anew(folder: DatasetFolder, info: Info) -> set[str]:
    """Files below meta/ whose content every version writes in tables of its own."""
    if is_v2(info):
        tables = (lerobot_v2_tables.EPISODES_FILE, lerobot_v2_tables.TASKS_FILE, lerobot_v2_tables.EPISODE_STATS_FILE)
        return {INFO_FILE, metadata_tables.STATS_FILE, *tables}
    return {INFO_FILE, metadata_tables.STATS_FILE, metadata_tables.TASKS_FILE, *metadata_tables.episode_files(folder)}
