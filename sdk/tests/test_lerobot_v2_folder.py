"""LeRobot v2.1 and v2.0 folders at the collector: one data file and one video per camera and episode."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.v1.episodes import EpisodeUploaded, UploadFinished, UploadStarted
from forebay.sdk.collector import Collector
from forebay.sdk.errors import NotADatasetError
from forebay.sdk.lerobot_folder import scan

from .builders import KeptPublisher

CAMERA = "observation.images.top"
REVISION = "5" * 40


def build(root: Path, version: str = "v2.1", lengths: tuple[int, ...] = (20, 15)) -> Path:
    """The files that the collector looks at; it copies what is inside them without reading it."""
    info = {
        "codebase_version": version,
        "fps": 10,
        "chunks_size": 1,
        "robot_type": "so100",
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {CAMERA: {"dtype": "video", "shape": [48, 64, 3]}},
    }
    _write(root / "meta/info.json", json.dumps(info))
    lines = [{"episode_index": n, "tasks": ["pick"], "length": length} for n, length in enumerate(lengths)]
    _write(root / "meta/episodes.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for number in range(len(lengths)):
        _write(root / f"data/chunk-{number:03d}/episode_{number:06d}.parquet", f"rows {number}")
        _write(root / f"videos/chunk-{number:03d}/{CAMERA}/episode_{number:06d}.mp4", f"video {number}")
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _line(text: str) -> Callable[[Path], object]:
    return lambda root: (root / "meta/episodes.jsonl").write_text(text)


def _info(**changes: Any) -> Callable[[Path], object]:
    def apply(root: Path) -> None:
        path = root / "meta/info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return apply


@pytest.mark.parametrize("version", ["v2.1", "v2.0"])
async def test_every_episode_is_announced_with_files_of_its_own(tmp_path: Path, version: str) -> None:
    """The format is named; rows and windows start at 0; chunks follow from the episode's number."""
    home = tmp_path / "home"
    collector = Collector(home=home, project="lab")
    done = collector.upload(build(tmp_path / "dataset", version), "pick")
    publisher = KeptPublisher()
    await collector.outbox.deliver(publisher)
    bodies = [event.body for event in publisher.stored]
    started, finished = bodies[0], bodies[-1]
    assert isinstance(started, UploadStarted)
    assert isinstance(finished, UploadFinished)
    assert (started.source_format, started.expected_episodes) == (f"lerobot-{version}", 2)
    episodes = [body for body in bodies if isinstance(body, EpisodeUploaded)]
    assert [(e.source_index, e.length, e.rows.start, e.rows.stop) for e in episodes] == [(0, 20, 0, 20), (1, 15, 0, 15)]
    assert episodes[1].rows.file == "data/chunk-001/episode_000001.parquet"
    video = episodes[1].videos[0]
    assert (video.camera, video.start, video.stop) == (CAMERA, 0.0, 1.5)
    assert video.file == f"videos/chunk-001/{CAMERA}/episode_000001.mp4"
    assert (home / "pool/landing/lab" / done.upload / video.file).read_text() == "video 1"


async def test_the_revision_of_a_hugging_face_snapshot_goes_along(tmp_path: Path) -> None:
    """Lineage knows the commit without being told."""
    root = build(tmp_path / "datasets--lab--pick/snapshots" / REVISION)
    collector = Collector(home=tmp_path / "home", project="lab")
    collector.upload(root, "pick")
    publisher = KeptPublisher()
    await collector.outbox.deliver(publisher)
    started = publisher.stored[0].body
    assert isinstance(started, UploadStarted)
    assert started.source_revision == REVISION


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_info(codebase_version="v1.6"), "v3.0, v2.1, v2.0 can be uploaded"),
        (_info(codebase_version="v3.0"), "its episode table is that of v2.x"),
        (_info(fps=0), "no usable 'fps'"),
        (_info(chunks_size=0), "chunks_size = 0"),
        (_info(data_path="data/{file_index}.parquet"), "does not know"),
        (_info(video_path="../{video_key}/{episode_index}.mp4"), "not inside the dataset"),
        (_line(""), "lists no episode"),
        (_line("[1]"), "lists no episode"),
        (lambda root: (root / "meta/episodes.jsonl").unlink(), "cannot be read"),
    ],
    ids=[
        "older version", "label of v3.0", "fps", "chunks", "placeholder of v3.0", "template climbs out", "no episode",
        "no object", "no table",
    ],
)  # fmt: skip
def test_what_cannot_be_uploaded_is_refused_with_a_sentence(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    """Nothing is copied or said before the folder is understood."""
    root = build(tmp_path)
    change(root)
    with pytest.raises(NotADatasetError, match=says) as refused:
        scan(root)
    assert refused.value.next_action


@pytest.mark.parametrize(
    ("lines", "announced"),
    [
        ('{"episode_index": 0, "length": 3}\n{"episode_in', [(0, 3)]),
        ('{"episode_index": 0, "length": -3}\n{"episode_index": 1, "length": 3}', [(0, 0), (1, 3)]),
        ('{"episode_index": 0, "length": 3}\n{"episode_index": 0, "length": 4}', [(0, 3)]),
        ('{"episode_index": null, "length": 3}\n{"episode_index": 1, "length": 3}', [(1, 3)]),
    ],
    ids=["cut line", "negative length", "twice", "no number"],
)
def test_a_broken_line_keeps_no_other_episode_back(
    tmp_path: Path, lines: str, announced: list[tuple[int, int]]
) -> None:
    """What can be named is announced; ingest judges each."""
    root = build(tmp_path)
    _line(lines)(root)
    assert [(one.index, one.length) for one in scan(root).episodes] == announced
