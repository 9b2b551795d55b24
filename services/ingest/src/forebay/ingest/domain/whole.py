"""Checks that need everything that was read of a dataset: pictures of neighbours, statistics, splits, names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forebay.ingest.domain import camera_rate, compared_statistics, names, pictures, rules, splits
from forebay.ingest.domain.breach import Breach, listed
from forebay.ingest.domain.collection_request import CollectionRequest, check_request
from forebay.ingest.domain.followed import check_followed
from forebay.ingest.domain.limits import Limits
from forebay.ingest.domain.measured_rate import check_rate
from forebay.ingest.domain.motion import Motion
from forebay.ingest.domain.pictures import EpisodePictures
from forebay.ingest.domain.recording import ACTIONS, STATES, Info, action_and_state
from forebay.ingest.domain.signals import EpisodeScan
from forebay.ingest.domain.stored_statistics import EpisodeStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A dataset as it was read."""

    info: Info
    scans: Mapping[int, EpisodeScan]
    """Of listed episodes."""
    pictures: list[EpisodePictures]
    statistics: Mapping[str, Any] | None
    episode_statistics: Mapping[str, EpisodeStatistics]
    """By feature, as far as they can be used."""
    tasks: Mapping[int, str]
    tasks_file: str
    episode_file: str
    """Where statistics of single episodes stand."""
    complete: bool
    """Every row that the statistics may have been made from is here."""
    limits: Limits
    request: CollectionRequest | None = None


def check(whole: Whole) -> list[Breach]:
    """Every broken rule among them."""
    fps = whole.info.fps
    digests = splits.digests_of(whole.pictures)
    ranges = splits.ranges_of(whole.info)
    same = splits.same_recording(whole.scans, digests)
    motion = Motion(whole.scans, {feature.key for feature in whole.info.row_features})
    found = [
        *names.check_names(whole.info),
        *names.check_task_texts(whole.tasks, whole.tasks_file),
        *_check_live_state(whole),
        *_check_stuck_action(whole, motion),
        *_check_followed(whole),
        *splits.check_splits(ranges, sorted(whole.scans) if whole.complete else []),
        *splits.check_repeated(whole.scans, digests, ranges),
        *pictures.check_frozen(whole.pictures, fps, motion.moves, whole.limits),
        *camera_rate.check_rates(whole.pictures, fps, motion, whole.limits),
        *pictures.check_same_pictures(whole.pictures, same, whole.limits),
        *pictures.check_same_cameras(whole.pictures, whole.limits),
        *pictures.check_stolen(whole.pictures),
    ]
    if whole.complete and sum(scan.rows for scan in whole.scans.values()) == whole.info.total_frames:
        found += compared_statistics.check_dataset(whole)
    found += compared_statistics.check_each_episode(whole)
    if whole.request is not None:
        tasks = tuple(
            whole.tasks[n] for n in {t for scan in whole.scans.values() for t in scan.tasks} if n in whole.tasks
        )
        rows = sum(scan.rows for scan in whole.scans.values())
        found += check_request(whole.request, whole.info, episodes=len(whole.scans), frames=rows, tasks=tasks)
        lengths = {index: scan.rows for index, scan in whole.scans.items()}
        found += check_rate(whole.request.name, whole.request.durations, lengths, fps)
    return found


def _check_live_state(whole: Whole) -> list[Breach]:
    """Episodes in which every value of the state stands still to the last bit, unlike in others, while the action moves."""
    keys = [feature.key for feature in whole.info.row_features]
    state = next((key for key in STATES if key in keys), STATES[0])
    action = next((key for key in ACTIONS if key in keys), ACTIONS[0])
    still: list[int] = []
    moving = 0
    for episode, scan in whole.scans.items():
        span, command = _span(scan, state), _span(scan, action)
        if span is None or len(span) < 2 or scan.rows < whole.limits.frozen_min_frames:
            continue
        moving += bool(np.any(span > 0))
        if not np.any(span) and command is not None and np.any(command > 0):
            still.append(episode)
    if not still or not moving:
        return []
    return [
        Breach(
            rule=rules.DEAD_STATE,
            episodes=tuple(sorted(still)),
            feature=state,
            expected="a state that changes",
            found="one value in every frame",
            message=f"{state} holds one value in every frame of episodes {listed(sorted(still))}, while {action} changes",
        )
    ]


def _check_followed(whole: Whole) -> list[Breach]:
    pair = action_and_state(whole.info.row_features)
    return [] if pair is None else check_followed(whole.scans, *pair)


def _check_stuck_action(whole: Whole, motion: Motion) -> list[Breach]:
    """Episodes in which the whole action keeps one value, unlike in others, while the robot moves as in others."""
    keys = [feature.key for feature in whole.info.row_features]
    action = next((key for key in ACTIONS if key in keys), None)
    if action is None or not any(key in keys for key in STATES):
        return []
    still: list[int] = []
    moving = 0
    for episode, scan in whole.scans.items():
        span = _span(scan, action)
        if span is None or len(span) < 2 or scan.rows < whole.limits.frozen_min_frames:
            continue
        moving += bool(np.any(span > 0))
        if not np.any(span) and not scan.features[action].all_zero and motion.moves(episode, 0, scan.rows):
            still.append(episode)
    if not still or not moving:
        return []
    return [
        Breach(
            rule=rules.DEAD_ACTION,
            lowered="warning",
            episodes=tuple(sorted(still)),
            feature=action,
            expected="an action that changes",
            found="one value in every frame",
            message=f"{action} holds one value in every frame of episodes {listed(sorted(still))}, while the robot moves",
        )
    ]


def _span(scan: EpisodeScan, key: str) -> npt.NDArray[np.float64] | None:
    seen = scan.features.get(key)
    return None if seen is None or seen.low is None or seen.high is None else seen.high - seen.low
