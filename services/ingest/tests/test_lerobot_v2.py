"""LeRobot v2.1 and v2.0: read as they are, judged by the same rules, committed in the layout of v3.0."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow.parquet as pq
import pytest
from forebay.ingest.adapters.lance_version import commit_version
from forebay.ingest.adapters.origins import UploadOrigin
from forebay.ingest.conversion import Accepted, Share, plan_shares
from forebay.ingest.domain.report import Report
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from .lerobot_builder import CAMERA
from .lerobot_v2_builder import EPISODE_STATS, EPISODES, data_file, video_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to break a dataset, and the right answer."""

    breaks: Callable[[Path], object]
    rule: str
    outcome: str = "reject"
    rejected: tuple[int, ...] = ()
    says: tuple[str, ...] = ()
    """What the findings' messages must contain."""
    alone: bool = True
    """No other rule tells an error."""


def _told(report: Report) -> list[tuple[str, tuple[int, ...] | None]]:
    return [(breach.rule.id, breach.episodes) for breach in report.breaches]


def _swap_lengths(root: Path) -> None:
    v2.change_line(root, EPISODES, 0, length=5)
    v2.change_line(root, EPISODES, 1, length=6)


def _foreign_rows(root: Path) -> None:
    shutil.copyfile(root / data_file(0), root / data_file(1))


def _twice(root: Path) -> None:
    lines = v2.read_lines(root / EPISODES)
    v2.write_lines(root / EPISODES, [lines[0], lines[1], lines[1]])


def _nothing_recorded(root: Path) -> None:
    shutil.rmtree(root / "data")
    shutil.rmtree(root / "videos")
    for name in ("episodes.jsonl", "episodes_stats.jsonl", "tasks.jsonl"):
        (root / "meta" / name).unlink()
    lerobot.change_info(root, total_episodes=0, total_frames=0, splits={})


def _pointers(root: Path) -> None:
    for number in range(3):
        lerobot.pointer(root, data_file(number))
        lerobot.pointer(root, video_file(number))


def _three_layout(root: Path) -> None:
    shutil.rmtree(root)
    lerobot.build(root)
    lerobot.change_info(root, codebase_version="v2.1")


