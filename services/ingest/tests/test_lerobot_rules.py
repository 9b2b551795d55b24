"""Every rule on a small dataset that breaks it, and on good ones that must pass without a finding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from forebay.ingest.domain.report import Report
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, FIRST_VIDEO, SECOND_DATA, SECOND_VIDEO

NOBODY: tuple[int, ...] = ()
EVERYBODY = (0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to break a dataset, and the right answer."""

    breaks: Callable[[Path], object]
    rule: str
    outcome: str = "reject"
    rejected: tuple[int, ...] = NOBODY
    says: str = ""
    """What the finding's message must contain."""


def _swap_lengths(root: Path) -> None:
    lerobot.change_cell(root, EPISODES, 0, "length", 5)
    lerobot.change_cell(root, EPISODES, 1, "length", 6)


def _restart(row: dict[str, float]) -> float:
    return (row["frame_index"] % 3) / lerobot.FPS if row["episode_index"] == 0 else row["timestamp"]


def _ragged(root: Path) -> None:
    """Three rows of 3, 2 and 4 values: their sum is a multiple of 3, so a flatten would shift in silence."""
    for row, values in ((1, [1.0, 2.0]), (2, [1.0, 2.0, 3.0, 4.0])):
        lerobot.change_cell(root, FIRST_DATA, row, "action", values)


def _link_out(root: Path) -> None:
    secret = root.parent / "secret.mp4"
    (root / SECOND_VIDEO).rename(secret)
    (root / SECOND_VIDEO).symlink_to(secret)


def _move_videos(root: Path) -> None:
    (root / "videos").rename(root / "video")


def _drop(*files: str) -> Callable[[Path], None]:
    def drop(root: Path) -> None:
        for file in files:
            (root / file).unlink()

    return drop


def _write(file: str, content: bytes) -> Callable[[Path], object]:
    return lambda root: (root / file).write_bytes(content)


def _info(**changes: object) -> Callable[[Path], object]:
    return lambda root: lerobot.change_info(root, **changes)


def _cell(file: str, row: int, column: str, value: object) -> Callable[[Path], object]:
    return lambda root: lerobot.change_cell(root, file, row, column, value)


def _all(*breaks: Callable[[Path], object]) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        for step in breaks:
            step(root)

    return run


def _same_dimension(root: Path) -> None:
    for file in (FIRST_DATA, SECOND_DATA):
        lerobot.change_column(root, file, "action", lambda row: [*row["action"][:2], 0.5])


START, STOP = f"videos/{CAMERA}/from_timestamp", f"videos/{CAMERA}/to_timestamp"

