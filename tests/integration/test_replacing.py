"""`upload --replace`: a version of exactly one folder, in which known recordings keep their ids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import lance
import pytest
from forebay.contracts.v1.datasets import DatasetTagged, DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeHeld
from forebay.ingest.domain import version_commands
from forebay.ingest.domain.documents import Version, version_key
from forebay.ingest.domain.membership import members
from forebay.registry.adapters.file_episode_lists import FileEpisodeLists
from forebay.registry.app import definition
from forebay.runtime.machine import NothingPending
from forebay.sdk.collector import Collector

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests.lerobot_builder import EPISODES, FIRST_DATA, FIRST_VIDEO, SECOND_DATA
from services.ingest.tests.place import Place
from services.ingest.tests.simulated_log import PROJECT, request
from services.registry.tests.histories import Registry
from tests.integration.test_v2_upload import Deliver

DATASET = "pick-place"


def without_episode_1(folder: Path, target: Path) -> Path:
    """What a tool leaves that deletes an episode: the others numbered anew, their rows the same."""
    shutil.copytree(folder, target)
    removed = 0

    def renumber(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        nonlocal removed
        kept = [row for row in rows if row["episode_index"] != 1]
        removed += len(rows) - len(kept)
        moved = {"episode_index": 1, "index": -removed}
        return [
            row if row["episode_index"] == 0 else {**row, "episode_index": 1, "index": row["index"] + moved["index"]}
            for row in kept
        ]

    lerobot.change_rows(target, FIRST_DATA, renumber)
    lerobot.change_rows(target, SECOND_DATA, renumber)

    def entries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        first, _, last = rows
        places = {name: last[name] - removed for name in ("dataset_from_index", "dataset_to_index")}
        return [first, {**last, "episode_index": 1, **places}]

    lerobot.change_rows(target, EPISODES, entries)
    lerobot.write_video(target / FIRST_VIDEO, 6)  # encoded anew, without the pictures of the other
    info = json.loads((target / "meta/info.json").read_text())
    lerobot.change_info(target, total_episodes=2, total_frames=info["total_frames"] - removed, splits={"train": "0:2"})
    return target


class Lab:
    """A pool, ingest, and a collector."""

    def __init__(self, home: Path) -> None:
        self.place = Place(home)
        self.collector = Collector(home=home, project=PROJECT)

    async def upload(self, folder: Path, *, replaces: bool = False) -> DatasetVersionCommitted:
        self.collector.upload(folder, DATASET, replaces=replaces)
        await self.collector.outbox.deliver(Deliver(self.place))
        await self.place.work()
        return self.place.log.of(DatasetVersionCommitted)[-1]

    def listed(self, number: int) -> list[str]:
        """The episodes of a version: its list in the record, and the log alone, say the same."""
        (made,) = [body for body in self.place.log.of(DatasetVersionCommitted) if body.number == number]
        document = json.loads(Path(made.episodes.uri.removeprefix("file://")).read_bytes())
        found = [entry["episode"] for entry in document["episodes"]]
        version = self.place.log.state.get(Version, version_key(PROJECT, DATASET, number))
        assert version is not None
        assert [one.listed_id for one in members(self.place.log.state, version)] == found
        return found

    def withdraw(self, episode: str) -> dict[str, Any]:
        args = {"episode": episode, "reason": "consent"}
        return self.place.log.command(
            version_commands.withdraw(self.place.log.state, NothingPending(), request(args, f"w-{episode}"))
        )


@pytest.fixture
async def lab(tmp_path: Path) -> Lab:
    """v1 holds three recordings; v2 was replaced by the same folder without the second of them."""
    found = Lab(tmp_path)
    folder = lerobot.build(tmp_path / "recorded")
    await found.upload(folder)
    await found.upload(without_episode_1(folder, tmp_path / "edited"), replaces=True)
    return found


async def test_a_version_of_exactly_this_folder(lab: Lab) -> None:
    """It holds the folder's episodes under the ids that they had, and nothing else; train-ready moves to it."""
    assert lab.place.log.of(EpisodeHeld) == []
    made = lab.place.log.of(DatasetVersionCommitted)[-1]
    before = lab.listed(1)
    assert lab.listed(2) == [before[0], before[2]]
    assert (made.number, made.parent, made.episode_count, len(made.uploads)) == (2, 1, 2, 1)
    assert lab.place.log.of(DatasetTagged)[-1].number == 2
    tables = [
        lance.dataset(str(Path(body.root) / "frames.lance")) for body in lab.place.log.of(DatasetVersionCommitted)
    ]
    rows = [table.to_table(columns=["episode_index", "action"]).to_pylist() for table in tables]
    assert [row["action"] for row in rows[1]] == [row["action"] for row in rows[0] if row["episode_index"] != 1]


