"""Rules about what the data shows: each is broken by a dataset that breaks nothing else, and passes on real habits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.adapters.pyav_video import scan_video
from forebay.ingest.domain.collection_request import RequestError, parse_request
from forebay.ingest.domain.pictures import EpisodePictures, PictureWatch
from forebay.ingest.domain.report import Report
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from . import pictures_builder as pictures
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, Part

LENGTHS = (12, 10, 9)
PARTS = tuple(Part(length=n, data=0, video=number) for number, n in enumerate(LENGTHS))


def video(number: int) -> str:
    return f"videos/{CAMERA}/chunk-000/file-{number:03d}.mp4"


def build(root: Path) -> Path:
    """Three episodes, each with a video of its own pictures."""
    lerobot.build(root, PARTS)
    lerobot.change_feature(root, CAMERA, shape=[pictures.SIDE, pictures.SIDE, 3])
    for number, length in enumerate(LENGTHS):
        pictures.write(root / video(number), pictures.scene(number, length))
    return root


def show(number: int, shown: list[pictures.Picture], **how: Any) -> Callable[[Path], object]:
    return lambda root: pictures.write(root / video(number), shown, **how)


def all_of(*steps: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda root: [step(root) for step in steps]


def rest(episode: int) -> Callable[[Path], object]:
    """The robot does not move in an episode; it does act."""
    return lambda root: lerobot.change_column(
        root,
        FIRST_DATA,
        "observation.state",
        lambda row: [0.5, 0.5, 0.5] if row["episode_index"] == episode else row["observation.state"],
    )


def stats(**values: Any) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        path = root / "meta/stats.json"
        document = json.loads(path.read_text())
        document["action"] |= values
        path.write_text(json.dumps(document))

    return change


def still(seed: int, frames: int) -> list[pictures.Picture]:
    return [pictures.scene(seed, 1)[0]] * frames


def add_column(root: Path, file: str, name: str, values: Any) -> None:
    pq.write_table(pq.read_table(root / file).append_column(name, values), root / file)


def drop_column(root: Path, file: str, name: str) -> None:
    pq.write_table(pq.read_table(root / file).drop_columns([name]), root / file)


def recast(root: Path, file: str, name: str, kind: Any) -> None:
    table = pq.read_table(root / file)
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, name, table.column(name).cast(kind)), root / file)
    lerobot.change_feature(root, name, dtype="float64")


def add_features(root: Path, features: dict[str, tuple[str, Any, Any]]) -> None:
    """Columns of one value per row, declared in info.json."""
    document = json.loads((root / "meta/info.json").read_text())
    for name, (dtype, kind, value) in features.items():
        document["features"][name] = {"dtype": dtype, "shape": [1], "names": None}
        add_column(root, FIRST_DATA, name, pa.array([value] * sum(LENGTHS), kind))
    (root / "meta/info.json").write_text(json.dumps(document))


def at_2997(root: Path) -> None:
    lerobot.change_info(root, fps=29.97)
    lerobot.change_column(root, FIRST_DATA, "timestamp", lambda row: row["frame_index"] / 29.97)
    stop = f"videos/{CAMERA}/to_timestamp"
    lerobot.change_column(root, EPISODES, stop, lambda row: row["length"] / 29.97)
    for number, length in enumerate(LENGTHS):
        pictures.write(root / video(number), pictures.scene(number, length), fps=29.97)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to break a dataset, and everything that is told then."""

    breaks: Callable[[Path], object]
    told: dict[str, tuple[int, ...] | None]
    """Rule -> episodes."""
    outcome: str
    says: str = ""


stolen = [pictures.scene(0, 12)[-1], *pictures.scene(1, 10)[1:]]
twice = tuple(Part(length=10, data=0, video=number) for number in range(3))

