"""A collector announces one thing and uploads another: its files count, everywhere, and the difference is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.envelope import Event
from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeHeld, EpisodeRejected, RowWindow, TimeWindow
from forebay.ingest.domain.documents import Episode
from forebay.ingest.domain.documents import place as key_of
from forebay.ingest.domain.waiving import waive
from forebay.registry.domain.nodes import EPISODE, Node
from forebay.registry.domain.view import shown
from forebay.runtime.machine import NothingPending

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests.place import Place
from services.ingest.tests.simulated_log import PROJECT, request
from services.ingest.tests.stories import DATASET
from services.registry.tests.histories import Registry

LIE: dict[str, Any] = {
    "length": 5000,
    "tasks": ("fold the towel",),
    "robot": "humanoid",
    "rows": RowWindow(file="data/chunk-000/file-009.parquet", start=0, stop=5000),
    "videos": (TimeWindow(camera="observation.images.wrist", file="videos/other.mp4", start=0, stop=500),),
}
TRUE = {"length": 6, "tasks": ["pick up the cube"], "robot": "tiny_arm", "rows": [lerobot.FIRST_DATA, 0, 6]}
RULE = "LR-CLAIM-001"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def registry_of(place: Place) -> Registry:
    """The registry after the same log."""
    registry = Registry()
    for record in place.log.records:
        event: Event[Any] = record.event
        registry.hear(event)
    return registry


def node(registry: Registry, id_: str) -> Node:
    found = registry.state.get(Node, f"{PROJECT}/{EPISODE}:{id_}")
    assert found is not None
    return found


@pytest.mark.parametrize("field", sorted(LIE))
async def test_each_false_claim_is_told(place: Place, tmp_path: Path, field: str) -> None:
    """A warning names what was announced and what the files hold; the episode is taken for what it is."""
    place.upload(lerobot.build(tmp_path / "recorded"), lie={field: LIE[field]})
    await place.work()
    verdicts = place.log.of(EpisodeAccepted)
    assert [[finding.rule for finding in body.warnings] for body in verdicts] == [[RULE]] * 3
    finding = verdicts[0].warnings[0]
    assert finding.severity == "warning"
    assert "announced" in finding.message
    assert [body.length for body in verdicts] == [6, 5, 4]
    (version,) = place.log.of(DatasetVersionCommitted)
    assert version.frame_count == 15


async def test_an_honest_collector_is_told_nothing(place: Place, tmp_path: Path) -> None:
    """What the real collector says of a folder is what ingest reads in it."""
    place.upload(lerobot.build(tmp_path / "recorded"))
    await place.work()
    assert [(body.warnings, body.as_read) for body in place.log.of(EpisodeAccepted)] == [((), None)] * 3


async def test_lineage_shows_the_files(place: Place, tmp_path: Path) -> None:
    """Frames, tasks, robot, rows and cameras; the claim stays on record as a contradiction."""
    place.upload(lerobot.build(tmp_path / "recorded"), lie=LIE)
    await place.work()
    registry, first = registry_of(place), place.log.of(EpisodeAccepted)[0].episode
    episode = node(registry, first)
    assert {name: shown(episode, name) for name in TRUE} == TRUE
    assert [camera for camera, *_ in shown(episode, "cameras")] == [lerobot.CAMERA]
    assert "FIELD_CONFLICT" in registry.codes(f"{EPISODE}:{first}")
    told = registry.ask("lineage", id=f"{EPISODE}:{first}")
    assert "pick up the cube, 6 frames" in str(told)


async def test_search_finds_what_the_files_hold(place: Place, tmp_path: Path) -> None:
    """A claimed robot or task leads nobody to the dataset."""
    place.upload(lerobot.build(tmp_path / "recorded"), lie=LIE)
    await place.work()
    registry = registry_of(place)
    found = {
        (name, value): [one["dataset"] for one in registry.ask("search", **{name: value})["datasets"]]
        for name, value in (("robot", "humanoid"), ("task", "towel"), ("robot", "tiny_arm"), ("task", "cube"))
    }
    assert list(found.values()) == [[], [], [DATASET], [DATASET]]


async def test_a_held_episode_keeps_what_its_files_hold(place: Place, tmp_path: Path) -> None:
    """When a person waives the hold, the good verdict says the same as the first one."""
    folder = lerobot.build(tmp_path / "recorded")
    for file in (lerobot.FIRST_DATA, lerobot.SECOND_DATA):
        lerobot.change_column(folder, file, "action", lambda _: [0.0, 0.0, 0.0])
    place.upload(folder, lie=LIE)
    await place.work()
    held = place.log.of(EpisodeHeld)
    assert len(held) == 3
    assert all(RULE in {finding.rule for finding in body.findings} for body in held)
    args = {"dataset": DATASET, "rule": "LR-SIGNAL-005", "reason": "a rest pose"}
    place.log.command(waive(place.log.state, NothingPending(), request(args)))
    accepted = place.log.of(EpisodeAccepted)
    assert {body.episode: body.as_read for body in accepted} == {body.episode: body.as_read for body in held}
    assert all(body.as_read is not None and body.as_read.robot == "tiny_arm" for body in accepted)


async def test_a_claim_opens_no_way_past_the_policy(place: Place, tmp_path: Path) -> None:
    """With `on_bad_episode: reject_dataset` a bad episode rejects the others, whatever else is told."""
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / f"{PROJECT}.yaml").write_text("on_bad_episode: reject_dataset\n")
    folder = lerobot.build(tmp_path / "recorded")
    lerobot.change_cell(folder, lerobot.FIRST_DATA, 8, "action", [float("nan"), 0.0, 0.0])
    place.upload(folder, lie=LIE)
    await place.work()
    assert len(place.log.of(EpisodeRejected)) == 3
    assert place.log.of(DatasetVersionCommitted) == []


async def test_nothing_is_kept_of_a_claim_once_it_is_judged(place: Place, tmp_path: Path) -> None:
    """The fold does not grow by what nobody needs."""
    place.upload(lerobot.build(tmp_path / "recorded"), lie=LIE)
    await place.work()
    for body in place.log.of(EpisodeAccepted):
        episode = place.log.state.get(Episode, key_of(PROJECT, body.episode))
        assert episode is not None
        assert (episode.claimed, episode.as_read) == (None, None)