CASES = {
    "info.json is missing": Case(breaks=_drop("meta/info.json"), rule="LR-STRUCT-002", outcome="incomplete"),
    "info.json is cut": Case(breaks=lambda r: lerobot.cut(r, "meta/info.json"), rule="LR-FORMAT-001"),
    "info.json is a list": Case(breaks=_write("meta/info.json", b"[]"), rule="LR-FORMAT-001"),
    "info.json is no text": Case(breaks=_write("meta/info.json", b"\xff\xfe\x00"), rule="LR-FORMAT-001"),
    "info.json is deep": Case(breaks=_write("meta/info.json", b"[" * 100_000), rule="LR-FORMAT-001"),
    "fps is text": Case(breaks=_info(fps="10"), rule="LR-FORMAT-001", says="fps"),
    "fps is zero": Case(breaks=_info(fps=0), rule="LR-FORMAT-001", says="fps"),
    "a total is negative": Case(
        breaks=_info(total_frames=-1), rule="LR-FORMAT-001", says="total_frames", rejected=EVERYBODY
    ),
    "features are missing": Case(breaks=_info(features=None), rule="LR-FORMAT-001", says="features"),
    "version is missing": Case(
        breaks=_info(codebase_version=None), rule="LR-FORMAT-002", says="look like v3.0", rejected=EVERYBODY
    ),
    "version is newer": Case(breaks=_info(codebase_version="v4.1"), rule="LR-FORMAT-002", says="newer"),
    "version is ancient": Case(breaks=_info(codebase_version="v1.6"), rule="LR-FORMAT-002", says="not supported"),
    "label and layout disagree": Case(
        breaks=_info(codebase_version="v2.1"), rule="LR-FORMAT-002", says="disagree", rejected=EVERYBODY
    ),
    "template climbs out": Case(
        breaks=_info(data_path="../../etc/passwd-{chunk_index}-{file_index}"), rule="LR-FORMAT-003", rejected=EVERYBODY
    ),
    "template is absolute": Case(
        breaks=_info(data_path="/etc/{chunk_index}/{file_index}"), rule="LR-FORMAT-003", rejected=EVERYBODY
    ),
    "template of v2": Case(
        breaks=_info(data_path="data/episode_{episode_index:06d}.parquet"),
        rule="LR-FORMAT-003",
        rejected=EVERYBODY,
        says="{episode_index}",
    ),
    "template reads attributes": Case(
        breaks=_info(data_path="d/{chunk_index.real}/{file_index}"), rule="LR-FORMAT-003", rejected=EVERYBODY
    ),
    "videos lie elsewhere": Case(breaks=_move_videos, rule="LR-FORMAT-003", rejected=EVERYBODY, says="under video/"),
    "camera as images": Case(
        breaks=lambda r: lerobot.change_feature(r, CAMERA, dtype="image"), rule="LR-STRUCT-005", rejected=EVERYBODY
    ),
    "link out of the folder": Case(breaks=_link_out, rule="LR-STRUCT-001", rejected=(2,), says="link"),
    "data file is missing": Case(breaks=_drop(SECOND_DATA), rule="LR-STRUCT-002", outcome="incomplete", rejected=(2,)),
    "video is missing": Case(breaks=_drop(SECOND_VIDEO), rule="LR-STRUCT-002", outcome="incomplete", rejected=(2,)),
    "tasks are missing": Case(
        breaks=_drop("meta/tasks.parquet"), rule="LR-STRUCT-002", outcome="incomplete", rejected=EVERYBODY
    ),
    "video is an LFS pointer": Case(
        breaks=lambda r: lerobot.pointer(r, SECOND_VIDEO), rule="LR-STRUCT-003", rejected=(2,)
    ),
    "metadata is an LFS pointer": Case(breaks=lambda r: lerobot.pointer(r, EPISODES), rule="LR-STRUCT-003"),
    "parquet without a footer": Case(
        breaks=lambda r: lerobot.cut(r, SECOND_DATA), rule="LR-STRUCT-004", rejected=(2,), says="does not end with PAR1"
    ),
    "parquet is empty": Case(breaks=_write(SECOND_DATA, b""), rule="LR-STRUCT-004", rejected=(2,), says="0 bytes"),
    "episode table is no parquet": Case(breaks=_write(EPISODES, b"nothing"), rule="LR-STRUCT-004"),
    "doubled column in the episode table": Case(
        breaks=lambda r: lerobot.double_column(r, EPISODES, "length"), rule="LR-STRUCT-005", says="length"
    ),
    "doubled column in the rows": Case(
        breaks=lambda r: lerobot.double_column(r, SECOND_DATA, "index"), rule="LR-STRUCT-005", rejected=(2,)
    ),
    "rows lie in another file": Case(
        breaks=_cell(EPISODES, 2, "data/file_index", 0),
        rule="LR-STRUCT-006",
        rejected=(2,),
        says="4 in data/chunk-000/file-001",
    ),
    "only created": Case(
        breaks=_all(_info(total_episodes=0, total_frames=0, splits={}), _drop(EPISODES)),
        rule="LR-STRUCT-008",
        outcome="empty",
    ),
    "lengths are swapped": Case(breaks=_swap_lengths, rule="LR-EPISODE-002", rejected=(0, 1), says="stored rows"),
    "an entry is negative": Case(breaks=_cell(EPISODES, 1, "length", -5), rule="LR-EPISODE-003", rejected=(1,)),
    "an entry is missing": Case(
        breaks=_cell(EPISODES, 1, "dataset_from_index", None), rule="LR-EPISODE-003", rejected=(1,)
    ),
    "an episode is listed twice": Case(breaks=_cell(EPISODES, 1, "episode_index", 0), rule="LR-EPISODE-003"),
    "time window is NaN": Case(
        breaks=_cell(EPISODES, 2, f"videos/{CAMERA}/to_timestamp", float("nan")), rule="LR-EPISODE-003", rejected=(2,)
    ),
    "NaN in the action": Case(
        breaks=_cell(FIRST_DATA, 4, "action", [0.0, float("nan"), 1.0]),
        rule="LR-SIGNAL-001",
        rejected=(0,),
        says="frame 4: action[1] is NaN",
    ),
    "infinity in the state": Case(
        breaks=_cell(FIRST_DATA, 8, "observation.state", [0.0, 0.0, float("inf")]),
        rule="LR-SIGNAL-001",
        rejected=(1,),
        says="frame 2: observation.state[2] is +Inf",
    ),
    "ragged rows": Case(breaks=_ragged, rule="LR-SIGNAL-002", rejected=(0,), says="2 and 3 and 4"),
    "a missing vector": Case(breaks=_cell(SECOND_DATA, 1, "action", None), rule="LR-SIGNAL-002", rejected=(2,)),
    "another shape than declared": Case(
        breaks=lambda r: lerobot.change_feature(r, "action", shape=[7]),
        rule="LR-SIGNAL-002",
        rejected=EVERYBODY,
        says="declared [7]",
    ),
    "time restarts": Case(
        breaks=lambda r: lerobot.change_column(r, FIRST_DATA, "timestamp", _restart),
        rule="LR-SIGNAL-003",
        rejected=(0,),
        says="frames 3 (1 restarts)",
    ),
    "another frame rate": Case(
        breaks=lambda r: lerobot.change_column(r, SECOND_DATA, "timestamp", lambda row: row["timestamp"] * 2),
        rule="LR-SIGNAL-003",
        rejected=(2,),
        says="0.2",
    ),
    "time is NaN": Case(breaks=_cell(SECOND_DATA, 2, "timestamp", float("nan")), rule="LR-SIGNAL-003", rejected=(2,)),
    "time starts late": Case(
        breaks=lambda r: lerobot.change_column(r, SECOND_DATA, "timestamp", lambda row: row["timestamp"] + 1),
        rule="LR-SIGNAL-003",
        rejected=(2,),
        says="starts at 1.0",
    ),
    "frames out of order": Case(breaks=_cell(FIRST_DATA, 2, "frame_index", 4), rule="LR-SIGNAL-004", rejected=(0,)),
    "a hole in the index": Case(
        breaks=lambda r: lerobot.change_column(
            r, SECOND_DATA, "index", lambda row: row["index"] + (row["frame_index"] > 1)
        ),
        rule="LR-SIGNAL-004",
        rejected=(2,),
    ),
    "rows of an episode are torn apart": Case(
        breaks=lambda r: lerobot.change_rows(r, FIRST_DATA, lambda rows: rows[:3] + rows[6:] + rows[3:6]),
        rule="LR-SIGNAL-004",
        rejected=(0,),
    ),
    "dead action": Case(
        breaks=lambda r: lerobot.change_column(r, SECOND_DATA, "action", lambda _: [0.0] * 3),
        rule="LR-SIGNAL-005",
        outcome="hold",
    ),
    "video of zero bytes": Case(breaks=_write(SECOND_VIDEO, b""), rule="LR-VIDEO-001", rejected=(2,), says="0 bytes"),
    "video is cut": Case(breaks=lambda r: lerobot.cut(r, SECOND_VIDEO), rule="LR-VIDEO-001", rejected=(2,)),
    "video is noise": Case(breaks=_write(FIRST_VIDEO, b"\x00\x01noise" * 200), rule="LR-VIDEO-001", rejected=(0, 1)),
    "video has fewer frames": Case(
        breaks=lambda r: lerobot.write_video(r / SECOND_VIDEO, 2),
        rule="LR-VIDEO-002",
        rejected=(2,),
        says="2 video frames for 4",
    ),
    "video has more frames": Case(
        breaks=lambda r: lerobot.write_video(r / SECOND_VIDEO, 9),
        rule="LR-VIDEO-002",
        rejected=(2,),
        says="9 video frames for 4",
    ),
    "one frame less is a warning": Case(
        breaks=lambda r: lerobot.write_video(r / SECOND_VIDEO, 3), rule="LR-VIDEO-002", outcome="accept_with_warning"
    ),
    "offsets not reset in a new file": Case(
        breaks=_all(_cell(EPISODES, 2, START, 1.1), _cell(EPISODES, 2, STOP, 1.5)),
        rule="LR-VIDEO-003",
        rejected=(2,),
        says="ends at 0.400",
    ),
    "windows overlap": Case(
        breaks=_all(_cell(EPISODES, 1, START, 0.2), _cell(EPISODES, 1, STOP, 0.7)),
        rule="LR-VIDEO-003",
        rejected=(1,),
        says="overlaps",
    ),
    "window of another length": Case(
        breaks=_cell(EPISODES, 1, f"videos/{CAMERA}/to_timestamp", 0.8), rule="LR-VIDEO-003", rejected=(1,)
    ),
    "window between two frames": Case(
        breaks=_all(_cell(EPISODES, 1, START, 0.64), _cell(EPISODES, 1, STOP, 1.14)),
        rule="LR-VIDEO-006",
        rejected=(1,),
    ),
    "another codec than declared": Case(
        breaks=lambda r: lerobot.change_feature(r, CAMERA, info={"video.codec": "av1"}),
        rule="LR-VIDEO-004",
        outcome="accept_with_warning",
    ),
    "stale totals": Case(
        breaks=_info(total_episodes=5, total_frames=100), rule="LR-META-001", rejected=EVERYBODY, says="5"
    ),
    "split beyond the end": Case(
        breaks=_info(splits={"train": "0:9"}),
        rule="LR-META-001",
        outcome="accept_with_warning",
        says="ends at episode 9",
    ),
    "only part of the dataset": Case(
        breaks=_all(
            _info(total_episodes=5, total_frames=40), _write("meta/stats.json", b'{"action": {"count": [40]}}')
        ),
        rule="LR-STRUCT-002",
        outcome="incomplete",
        rejected=EVERYBODY,
        says="episodes 3, 4 are missing in our copy",
    ),
    "statistics with NaN": Case(
        breaks=_write("meta/stats.json", b'{"action": {"mean": [NaN]}}'),
        rule="LR-META-002",
        outcome="accept_with_warning",
    ),
    "camera without names": Case(
        breaks=lambda r: lerobot.change_feature(r, CAMERA, names=None),
        rule="LR-META-003",
        outcome="accept_with_warning",
    ),
    "unknown task": Case(
        breaks=lambda r: lerobot.change_column(r, SECOND_DATA, "task_index", lambda _: 7),
        rule="LR-TASK-001",
        rejected=(2,),
        says="task_index 7 (4 frames)",
    ),
    "task text of another task": Case(
        breaks=_cell(EPISODES, 0, "tasks", ["dance"]), rule="LR-TASK-002", outcome="accept_with_warning"
    ),
    "a joint never moves": Case(
        breaks=_same_dimension,
        rule="LR-SIGNAL-006",
        outcome="accept_with_warning",
        says="dimensions 2",
    ),
}