CASES = {
    "a frozen camera": Case(
        breaks=show(1, still(1, 10)), told={"LR-VIDEO-008": (1,)}, outcome="hold", says="1 distinct picture in 10 of 10"
    ),
    "a frozen camera with codec noise": Case(
        breaks=show(1, pictures.noisy(still(1, 10), 4), options={"crf": "35", "g": "2"}),
        told={"LR-VIDEO-008": (1,)},
        outcome="hold",
    ),
    "a frozen camera that begins with a living frame": Case(
        breaks=show(0, [pictures.scene(5, 1)[0], *still(0, 11)]), told={"LR-VIDEO-008": (0,)}, outcome="hold"
    ),
    "a camera before a robot at rest": Case(
        breaks=all_of(rest(1), show(1, still(1, 10))),
        told={"LR-VIDEO-008": (1,), "LR-SIGNAL-007": (1,)},
        outcome="accept_with_warning",
        says="does not move either",
    ),
    "one video for two episodes": Case(
        breaks=all_of(
            lambda root: lerobot.build(root, twice),
            lambda root: lerobot.change_feature(root, CAMERA, shape=[64, 64, 3]),
            *(show(number, pictures.scene(min(number, 1), 10)) for number in range(3)),
        ),
        told={"LR-VIDEO-010": (1, 2)},
        outcome="hold",
        says="the same 10 pictures",
    ),
    "a first frame of the episode before": Case(
        breaks=show(1, stolen),
        told={"LR-VIDEO-011": (1,)},
        outcome="accept_with_warning",
        says="frame 0 of episode 1 is the last picture of the episode before",
    ),
    "a video at half the rate": Case(
        breaks=show(1, pictures.scene(1, 10), fps=5),
        told={"LR-VIDEO-007": (1,)},
        outcome="reject",
        says="come at 5 per second, info.json says 10",
    ),
    "a video at half the rate that is also short": Case(
        breaks=show(1, pictures.scene(1, 8), fps=5),
        told={"LR-VIDEO-007": (1,), "LR-VIDEO-002": (1,)},
        outcome="reject",
        says="8 video frames for 10 rows",
    ),
    "pictures of another size": Case(
        breaks=lambda root: lerobot.change_feature(root, CAMERA, shape=[480, 640, 3]),
        told={"LR-VIDEO-012": (0, 1, 2)},
        outcome="accept_with_warning",
        says="64 high and 64 wide",
    ),
    "a video of no episode": Case(
        breaks=show(7, pictures.scene(7, 9)),
        told={"LR-STRUCT-010": None},
        outcome="accept_with_warning",
        says="file-007.mp4",
    ),
    "one frame too many": Case(
        breaks=show(1, pictures.scene(1, 11)),
        told={"LR-VIDEO-005": None},
        outcome="accept_with_warning",
        says="1 of 11 frames belong to no episode",
    ),
    "too few names": Case(
        breaks=lambda root: lerobot.change_feature(root, "action", names=["a", "b"]),
        told={"LR-META-006": None},
        outcome="accept_with_warning",
        says="expected 3 names, info.json has 2 names",
    ),
    "a name twice": Case(
        breaks=lambda root: lerobot.change_feature(root, "action", names=["a", "b", "a"]),
        told={"LR-META-006": None},
        outcome="accept_with_warning",
    ),
    "statistics of other rows": Case(
        breaks=stats(min=[-9.0, -9.0, -9.0]),
        told={"LR-META-007": None},
        outcome="accept_with_warning",
        says="the stored minimum is -9",
    ),
    "splits that overlap": Case(
        breaks=lambda root: lerobot.change_info(root, splits={"train": "0:2", "test": "1:3"}),
        told={"LR-SPLIT-001": (1,)},
        outcome="hold",
        says="lie in the splits",
    ),
    "a split that runs backwards": Case(
        breaks=lambda root: lerobot.change_info(root, splits={"train": "2:1"}),
        told={"LR-META-001": None},
        outcome="reject",
        says="ends before it starts",
    ),
    "two tasks with one text": Case(
        breaks=lambda root: lerobot.change_column(root, "meta/tasks.parquet", "task", lambda _: lerobot.TASKS[0]),
        told={"LR-TASK-003": None},
        outcome="accept_with_warning",
    ),
}


def told(report: Report) -> dict[str, tuple[int, ...] | None]:
    return {breach.rule.id: breach.episodes for breach in reversed(report.breaches)}


@pytest.mark.parametrize("name", CASES)
def test_each_rule_alone(name: str, tmp_path: Path) -> None:
    """The broken rule is told for exactly its episodes, and no other rule."""
    case = CASES[name]
    root = build(tmp_path)
    case.breaks(root)
    report = inspect(root).report
    assert (told(report), report.outcome) == (case.told, case.outcome)
    text = " | ".join(f"{breach.message} {breach.found}" for breach in report.breaches)
    assert case.says in text


def test_good_pictures_pass(tmp_path: Path) -> None:
    """Nothing is told about a sound dataset."""
    assert inspect(build(tmp_path)).report.breaches == ()


def test_a_window_that_starts_a_frame_early(tmp_path: Path) -> None:
    """An episode whose first row would show a frame of the one before is rejected; the other one is not."""
    root = lerobot.build(tmp_path)
    for side in ("from", "to"):
        lerobot.change_cell(root, EPISODES, 1, f"videos/{CAMERA}/{side}_timestamp", 0.5 if side == "from" else 1.0)
    found = [(b.rule.id, b.severity, b.episodes) for b in inspect(root).report.breaches]
    assert ("LR-VIDEO-003", "error", (1,)) in found
    assert [episodes for _, severity, episodes in found if severity == "error"] == [(1,)]


