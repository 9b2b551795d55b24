"""Each episode is judged by its own rows, its own window and its own decoded pictures; versions show rows their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.inspection import inspect
from forebay.ingest.offline_conversion import convert_folder

from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from .lerobot_builder import EPISODES, FPS, SIDE, Part

FRONT, WRIST = "observation.images.front", "observation.images.wrist"
PARTS = tuple(Part(length=length, data=0, video=video) for length, video in ((6, 0), (5, 0), (7, 0), (5, 1), (6, 1)))
Lost = dict[tuple[str, int], int]
"""(camera, episode) -> pictures that fell out."""


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


def _level(episode: int, frame: int) -> int:
    """A brightness of its own for every picture."""
    return 20 + 40 * episode + 4 * frame


def _write_video(path: Path, levels: list[int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": "2", "preset": "ultrafast", "crf": "5"}
        stream.time_base = Fraction(1, FPS)
        for level in levels:
            picture = np.full((SIDE, SIDE, 3), level, dtype=np.uint8)
            picture[: SIDE // 2] //= 2
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def _build(root: Path, lost: Lost) -> Path:
    """Two cameras; of some episodes pictures fell out, and the windows follow the real lengths of the videos."""
    lerobot.build(root, PARTS)
    features = json.loads((root / "meta/info.json").read_text())["features"]
    lerobot.change_info(root, features={**features, WRIST: features[FRONT]})
    rows = pq.read_table(root / EPISODES).to_pylist()
    for camera in (FRONT, WRIST):
        for video in (0, 1):
            levels: list[int] = []
            for index, part in enumerate(PARTS):
                if part.video != video:
                    continue
                count = part.length - lost.get((camera, index), 0)
                place = f"videos/{camera}"
                rows[index] |= {f"{place}/chunk_index": 0, f"{place}/file_index": video}
                rows[index] |= {f"{place}/from_timestamp": len(levels) / FPS}
                levels += [_level(index, frame) for frame in range(count)]
                rows[index] |= {f"{place}/to_timestamp": len(levels) / FPS}
            _write_video(root / f"videos/{camera}/chunk-000/file-{video:03d}.mp4", levels)
    pq.write_table(pa.Table.from_pylist(rows), root / EPISODES)
    return root


def _levels(content: Any) -> list[float]:
    with av.open(content) as container:
        return [float(np.mean(frame.to_ndarray(format="gray"))) for frame in container.decode(video=0)]


def _nearest(levels: list[float], seconds: float) -> float:
    """What a reader gets for one row."""
    return levels[min(round(seconds * FPS), len(levels) - 1)]


def _shown(root: Path) -> dict[tuple[int, str], tuple[float, float]]:
    """(source episode, camera) -> the first and the last picture of its rows, decoded out of a version."""
    videos = lance.dataset(str(root / "videos.lance"))
    names = ["video_key", "chunk_index", "file_index"]
    places = [tuple(row.values()) for row in videos.to_table(columns=names).to_pylist()]
    films = {place: _levels(videos.take_blobs("video_bytes", indices=[at])[0]) for at, place in enumerate(places)}
    found = {}
    listed = json.loads((root / "episodes.json").read_text())["episodes"]
    for row, entry in zip(pq.read_table(root / EPISODES).to_pylist(), listed, strict=True):
        for camera in {place[0] for place in places}:
            start = row[f"videos/{camera}/from_timestamp"]
            film = films[(camera, row[f"videos/{camera}/chunk_index"], row[f"videos/{camera}/file_index"])]
            last = start + (row["length"] - 1) / FPS
            found[(entry["source_index"], camera)] = (_nearest(film, start), _nearest(film, last))
    return found


def _wanted(index: int) -> npt.NDArray[np.float64]:
    levels = [_level(index, frame) for frame in (0, PARTS[index].length - 1)]
    return np.array([(level + level // 2) / 2 for level in levels])


CASES: dict[str, tuple[Lost, dict[tuple[int, str], tuple[str, str, str]]]] = {
    "one picture of an episode in the middle of a file": (
        {(FRONT, 1): 1},
        {(1, FRONT): ("error", "5", "4")},
    ),
    "one picture of the first episode of a file": ({(FRONT, 0): 1}, {(0, FRONT): ("error", "6", "5")}),
    "one picture of the last episode of a file": ({(FRONT, 2): 1}, {(2, FRONT): ("warning", "7", "6")}),
    "one picture of the first episode of the second file": ({(WRIST, 3): 1}, {(3, WRIST): ("error", "5", "4")}),
    "one and two pictures of two episodes side by side": (
        {(FRONT, 0): 1, (FRONT, 1): 2},
        {(0, FRONT): ("error", "6", "5"), (1, FRONT): ("error", "5", "3")},
    ),
    "one picture in each of two cameras": (
        {(FRONT, 0): 1, (WRIST, 1): 1},
        {(0, FRONT): ("error", "6", "5"), (1, WRIST): ("error", "5", "4")},
    ),
    "a picture too many": ({(FRONT, 1): -1}, {(1, FRONT): ("warning", "5", "6")}),
    "pictures of a discarded take": ({(FRONT, 1): -9}, {(1, FRONT): ("error", "5", "14")}),
    "nothing": ({}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_who_lost_a_picture_is_named(name: str, tmp_path: Path) -> None:
    """The episode and camera with its rows and pictures, nobody else; a version shows every row its own picture."""
    lost, expected = CASES[name]
    root = _build(tmp_path / "in", lost)
    breaches = inspect(root).report.breaches
    told = {
        (index, b.feature): (b.severity, b.expected, b.found)
        for b in breaches
        if b.rule.id.startswith("LR-VIDEO")
        for index in b.episodes or (-1,)
    }
    assert told == expected
    convert_folder(root, tmp_path / "out", _silent, partial=True)
    shown = _shown(tmp_path / "out")
    rejected = {index for (index, _), (severity, *_) in expected.items() if severity == "error"}
    assert {index for index, _ in shown} == set(range(len(PARTS))) - rejected
    for (index, camera), pictures in shown.items():
        missing = lost.get((camera, index), 0) > 0
        wanted = _wanted(index)[: 1 if missing else 2]
        assert np.abs(np.array(pictures[: len(wanted)]) - wanted).max() < 2, (index, camera)


def _hole(root: Path, at: int) -> None:
    """The picture at one place is missing, and those after it keep their times."""
    path = root / lerobot.FIRST_VIDEO
    frames = sum(part.length for part in lerobot.PARTS if part.video == 0)
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.options = {"g": "1", "preset": "ultrafast", "bf": "0"}
        stream.time_base = Fraction(1, FPS)
        for number in range(frames):
            if number == at:
                continue
            picture = np.full((SIDE, SIDE, 3), 20 * number, dtype=np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


@pytest.mark.parametrize(("at", "episode", "outcome"), [(6, 1, "reject"), (5, 0, "reject"), (8, 1, "reject")])
def test_a_hole_in_time(at: int, episode: int, outcome: str, tmp_path: Path) -> None:
    """A picture that is missing at its time is missed by the episode whose row it belongs to."""
    root = lerobot.build(tmp_path)
    _hole(root, at)
    report = inspect(root).report
    assert {b.episodes for b in report.breaches if b.rule.id == "LR-VIDEO-002"} == {(episode,)}
    assert {line.index for line in report.episodes if line.outcome == "reject"} == {episode}
    assert report.outcome == outcome


@pytest.mark.parametrize("build", [lerobot.build, v2.build])
def test_versions_of_either_layout_show_their_own_pictures(build: Callable[[Path], Path], tmp_path: Path) -> None:
    """First and last picture of every episode, decoded out of the version, are those of the source."""
    root = build(tmp_path / "in")
    films = {}
    for path in sorted((root / "videos").rglob("*.mp4")):
        films[path.relative_to(root).as_posix()] = _levels(str(path))
    convert_folder(root, tmp_path / "out", _silent)
    shown = _shown(tmp_path / "out")
    start = {0: 0, 1: 0}
    for index, part in enumerate(lerobot.PARTS):
        film = (
            films[v2.video_file(index)]
            if build is v2.build
            else films[f"videos/{FRONT}/chunk-000/file-00{part.video}.mp4"]
        )
        first = 0 if build is v2.build else start[part.video]
        start[part.video] += part.length
        assert shown[(index, FRONT)] == (film[first], film[first + part.length - 1])
