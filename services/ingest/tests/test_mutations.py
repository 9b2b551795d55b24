"""Any valid dataset passes without a finding; any mutation of it is caught by its rule, on its episode."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from forebay.ingest.inspection import inspect
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import lerobot_builder as lerobot
from .valid_datasets import EPISODES, Shape, build, shapes, write_video

LONG = settings().max_examples > 100
FEW = settings(
    max_examples=settings().max_examples if LONG else 8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
EACH = settings(FEW, max_examples=FEW.max_examples // 50 if LONG else 2)
EVERYBODY = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """What a mutation must lead to."""

    rule: str
    episodes: set[int] | None = EVERYBODY
    """Episodes that the rule names; None: the dataset as a whole, or all."""
    may_hit: set[int] | None = None
    """Episodes that may be judged too, because nobody can know which of them is wrong."""


Rows = list[dict[str, Any]]
Mutation = Callable[[Path, Shape, int, Random], Expect]


def _camera(shape: Shape, random: Random) -> str:
    return random.choice(sorted(shape.videos))


def _at(rows: Rows, episode: int) -> list[int]:
    return [number for number, row in enumerate(rows) if row["episode_index"] == episode]


def _change_episode(root: Path, shape: Shape, episode: int, change: Callable[[Rows], Rows]) -> None:
    """Put the episode's rows through `change`, where they lie."""

    def all_rows(rows: Rows) -> Rows:
        there = _at(rows, episode)
        return rows[: there[0]] + change([dict(rows[n]) for n in there]) + rows[there[-1] + 1 :]

    lerobot.change_rows(root, shape.data_file(episode), all_rows)