def test_a_window_that_ends_a_frame_late(tmp_path: Path) -> None:
    """Of two overlapping windows the one that leaves a gap on its other side is named."""
    root = lerobot.build(tmp_path)
    for side in ("from", "to"):
        lerobot.change_cell(root, EPISODES, 0, f"videos/{CAMERA}/{side}_timestamp", 0.1 if side == "from" else 0.7)
    found = [(b.rule.id, b.episodes) for b in inspect(root).report.breaches if b.severity == "error"]
    assert found == [("LR-VIDEO-003", (0,))]


def test_cut_is_not_damaged(tmp_path: Path) -> None:
    """`truncated` only when every error is a missing end and nothing is left; a damaged file is rejected."""
    for name, spoil in (
        ("truncated", lambda root: lerobot.cut(root, FIRST_DATA)),
        ("truncated", lambda root: lerobot.cut(root, lerobot.FIRST_VIDEO)),
        ("reject", lambda root: (root / FIRST_DATA).write_bytes(b"PAR1" + b"\0" * 400 + b"PAR1")),
        ("reject", lambda root: (root / lerobot.FIRST_VIDEO).write_bytes(b"")),
    ):
        root = lerobot.build(tmp_path / str(len(list(tmp_path.iterdir()))), (Part(length=12, data=0, video=0),))
        spoil(root)
        assert inspect(root).report.outcome == name
    root = lerobot.build(tmp_path / "more")
    lerobot.cut(root, lerobot.SECOND_VIDEO)
    assert inspect(root).report.outcome == "reject"


HABITS: dict[str, Callable[[Path], object]] = {
    "B-frames": show(1, pictures.scene(1, 10), options={"bf": "3", "g": "10", "preset": "medium"}),
    "a sound track": show(1, pictures.scene(1, 10), audio=True),
    "another codec": all_of(
        show(1, pictures.scene(1, 10), codec="mpeg4", options={}),
        lambda root: lerobot.change_feature(root, CAMERA, info={}),
    ),
    "a moment without motion": show(0, [*still(0, 4), *pictures.scene(0, 8)]),
    "channels first": lambda root: lerobot.change_feature(root, CAMERA, shape=[3, 64, 64]),
    "names in a group": lambda root: lerobot.change_feature(root, "action", names={"motors": ["a", "b", "c"]}),
    "names by number": lambda root: lerobot.change_feature(root, "action", names={"a": 0, "b": 1, "c": 2}),
    "names in a list of lists": lambda root: lerobot.change_feature(root, "action", names=[["a", "b", "c"]]),
    "one name per axis": lambda root: lerobot.change_feature(root, "action", names=["joint"]),
    "no names": lambda root: lerobot.change_feature(root, "action", names=None),
    "flags and words beside the numbers": lambda root: add_features(
        root,
        {
            "next.done": ("bool", pa.bool_(), False),
            "note": ("string", pa.string(), "a"),
            "reward": ("float64", pa.float64(), 0.5),
        },
    ),
    "timestamps in float64": lambda root: recast(root, FIRST_DATA, "timestamp", pa.float64()),
    "no task texts in the episode table": lambda root: drop_column(root, EPISODES, "tasks"),
    "a rate that is no whole number": at_2997,
    "pictures of a page that were not fetched": lambda root: (root / "logo.png").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 9000\n"
    ),
    "splits side by side": lambda root: lerobot.change_info(root, splits={"train": "0:2", "test": "2:3"}),
}


@pytest.mark.parametrize("name", HABITS)
def test_habits_of_sound_datasets(name: str, tmp_path: Path) -> None:
    """What real recorders do is no finding."""
    root = build(tmp_path)
    HABITS[name](root)
    assert inspect(root).report.breaches == ()


def test_columns_that_nobody_declares_are_told_because_they_are_left_out(tmp_path: Path) -> None:
    """It costs nobody anything, but what is not taken over must be known; columns of pandas' own are not worth a word."""
    root = build(tmp_path)
    for name in ("debug", "__index_level_0__"):
        add_column(root, FIRST_DATA, name, pa.array(range(sum(LENGTHS))))
    report = inspect(root).report
    assert report.outcome == "accept"
    assert [(b.rule.id, b.severity, b.feature) for b in report.breaches] == [("LR-STRUCT-005", "info", "debug")]


def test_frames_at_uneven_times_are_told_as_that(tmp_path: Path) -> None:
    """A variable rate is named once, beside the rows that have no picture."""
    root = build(tmp_path)
    times = np.cumsum([0.0, *([0.06, 0.14] * 6)])[:12]
    pictures.write(root / video(0), pictures.scene(0, 12), times=list(times))
    told_ = {breach.rule.id: breach for breach in inspect(root).report.breaches}
    assert told_["LR-VIDEO-007"].severity == "warning"
    assert "unevenly" in told_["LR-VIDEO-007"].message


