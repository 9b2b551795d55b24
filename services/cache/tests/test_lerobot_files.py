"""Access plan A: LeRobot's own files read the same from nothing but their plan, rows and pictures."""

from __future__ import annotations

import json
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import av
import pyarrow.parquet as pq
import pytest
from forebay.cache.adapters.lance_format import TAIL_BYTES
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.adapters.version_root import plan_folder
from forebay.cache.domain.plan import ReadPlan, planned_file
from forebay.cache.errors import (
    ColumnUnknownError,
    DataChangedError,
    DataUnreadableError,
    FormatUnsupportedError,
    PlanError,
)

from . import lance_tables as tables
from . import lerobot_folders as folders
from .lerobot_folders import FPS, FRONT, LENGTHS, WRIST

COLUMNS = ["observation.state", "episode_index", "index", "timestamp"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folders.write_v3(tmp_path_factory.mktemp("pool") / "v1")


def zeroed(root: Path, tmp_path: Path, plan: ReadPlan) -> Path:
    copy = tables.fresh(tmp_path / "zeroed")
    assert tables.zero_outside(root, copy, plan.files) > 0
    return copy


def rows_of(root: Path, episodes: tuple[int, int]) -> Any:
    chosen: Any = [("episode_index", ">=", episodes[0]), ("episode_index", "<", episodes[1])]
    return pq.read_table(root / "data", columns=COLUMNS, filters=chosen)


def front(root: Path) -> Path:
    return root / "videos" / FRONT / "chunk-000" / "file-000.mp4"


def window(episode: int) -> tuple[float, float]:
    return sum(LENGTHS[:episode]) / FPS, sum(LENGTHS[: episode + 1]) / FPS


@pytest.mark.parametrize("episodes", [(0, 1), (1, 2), (1, 3), (3, 4)])
def test_rows_and_pictures_of_some_episodes(root: Path, tmp_path: Path, episodes: tuple[int, int]) -> None:
    """Rows and pictures of the episodes are the same, and the other camera and the images stay cold."""
    plan = plan_folder(root, columns=("observation_state", FRONT), episodes=episodes)
    copy = zeroed(root, tmp_path, plan)
    assert rows_of(copy, episodes).equals(rows_of(root, episodes))
    for episode in range(*episodes):
        pictures = folders.shown(front(root), *window(episode))
        assert len(pictures) == LENGTHS[episode]
        assert folders.shown(front(copy), *window(episode)) == pictures
    assert not any(WRIST in file.path for file in plan.files)
    video = next(file for file in plan.files if FRONT in file.path)
    frames = sum(LENGTHS[episode] for episode in range(*episodes))
    assert video.planned_bytes < video.size * (frames + 9) / sum(LENGTHS)


@pytest.mark.parametrize("codec", ["h264", "mpeg4", "av1"])
@pytest.mark.parametrize("options", [{}, {"movflags": "faststart"}], ids=["index behind", "index in front"])
def test_videos_of_every_make(tmp_path: Path, codec: folders.Codec, options: dict[str, str]) -> None:
    """The index may lie before or behind the pictures, and pictures may be coded out of order."""
    video = tmp_path / "v" / "videos" / FRONT / "chunk-000" / "file-000.mp4"
    root = folders.write_v3(tmp_path / "v", codec=codec, options=options)
    plan = plan_folder(root, columns=(FRONT,), episodes=(2, 3))
    copy = zeroed(root, tmp_path, plan)
    assert folders.shown(front(copy), *window(2)) == folders.shown(video, *window(2))
    assert plan.notes == ()


def test_encoding_leaves_the_priority_of_this_process_alone(tmp_path: Path) -> None:
    """Servers that later tests start inherit it."""
    before = os.sched_getscheduler(0)
    folders.write_video(tmp_path / "a.mp4", 3, codec="av1")
    assert os.sched_getscheduler(0) == before


def test_a_video_with_sound(tmp_path: Path) -> None:
    """Sound lies between the pictures and is not planned with them."""
    root = folders.write_v3(tmp_path / "v", codec="mpeg4")
    folders.write_video(front(root), sum(LENGTHS), sound=True)
    plan = plan_folder(root, columns=(FRONT,), episodes=(1, 2))
    copy = zeroed(root, tmp_path, plan)
    assert folders.shown(front(copy), *window(1)) == folders.shown(front(root), *window(1))
    video = next(file for file in plan.files if FRONT in file.path)
    assert len(video.spans) > LENGTHS[1] / 4


def test_a_picture_that_is_planned_is_needed(root: Path, tmp_path: Path) -> None:
    """With one wanted picture zeroed the pictures differ, or do not decode."""
    plan = plan_folder(root, columns=(FRONT,), episodes=(1, 2))
    expected = folders.shown(front(root), *window(1))
    with av.open(str(front(root))) as container:
        packets = [one for one in container.demux(video=0) if one.pts is not None]
    wanted = [one for one in packets if window(1)[0] <= (one.pts or 0) * float(one.time_base or 0) < window(1)[1]]
    assert len(wanted) == LENGTHS[1]
    planned = next(file for file in plan.files if FRONT in file.path)
    for packet in wanted[::9]:
        assert packet.pos is not None
        assert any(start <= packet.pos and packet.pos + packet.size <= end for start, end in planned.spans)
        broken = folders.copied(root, tmp_path / "broken")
        with front(broken).open("r+b") as file:
            file.seek(packet.pos)
            file.write(bytes(packet.size))
        with suppress(av.FFmpegError):
            assert folders.shown(front(broken), *window(1)) != expected


def test_columns_of_all_episodes(root: Path, tmp_path: Path) -> None:
    """Without episodes every row group of the columns is planned, and a camera's files whole."""
    plan = plan_folder(root, columns=("observation.state", WRIST))
    copy = zeroed(root, tmp_path, plan)
    assert pq.read_table(copy / "data", columns=COLUMNS).equals(pq.read_table(root / "data", columns=COLUMNS))
    assert all(file.ranges is None for file in plan.files if WRIST in file.path)
    data = [file for file in plan.files if file.path.startswith("data/")]
    assert sum(file.planned_bytes for file in data) < 0.2 * sum(file.size for file in data)


def test_without_statistics_every_row_group_may_hold_an_episode(tmp_path: Path) -> None:
    """A footer that does not say which episodes a row group holds is no reason to guess."""
    root = folders.write_v3(tmp_path / "v", codec="mpeg4", statistics=False)
    plan = plan_folder(root, columns=("observation.state",), episodes=(1, 2))
    copy = zeroed(root, tmp_path, plan)
    assert rows_of(copy, (1, 2)).equals(rows_of(root, (1, 2)))


@pytest.mark.parametrize("version", ["v2.1", "v2.0"])
def test_one_file_per_episode(tmp_path: Path, version: str) -> None:
    """In v2 each episode has files of its own, in the chunk that its number says."""
    root = folders.write_v2(tmp_path / "v", version)
    plan = plan_folder(root, columns=("observation.state", FRONT), episodes=(1, 3))
    copy = zeroed(root, tmp_path, plan)
    for episode in (1, 2):
        name = f"data/chunk-{episode // 2:03d}/episode_{episode:06d}.parquet"
        assert pq.read_table(copy / name, columns=COLUMNS).equals(pq.read_table(root / name, columns=COLUMNS))
    videos = [file.path for file in plan.files if file.path.endswith(".mp4")]
    assert videos == [
        f"videos/chunk-000/{FRONT}/episode_000001.mp4",
        f"videos/chunk-001/{FRONT}/episode_000002.mp4",
    ]
    assert all(file.ranges is None for file in plan.files if file.path in videos)


def test_a_fragmented_video_is_planned_whole_and_says_why(tmp_path: Path) -> None:
    """Where the index does not describe the samples nothing is guessed."""
    root = folders.write_v3(tmp_path / "v", options={"movflags": "frag_keyframe+empty_moov"})
    plan = plan_folder(root, columns=(FRONT,), episodes=(1, 2))
    assert next(file for file in plan.files if FRONT in file.path).ranges is None
    assert plan.notes == ("file-000.mp4 is planned whole: it is fragmented",)


def test_planning_reads_footers_and_index_boxes_only(root: Path) -> None:
    """What planning reads is planned, and none of it is a picture or a column."""
    origin = FolderOrigin()
    plan = plan_folder(root, columns=("action", FRONT, WRIST), episodes=(1, 2), origin=origin)
    videos = [file for file in plan.files if file.path.endswith(".mp4")]
    assert len(videos) == 2
    parquet = [file for file in plan.files if file.path.endswith(".parquet")]
    assert origin.read_bytes < TAIL_BYTES * (len(parquet) + 1)
    assert origin.read_bytes < sum(file.planned_bytes for file in videos) / 4


def test_what_is_wrong_is_said(root: Path, tmp_path: Path) -> None:
    """Unknown columns with close ones, episodes that are not there, a version nobody knows."""
    with pytest.raises(ColumnUnknownError, match=f"did you mean {FRONT}"):
        plan_folder(root, columns=("observation.images.fornt",))
    with pytest.raises(PlanError, match="episodes 9:12 select none of its 4 episodes"):
        plan_folder(root, episodes=(9, 12))
    with pytest.raises(DataUnreadableError, match="a filter can be picked of a Lance table only"):
        plan_folder(root, columns=("action",), rows="index < 3")
    other = folders.copied(root, tmp_path / "other")
    info = json.loads((other / "meta" / "info.json").read_text())
    (other / "meta" / "info.json").write_text(json.dumps(info | {"codebase_version": "v4.1"}))
    with pytest.raises(FormatUnsupportedError, match=r"version 'v4\.1'; v3\.0, v2\.1 and v2\.0"):
        plan_folder(other, columns=("action",))
    for path in ("../{video_key}.mp4", "/etc/passwd", "videos/{video_key.__class__}.mp4", "videos/{nothing}.mp4"):
        (other / "meta" / "info.json").write_text(json.dumps(info | {"video_path": path}))
        with pytest.raises(PlanError):
            plan_folder(other, columns=(FRONT,), episodes=(0, 1))


def test_damage_is_named(root: Path, tmp_path: Path) -> None:
    """A cut Parquet file, a cut mp4 and a missing one are each an error in words."""
    for name, words in (
        ("data/chunk-000/file-000.parquet", "no whole Parquet"),
        (f"videos/{FRONT}/chunk-000/file-000.mp4", "cut"),
    ):
        broken = folders.copied(root, tmp_path / "broken")
        content = (broken / name).read_bytes()
        (broken / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(DataChangedError, match=words):
            plan_folder(broken, columns=("action", FRONT), episodes=(0, 1))
        (broken / name).unlink()
        with pytest.raises(DataUnreadableError, match="cannot be read"):
            plan_folder(broken, columns=("action", FRONT), episodes=(0, 1))


def test_any_damage_to_an_index_box_is_a_plan_or_an_error(root: Path, tmp_path: Path) -> None:
    """Whatever single number of the index is changed, planning ends in a plan within the file or in words."""
    broken = folders.copied(root, tmp_path / "broken")
    content = front(root).read_bytes()
    moov = content.index(b"moov") - 4
    (size,) = struct.unpack_from(">I", content, moov)
    outcomes = {"plan": 0, "error": 0}
    for at in range(moov, moov + size - 4, max(4, size // 300)):
        damaged = bytearray(content)
        struct.pack_into(">I", damaged, at, 0xFFFFFFF0)
        front(broken).write_bytes(damaged)
        try:
            plan = plan_folder(broken, columns=(FRONT,), episodes=(0, 1))
        except PlanError:
            outcomes["error"] += 1
        else:
            outcomes["plan"] += 1
            assert all(planned_file(file.path, file.size, file.spans) == file for file in plan.files)
    assert min(outcomes.values()) > 0
