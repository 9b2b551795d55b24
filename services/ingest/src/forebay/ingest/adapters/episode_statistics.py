"""What a dataset keeps about each of its episodes: minimum, maximum, mean, deviation and quantiles of every feature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.lerobot_tables import is_v2
from forebay.ingest.adapters.lerobot_v2_tables import episode_statistics
from forebay.ingest.adapters.metadata_tables import episode_files
from forebay.ingest.adapters.parquet_tables import ParquetTable
from forebay.ingest.domain.info_file import is_count
from forebay.ingest.domain.picture_statistics import is_colour
from forebay.ingest.domain.recording import Feature, Info
from forebay.ingest.domain.stored_quantiles import QUANTILES, quantiles_in
from forebay.ingest.domain.stored_statistics import NAMES, STORED, WIDEST, EpisodeStatistics
from forebay.ingest.errors import IngestError

_BLOCK = 200


def read_episode_statistics(folder: DatasetFolder, info: Info) -> dict[str, EpisodeStatistics]:
    """By feature; what is no number, or of another width than the feature, is left out."""
    features = [feature for feature in info.features if _width(feature) <= WIDEST]
    numbers: dict[str, list[int]] = {feature.key: [] for feature in features}
    values: dict[str, list[Any]] = {feature.key: [] for feature in features}
    for index, entries in _entries(folder, info, features):
        for feature in features:
            found = _numbers(entries.get(feature.key), _width(feature))
            if found is not None:
                numbers[feature.key].append(index)
                values[feature.key].append(found)
    return {
        key: EpisodeStatistics(episodes=tuple(numbers[key]), values=np.stack(values[key]))
        for key in numbers
        if numbers[key]
    }


def _entries(folder: DatasetFolder, info: Info, features: list[Feature]) -> Iterator[tuple[int, dict[str, Any]]]:
    if is_v2(info):
        yield from episode_statistics(folder)
        return
    wanted = {f"stats/{feature.key}/{name}": (feature.key, name) for feature in features for name in STORED}
    for file in episode_files(folder):
        try:
            with ParquetTable(folder.path(file)) as table:
                there = [name for name in wanted if name in table.schema.names]
                if not there or table.doubled or "episode_index" not in table.schema.names:
                    continue
                for batch in table.blocks(["episode_index", *there], _BLOCK):
                    for row in batch.to_pylist():
                        entries: dict[str, Any] = {}
                        for name in there:
                            key, kind = wanted[name]
                            entries.setdefault(key, {})[kind] = row[name]
                        if is_count(row["episode_index"]):
                            yield row["episode_index"], entries
        except IngestError:
            continue  # the episode table itself is told elsewhere


def _width(feature: Feature) -> int:
    """Values of one statistic: one per channel of a camera in colour, of another camera none are read."""
    if feature.is_video or feature.is_image:
        return 3 if is_colour(feature) else WIDEST + 1
    return feature.width


def _numbers(entry: Any, width: int) -> Any:
    """The statistics as rows of one array, NaN for quantiles that are not there; None when one cannot be used."""
    missing = np.full(width, np.nan)
    try:
        found = [np.asarray(entry[name], dtype=np.float64).reshape(-1) for name in NAMES]
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    if any(len(values) != width for values in found):
        return None
    quantiles = quantiles_in(entry)
    found += [values if len(values := quantiles.get(name, missing)) == width else missing for name in QUANTILES]
    return np.array(found)