def test_the_same_recording_twice(tmp_path: Path) -> None:
    """Equal rows and pictures: the later one is held; in two splits both are, as a leak."""
    parts = tuple(Part(length=10, data=0, video=number) for number in range(2))
    root = lerobot.build(tmp_path, parts)
    lerobot.change_feature(root, CAMERA, shape=[64, 64, 3])

    def copy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row, source in zip(rows[10:], rows[:10], strict=True):
            row |= {key: source[key] for key in ("action", "observation.state")}
        return rows

    lerobot.change_rows(root, FIRST_DATA, copy)
    for number in range(2):
        pictures.write(root / video(number), pictures.scene(3, 10))
    assert told(inspect(root).report) == {"LR-EPISODE-004": (1,)}
    lerobot.change_info(root, splits={"train": "0:1", "test": "1:2"})
    assert told(inspect(root).report) == {"LR-SPLIT-001": (0, 1)}


def test_what_was_ordered(tmp_path: Path) -> None:
    """Every difference from the collection request is a finding; the operator's report is shown as a claim."""
    root = build(tmp_path)
    good = {"expected_episodes": 3, "expected_frames": 31, "fps": 10, "cameras": ["front"], "tasks": [lerobot.TASKS[0]]}
    assert inspect(root, request=parse_request(json.dumps(good).encode())).report.breaches == ()
    other = {"collection_id": "c-1", "expected_episodes": 6, "operator_report": {"status": "OK"}, "cameras": ["top"]}
    found = inspect(root, request=parse_request(json.dumps(other).encode())).report
    assert [(b.rule.id, b.expected, b.found) for b in found.breaches] == [
        ("LR-REQUEST-001", "6", "3"),
        ("LR-REQUEST-001", "top", CAMERA),
    ]
    assert "status OK, which is a claim" in found.breaches[0].message
    assert found.outcome == "reject"


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"expected_episodes": "6"}', b'{"fps": 0}', b'{"tasks": [1]}'])
def test_an_order_that_cannot_be_used(raw: bytes) -> None:
    """Is an error with words."""
    with pytest.raises(RequestError, match="collection request"):
        parse_request(raw)


def test_a_camera_that_hangs_while_the_robot_moves(tmp_path: Path) -> None:
    """A standstill of seconds in a longer episode is told with its frames; while the robot rests it is not."""
    parts = (Part(length=100, data=0, video=0),)
    root = lerobot.build(tmp_path, parts)
    lerobot.change_feature(root, CAMERA, shape=[64, 64, 3])
    living = pictures.scene(0, 60)
    pictures.write(root / video(0), [*living[:30], *[living[30]] * 40, *living[30:]])
    (hung,) = inspect(root).report.breaches
    assert (hung.rule.id, hung.frame, hung.severity) == ("LR-VIDEO-009", 30, "warning")
    assert "from frame 30 to 70" in hung.message
    lerobot.change_column(
        root,
        FIRST_DATA,
        "observation.state",
        lambda row: [0.5] * 3 if 20 <= row["frame_index"] < 80 else row["observation.state"],
    )
    assert inspect(root).report.breaches == ()


def test_a_quiet_scene_is_no_camera_that_hangs(tmp_path: Path) -> None:
    """Daylight that fades over a scene in which little moves: for seconds no part of the picture changes much, but it lives."""
    root = lerobot.build(tmp_path, (Part(length=100, data=0, video=0),))
    lerobot.change_feature(root, CAMERA, shape=[64, 64, 3])
    (ground,) = pictures.scene(0, 1)
    fading = [np.clip(ground - 0.15 * number, 0, 255).astype(np.uint8) for number in range(100)]
    pictures.write(root / video(0), pictures.noisy(fading, 6))
    assert inspect(root).report.breaches == ()


@pytest.mark.parametrize("pix_fmt", ["gray", "gray16le", "yuv420p10le", "rgb24"])
def test_depth_and_deep_colours_are_looked_at(pix_fmt: str, tmp_path: Path) -> None:
    """Whatever the pixel format, a still picture is still and a moving one moves."""
    import av  # noqa: PLC0415 one test only

    for name, shown in (("still", still(1, 9)), ("moving", pictures.scene(1, 9))):
        path = tmp_path / f"{name}.mkv"
        with av.open(str(path), "w", format="matroska") as container:
            stream: Any = container.add_stream("ffv1", rate=10)
            stream.height = stream.width = pictures.SIDE
            stream.pix_fmt = pix_fmt if pix_fmt != "rgb24" else "bgr0"
            stream.time_base = Fraction(1, 10)
            for picture in shown:
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=stream.pix_fmt)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        one = EpisodePictures(episode=0, camera="depth", file=path.name, start=0.0, stop=10.0)
        scan = scan_video(path, path.name, watch=PictureWatch([one], 10))
        assert (scan.problem, one.frames) == (None, 9)
        assert (one.range < 2) == (name == "still")