async def test_later_uploads_add_to_it(lab: Lab, tmp_path: Path) -> None:
    """And a version derived from that leaves out what it shall, by either name."""
    made = await lab.upload(lerobot.build(tmp_path / "more", seed=5))
    assert (made.number, made.parent) == (3, 2)
    listed = lab.listed(3)
    assert listed[:2] == lab.listed(2)
    assert len(listed) == 5
    args = {"dataset": f"{DATASET}@v3", "exclude": [listed[0], f"{DATASET}@v3/4"], "reason": "test"}
    lab.place.log.command(version_commands.derive(lab.place.log.state, NothingPending(), request(args, "d1")))
    await lab.place.work()
    assert lab.listed(4) == listed[1:4]


async def test_a_withdrawn_recording_is_withdrawn_everywhere(lab: Lab, tmp_path: Path) -> None:
    """Versions that hold it as the first or a later copy are marked, and no replacement brings it back."""
    first, _, last = lab.listed(1)
    answer = lab.withdraw(f"{DATASET}@v2/1")
    assert (answer["episode"], answer["versions"], answer["name"]) == (last, [1, 2], f"{DATASET}@v2/1")
    state = lab.place.log.state
    marked = [state.get(Version, version_key(PROJECT, DATASET, number)) for number in (1, 2)]
    assert [version.withdrawn for version in marked if version is not None] == [(last,), (last,)]
    (tmp_path / "edited" / "README.md").write_text("once more")
    await lab.upload(tmp_path / "edited", replaces=True)
    assert "was withdrawn (consent)" in lab.place.log.of(EpisodeHeld)[-1].findings[0].message
    assert lab.listed(3) == [first]


async def test_lineage_follows_a_recording_into_its_copies(lab: Lab) -> None:
    """What an episode reached includes versions that hold it through a later upload."""
    registry = Registry()
    registry.service = definition(FileEpisodeLists())
    for record in lab.place.log.records:
        registry.hear(record.event)
    first = lab.listed(2)[0]
    reached = registry.ask("impact", id=first)["reached"]["dataset"]
    assert [one["id"] for one in reached] == [f"dataset:{DATASET}@v1", f"dataset:{DATASET}@v2"]
    answer = registry.ask("lineage", id=f"dataset:{DATASET}@v2")
    assert answer["complete"], answer["missing"]
    assert answer["contradictions"] == []


async def test_the_same_folder_adds_or_replaces(lab: Lab, tmp_path: Path) -> None:
    """They are two uploads, so the first version can be had again; a repeat of either is the same upload."""
    folder = tmp_path / "recorded"
    adding = lab.collector.upload(folder, DATASET).upload
    made = await lab.upload(folder, replaces=True)
    assert lab.listed(3) == lab.listed(1)
    assert made.uploads != (adding,)
    assert lab.collector.upload(folder, DATASET, replaces=True).upload == made.uploads[0]
    assert {body.same_as for body in lab.place.log.of(EpisodeAccepted)} == {None, *lab.listed(1)}
