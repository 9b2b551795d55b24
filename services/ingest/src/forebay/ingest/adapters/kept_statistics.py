"""Statistics that an earlier version keeps per episode, read on from episode to episode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain import statistics
from forebay.ingest.domain.recording import Info
from forebay.ingest.domain.statistics import Statistics

_BLOCK = 200


def kept_statistics(root: Path, info: Info) -> Iterator[tuple[int, dict[str, Statistics]]]:
    """(dense index, feature -> statistics) in the order of the episodes."""
    names = [*statistics.MOMENTS, *statistics.QUANTILES]
    folder = DatasetFolder(root / "meta")
    for file in episode_files_of(folder):
        with ParquetTable(folder.path(file)) as table:
            wanted = [f"stats/{feature.key}/{name}" for feature in info.features for name in names]
            there = [name for name in wanted if name in table.schema.names]
            for batch in table.blocks(["episode_index", *there], _BLOCK):
                for row in batch.to_pylist():
                    yield row["episode_index"], _of_row(row, info)


def episode_files_of(meta: DatasetFolder) -> list[str]:
    """The files of the episode table below a `meta/` folder."""
    return sorted(name for name in meta.files if name.startswith("episodes/") and name.endswith(".parquet"))


def _of_row(row: dict[str, object], info: Info) -> dict[str, Statistics]:
    found = {}
    for feature in info.features:
        prefix = f"stats/{feature.key}/"
        entry = {key.removeprefix(prefix): value for key, value in row.items() if key.startswith(prefix)}
        stats = statistics.from_lists(entry)
        if stats is not None:
            found[feature.key] = stats
    return found
