"""Datasets that stay where they lie: validated, committed as plan A without a copy, and looked at again before use."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.v1.datasets import (
    MANIFEST_FILE,
    DatasetRegistrationFailed,
    DatasetRegistrationRequested,
    DatasetVersionCommitted,
    LeaseGranted,
    LeaseRefused,
)
from forebay.ingest import questions
from forebay.ingest.domain import registering, version_commands
from forebay.runtime.errors import Refused
from forebay.runtime.machine import NothingPending

from . import lerobot_builder as lerobot
from . import lerobot_changes as changes
from . import lerobot_v2_builder as v2
from . import stories
from .lerobot_builder import FIRST_DATA, FIRST_VIDEO, SECOND_VIDEO
from .place import Place
from .simulated_log import PROJECT, Context, item_of, request
from .stories import DATASET
from .test_places import REVISION, snapshot


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def _ask(place: Place, uri: object, id_: str = "request-1", **args: Any) -> dict[str, Any]:
    asked = request({"uri": str(uri), "dataset": DATASET, **args}, id_)
    return place.log.command(registering.register(place.log.state, NothingPending(), asked))


def _tree(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(root)): (p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("builder", [lerobot.build, v2.build], ids=["v3.0", "v2.1"])
async def test_a_good_dataset_becomes_a_version_without_a_copy(place: Place, tmp_path: Path, builder: Any) -> None:
    """The root is a folder of links with a manifest; the source is not touched; jobs get a lease."""
    source = builder(tmp_path / "source")
    before = _tree(source)
    (source / "README.md").write_text("changes as often as it likes")
    stories.submit(place.log, DATASET)
    place.log.files_whole = False
    asked = _ask(place, source, revision="b2f41c9")
    await place.work()
    (version,) = place.log.of(DatasetVersionCommitted)
    assert (version.access_plan, version.episode_count, version.frame_count) == ("A", 3, 15)
    assert (version.source_ref, version.source_revision) == (str(source), "b2f41c9")
    assert version.tables == {}
    root = Path(version.root)
    manifest = json.loads((root / MANIFEST_FILE).read_bytes())
    assert {entry["path"] for entry in manifest["files"]} == set(before)
    assert all((root / entry["path"]).is_symlink() for entry in manifest["files"])
    assert version.bytes == sum(size for size, _ in before.values())
    (source / "README.md").unlink()
    assert _tree(source) == before
    episodes = json.loads((root / "episodes.json").read_bytes())["episodes"]
    assert [(e["index"], e["length"]) for e in episodes] == [(0, 6), (1, 5), (2, 4)]
    (lease,) = place.log.of(LeaseGranted)
    assert (lease.inputs[0].access_plan, lease.inputs[0].root) == ("A", version.root)
    shown = questions.dataset(place.log.state, request({"dataset": DATASET}))
    assert shown["versions"][0]["access_plan"] == "A"
    assert shown["registrations"][0]["state"] == "COMMITTED"
    told = registering.registration(place.log.state, request({"registration": asked["registration"]}))
    assert (told["state"], told["version"]) == ("COMMITTED", 1)


async def test_a_dataset_that_readers_would_misread(place: Place, tmp_path: Path) -> None:
    """What a version mends stays wrong where the source is the version; whoever knows better waives the rule."""
    source = lerobot.build(tmp_path / "source")
    changes.reorder(lerobot.EPISODES, [1, 0, 2])(source)
    _ask(place, source)
    await place.work()
    (failed,) = place.log.of(DatasetRegistrationFailed)
    assert (failed.outcome, [finding.rule for finding in failed.findings]) == (
        "accept_with_warning",
        ["LR-EPISODE-005"],
    )
    assert "would be misread where it lies" in failed.message


async def test_a_dataset_that_is_not_good_enough(place: Place, tmp_path: Path) -> None:
    """No version; the request fails with its findings, and the next one has its turn."""
    source = lerobot.build(tmp_path / "source")
    good = lerobot.build(tmp_path / "good")
    lerobot.change_cell(source, FIRST_DATA, 0, "action", [float("nan"), 0.0, 0.0])
    _ask(place, source)
    _ask(place, good, "request-2")
    await place.work()
    (failed,) = place.log.of(DatasetRegistrationFailed)
    assert (failed.outcome, failed.findings[0].rule, failed.findings[0].episode) == ("reject", "LR-SIGNAL-001", 0)
    assert failed.report is not None
    (version,) = place.log.of(DatasetVersionCommitted)
    assert (version.number, version.source_ref) == (1, str(good))


@pytest.mark.parametrize(
    ("uri", "says"),
    [("/no/such/folder", "does not exist"), ("s3://lab/x", "cannot be listed")],
    ids=["no folder", "no server"],
)
async def test_a_place_that_cannot_be_read(place: Place, uri: str, says: str) -> None:
    """Somebody waits for the answer, so it fails at once."""
    _ask(place, uri, endpoint="http://127.0.0.1:9")
    await place.work()
    (failed,) = place.log.of(DatasetRegistrationFailed)
    assert says in failed.message


@pytest.mark.parametrize(
    "args",
    [{"uri": "relative/folder"}, {"uri": "http://x/y"}, {"uri": 7}, {"uri": "/x", "dataset": ""}, {"uri": "x" * 2000}],
    ids=["relative", "scheme", "no text", "no name", "too long"],
)
def test_what_cannot_be_asked(place: Place, args: dict[str, Any]) -> None:
    """Refused before anything is said."""
    with pytest.raises(Refused):
        registering.register(place.log.state, NothingPending(), request({"dataset": DATASET, **args}))


async def test_the_same_request_is_joined_while_it_runs(place: Place, tmp_path: Path) -> None:
    """Two people who register one place at the same time get one version."""
    source = lerobot.build(tmp_path / "source")
    first, second = _ask(place, source), _ask(place, source, "request-2")
    assert (second["registration"], second["joined"]) == (first["registration"], True)
    assert len(place.log.of(DatasetRegistrationRequested)) == 1
    await place.work()
    assert _ask(place, source, "request-3")["joined"] is False


async def test_work_that_is_run_again_says_the_same(place: Place, tmp_path: Path) -> None:
    """After a kill the root is taken over."""
    asked = _ask(place, lerobot.build(tmp_path / "source"))
    work = place.log.work[("register", asked["registration"])]
    context = Context(place.log.state)
    made = [list(await place.workers["register"](item_of(work), context)) for _ in range(2)]
    assert [(emit.event_id, emit.body) for emit in made[0]] == [(emit.event_id, emit.body) for emit in made[1]]
    assert not list((tmp_path / "registered" / PROJECT / DATASET).glob(".*"))


async def test_a_snapshot_of_hugging_face_is_pinned_by_its_blobs(place: Place, tmp_path: Path) -> None:
    """Links lead to the blobs themselves, and the commit is the revision."""
    root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
    _ask(place, root)
    await place.work()
    (version,) = place.log.of(DatasetVersionCommitted)
    assert version.source_revision == REVISION
    assert (Path(version.root) / FIRST_VIDEO).readlink().parent.name == "blobs"


async def test_single_episodes_stay_with_their_owner(place: Place, tmp_path: Path) -> None:
    """Leaving one out, or withdrawing it, is refused: the way is said (at the source, or by an upload), nothing happens."""
    _ask(place, lerobot.build(tmp_path / "source"))
    await place.work()
    events = len(place.log.records)
    for command, args in (
        (version_commands.derive, {"dataset": DATASET, "exclude": ["0"], "reason": "blurred"}),
        (version_commands.withdraw, {"episode": "ep-0", "reason": "a person asked for it"}),
    ):
        with pytest.raises(Refused) as refused:
            place.log.command(command(place.log.state, NothingPending(), request(args, "r-2")))
        assert "register again" in refused.value.next_action
        assert "upload the folder" in refused.value.next_action
    assert len(place.log.records) == events


class TestChanges:
    async def _registered(self, place: Place, tmp_path: Path) -> Path:
        source = lerobot.build(tmp_path / "source")
        _ask(place, source)
        await place.work()
        place.log.files_whole = False
        return source

    async def _refused(self, place: Place) -> str:
        stories.submit(place.log, DATASET)
        await place.work()
        assert not place.log.of(LeaseGranted)
        (refused,) = place.log.of(LeaseRefused)
        assert refused.reason == "DatasetChanged"
        return refused.message

    async def test_a_file_of_another_size(self, place: Place, tmp_path: Path) -> None:
        """The version is broken by name, with both sizes."""
        source = await self._registered(place, tmp_path)
        size = (source / FIRST_VIDEO).stat().st_size
        with (source / FIRST_VIDEO).open("ab") as file:
            file.write(b"more")
        message = await self._refused(place)
        assert f"v1 of dataset {DATASET} is not what was registered" in message
        assert f"{size + 4} bytes, {size} were registered" in message
        shown = questions.dataset(place.log.state, request({"dataset": DATASET}))
        assert FIRST_VIDEO in shown["versions"][0]["broken"]

    async def test_other_content_of_the_same_size(self, place: Place, tmp_path: Path) -> None:
        """Seen by its time, proved by its digest."""
        source = await self._registered(place, tmp_path)
        content = bytearray((source / FIRST_DATA).read_bytes())
        content[len(content) // 2] ^= 1
        (source / FIRST_DATA).write_bytes(content)
        os.utime(source / FIRST_DATA, ns=(1, 1))
        assert "another content" in await self._refused(place)

    async def test_a_file_that_is_gone(self, place: Place, tmp_path: Path) -> None:
        """Named."""
        source = await self._registered(place, tmp_path)
        (source / SECOND_VIDEO).unlink()
        assert f"{SECOND_VIDEO} is not there any more" in await self._refused(place)

    async def test_a_file_that_was_only_touched(self, place: Place, tmp_path: Path) -> None:
        """Another time with the same content breaks nothing."""
        source = await self._registered(place, tmp_path)
        os.utime(source / FIRST_VIDEO, ns=(1, 1))
        stories.submit(place.log, DATASET)
        await place.work()
        assert len(place.log.of(LeaseGranted)) == 1

    async def test_registering_again_makes_the_next_version(self, place: Place, tmp_path: Path) -> None:
        """The old one stays broken, `train-ready` moves on."""
        source = await self._registered(place, tmp_path)
        lerobot.write_video(source / SECOND_VIDEO, 4)
        lerobot.change_cell(source, FIRST_DATA, 0, "action", [7.0, 0.0, 0.0])
        _ask(place, source, "request-2")
        await place.work()
        assert [v.number for v in place.log.of(DatasetVersionCommitted)] == [1, 2]
        shown = questions.dataset(place.log.state, request({"dataset": DATASET}))
        assert shown["tags"] == {"train-ready": 2}


async def test_uploads_beside_it_have_versions_of_their_own(place: Place, tmp_path: Path) -> None:
    """An upload into the same name grows from uploads only: rows that lie elsewhere cannot be taken along."""
    _ask(place, lerobot.build(tmp_path / "source"))
    place.upload(lerobot.build(tmp_path / "recorded", seed=5))
    await place.work()
    versions = place.log.of(DatasetVersionCommitted)
    assert [(v.number, v.access_plan, v.parent) for v in versions] == [(1, "A", None), (2, "C", None)]


async def test_the_policy_of_the_project_counts(place: Place, tmp_path: Path) -> None:
    """What the project waives for uploads holds no registration back either."""
    source = lerobot.build(tmp_path / "source")
    for file in (FIRST_DATA, lerobot.SECOND_DATA):
        lerobot.change_column(source, file, "action", lambda row: [0.0] * len(row["action"]))
    _ask(place, source)
    await place.work()
    (failed,) = place.log.of(DatasetRegistrationFailed)
    assert (failed.outcome, failed.findings[0].rule) == ("hold", "LR-SIGNAL-005")
    (tmp_path / "policies").mkdir()
    text = "rules:\n  LR-SIGNAL-005: {waive: true, reason: a robot that only looks}\n"
    (tmp_path / "policies" / f"{PROJECT}.yaml").write_text(text)
    _ask(place, source, "request-2")
    await place.work()
    assert len(place.log.of(DatasetVersionCommitted)) == 1


async def test_a_removed_version_takes_its_links_along_and_nothing_else(place: Place, tmp_path: Path) -> None:
    """Clean-up frees nothing of the owner's."""
    source = lerobot.build(tmp_path / "source")
    _ask(place, source)
    await place.work()
    lerobot.change_cell(source, FIRST_DATA, 0, "action", [7.0, 0.0, 0.0])
    _ask(place, source, "request-2")
    await place.work()
    before = _tree(source)
    asked = request({"dataset": DATASET, "reason": "old"}, "request-3")
    result = place.log.command(version_commands.cleanup(place.log.state, NothingPending(), asked))
    await place.work()
    assert [(line["number"], line["bytes"]) for line in result["removed"]] == [(1, 0)]
    assert [path.name for path in (tmp_path / "registered" / PROJECT / DATASET).iterdir()] == ["v2"]
    assert _tree(source) == before
