"""A camera that is slower than its rows is reported; a robot that pauses, slow scenes and depth are no slow camera."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from forebay.ingest.domain import rules
from forebay.ingest.domain.camera_rate import check_rates
from forebay.ingest.domain.motion import Motion
from forebay.ingest.domain.pictures import EpisodePictures
from forebay.ingest.domain.signals import EpisodeScan, RowBlock, VectorBlock
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from . import pictures_builder as pictures
from .lerobot_builder import CAMERA, FIRST_DATA, FIRST_VIDEO, Part

FPS, ROWS = 30, 150
Array = npt.NDArray[np.float64]
SWING: Array = np.sin(np.arange(ROWS) / 11.0)
"""Where the joint is at each row."""


PAUSES: Array = np.sin(np.cumsum(np.arange(ROWS) % 30 < 15) / 7.0)
"""The same with half a second of rest in every second."""


def held(rate: float) -> Array:
    """For each row, the row whose picture a camera of this rate shows."""
    return np.floor(np.floor(np.arange(ROWS) * rate / FPS + 1e-9) * FPS / rate)


def stalled(starts: range, length: int) -> Array:
    shown = np.arange(ROWS, dtype=np.float64)
    for start in starts:
        shown[start : start + length] = start
    return shown


def cells_of(places: Array, noise: float = 0.0, levels: float = 200.0) -> npt.NDArray[np.float32]:
    """A bright bar at each place (in pixels of 128), seen as 16 by 16 cells; its edges move smoothly."""
    pixels = np.arange(128)[None, :]
    bar = np.clip(8 - np.abs(pixels - places[:, None]), 0, 1) * levels + 20
    columns = bar.reshape(len(places), 16, 8).mean(axis=2)
    cells = np.repeat(columns[:, None, :], 16, axis=1)
    return np.asarray(cells + np.random.default_rng(0).normal(0, noise, cells.shape), dtype=np.float32)


def seen(shown: Array, joint: Array = SWING, *, noise: float = 0.1, **how: float) -> EpisodePictures:
    one = EpisodePictures(episode=0, camera=CAMERA, file="front.mp4", start=0.0, stop=10.0)
    places = 64 + 48 * joint[shown.astype(int)]
    one.take(cells_of(places, noise, **how), 6.0)
    return one


def motion_of(joint: Array = SWING) -> Motion:
    """One joint that moves, and one that only has noise."""
    table = np.stack([joint, np.random.default_rng(1).normal(0, 1e-3, len(joint))], axis=1)
    count = np.arange(len(joint))
    block = VectorBlock(lengths=np.full(len(joint), 2), values=table.reshape(-1))
    scan = EpisodeScan()
    scan.add(
        RowBlock(
            file="rows",
            times=count / FPS,
            frame_index=count,
            index=count,
            task_index=count * 0,
            vectors={"observation.state": block},
        ),
        FPS,
    )
    return Motion({0: scan}, {"observation.state"})


@pytest.mark.parametrize(
    ("shown", "rate"),
    [
        (held(15), 15.0),
        (held(10), 10.0),
        (held(25), 25.0),
        (stalled(range(3, ROWS, 15), 5), 22.0),
        (stalled(range(26, ROWS, 34), 8), 23.5),
    ],
    ids=["15 in 30", "10 in 30", "25 in 30", "stalls of five rows", "stalls in slow motion"],
)
def test_the_rate_of_a_slow_camera_is_reported(shown: Array, rate: float) -> None:
    """The finding gives the number of new pictures per second, whether they are missing regularly or now and then."""
    (breach,) = check_rates([seen(shown)], FPS, motion_of())
    assert breach.rule is rules.CAMERA_RATE
    assert breach.severity == "warning"
    assert breach.expected == "30 new pictures per second"
    assert float((breach.found or "").split()[0]) == pytest.approx(rate, abs=1.5)


def test_key_frames_do_not_hide_copies() -> None:
    """A copy that the codec coded anew differs a little from its original."""
    (breach,) = check_rates([seen(held(15), noise=1.2)], FPS, motion_of())
    assert breach.episodes == (0,)


@pytest.mark.parametrize(
    ("pictures_seen", "motion"),
    [
        (seen(held(30)), motion_of()),
        (seen(stalled(range(5, ROWS, 75), 2)), motion_of()),
        (seen(held(15)), motion_of(SWING * 0)),
        (seen(np.arange(ROWS, dtype=np.float64), PAUSES), motion_of(PAUSES)),
        (seen(held(15), levels=2.5), motion_of()),
    ],
    ids=["full rate", "a lost picture now and then", "robot at rest", "robot that pauses", "hardly any contrast"],
)
def test_other_repeats_are_no_slow_camera(pictures_seen: EpisodePictures, motion: Motion) -> None:
    """Single lost pictures, a robot at rest or in a pause, and pictures that hardly change are not reported."""
    assert check_rates([pictures_seen], FPS, motion) == []


def test_a_slow_scene_is_no_slow_camera() -> None:
    """Where the picture changes by whole pixels only, new pictures become rare as the robot slows down."""
    slow = np.sin(np.arange(ROWS) / 40.0)
    one = EpisodePictures(episode=0, camera=CAMERA, file="front.mp4", start=0.0, stop=10.0)
    one.take(cells_of(np.round(64 + 16 * slow)), 6.0)
    assert check_rates([one], FPS, motion_of(slow)) == []


@pytest.fixture
def build(tmp_path: Path) -> Callable[[int], Path]:
    def make(every: int) -> Path:
        """One episode whose camera shows each picture `every` times."""
        frames = 40
        root = lerobot.build(tmp_path, (Part(length=frames, data=0, video=0),))
        lerobot.change_feature(root, CAMERA, shape=[pictures.SIDE, pictures.SIDE, 3])
        for key in ("observation.state", "action"):
            lerobot.change_column(root, FIRST_DATA, key, lambda row: [float(np.sin(row["frame_index"] / 6))] * 3)
        scene = pictures.noisy(pictures.scene(1, frames), 2.0)
        pictures.write(root / FIRST_VIDEO, [scene[number // every * every] for number in range(frames)], 10)
        return root

    return make


@pytest.mark.parametrize(("every", "expected"), [(1, []), (2, ["5"])])
def test_a_dataset_with_a_slow_camera_is_accepted_with_a_warning(
    build: Callable[[int], Path], every: int, expected: list[str]
) -> None:
    """The whole way through a compressed video: half of the pictures are copies."""
    found = [b for b in inspect(build(every)).report.breaches if b.rule is rules.CAMERA_RATE]
    assert [(breach.found or "").split(".")[0] for breach in found] == expected