CASES = {
    "swapped lengths name the two episodes and nothing else": Case(
        breaks=_swap_lengths,
        rule="LR-EPISODE-002",
        rejected=(0, 1),
        says=("episode 0: declared length 5, stored rows 6", "episode 1: declared length 6, stored rows 5"),
    ),
    "a video with frames missing": Case(
        breaks=lambda root: lerobot.write_video(root / video_file(1), 2),
        rule="LR-VIDEO-002",
        rejected=(1,),
        says=("2 video frames for 5 rows",),
    ),
    "a video with frames too many": Case(
        breaks=lambda root: lerobot.write_video(root / video_file(1), 9),
        rule="LR-VIDEO-002",
        rejected=(1,),
        says=("9 video frames for 5 rows",),
    ),
    "an empty video": Case(
        breaks=lambda root: (root / video_file(1)).write_bytes(b""),
        rule="LR-VIDEO-001",
        rejected=(1,),
        says=("0 bytes",),
    ),
    "a video cut in half": Case(
        breaks=lambda root: lerobot.cut(root, video_file(2)), rule="LR-VIDEO-001", rejected=(2,)
    ),
    "pointers are one cause and no episodes": Case(breaks=_pointers, rule="LR-STRUCT-003", says=("6 of 6",)),
    "one pointer hits one episode": Case(
        breaks=lambda root: lerobot.pointer(root, video_file(1)), rule="LR-STRUCT-003", rejected=(1,)
    ),
    "a missing data file": Case(
        breaks=lambda root: (root / data_file(2)).unlink(),
        rule="LR-STRUCT-002",
        outcome="incomplete",
        rejected=(2,),
        says=("missing in our copy",),
    ),
    "no episode table": Case(
        breaks=lambda root: (root / EPISODES).unlink(), rule="LR-STRUCT-002", outcome="incomplete", says=(EPISODES,)
    ),
    "no task table": Case(
        breaks=lambda root: (root / "meta/tasks.jsonl").unlink(),
        rule="LR-STRUCT-002",
        outcome="incomplete",
        rejected=(0, 1, 2),
        says=("meta/tasks.jsonl",),
    ),
    "a line that was cut": Case(
        breaks=lambda root: lerobot.cut(root, EPISODES, 0.9), rule="LR-META-005", says=("line 3",)
    ),
    "an episode listed twice": Case(breaks=_twice, rule="LR-EPISODE-003", rejected=(1,)),
    "a length that is none": Case(
        breaks=lambda root: v2.change_line(root, EPISODES, 1, length="5"), rule="LR-EPISODE-003", rejected=(1,)
    ),
    "rows of another episode in the file": Case(
        breaks=_foreign_rows, rule="LR-STRUCT-006", rejected=(1,), says=("episode_000001.parquet", "of episodes 0")
    ),
    "an unknown task": Case(
        breaks=lambda root: lerobot.change_column(root, data_file(1), "task_index", lambda _: 7),
        rule="LR-TASK-001",
        rejected=(1,),
    ),
    "a v3.0 placeholder": Case(
        breaks=lambda root: lerobot.change_info(
            root, video_path="videos/chunk-{chunk_index:03d}/{video_key}/episode_{episode_index:06d}.mp4"
        ),
        rule="LR-FORMAT-003",
        says=("{chunk_index} is not valid in v2.1",),
    ),
    "a chunk size of zero": Case(
        breaks=lambda root: lerobot.change_info(root, chunks_size=0), rule="LR-FORMAT-001", says=("chunks_size",)
    ),
    "the label of v2.1 on files of v3.0": Case(
        breaks=_three_layout, rule="LR-FORMAT-002", says=("says v2.1", "lie as in v3.0")
    ),
    "the label of v3.0 on files of v2.1": Case(
        breaks=lambda root: lerobot.change_info(root, codebase_version="v3.0"),
        rule="LR-FORMAT-002",
        says=("says v3.0", "lie as in v2.1"),
    ),
    "a version before v2.0": Case(
        breaks=lambda root: lerobot.change_info(root, codebase_version="v1.6"),
        rule="LR-FORMAT-002",
        says=("v1.6 is not supported", "v3.0, v2.1, v2.0"),
    ),
    "a version to come": Case(
        breaks=lambda root: lerobot.change_info(root, codebase_version="v4.1"),
        rule="LR-FORMAT-002",
        says=("newer than what is supported",),
    ),
    "no version": Case(
        breaks=lambda root: lerobot.change_info(root, codebase_version=None),
        rule="LR-FORMAT-002",
        says=("no codebase_version", "look like v2.1"),
    ),
    "no statistics per episode in v2.1": Case(
        breaks=lambda root: (root / EPISODE_STATS).unlink(), rule="LR-META-004", outcome="accept_with_warning"
    ),
    "NaN in the statistics": Case(
        breaks=lambda root: (root / EPISODE_STATS).write_text('{"episode_index": 0, "stats": {"a": NaN}}\n'),
        rule="LR-META-002",
        outcome="accept_with_warning",
    ),
    "nothing recorded yet": Case(
        breaks=_nothing_recorded,
        rule="LR-STRUCT-008",
        outcome="empty",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_broken_dataset_is_named(tmp_path: Path, name: str) -> None:
    """The right rule, outcome, episodes and words, and no other error."""
    case = CASES[name]
    root = v2.build(tmp_path / "dataset")
    case.breaks(root)
    report = inspect(root).report
    messages = " | ".join(breach.message for breach in report.breaches)
    assert report.outcome == case.outcome, messages
    assert case.rule in {breach.rule.id for breach in report.breaches}, messages
    if case.alone:
        assert {breach.rule.id for breach in report.breaches if breach.severity == "error"} <= {case.rule}, messages
    if case.rejected:
        assert tuple(e.index for e in report.episodes if e.outcome == "reject") == case.rejected
    assert all(text in messages for text in case.says), messages


def test_v21_passes_without_a_finding(tmp_path: Path) -> None:
    """Every check meets a valid folder."""
    report = inspect(v2.build(tmp_path)).report
    assert (report.outcome, report.format, report.breaches) == ("accept", "lerobot-v2.1", ())
    assert [episode.frames for episode in report.episodes] == [6, 5, 4]


def test_v20_only_lacks_statistics(tmp_path: Path) -> None:
    """One warning, every episode usable."""
    report = inspect(v2.build(tmp_path, "v2.0")).report
    assert (report.outcome, report.format) == ("accept_with_warning", "lerobot-v2.0")
    assert _told(report) == [("LR-META-004", None)]


def test_the_format_is_the_one_that_info_json_names(tmp_path: Path) -> None:
    """Also when the rest of info.json cannot be used and a file that would tell the version is missing."""
    root = v2.build(tmp_path)
    (root / EPISODE_STATS).unlink()
    lerobot.change_info(root, fps=None)
    report = inspect(root).report
    assert (report.outcome, report.format) == ("reject", "lerobot-v2.1")


def test_a_video_path_that_cannot_be_used_hides_no_rows(tmp_path: Path) -> None:
    """The rest is judged, and no video is called missing."""
    root = v2.build(tmp_path)
    lerobot.change_info(root, video_path="videos/{camera}/{episode_index}.mp4")
    lerobot.change_cell(root, data_file(1), 0, "action", [float("nan"), 0.0, 0.0])
    told = [breach for breach in inspect(root).report.breaches if breach.severity == "error"]
    assert [(breach.rule.id, breach.episodes) for breach in told] == [("LR-FORMAT-003", None), ("LR-SIGNAL-001", (1,))]


def test_many_missing_files_are_one_sentence(tmp_path: Path) -> None:
    """A file per episode would be a finding per file."""
    parts = tuple(lerobot.Part(length=1, data=0, video=0) for _ in range(12))
    root = v2.build(tmp_path, parts=parts)
    for number in range(1, 12):
        (root / data_file(number)).unlink()
    report = inspect(root).report
    (breach,) = [breach for breach in report.breaches if breach.rule.id == "LR-STRUCT-002"]
    assert (report.outcome, breach.episodes) == ("incomplete", tuple(range(1, 12)))
    assert "11 of 12 files under data/ are missing in our copy" in breach.message


def test_pointers_make_no_episodes(tmp_path: Path) -> None:
    """Where nothing was fetched, nothing is claimed to be there."""
    root = v2.build(tmp_path)
    _pointers(root)
    assert inspect(root).report.episodes == ()


def test_a_recording_is_the_same_in_both_formats(tmp_path: Path) -> None:
    """Rows decide what is recognised again, not the layout they came in."""
    parts = tuple(lerobot.Part(length=p.length, data=n, video=n, task=p.task) for n, p in enumerate(lerobot.PARTS))
    before = inspect(v2.build(tmp_path / "v2")).report
    after = inspect(lerobot.build(tmp_path / "v3", parts)).report
    assert [e.digest for e in before.episodes] == [e.digest for e in after.episodes]


def test_chunks_follow_from_the_episode(tmp_path: Path) -> None:
    """`episode_chunk` is the episode's number divided by chunks_size."""
    root = v2.build(tmp_path)
    lerobot.change_info(root, chunks_size=2)
    for name in (data_file(2), video_file(2)):
        target = root / name.replace("chunk-000", "chunk-001")
        target.parent.mkdir(parents=True)
        (root / name).rename(target)
    assert inspect(root).report.outcome == "accept"


def _share(folder: Path, upload: str) -> Share:
    lines = inspect(folder).report.episodes
    files = [path for path in folder.rglob("*") if path.is_file()]
    digests = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return Share(
        upload=upload,
        landing=folder,
        sha256=digests,
        episodes=[
            Accepted(
                id=f"ep-{upload}-{e.index}",
                source_index=e.index,
                length=e.frames,
                tasks=e.tasks,
                digest=e.digest or "",
            )
            for e in lines
        ],
    )


@pytest.mark.parametrize("version", ["v2.1", "v2.0"])
def test_a_version_in_the_layout_of_v3(tmp_path: Path, version: str) -> None:
    """Rows and mp4 bytes verbatim, one mp4 per episode, windows from 0, nothing of v2 left in info.json."""
    folder = v2.build(tmp_path / "upload", version)
    share = _share(folder, "up-1")
    root = tmp_path / "v1"
    commit_version(plan_shares([share]), {"up-1": UploadOrigin(folder)}, root, lambda *_: None)
    info = json.loads((root / "meta/info.json").read_bytes())
    assert (info["codebase_version"], info["storage_format"], info["total_frames"]) == ("v3.0", "lance", 15)
    assert not {"total_chunks", "total_videos"} & set(info)
    rows = lance.dataset(str(root / "frames.lance")).to_table()
    uploaded = [row for number in range(3) for row in pq.read_table(folder / data_file(number)).to_pylist()]
    for name in ("observation.state", "action", "timestamp", "frame_index"):
        assert rows[name.replace(".", "_")].to_pylist() == [row[name] for row in uploaded]
    videos = lance.dataset(str(root / "videos.lance"))
    blobs: list[Any] = videos.take_blobs("video_bytes", indices=[0, 1, 2])
    assert [blob.read() for blob in blobs] == [(folder / video_file(number)).read_bytes() for number in range(3)]
    episodes = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    place = f"videos/{CAMERA}"
    assert [row[f"{place}/file_index"] for row in episodes] == [0, 1, 2]
    assert [row[f"{place}/from_timestamp"] for row in episodes] == [0.0] * 3
    assert [round(row[f"{place}/to_timestamp"], 6) for row in episodes] == [0.6, 0.5, 0.4]
    assert (f"stats/{CAMERA}/mean" in episodes[0]) is (version == "v2.1")


def test_both_formats_stand_in_one_version(tmp_path: Path) -> None:
    """A dataset that began in v2.1 takes uploads of v3.0."""
    first, second = v2.build(tmp_path / "a"), lerobot.build(tmp_path / "b", seed=3)
    shares = [_share(first, "up-1"), _share(second, "up-2")]
    origins = {"up-1": UploadOrigin(first), "up-2": UploadOrigin(second)}
    commit_version(plan_shares(shares), origins, tmp_path / "v1", lambda *_: None)
    assert lance.dataset(str(tmp_path / "v1/frames.lance")).count_rows() == 30
    assert lance.dataset(str(tmp_path / "v1/videos.lance")).count_rows() == 5
