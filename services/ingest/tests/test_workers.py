"""The whole of ingest on a real folder: landing, verdicts, version, lease; and uploads that lie."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forebay.contracts.v1.datasets import DatasetTagged, DatasetVersionCommitted, LeaseGranted
from forebay.contracts.v1.episodes import (
    EpisodeAccepted,
    EpisodeHeld,
    EpisodeRejected,
)
from forebay.runtime.errors import RetryLater

from . import lerobot_builder as lerobot
from . import stories
from .lerobot_builder import FIRST_DATA, SECOND_DATA, SECOND_VIDEO
from .place import MANIFEST, Place
from .simulated_log import PROJECT, Context, item_of
from .stories import DATASET


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _rules(place: Place) -> list[tuple[int, str]]:
    return [(body.source_index, body.findings[0].rule) for body in place.log.of(EpisodeRejected)]


async def test_a_broken_episode_does_not_hold_the_others_back(place: Place, tmp_path: Path) -> None:
    """From the upload to a lease on the version that holds the two good episodes."""
    folder = lerobot.build(tmp_path / "recorded")
    lerobot.change_cell(folder, FIRST_DATA, 8, "action", [float("nan"), 0.0, 0.0])
    stories.submit(place.log, DATASET)
    place.upload(folder)
    await place.work()
    assert _rules(place) == [(1, "LR-SIGNAL-001")]
    assert place.log.of(EpisodeRejected)[0].findings[0].frame == 2
    assert [body.source_index for body in place.log.of(EpisodeAccepted)] == [0, 2]
    (version,) = place.log.of(DatasetVersionCommitted)
    assert (version.number, version.episode_count, version.frame_count) == (1, 2, 10)
    assert Path(version.root) == place.pool / "datasets" / PROJECT / DATASET / "v1"
    assert [tag.tag for tag in place.log.of(DatasetTagged)] == ["train-ready"]
    (lease,) = place.log.of(LeaseGranted)
    assert lease.inputs[0].manifest_sha256 == version.manifest_sha256
    report = place.log.of(EpisodeRejected)[0].report
    assert report is not None
    document = json.loads((place.pool / "reports" / PROJECT / "up-1.json").read_bytes())
    assert document["counts"]["accepted"] == 2
    assert lerobot.info()["total_episodes"] == len(document["episodes"])


async def test_work_that_is_run_again_says_the_same(place: Place, tmp_path: Path) -> None:
    """After a kill the next process runs the item once more: equal events, no second version."""
    place.upload(lerobot.build(tmp_path / "recorded"))
    validate = place.log.work[("validate", "up-1")]
    context = Context(place.log.state)
    first = list(await place.workers["validate"](item_of(validate), context))
    again = list(await place.workers["validate"](item_of(validate), context))
    assert [(emit.event_id, emit.body) for emit in first] == [(emit.event_id, emit.body) for emit in again]
    place.log.act(first)
    convert = place.log.work[("convert", "up-1")]
    made = list(await place.workers["convert"](item_of(convert), context))
    adopted = list(await place.workers["convert"](item_of(convert), context))
    assert made == adopted
    place.log.act(made)
    assert list(await place.workers["convert"](item_of(convert), context)) == []
    assert [entry["stage"] for entry in context.told if entry.get("done")]


async def test_a_second_upload_makes_the_next_version(place: Place, tmp_path: Path) -> None:
    """v2 holds the episodes of both uploads; the same recording is not taken twice."""
    place.upload(lerobot.build(tmp_path / "a"), "up-1")
    place.upload(lerobot.build(tmp_path / "b", seed=4), "up-2")
    place.upload(lerobot.build(tmp_path / "c"), "up-3")
    await place.work()
    versions = place.log.of(DatasetVersionCommitted)
    assert [(v.number, v.episode_count, v.parent, v.uploads) for v in versions] == [
        (1, 3, None, ("up-1",)),
        (2, 6, 1, ("up-1", "up-2")),
    ]
    assert {body.findings[0].rule for body in place.log.of(EpisodeHeld)} == {"LR-DATASET-002"}
    assert len(place.log.of(EpisodeHeld)) == 3


async def test_an_upload_with_other_features_is_refused(place: Place, tmp_path: Path) -> None:
    """Its rows cannot stand in the dataset's tables."""
    place.upload(lerobot.build(tmp_path / "a"), "up-1")
    other = lerobot.build(tmp_path / "b", seed=4)
    lerobot.change_feature(other, "action", shape=[2])
    for file in (FIRST_DATA, SECOND_DATA):
        lerobot.change_column(other, file, "action", lambda row: row["action"][:2])
    place.upload(other, "up-2")
    await place.work()
    assert {rule for _, rule in _rules(place)} == {"LR-DATASET-001"}
    assert len(place.log.of(DatasetVersionCommitted)) == 1


