"""Task numbers in an upload that its own task table does not list, though the dataset cannot keep them as they are.

A dataset maps the numbers of a later upload to its own by their texts. A number without
a text cannot be mapped, and must not take on the meaning that the dataset gives it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.episode_fields import read_fields
from forebay.ingest.adapters.frame_batches import storage_of
from forebay.ingest.adapters.lerobot_tables import tables_of
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.adapters.task_numbers import numbers_in
from forebay.ingest.domain import rules
from forebay.ingest.domain.breach import Breach
from forebay.ingest.domain.labels import Labels, is_task_number, number_tasks, referring_columns
from forebay.ingest.domain.recording import Episode, Info
from forebay.ingest.errors import IngestError

_EPISODE = "episode_index"


def check_references(
    folder: DatasetFolder,
    info: Info,
    labels: Labels,
    episodes: Sequence[Episode],
    tables: tuple[Mapping[int, str], Mapping[int, str]],
) -> list[Breach]:
    """One breach per episode and column. `tables` are the task tables of the dataset and of the upload.

    `task_index` itself has a rule of its own, and so has a file that cannot be read.
    """
    before, own = tables
    numbers = number_tasks({"dataset": before, "upload": own})[1]["upload"]
    moves = any(old != new for old, new in numbers.items())
    found: dict[tuple[int, str], int] = {}
    for episode, key, number in _references(folder, info, labels, episodes):
        if number not in own and (moves or number in before):
            found[episode, key] = min(number, found.get((episode, key), number))
    return [_breach(key, number, episode, tables_of(info)[1]) for (episode, key), number in sorted(found.items())]


def _references(
    folder: DatasetFolder, info: Info, labels: Labels, episodes: Sequence[Episode]
) -> Iterator[tuple[int, str, int]]:
    """Episode, column and task number."""
    columns = referring_columns(info, labels)
    known = {episode.index for episode in episodes}
    if columns:
        for name in sorted({episode.data_file for episode in episodes} & folder.files.keys()):
            for episode, rows in _rows(folder, name, list(columns)):
                if episode in known:
                    for key in columns.keys() & set(rows.schema.names):
                        for number in numbers_in(storage_of(rows.column(key)), named=columns[key]):
                            yield episode, key, number
    yield from _in_fields(folder, info, [episode.index for episode in episodes])


def _in_fields(folder: DatasetFolder, info: Info, episodes: list[int]) -> Iterator[tuple[int, str, int]]:
    with suppress(IngestError):
        for key, column in read_fields(folder, info, episodes).columns.items():
            for place, episode in enumerate(episodes):
                for number in numbers_in(column[place : place + 1], named=is_task_number(key)):
                    yield episode, key, number


def _rows(folder: DatasetFolder, name: str, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each episode in a data file, some columns of them."""
    with suppress(IngestError), ParquetTable(folder.path(name)) as table:
        there = [key for key in (_EPISODE, *columns) if key in table.schema.names and key not in table.doubled]
        if _EPISODE not in there or len(there) == 1:
            return
        for batch in table.blocks(there):
            indices: Any = batch.column(_EPISODE)
            for episode in pc.unique(indices).to_pylist():
                if episode is not None:
                    yield int(episode), batch.filter(pc.equal(indices, episode))


def _breach(key: str, number: int, episode: int, table: str) -> Breach:
    return Breach(
        rule=rules.TASK_UNKNOWN,
        episodes=(episode,),
        feature=key,
        file=table,
        expected="a task of the upload's table",
        found=str(number),
        message=(
            f"episode {episode}: {key} names task {number}, which is not in the task table; the dataset has other tasks,"
            " so it cannot be known which one is meant"
        ),
        advice=f"Add task {number} to the upload's task table, correct {key}, or use another dataset name.",
    )