def drop_a_row(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    at = random.randrange(shape.lengths[episode])
    _change_episode(root, shape, episode, lambda rows: rows[:at] + rows[at + 1 :])
    return Expect(rule="LR-EPISODE-002", episodes={episode})


def duplicate_a_row(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    at = random.randrange(shape.lengths[episode])
    _change_episode(root, shape, episode, lambda rows: [*rows[: at + 1], dict(rows[at]), *rows[at + 1 :]])
    return Expect(rule="LR-EPISODE-002", episodes={episode})


def swap_rows(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    first, second = sorted(random.sample(range(shape.lengths[episode]), 2))

    def swap(rows: Rows) -> Rows:
        rows[first], rows[second] = rows[second], rows[first]
        return rows

    _change_episode(root, shape, episode, swap)
    return Expect(rule="LR-SIGNAL-004", episodes={episode})


def reorder_index(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    first, second = random.sample(range(shape.lengths[episode]), 2)

    def swap(rows: Rows) -> Rows:
        rows[first]["index"], rows[second]["index"] = rows[second]["index"], rows[first]["index"]
        return rows

    _change_episode(root, shape, episode, swap)
    return Expect(rule="LR-SIGNAL-004", episodes={episode})


def stretch_time(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    factor = random.choice([0.5, 0.98, 1.02, 2.0])
    _change_episode(
        root, shape, episode, lambda rows: [{**row, "timestamp": row["timestamp"] * factor} for row in rows]
    )
    return Expect(rule="LR-SIGNAL-003", episodes={episode})


def restart_time(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    at = random.randrange(1, shape.lengths[episode])

    def restart(rows: Rows) -> Rows:
        begin = rows[at]["timestamp"]
        return [*rows[:at], *({**row, "timestamp": row["timestamp"] - begin} for row in rows[at:])]

    _change_episode(root, shape, episode, restart)
    return Expect(rule="LR-SIGNAL-003", episodes={episode})


def put_nan(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    at, dim = random.randrange(shape.lengths[episode]), random.randrange(shape.width)
    key = random.choice(["action", "observation.state"])

    def put(rows: Rows) -> Rows:
        rows[at][key][dim] = random.choice([float("nan"), float("inf"), float("-inf")])
        return rows

    _change_episode(root, shape, episode, put)
    return Expect(rule="LR-SIGNAL-001", episodes={episode})


def lengthen_a_vector(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    at = random.randrange(shape.lengths[episode])

    def put(rows: Rows) -> Rows:
        rows[at]["action"] = [*rows[at]["action"], 1.0]
        return rows

    _change_episode(root, shape, episode, put)
    return Expect(rule="LR-SIGNAL-002", episodes={episode})


def kill_the_action(root: Path, shape: Shape, episode: int, _: Random) -> Expect:
    _change_episode(root, shape, episode, lambda rows: [{**row, "action": [0.0] * len(row["action"])} for row in rows])
    return Expect(rule="LR-SIGNAL-005", episodes={episode})


def unknown_task(root: Path, shape: Shape, episode: int, _: Random) -> Expect:
    _change_episode(root, shape, episode, lambda rows: [{**row, "task_index": 99} for row in rows])
    return Expect(rule="LR-TASK-001", episodes={episode})


def declare_another_length(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    lerobot.change_cell(root, EPISODES, episode, "length", shape.lengths[episode] + random.choice([-1, 1, 5]))
    return Expect(rule="LR-EPISODE-002", episodes={episode})


def swap_episodes(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    """Two entries of the episode table change their numbers."""
    other = random.choice([n for n in range(len(shape.lengths)) if n != episode])

    def swap(rows: Rows) -> Rows:
        rows[episode]["episode_index"], rows[other]["episode_index"] = other, episode
        return rows

    lerobot.change_rows(root, EPISODES, swap)
    both = {episode, other}
    if shape.data_file(episode) != shape.data_file(other):
        return Expect(rule="LR-STRUCT-006", episodes=both)
    same = shape.lengths[episode] == shape.lengths[other]
    return Expect(rule="LR-SIGNAL-004" if same else "LR-EPISODE-002", episodes=both)


def forget_an_episode(root: Path, shape: Shape, episode: int, _: Random) -> Expect:
    lerobot.change_rows(root, EPISODES, lambda rows: rows[:episode] + rows[episode + 1 :])
    return Expect(rule="LR-STRUCT-007")


def another_data_file(root: Path, shape: Shape, episode: int, _: Random) -> Expect:
    wrong = (shape.data[episode] + 1) % (max(shape.data) + 1) if max(shape.data) else 7
    lerobot.change_cell(root, EPISODES, episode, "data/file_index", wrong)
    return Expect(rule="LR-STRUCT-006" if wrong != 7 else "LR-STRUCT-002", episodes={episode})


def shift_a_window(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    """By half a frame to many frames; a neighbour may be told instead, because the two overlap."""
    camera = _camera(shape, random)
    frames = random.choice([0.5, 2, 3.5])
    for end in ("from_timestamp", "to_timestamp"):
        _move_window(root, episode, f"videos/{camera}/{end}", frames / shape.fps)
    around = {n for n in shape.sharing(camera, episode) if abs(n - episode) <= 1}
    return Expect(rule="LR-VIDEO-006" if frames == 0.5 else "LR-VIDEO-003", episodes=around, may_hit=around)


def _move_window(root: Path, episode: int, column: str, amount: float) -> None:
    def move(rows: Rows) -> Rows:
        rows[episode][column] += amount
        return rows

    lerobot.change_rows(root, EPISODES, move)


def lengthen_a_window(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    _move_window(root, episode, f"videos/{_camera(shape, random)}/to_timestamp", 3 / shape.fps)
    return Expect(rule="LR-VIDEO-003", may_hit={n for n in range(len(shape.lengths)) if abs(n - episode) <= 1})


def freeze_a_camera(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    write_video(root, shape, _camera(shape, random), episode, frozen=episode)
    return Expect(rule="LR-VIDEO-008", episodes={episode})


def lose_frames(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    """The encoder died two frames before the end of the file."""
    camera = _camera(shape, random)
    write_video(root, shape, camera, episode, spare=-2)
    return Expect(rule="LR-VIDEO-002", episodes={shape.sharing(camera, episode)[-1]})


def cut_a_video(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    camera = _camera(shape, random)
    lerobot.cut(root, shape.video_file(camera, episode), random.uniform(0.1, 0.9))
    return Expect(rule="LR-VIDEO-001", episodes=set(shape.sharing(camera, episode)))


def cut_a_data_file(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    lerobot.cut(root, shape.data_file(episode), random.uniform(0.1, 0.99))
    return Expect(rule="LR-STRUCT-004", episodes=set(shape.beside(episode)))


def lose_a_file(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    camera = _camera(shape, random)
    if random.random() < 0.5:
        (root / shape.data_file(episode)).unlink()
        return Expect(rule="LR-STRUCT-002", episodes=set(shape.beside(episode)))
    (root / shape.video_file(camera, episode)).unlink()
    return Expect(rule="LR-STRUCT-002", episodes=set(shape.sharing(camera, episode)))


def put_an_orphan(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    """Rows of an episode that nobody lists, in a file of their own."""
    orphan = (root / shape.data_file(episode)).with_name("file-099.parquet")
    orphan.write_bytes((root / shape.data_file(episode)).read_bytes())
    lerobot.change_column(root, str(orphan.relative_to(root)), "episode_index", lambda row: row["episode_index"] + 50)
    return Expect(rule="LR-STRUCT-010", may_hit=set())


def rescale_fps(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    lerobot.change_info(root, fps=shape.fps * random.choice([0.5, 1.01, 2]))
    return Expect(rule="LR-SIGNAL-003")


def wrong_totals(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    name = random.choice(["total_episodes", "total_frames", "total_tasks"])
    document = json.loads((root / "meta/info.json").read_text())
    lerobot.change_info(root, **{name: document[name] + random.choice([1, 40])})
    return Expect(rule="LR-META-001")


def wrong_shape(root: Path, shape: Shape, episode: int, random: Random) -> Expect:
    key = random.choice(["action", "observation.state"])
    lerobot.change_feature(root, key, shape=[shape.width + 1], names=None)
    return Expect(rule="LR-SIGNAL-002")


ROWS: tuple[Mutation, ...] = (
    drop_a_row, duplicate_a_row, swap_rows, reorder_index, stretch_time, restart_time, put_nan, lengthen_a_vector,
    kill_the_action, unknown_task, freeze_a_camera, lose_frames, cut_a_video, cut_a_data_file, lose_a_file,
    rescale_fps, wrong_totals, wrong_shape,
)  # fmt: skip
"""Mutations that both formats know."""
TABLES: tuple[Mutation, ...] = (
    declare_another_length, swap_episodes, forget_an_episode, another_data_file, shift_a_window, lengthen_a_window,
    put_an_orphan,
)  # fmt: skip
"""Mutations of the tables of v3.0."""


@FEW
@given(shape=st.sampled_from(["v3.0", "v2.1"]).flatmap(lambda version: shapes(version=version)))
def test_a_valid_dataset_passes_without_a_finding(shape: Shape) -> None:
    """No false alarm, whatever the shape; every frame is counted."""
    with tempfile.TemporaryDirectory() as folder:
        report = inspect(build(Path(folder) / "dataset", shape)).report
    assert [breach.message for breach in report.breaches] == []
    assert tuple(episode.frames for episode in report.episodes) == shape.lengths


@pytest.mark.parametrize("mutation", [*ROWS, *TABLES], ids=lambda mutation: mutation.__name__)
@EACH
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_a_mutation_is_caught_by_its_rule_on_its_episode(mutation: Mutation, data: st.DataObject, seed: int) -> None:
    """The right rule names the right episodes, and the others stay accepted."""
    random = Random(seed)  # noqa: S311 no secret
    version = "v2.1" if mutation in ROWS and random.random() < 0.3 else "v3.0"
    shape = data.draw(shapes(shortest=8, version=version))
    episode = random.randrange(len(shape.lengths))
    with tempfile.TemporaryDirectory() as folder:
        root = build(Path(folder) / "dataset", shape)
        expect = mutation(root, shape, episode, random)
        report = inspect(root).report
    told = [breach for breach in report.breaches if breach.rule.id == expect.rule]
    assert told, report.to_json()
    if expect.episodes is not None:
        named = {index for breach in told for index in breach.episodes or ()}
        assert named <= expect.episodes, report.to_json()
        assert named == expect.episodes or expect.may_hit, report.to_json()
        allowed = expect.may_hit or expect.episodes
        assert {e.index for e in report.episodes if e.outcome in {"reject", "hold"}} <= allowed, report.to_json()
    assert report.outcome != "accept"