async def test_changed_bytes_reject_the_episodes_in_them(place: Place, tmp_path: Path) -> None:
    """A file that is not the announced one is not believed, even when it plays."""
    folder = lerobot.build(tmp_path / "recorded")
    place.upload(folder, spoil=lambda landing: lerobot.write_video(landing / SECOND_VIDEO, 4, fps=5))
    await place.work()
    assert _rules(place) == [(2, "LR-STRUCT-009")]
    assert place.log.of(DatasetVersionCommitted)[0].episode_count == 2


async def test_a_file_that_never_arrived(place: Place, tmp_path: Path) -> None:
    """Announced and not there."""
    folder = lerobot.build(tmp_path / "recorded")
    place.upload(folder, spoil=lambda landing: (landing / SECOND_DATA).unlink())
    await place.work()
    assert _rules(place) == [(2, "LR-STRUCT-009")]


async def test_a_changed_manifest_rejects_the_upload(place: Place, tmp_path: Path) -> None:
    """Nothing is believed without it."""
    folder = lerobot.build(tmp_path / "recorded")
    place.upload(folder, spoil=lambda landing: (landing / MANIFEST).write_text('{"files": []}'))
    await place.work()
    assert {rule for _, rule in _rules(place)} == {"LR-STRUCT-009"}
    assert not place.log.of(DatasetVersionCommitted)


@pytest.mark.parametrize(
    "claim",
    ["file:///etc", "/", "../up-1", "s3://bucket/x", "file://other-host/pool", "http://[", "file:///a%00b"],
)
async def test_a_foreign_landing_folder_is_refused(place: Place, tmp_path: Path, claim: str) -> None:
    """An upload is read from its own folder of the pool and from nowhere else."""
    place.upload(lerobot.build(tmp_path / "recorded"), uri=claim)
    await place.work()
    findings = [body.findings[0] for body in place.log.of(EpisodeRejected)]
    assert {finding.rule for finding in findings} == {"LR-STRUCT-009"}
    assert "reads only" in findings[0].message


async def test_a_lost_pool_is_waited_for(place: Place, tmp_path: Path) -> None:
    """A mount that is gone is nobody's verdict."""
    place.upload(lerobot.build(tmp_path / "recorded"))
    place.pool.rename(tmp_path / "elsewhere")
    with pytest.raises(RetryLater, match="pool"):
        await place.work()
    (tmp_path / "elsewhere").rename(place.pool)
    await place.work()
    assert len(place.log.of(EpisodeAccepted)) == 3


async def test_a_folder_that_is_no_dataset(place: Place, tmp_path: Path) -> None:
    """Every announced episode is rejected with the reason."""
    folder = lerobot.build(tmp_path / "recorded")
    (folder / "meta/info.json").write_text("{")
    place.upload(folder)
    await place.work()
    assert _rules(place) == [(0, "LR-FORMAT-001"), (1, "LR-FORMAT-001"), (2, "LR-FORMAT-001")]
