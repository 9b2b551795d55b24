"""One cause, one finding: kinds of broken data whose every symptom would bury what has to be mended.

Each is told by exactly the findings in the table, on exactly the episodes, and sound
frames under an odd description stay accepted and come through a conversion.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from forebay.ingest.adapters.decoders import Decoders
from forebay.ingest.inspection import inspect
from forebay.ingest.offline_conversion import convert_folder

from . import lerobot_builder as lerobot
from . import lerobot_changes as changes
from . import lerobot_v2_builder as v2
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, SECOND_DATA, SECOND_VIDEO, TASKS, Part

ALL = (0, 1, 2)
LONG = tuple(Part(length=length, data=0, video=number) for number, length in enumerate((12, 10, 9)))
Told = tuple[str, str, tuple[int, ...] | None]
"""Rule, severity, episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What happened to a dataset, and all that is said about it."""

    change: Callable[[Path], object]
    told: tuple[Told, ...]
    outcome: str = "reject"
    says: str = ""
    version: str = "v3.0"
    parts: tuple[Part, ...] = lerobot.PARTS


SIZE: Told = ("LR-VIDEO-012", "warning", (0, 1))
"""The other videos have another size there."""

KINDS: dict[str, Kind] = {
    "a clock that jitters": Kind(
        change=changes.jitter,
        told=(("LR-SIGNAL-003", "warning", ALL),),
        outcome="accept_with_warning",
        says="less than half a frame",
    ),
    "time that starts one frame late": Kind(
        change=changes.times(lambda row: row["timestamp"] + 0.1),
        told=(("LR-SIGNAL-003", "warning", ALL), ("LR-META-004", "warning", None)),
        outcome="accept_with_warning",
        says="starts at 0.100000 s",
        version="v2.0",
    ),
    "a sample that was lost": Kind(
        change=changes.lose_a_sample, told=(("LR-SIGNAL-003", "error", (1,)),), says="0.200000 s at frame 3"
    ),
    "time in milliseconds": Kind(
        change=changes.times(lambda row: row["timestamp"] * 1000),
        told=(("LR-SIGNAL-003", "error", ALL),),
        says="steps of 100 s",
    ),
    "a rate that neither rows nor videos have": Kind(
        change=lambda root: lerobot.change_info(root, fps=30),
        told=(("LR-VIDEO-007", "error", ALL), ("LR-SIGNAL-003", "error", ALL)),
        says="come at 10 per second",
        parts=LONG,
    ),
    "frame_index is not declared": Kind(
        change=changes.undeclare("frame_index"),
        told=(("LR-FORMAT-001", "warning", None),),
        outcome="accept_with_warning",
    ),
    "an empty info.json": Kind(
        change=lambda root: (root / "meta/info.json").write_bytes(b""),
        told=(("LR-FORMAT-001", "error", None),),
        says="is empty (0 bytes)",
    ),
    "no episode table": Kind(
        change=lambda root: (root / EPISODES).unlink(),
        told=(("LR-STRUCT-002", "error", None),),
        outcome="incomplete",
        says="and with it 3 episodes, 15 frames",
    ),
    "one text for every episode": Kind(
        change=lambda root: lerobot.change_column(root, EPISODES, "tasks", lambda _: ["dance"]),
        told=(("LR-TASK-002", "warning", ALL),),
        outcome="accept_with_warning",
        says="episodes 0, 1, 2: its text is 'dance'",
        parts=(Part(length=6, data=0, video=0), Part(length=5, data=0, video=0), Part(length=4, data=1, video=1)),
    ),
    "a remark among the texts": Kind(
        change=lambda root: lerobot.change_column(root, EPISODES, "tasks", lambda row: [*row["tasks"], "valid"]),
        told=(("LR-TASK-002", "warning", ALL),),
        outcome="accept_with_warning",
        says="among its texts is 'valid'",
    ),
    "another codec in every file": Kind(
        change=lambda root: lerobot.change_feature(root, CAMERA, info={"video.codec": "av1"}),
        told=(("LR-VIDEO-004", "warning", None),),
        outcome="accept_with_warning",
        says="the same in 1 more files",
    ),
    "no row column is declared": Kind(
        change=changes.undeclare("frame_index", "episode_index", "index", "task_index", "timestamp"),
        told=(("LR-FORMAT-001", "warning", None),),
        outcome="accept_with_warning",
        says="stops without timestamp, episode_index, index, task_index",
    ),
    "frame_index is nowhere": Kind(
        change=changes.all_of(changes.undeclare("frame_index"), changes.drop_frame_index),
        told=(("LR-FORMAT-001", "warning", None),),
        outcome="accept_with_warning",
        version="v2.1",
    ),
    "frame_index is declared and not there": Kind(
        change=changes.drop_frame_index, told=(("LR-STRUCT-005", "error", ALL),), says="the same in 1 more files"
    ),
    "a second copy of a data file": Kind(
        change=changes.copy(FIRST_DATA, "data/chunk-000/file-000 (1).parquet"),
        told=(("LR-STRUCT-006", "error", (0, 1)),),
        says="11 rows of episodes 0, 1 lie a second time in data/chunk-000/file-000 (1).parquet",
    ),
    "a second copy under the next number": Kind(
        change=changes.copy(FIRST_DATA, "data/chunk-000/file-002.parquet"), told=(("LR-STRUCT-006", "error", (0, 1)),)
    ),
    "a second copy in v2.1": Kind(
        change=changes.copy(v2.data_file(1), f"{v2.data_file(1)[:-8]} (1).parquet"),
        told=(("LR-STRUCT-006", "error", (1,)),),
        version="v2.1",
    ),
    "episode_index was never counted up": Kind(
        change=changes.forget_to_count,
        told=(("LR-STRUCT-006", "error", (1,)), ("LR-STRUCT-006", "error", (2,))),
        says="say that they are of episodes 0",
        version="v2.1",
    ),
    "the episode table twice": Kind(
        change=changes.copy(EPISODES, "meta/episodes/chunk-000/file-001.parquet"),
        told=(("LR-EPISODE-003", "error", ALL),),
        says="episodes 0, 1, 2: they are listed twice",
    ),
    "no windows of a camera": Kind(
        change=changes.no_windows, told=(("LR-EPISODE-003", "error", ALL),), says="chunk_index is None"
    ),
    "no video of a camera in v2.1": Kind(
        change=lambda root: shutil.rmtree(root / "videos"),
        told=(("LR-STRUCT-002", "error", ALL),),
        outcome="incomplete",
        says=f"all 3 video files of {CAMERA}",
        version="v2.1",
    ),
    "a template that takes the episode for its chunk": Kind(
        change=lambda root: lerobot.change_info(
            root, data_path="data/chunk-{episode_index:03d}/episode_{episode_index:06d}.parquet"
        ),
        told=(("LR-FORMAT-003", "error", None),),
        says="1 of 3 files under data/ lie where info.json puts them",
        version="v2.1",
    ),
    "another chunks_size": Kind(
        change=lambda root: lerobot.change_info(root, chunks_size=1),
        told=(("LR-FORMAT-003", "error", None), ("LR-FORMAT-003", "error", None)),
        says="or chunks_size",
        version="v2.1",
    ),
    "a video number that no file has": Kind(
        change=lambda root: lerobot.change_cell(root, EPISODES, 2, f"videos/{CAMERA}/file_index", 9),
        told=(("LR-STRUCT-006", "error", (2,)), ("LR-STRUCT-010", "warning", None)),
        says=f"{SECOND_VIDEO} belongs to no episode",
    ),
    "a video whose first frame comes late": Kind(
        change=changes.late_video,
        told=(("LR-VIDEO-006", "error", (2,)), SIZE),
        says="the first one comes at 5.000000 s",
    ),
    "files of v2.1 beside those of v3.0": Kind(
        change=changes.leftovers_of_v2,
        told=(("LR-STRUCT-006", "error", ALL),),
        says="lie a second time in data/chunk-000/episode_000000.parquet, data/chunk-000/episode_000001.parquet",
    ),
    "the episode table of v2.x": Kind(
        change=changes.table_of_v2, told=(("LR-FORMAT-002", "error", None),), says="finish the conversion"
    ),
    "row numbers as floats": Kind(
        change=changes.recast(pa.float64(), "index", "task_index", "episode_index", "frame_index"),
        told=tuple(("LR-STRUCT-005", "warning", ALL) for _ in range(4)),
        outcome="accept_with_warning",
    ),
    "task numbers that are fractions": Kind(
        change=changes.halve,
        told=(("LR-STRUCT-005", "error", ALL),),
        says="'task_index' holds numbers that are not whole",
    ),
    "an episode table in another order": Kind(
        change=changes.reorder(EPISODES, [1, 0, 2]),
        told=(("LR-EPISODE-005", "warning", None),),
        outcome="accept_with_warning",
        says="in the order 1, 0, 2",
    ),
    "episodes in another order in the file": Kind(
        change=changes.reorder(FIRST_DATA, [*range(6, 11), *range(6)]),
        told=(("LR-SIGNAL-004", "warning", ()),),
        outcome="accept_with_warning",
        says="index starts at 0 in episode 0, whose rows come at place 5",
    ),
    "data files in another order": Kind(
        change=changes.exchange_files,
        told=(("LR-SIGNAL-004", "warning", ()),),
        outcome="accept_with_warning",
        says="(3 such episodes)",
    ),
    "an end in the neighbour's rows": Kind(
        change=changes.scramble,
        told=(("LR-EPISODE-002", "error", (0,)),),
        says="declared length 6 and 7, stored rows 6",
    ),
    "the folder above": Kind(
        change=changes.one_deeper,
        told=(("LR-FORMAT-001", "error", None),),
        says="there are datasets in it: reach",
    ),
    "tasks in another order": Kind(
        change=changes.table("meta/tasks.parquet", task_index=[1, 0], task=[*reversed(TASKS)]),
        told=(("LR-TASK-003", "warning", None),),
        outcome="accept_with_warning",
        says="takes the text by its place",
    ),
    "a task number with two texts": Kind(
        change=changes.table("meta/tasks.parquet", task_index=[0, 0, 1], task=["dance", *TASKS]),
        told=(("LR-TASK-001", "error", None),),
        says="task_index 0 stands for 2 texts",
    ),
    "no statistics": Kind(
        change=lambda root: (root / "meta/stats.json").unlink(),
        told=(("LR-META-004", "warning", None),),
        outcome="accept_with_warning",
    ),
    "no statistics of the action": Kind(
        change=changes.statistics(lambda document: document.pop("action")),
        told=(("LR-META-004", "warning", None),),
        outcome="accept_with_warning",
        says="no statistics of action",
    ),
    "statistics of another robot": Kind(
        change=changes.statistics(lambda document: document["action"].update(mean=[0.0] * 7, std=[1.0] * 7)),
        told=(("LR-META-007", "warning", None),),
        outcome="accept_with_warning",
        says="have 7 values, its rows 3",
    ),
    "statistics without a count in v2.1": Kind(
        change=changes.uncount,
        told=(("LR-META-004", "warning", None),),
        outcome="accept_with_warning",
        says="the statistics of action have no count",
        version="v2.1",
    ),
    "one frame short in every video": Kind(
        change=changes.shorten_videos,
        told=(("LR-VIDEO-002", "warning", ALL),),
        outcome="accept_with_warning",
        says="(3 such episodes: 0, 1, 2)",
        version="v2.1",
    ),
    "joints in two orders": Kind(
        change=lambda root: lerobot.change_feature(root, "action", names=["joint_1", "joint_0", "joint_2"]),
        told=(("LR-META-006", "warning", None),),
        outcome="accept_with_warning",
        says="the order of observation.state: 'joint_0' at 0",
    ),
    "a split that is too long beside right totals": Kind(
        change=lambda root: lerobot.change_info(root, splits={"train": "0:100"}),
        told=(("LR-META-001", "warning", None),),
        outcome="accept_with_warning",
    ),
    "rows and columns exchanged": Kind(
        change=changes.turned, told=(("LR-SIGNAL-002", "error", ALL),), says="declared [2, 3], but its rows hold 3 by 2"
    ),
    "an action that hangs": Kind(
        change=lambda root: lerobot.change_column(root, FIRST_DATA, "action", changes.stick),
        told=(("LR-SIGNAL-005", "warning", (1,)),),
        outcome="accept_with_warning",
        says="while the robot moves",
        parts=LONG,
    ),
}


@pytest.fixture(scope="module")
def pool() -> Any:
    with Decoders() as decoders:
        yield decoders


@pytest.mark.parametrize("name", KINDS)
def test_the_cause_is_told_and_nothing_else(name: str, tmp_path: Path, pool: Decoders) -> None:
    """Exactly these findings; what is accepted comes through a conversion row by row."""
    kind = KINDS[name]
    root = tmp_path / "in"
    if kind.version == "v3.0":
        lerobot.build(root, kind.parts)
    else:
        v2.build(root, kind.version, kind.parts)
    kind.change(root)
    report = inspect(root, decoders=pool).report
    told = sorted((b.rule.id, b.severity, b.episodes or ()) for b in report.breaches if b.severity != "info")
    assert told == sorted((rule, severity, episodes or ()) for rule, severity, episodes in kind.told), report.to_json()
    assert report.outcome == kind.outcome
    assert kind.says in " | ".join(breach.message for breach in report.breaches)
    if kind.outcome == "accept_with_warning":
        done = convert_folder(root, tmp_path / "out", lambda *_: None)
        rows = lance.dataset(str(tmp_path / "out/frames.lance")).to_table(columns=["frame_index"])
        counted = [frame for part in kind.parts for frame in range(part.length)]
        assert (done.plan.frames, rows["frame_index"].to_pylist()) == (len(counted), counted)
        features = json.loads((tmp_path / "out/meta/info.json").read_text())["features"]
        assert features.keys() >= {"frame_index", "episode_index", "index", "task_index", "timestamp"}


def test_each_episode_keeps_what_is_its_own(tmp_path: Path, pool: Decoders) -> None:
    """What the report tells once, the verdict of an episode tells with its own numbers and file."""
    root = v2.build(tmp_path)
    changes.times(lambda row: row["timestamp"] + 0.001 * row["frame_index"] ** 2)(root)
    report = inspect(root, decoders=pool).report
    (told,) = report.breaches
    assert told.episodes == ALL
    own = [report.findings_of(index, breaches) for index, breaches in report.breaches_by_episode().items()]
    assert [(one.episode, one.file, one.found) for (one,) in own] == [
        (0, v2.data_file(0), "0.025000 s"),
        (1, v2.data_file(1), "0.016000 s"),
        (2, v2.data_file(2), "0.009000 s"),
    ]


def test_a_video_in_the_wrong_chunk_is_still_looked_at(tmp_path: Path, pool: Decoders) -> None:
    """Files that lie elsewhere are judged where they lie."""
    root = v2.build(tmp_path)
    lerobot.change_info(root, chunks_size=1)
    (root / v2.video_file(1)).write_bytes(b"")
    found = {(b.rule.id, b.episodes) for b in inspect(root, decoders=pool).report.breaches}
    assert found == {("LR-FORMAT-003", None), ("LR-VIDEO-001", (1,))}


def test_a_copy_beside_an_incomplete_file(tmp_path: Path, pool: Decoders) -> None:
    """Where the named file has not all rows, the others are no copies, and the episode is blamed as before."""
    root = lerobot.build(tmp_path)
    lerobot.change_rows(root, SECOND_DATA, lambda rows: rows[:2])
    shutil.copy(root / SECOND_DATA, root / "data/chunk-000/file-007.parquet")
    report = inspect(root, decoders=pool).report
    assert [episode.outcome for episode in report.episodes] == ["accept", "accept", "reject"]
    assert "LR-STRUCT-006" in {breach.rule.id for breach in report.breaches}
