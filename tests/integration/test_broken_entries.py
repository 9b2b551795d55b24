"""A broken entry or file costs its own episodes: from the collector's copy to ingest's verdicts, on record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.contracts.v1.datasets import DatasetTagged, DatasetVersionCommitted, LeaseRefused
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeRejected, EpisodeUploaded, UploadFinished
from forebay.sdk.collector import Collector

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests import lerobot_v2_builder as v2
from services.ingest.tests import stories
from services.ingest.tests.lerobot_builder import CAMERA, EPISODES, SECOND_VIDEO
from services.ingest.tests.place import Place
from services.ingest.tests.simulated_log import PROJECT
from tests.integration.test_v2_upload import Deliver

Change = Callable[[Path], Any]
ENTRY = "LR-EPISODE-003"


def cell(column: str, value: float | None) -> Change:
    """Entry 1 of the episode table says something else."""
    return lambda root: lerobot.change_cell(root, EPISODES, 1, column, value)


def twice(root: Path) -> None:
    table = pq.read_table(root / EPISODES)
    pq.write_table(pa.concat_tables([table, table.slice(1, 1)]), root / EPISODES)


def replaced(name: str, make: Callable[[Path], object]) -> Change:
    def change(root: Path) -> None:
        (root / name).unlink()
        make(root / name)

    return change


def linked_out(path: Path) -> None:
    outside = path.parents[4] / "elsewhere.mp4"
    outside.write_bytes(b"a file of somebody else")
    path.symlink_to(outside)


async def deliver(tmp_path: Path, folder: Path) -> Place:
    place = Place(tmp_path)
    collector = Collector(home=tmp_path, project=PROJECT)
    collector.upload(folder, "pick-place")
    await collector.outbox.deliver(Deliver(place))
    await place.work()
    return place


@pytest.mark.parametrize(
    ("change", "rejected"),
    [
        (cell("length", None), {1: ENTRY}),
        (cell(f"videos/{CAMERA}/from_timestamp", float("nan")), {1: ENTRY}),
        (cell("episode_index", 2**40), {}),
        (twice, {1: ENTRY}),
        (replaced(SECOND_VIDEO, os.mkfifo), {2: "LR-STRUCT-001"}),
        (lambda root: (root / "notes").symlink_to("/etc/hostname"), {}),
    ],
    ids=["no length", "NaN", "number too high", "listed twice", "FIFO", "link of no episode"],
)
async def test_a_broken_entry_costs_its_own_episode(tmp_path: Path, change: Change, rejected: dict[int, str]) -> None:
    """It is announced, rejected with the rule that the offline check names, and the others become a version."""
    folder = lerobot.build(tmp_path / "recorded")
    change(folder)
    place = await deliver(tmp_path, folder)
    assert {body.source_index: body.findings[0].rule for body in place.log.of(EpisodeRejected)} == rejected
    announced = [body.source_index for body in place.log.of(EpisodeUploaded)]
    assert set(announced) in ({0, 1, 2}, {0, 2})  # an entry without a number cannot be announced
    accepted = [body.source_index for body in place.log.of(EpisodeAccepted)]
    hidden = (
        {1} if not rejected and change.__name__ == "<lambda>" and "episode_index" in str(change.__closure__) else set()
    )
    assert set(accepted) >= {0, 1, 2} - rejected.keys() - {1} - hidden
    (made,) = place.log.of(DatasetVersionCommitted)
    assert made.episode_count == len(accepted)


async def test_a_broken_line_of_an_older_format_costs_its_own_episode(tmp_path: Path) -> None:
    """The same for LeRobot v2.1, whose table is one line per episode."""
    folder = v2.build(tmp_path / "recorded", "v2.1")
    v2.change_line(folder, "meta/episodes.jsonl", 1, length="ten")
    place = await deliver(tmp_path, folder)
    assert [(body.source_index, body.findings[0].rule) for body in place.log.of(EpisodeRejected)] == [(1, ENTRY)]
    assert [body.source_index for body in place.log.of(EpisodeAccepted)] == [0, 2]


async def test_what_is_left_out_is_on_record(tmp_path: Path) -> None:
    """The manifest, whose digest is in the log, names it with the reason; its content is nowhere in the pool."""
    folder = lerobot.build(tmp_path / "recorded")
    replaced(SECOND_VIDEO, linked_out)(folder)
    place = await deliver(tmp_path, folder)
    (finished,) = place.log.of(UploadFinished)
    manifest = json.loads(Path(finished.manifest.uri.removeprefix("file://")).read_bytes())
    assert manifest["left_out"] == [{"path": SECOND_VIDEO, "why": "it is a link out of the folder"}]
    (rejected,) = place.log.of(EpisodeRejected)
    assert "it is a link out of the folder at the source, so it was not uploaded" in rejected.findings[0].message
    assert not [path for path in place.pool.rglob("*") if path.is_file() and b"somebody else" in path.read_bytes()]


async def test_a_policy_demands_a_share_of_accepted_episodes(tmp_path: Path) -> None:
    """Below it the version is made all the same, says why it is not train-ready, and a person may tag it."""
    folder = lerobot.build(tmp_path / "recorded")
    cell("length", None)(folder)
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / f"{PROJECT}.yaml").write_text("min_accepted_share: 0.7\n")
    place = await deliver(tmp_path, folder)
    (made,) = place.log.of(DatasetVersionCommitted)
    assert made.withheld == "2 of 3 episodes of the upload were accepted (66.7 %), the policy demands 70 %"
    assert not place.log.of(DatasetTagged)
    stories.submit(place.log, "pick-place")
    assert "2 of 3 episodes" in place.log.of(LeaseRefused)[-1].message