def _rejected(report: Report) -> tuple[int, ...]:
    return tuple(episode.index for episode in report.episodes if episode.outcome == "reject")


@pytest.mark.parametrize("name", CASES)
def test_a_broken_dataset_gets_the_right_answer(name: str, tmp_path: Path) -> None:
    """The rule is named, exactly the broken episodes are hit, and nothing raises."""
    case = CASES[name]
    root = lerobot.build(tmp_path / "dataset")
    case.breaks(root)
    report = inspect(root).report
    told = {breach.rule.id: breach.message for breach in reversed(report.breaches)}
    assert (report.outcome, case.rule in told) == (case.outcome, True), report.to_json()
    assert case.says in " | ".join(b.message for b in report.breaches if b.rule.id == case.rule)
    if report.episodes or case.rejected:
        assert _rejected(report) == case.rejected or name == "an episode is listed twice"
    json.dumps(report.to_json(), allow_nan=False)


def test_a_good_dataset_passes_without_a_finding(tmp_path: Path) -> None:
    """No false alarm."""
    report = inspect(lerobot.build(tmp_path)).report
    assert (report.outcome, report.breaches) == ("accept", ())
    assert [(e.index, e.frames, e.tasks) for e in report.episodes] == [
        (0, 6, ("pick up the cube",)),
        (1, 5, ("put it down",)),
        (2, 4, ("pick up the cube",)),
    ]


