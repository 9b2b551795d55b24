"""Every stored statistic of a dataset and of its episodes against rows and pictures.

`stored_statistics` and `picture_statistics` judge one entry; this module says which
entries there are, and what a wrong one means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay.ingest.domain import picture_statistics, stored_statistics
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.recording import RENUMBERED, Feature, Info
from forebay.ingest.domain.spread import Array
from forebay.ingest.domain.stored_statistics import Summary, summarise

if TYPE_CHECKING:
    from forebay.ingest.domain.signals import EpisodeScan, FeatureScan
    from forebay.ingest.domain.whole import Whole

_FILE = "meta/stats.json"


def check_dataset(whole: Whole) -> list[Breach]:
    """The statistics of the whole; every row that they may have been made from is there."""
    stored = whole.statistics or {}
    found: list[Breach] = []
    for feature in _of_rows(whole.info):
        entry = stored.get(feature.key)
        parts = [scan.features[feature.key] for scan in whole.scans.values() if feature.key in scan.features]
        if not isinstance(entry, dict) or not parts:
            continue
        rows = _summary(parts)
        if rows is not None:
            found += stored_statistics.check_statistics(feature, _usable(feature, entry), rows, _FILE, whole.limits)
    for camera in filter(picture_statistics.is_colour, whole.info.features):
        entry = stored.get(camera.key)
        brightness = picture_statistics.brightness_of(one for one in whole.pictures if one.camera == camera.key)
        if isinstance(entry, dict) and brightness is not None:
            found += picture_statistics.check_picture_statistics(camera, entry, brightness, _FILE)
    return _renumbered(found)


def check_each_episode(whole: Whole) -> list[Breach]:
    """The statistics that stand beside each episode."""
    found: list[Breach] = []
    for feature in _of_rows(whole.info):
        stored = whole.episode_statistics.get(feature.key)
        if stored is not None:

            def check(episode: int, entry: dict[str, Array], feature: Feature = feature) -> list[Breach]:
                rows = _of_episode(whole.scans.get(episode), feature.key)
                if rows is None:
                    return []
                entry = _usable(feature, entry)
                return stored_statistics.check_statistics(
                    feature, entry, rows, whole.episode_file, whole.limits, episode=episode
                )

            found += stored_statistics.check_episodes(stored, check)
    shown = {(one.episode, one.camera): one for one in whole.pictures}
    for camera in filter(picture_statistics.is_colour, whole.info.features):
        stored = whole.episode_statistics.get(camera.key)
        if stored is not None:

            def look(episode: int, entry: dict[str, Array], camera: Feature = camera) -> list[Breach]:
                one = shown.get((episode, camera.key))
                brightness = None if one is None else picture_statistics.brightness_of([one])
                if brightness is None:
                    return []
                return picture_statistics.check_picture_statistics(
                    camera, entry, brightness, whole.episode_file, episode
                )

            found += stored_statistics.check_episodes(stored, look)
    return _renumbered(found)


def _of_rows(info: Info) -> list[Feature]:
    """Every column of numbers, those that count rows and episodes too."""
    return [feature for feature in info.features if not feature.is_video and not feature.is_image]


def _usable(feature: Feature, entry: dict[str, Any]) -> dict[str, Any]:
    """Quantiles of a column that only counts mean nothing: LeRobot averages those of the episodes."""
    if feature.is_signal:
        return entry
    return {name: value for name, value in entry.items() if name in stored_statistics.NAMES}


def _summary(parts: Sequence[FeatureScan]) -> Summary | None:
    stretches = (stretch for part in parts for stretch in part.spread)
    return summarise(((part.moments, part.low, part.high) for part in parts), stretches)


def _of_episode(scan: EpisodeScan | None, key: str) -> Summary | None:
    part = None if scan is None else scan.features.get(key)
    return None if part is None else _summary([part])


def _renumbered(breaches: list[Breach]) -> list[Breach]:
    """LeRobot's merge and edit tools count rows and episodes anew and leave their statistics, which nobody trains with."""
    numbers = [breach for breach in breaches if breach.feature in RENUMBERED]
    if not numbers:
        return breaches
    keys = [str(breach.feature) for breach in numbers]
    text = f"{numbers[0].message}; nothing trains with them, and LeRobot's merge and edit tools leave such"
    if len(keys) > 1:
        text += f" (the same for {listed(keys[1:])})"
    told = replace(numbers[0], lowered="info", message=text)
    return [*(breach for breach in breaches if breach.feature not in RENUMBERED), told]
