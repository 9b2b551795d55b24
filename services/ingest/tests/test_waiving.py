"""Waivers: who may ignore what, and held episodes that go on because of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from forebay.contracts.parts import Part
from forebay.contracts.v1.datasets import DatasetVersionCommitted
from forebay.contracts.v1.episodes import (
    EpisodeAccepted,
    EpisodeHeld,
    EpisodeRejected,
    EpisodeWithdrawn,
    RuleWaived,
    WaiverRevoked,
)
from forebay.ingest.domain.documents import Episode, Upload, Version
from forebay.ingest.domain.documents import place as key_of
from forebay.ingest.domain.evolve import episode_id
from forebay.ingest.domain.membership import members
from forebay.ingest.domain.waiving import revoke_waiver, waive, waivers
from forebay.runtime.errors import Refused, RetryLater
from forebay.runtime.machine import NothingPending, Pending

from . import lerobot_builder as lerobot
from .lerobot_builder import FIRST_DATA
from .place import Place
from .simulated_log import PROJECT, Context, SimulatedLog, item_of, pending_of, request
from .stories import DATASET

RULE = "LR-SIGNAL-005"
WAIVER = {"dataset": DATASET, "rule": RULE, "reason": "the robot held its rest pose"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ask(log: SimulatedLog, args: dict[str, Any], id_: str = "request-1") -> dict[str, Any]:
    return log.command(waive(log.state, NothingPending(), request(args, id_)))


def idle(folder: Path, *, episodes: tuple[int, ...]) -> Path:
    """Recordings in which some episodes have no action."""

    def still(row: dict[str, Any]) -> Any:
        return [0.0, 0.0, 0.0] if row["episode_index"] in episodes else row["action"]

    root = lerobot.build(folder)
    for file in (lerobot.FIRST_DATA, lerobot.SECOND_DATA):
        lerobot.change_column(root, file, "action", still)
    return root


def id_of(index: int, upload: str = "up-1") -> str:
    return episode_id(PROJECT, DATASET, upload, index)


async def test_a_held_episode_enters_the_next_version(place: Place, tmp_path: Path) -> None:
    """The waiver is the evidence on its verdict; the version before does not change."""
    place.upload(idle(tmp_path / "a", episodes=(1,)))
    await place.work()
    (held,) = place.log.of(EpisodeHeld)
    assert ask(place.log, WAIVER) == {
        "dataset": DATASET,
        "rule": RULE,
        "episodes": [],
        "accepted": [held.episode],
        "still_held": [],
        "by": "kim",
    }
    await place.work()
    accepted = place.log.of(EpisodeAccepted)[-1]
    assert (accepted.source_index, accepted.tasks, accepted.length) == (1, ("put it down",), 5)
    assert accepted.warnings[0].severity == "info"
    assert accepted.warnings[0].message.endswith("[waived by kim: the robot held its rest pose]")
    first, second = place.log.of(DatasetVersionCommitted)
    assert (first.episode_count, second.episode_count, second.number) == (2, 3, 2)
    versions = {v.number: [e.source_index for e in members(place.log.state, v)] for v in _versions(place)}
    assert versions == {1: [0, 2], 2: [0, 1, 2]}
    table = pq.read_table(Path(second.root) / "meta/episodes/chunk-000/file-000.parquet")
    assert set(table.column("length").to_pylist()) == {4, 5, 6}


async def test_an_upload_of_which_nothing_was_good(place: Place, tmp_path: Path) -> None:
    """All its episodes go on together, in one version."""
    place.upload(idle(tmp_path / "a", episodes=(0, 1, 2)))
    await place.work()
    assert place.log.of(DatasetVersionCommitted) == []
    assert len(ask(place.log, WAIVER)["accepted"]) == 3
    await place.work()
    (version,) = place.log.of(DatasetVersionCommitted)
    assert (version.number, version.episode_count) == (1, 3)


async def test_only_the_named_episodes(place: Place, tmp_path: Path) -> None:
    """The others stay held."""
    place.upload(idle(tmp_path / "a", episodes=(0, 1)))
    await place.work()
    assert ask(place.log, {**WAIVER, "episodes": [id_of(1)]})["accepted"] == [id_of(1)]
    await place.work()
    states = {n: _episode(place, n).state for n in range(3)}
    assert states == {0: "HELD", 1: "ACCEPTED", 2: "ACCEPTED"}


async def test_a_waiver_on_the_dataset_is_for_later_uploads_too(place: Place, tmp_path: Path) -> None:
    """Their episodes are accepted at once, and the finding says why."""
    place.upload(lerobot.build(tmp_path / "a"))
    await place.work()
    ask(place.log, WAIVER)
    other = lerobot.build(tmp_path / "b", seed=3)
    lerobot.change_column(other, FIRST_DATA, "action", lambda _: [0.0, 0.0, 0.0])
    place.upload(other, "up-2")
    await place.work()
    assert place.log.of(EpisodeHeld) == []
    warnings = [f.message for body in place.log.of(EpisodeAccepted) for f in body.warnings if f.rule == RULE]
    assert len(warnings) == 2
    assert all("rest pose (kim)" in text for text in warnings)


async def test_a_waiver_that_comes_while_somebody_works(place: Place, tmp_path: Path) -> None:
    """It counts as soon as the version is there."""
    place.upload(idle(tmp_path / "a", episodes=(1,)))
    validate = place.log.work[("validate", "up-1")]
    place.log.act(list(await place.workers["validate"](item_of(validate), Context(place.log.state))))
    upload = place.log.state.get(Upload, key_of(PROJECT, "up-1"))
    assert upload is not None
    assert upload.state == "CONVERTING"
    ask(place.log, WAIVER)
    assert _episode(place, 1).state == "HELD"
    await place.work()
    assert [v.episode_count for v in place.log.of(DatasetVersionCommitted)] == [2, 3]


async def test_an_episode_withdrawn_before_is_not_brought_back(place: Place, tmp_path: Path) -> None:
    """Withdrawal is stronger than a waiver."""
    place.upload(idle(tmp_path / "a", episodes=(1,)))
    await place.work()
    gone = EpisodeWithdrawn(episode=id_of(1), dataset=DATASET, reason="wrong person", by="kim")
    place.log.publish(gone, "withdrawn", Part.INGEST)
    assert ask(place.log, WAIVER)["accepted"] == []
    await place.work()
    assert _episode(place, 1).state == "WITHDRAWN"
    assert len(place.log.of(DatasetVersionCommitted)) == 1


def _revoke(log: SimulatedLog, number: object, id_: str, pending: Pending | None = None) -> dict[str, Any]:
    args = {"dataset": DATASET, "number": number, "reason": "the pose was wrong"}
    return log.command(revoke_waiver(log.state, pending or NothingPending(), request(args, id_)))


async def test_a_revoked_waiver_holds_no_longer(place: Place, tmp_path: Path) -> None:
    """Later uploads are judged by the rule again; what it let in stays and is named; the list says all of it."""
    place.upload(idle(tmp_path / "a", episodes=(1,)))
    await place.work()
    ask(place.log, WAIVER)
    await place.work()
    assert _revoke(place.log, 1, "r1")["let_in"] == [id_of(1)]
    place.upload(idle(tmp_path / "b", episodes=(0,)), "up-2")
    await place.work()
    held = [body.episode for body in place.log.of(EpisodeHeld) if body.upload == "up-2"]
    assert id_of(0, "up-2") in held
    assert _episode(place, 1).state == "ACCEPTED"
    (listed,) = waivers(place.log.state, request({"dataset": DATASET}))["waivers"]
    assert (listed["number"], listed["holds"], listed["revoked"]) == (1, False, "the pose was wrong")
    assert (listed["by"], listed["revoked_by"], listed["reason"]) == ("kim", "kim", WAIVER["reason"])
    with pytest.raises(Refused, match=r"revoked by kim \(the pose was wrong\) before"):
        _revoke(place.log, 1, "r2")
    for number in (0, 2, "1", None):
        with pytest.raises(Refused, match="it has 1 to 1"):
            _revoke(place.log, number, "r3")
    ask(place.log, {**WAIVER, "reason": "looked again"}, "request-2")
    assert [one["holds"] for one in waivers(place.log.state, request({"dataset": DATASET}))["waivers"]] == [False, True]


async def test_a_waiver_that_is_being_revoked_is_not_revoked_twice(place: Place, tmp_path: Path) -> None:
    """Of two people, the second is told who did it, and why."""
    place.upload(lerobot.build(tmp_path / "a"))
    ask(place.log, WAIVER)
    decided = pending_of(WaiverRevoked(dataset=DATASET, number=1, rule=RULE, reason="mine", by="robin"))
    with pytest.raises(Refused, match=r"revoked by robin \(mine\)"):
        _revoke(place.log, 1, "r1", decided)


async def test_episodes_are_named_by_their_numbers_in_a_version_too(place: Place, tmp_path: Path) -> None:
    """In waivers as everywhere; a number that is not there is refused with those that are."""
    place.upload(lerobot.build(tmp_path / "a"))
    await place.work()
    named = ask(place.log, {**WAIVER, "episodes": [f"{DATASET}@v1/2", id_of(0)]})["episodes"]
    assert named == sorted([id_of(0), id_of(2)])
    with pytest.raises(Refused, match="has no episode 3; it has 0 to 2"):
        ask(place.log, {**WAIVER, "episodes": [f"{DATASET}@v1/3"]}, "w2")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ({"rule": "LR-SIGNAL-05"}, "rule-unknown"),
        ({"rule": "LR-EPISODE-002"}, "rule-fixed"),
        ({"reason": " "}, "bad-request"),
        ({"episodes": ["ep-0"]}, "episode-unknown"),
        ({"episodes": "all"}, "bad-request"),
        ({"dataset": "other"}, "dataset-unknown"),
    ],
)
async def test_what_cannot_be_waived(place: Place, tmp_path: Path, args: dict[str, Any], code: str) -> None:
    """Is refused, with what to do instead; nothing is recorded."""
    place.upload(lerobot.build(tmp_path / "a"))
    with pytest.raises(Refused) as refused:
        ask(place.log, {**WAIVER, **args})
    assert refused.value.code == code
    assert place.log.of(RuleWaived) == []


async def test_the_policy_of_a_project(place: Place, tmp_path: Path) -> None:
    """The service judges by it; one that cannot be followed makes the upload wait with its problem."""
    policies = tmp_path / "policies"
    policies.mkdir()
    policy = policies / f"{PROJECT}.yaml"
    policy.write_text("rulez: {}")
    place.upload(idle(tmp_path / "a", episodes=(1,)))
    item = item_of(place.log.work[("validate", "up-1")])
    with pytest.raises(RetryLater, match="did you mean rules"):
        await place.workers["validate"](item, Context(place.log.state))
    policy.write_text(json.dumps({"rules": {RULE: "warning"}, "on_bad_episode": "reject_dataset"}))
    await place.work()
    assert place.log.of(EpisodeHeld) == []
    assert len(place.log.of(EpisodeAccepted)) == 3


async def test_what_was_ordered_at_upload(place: Place, tmp_path: Path) -> None:
    """The result is compared with it; an order that cannot be used is only told."""
    place.upload(lerobot.build(tmp_path / "a"), request='{"expected_episodes": 6}')
    place.upload(lerobot.build(tmp_path / "b", seed=2), "up-2", request='{"expected_episodes": "6"}')
    await place.work()
    refused = place.log.of(EpisodeRejected)
    assert [(body.upload, body.findings[0].rule, body.findings[0].found) for body in refused] == [
        ("up-1", "LR-REQUEST-001", "3")
    ] * 3
    assert {body.upload for body in place.log.of(EpisodeAccepted)} == {"up-2"}


def _episode(place: Place, index: int) -> Episode:
    found = place.log.state.get(Episode, key_of(PROJECT, id_of(index)))
    assert found is not None
    return found


def _versions(place: Place) -> list[Version]:
    return place.log.state.find(Version, "dataset_key", key_of(PROJECT, DATASET))