def test_a_window_that_ends_at_the_last_frame_is_tolerated(tmp_path: Path) -> None:
    """Some recorders write the time of the last frame instead of the end."""
    root = lerobot.build(tmp_path)
    stop = f"videos/{CAMERA}/to_timestamp"
    lerobot.change_column(root, EPISODES, stop, lambda row: row[stop] - 1 / lerobot.FPS)
    assert [breach.severity for breach in inspect(root).report.breaches] == ["info"]


def test_a_fractional_frame_rate_is_kept(tmp_path: Path) -> None:
    """29.97 is not cast to 29."""
    root = lerobot.build(tmp_path)
    lerobot.change_info(root, fps=9.99)
    for file in (FIRST_DATA, SECOND_DATA):
        lerobot.change_column(root, file, "timestamp", lambda row: row["frame_index"] / 9.99)
    told = {breach.rule.id for breach in inspect(root).report.breaches}
    assert "LR-SIGNAL-003" not in told


def test_data_and_video_files_are_numbered_independently(tmp_path: Path) -> None:
    """An episode may lie in data file 0 and video file 2."""
    parts = tuple(lerobot.Part(length=4, data=0, video=number) for number in range(3))
    assert inspect(lerobot.build(tmp_path, parts)).report.breaches == ()


def test_an_empty_episode_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    """Length zero rejects that episode only, and renumbers nobody."""
    parts = (lerobot.PARTS[0], lerobot.Part(length=0, data=0, video=0), lerobot.PARTS[2])
    report = inspect(lerobot.build(tmp_path, parts)).report
    assert [breach.rule.id for breach in report.breaches if breach.severity == "error"] == ["LR-EPISODE-001"]
    assert [(e.index, e.outcome) for e in report.episodes][::2] == [(0, "accept"), (2, "accept")]


def test_a_folder_of_other_things_is_no_dataset(tmp_path: Path) -> None:
    """Clear words, no exception."""
    (tmp_path / "notes.txt").write_text("hello")
    assert [breach.rule.id for breach in inspect(tmp_path).report.breaches] == ["LR-FORMAT-001"]


def test_what_was_announced_otherwise_is_not_believed(tmp_path: Path) -> None:
    """A distrusted file rejects the episodes in it, and only those."""
    report = inspect(lerobot.build(tmp_path), distrusted={SECOND_VIDEO: "its digest is not the announced one"}).report
    assert _rejected(report) == (2,)
    assert [breach.rule.id for breach in report.breaches] == ["LR-STRUCT-009"]


def test_the_digest_of_an_episode_follows_its_rows(tmp_path: Path) -> None:
    """Equal rows, equal digest, wherever the file is cut into blocks; one bit more, another digest."""
    first = inspect(lerobot.build(tmp_path / "a")).report
    again = inspect(lerobot.build(tmp_path / "b", (lerobot.PARTS[0],))).report
    other = inspect(lerobot.build(tmp_path / "c", seed=1)).report
    assert first.episodes[0].digest == again.episodes[0].digest
    assert first.episodes[0].digest != other.episodes[0].digest


def test_a_length_that_no_memory_holds(tmp_path: Path) -> None:
    """A declared length is never used to make room."""
    root = lerobot.build(tmp_path)
    lerobot.change_cell(root, EPISODES, 2, "length", 2**52)
    lerobot.change_cell(root, EPISODES, 2, "dataset_to_index", 2**52 + 11)
    (root / SECOND_DATA).unlink()
    assert _rejected(inspect(root).report) == (2,)


def test_links_that_go_round(tmp_path: Path) -> None:
    """Links to folders are not followed, and a link to itself is no file."""
    root = lerobot.build(tmp_path)
    (root / "data/round").symlink_to(root)
    (root / "data/loop.parquet").symlink_to(root / "data/loop.parquet")
    assert inspect(root).report.outcome == "accept"


def test_a_bad_data_path_stops_no_other_check(tmp_path: Path) -> None:
    """Rows are looked for where LeRobot puts them, so that one run names everything."""
    folder = lerobot.build(tmp_path / "in")
    lerobot.change_info(folder, data_path="data/episode_{episode_index:06d}.parquet")
    lerobot.change_cell(folder, FIRST_DATA, 7, "action", [float("nan"), 0.0, 0.0])
    (folder / lerobot.SECOND_VIDEO).write_bytes(b"")
    found = {breach.rule.id: breach for breach in inspect(folder).report.breaches}
    assert found.keys() == {"LR-FORMAT-003", "LR-SIGNAL-001", "LR-VIDEO-001"}
    assert (found["LR-SIGNAL-001"].episodes, found["LR-VIDEO-001"].episodes) == ((1,), (2,))


def test_a_doubled_column_beside_the_table_is_told(tmp_path: Path) -> None:
    """A table that lies next to the episode table is nobody's, until a tool reads the whole folder."""
    folder = lerobot.build(tmp_path / "in")
    shutil.copy(folder / lerobot.EPISODES, folder / "meta/episodes/episodes.parquet")
    lerobot.double_column(folder, "meta/episodes/episodes.parquet", f"videos/{CAMERA}/file_index")
    (breach,) = inspect(folder).report.breaches
    assert (breach.rule.id, breach.severity, breach.file) == (
        "LR-STRUCT-005",
        "warning",
        "meta/episodes/episodes.parquet",
    )
