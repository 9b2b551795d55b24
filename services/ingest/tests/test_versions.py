"""Versions made of versions, on real files: what is shared, what is written, what is really gone."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import lance
import numpy as np
import pyarrow.parquet as pq
import pytest
from forebay.contracts.body import FileRef
from forebay.contracts.parts import Part
from forebay.contracts.v1.datasets import (
    DatasetDerivationFailed,
    DatasetTagged,
    DatasetVersionChecked,
    DatasetVersionCommitted,
    LeaseGranted,
    LeaseRefused,
)
from forebay.contracts.v1.episodes import EpisodeWithdrawn
from forebay.contracts.v1.jobs import JobSucceeded
from forebay.ingest.adapters.lance_version import commit_version, find_answer
from forebay.ingest.adapters.origins import Origin, UploadOrigin, VersionOrigin
from forebay.ingest.conversion import Accepted, Share, share_source
from forebay.ingest.domain import tagging, version_commands
from forebay.ingest.domain.documents import Dataset, Version, version_key
from forebay.ingest.domain.documents import place as place_of
from forebay.ingest.domain.membership import members
from forebay.ingest.domain.version_plan import plan_version
from forebay.ingest.earlier_version import Earlier, earlier_source
from forebay.runtime.errors import Refused
from forebay.runtime.machine import NothingPending

from . import lerobot_builder as lerobot
from . import stories
from .lerobot_builder import CAMERA
from .place import Place
from .simulated_log import PROJECT, pending_of, request
from .stories import DATASET


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.log.files_whole = False
    return made


def _derive(place: Place, id_: str = "derive-1", **args: Any) -> dict[str, Any]:
    wanted = {"dataset": DATASET, "reason": "asked for", **args}
    return place.log.command(version_commands.derive(place.log.state, NothingPending(), request(wanted, id_)))


def _root(place: Place, number: int) -> Path:
    version = place.log.state.get(Version, version_key(PROJECT, DATASET, number))
    assert version is not None
    return Path(version.root)


def _rows(root: Path) -> list[dict[str, Any]]:
    return lance.dataset(str(root / "frames.lance")).to_table().to_pylist()


def _ids(root: Path) -> list[str]:
    return [entry["episode"] for entry in json.loads((root / "episodes.json").read_bytes())["episodes"]]


def _tree(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _pictures(table: Any, row: int) -> list[Any]:
    blob: Any = table.take_blobs("video_bytes", indices=[row])[0]
    with av.open(blob, "r") as container:
        return [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]


def _blob(table: Any, row: int) -> bytes:
    blob: Any = table.take_blobs("video_bytes", indices=[row])[0]
    return bytes(blob.read())


def _files(root: Path, kind: str) -> dict[str, int]:
    return {path.name: path.stat().st_nlink for path in (root / f"{kind}.lance/data").rglob("*") if path.is_file()}


async def _two_versions(place: Place, tmp_path: Path) -> None:
    place.upload(lerobot.build(tmp_path / "a"), "up-1")
    place.upload(lerobot.build(tmp_path / "b", seed=4), "up-2")
    await place.work()


async def test_an_upload_is_added_to_the_files_that_are_there(place: Place, tmp_path: Path) -> None:
    """Rows and videos of v1 are not written again: v2 has the same files under names of its own."""
    await _two_versions(place, tmp_path)
    first, second = _root(place, 1), _root(place, 2)
    for kind in ("frames", "videos"):
        shared = _files(first, kind)
        assert set(shared.values()) == {2}
        assert shared.items() <= _files(second, kind).items()
        assert len(_files(second, kind)) > len(shared)
    before, after = _rows(first), _rows(second)
    assert after[: len(before)] == before
    assert [row["index"] for row in after] == list(range(30))
    assert [row["episode_index"] for row in after] == sorted(row["episode_index"] for row in after)
    stats = json.loads((second / "meta/stats.json").read_bytes())["action"]
    values = np.array([row["action"] for row in after], dtype=np.float64)
    assert np.allclose(stats["mean"], values.mean(axis=0))
    shutil.rmtree(first)
    assert _rows(second) == after
    videos = lance.dataset(str(second / "videos.lance"))
    for number in range(videos.count_rows()):
        assert _blob(videos, number)[4:8] == b"ftyp"


async def test_lost_files_of_the_version_before_are_written_again(place: Place, tmp_path: Path) -> None:
    """The next upload does not need the root of v1: its landing folder still has everything."""
    place.upload(lerobot.build(tmp_path / "a"), "up-1")
    await place.work()
    shutil.rmtree(_root(place, 1))
    place.upload(lerobot.build(tmp_path / "b", seed=4), "up-2")
    await place.work()
    assert place.log.of(DatasetVersionCommitted)[-1].episode_count == 6
    assert len(_rows(_root(place, 2))) == 30


class TestDerive:
    async def test_left_out_rows_are_gone_and_videos_are_shared(self, place: Place, tmp_path: Path) -> None:
        """Dense numbers, stable ids, parent, reason and filter; the mp4 files are the same files."""
        await _two_versions(place, tmp_path)
        before = _tree(_root(place, 2))
        answer = _derive(place, dataset=f"{DATASET}@v2", exclude=["1", 3], reason="bumped the table")
        await place.work()
        assert (answer["kept"], answer["left_out"]) == (4, 2)
        made = place.log.of(DatasetVersionCommitted)[-1]
        assert (made.number, made.parent, made.parent_reason) == (3, 2, "bumped the table")
        assert (made.filter, made.derivation) == ("without 1, 3", answer["derivation"])
        root = _root(place, 3)
        ids = _ids(_root(place, 2))
        assert _ids(root) == [ids[0], ids[2], ids[4], ids[5]]
        rows = _rows(root)
        assert [row["index"] for row in rows] == list(range(made.frame_count))
        kept = [row for row in _rows(_root(place, 2)) if row["episode_index"] not in {1, 3}]
        assert [row["action"] for row in rows] == [row["action"] for row in kept]
        for name in ("index", "episode_index", "action"):
            stats = json.loads((root / "meta/stats.json").read_bytes())[name]
            assert np.allclose(stats["mean"], np.array([row[name] for row in rows], dtype=np.float64).mean(axis=0))
        assert set(_files(root, "videos").values()) == {3} | set(_files(_root(place, 2), "videos").values())
        assert _tree(_root(place, 2)) == before
        windows = [row[f"videos/{CAMERA}/from_timestamp"] for row in pq.read_table(root / lerobot.EPISODES).to_pylist()]
        assert windows[0] == 0.0
        assert [tag.number for tag in place.log.of(DatasetTagged)] == [1, 2]

    async def test_video_files_that_nobody_needs_leave_the_table(self, place: Place, tmp_path: Path) -> None:
        """Without the only episode of an mp4 its row is gone."""
        await _two_versions(place, tmp_path)
        _derive(place, exclude=["2"])
        await place.work()
        table = lance.dataset(str(_root(place, 3) / "videos.lance"))
        rows = table.to_table(columns=["video_key", "file_index", "file_size"]).to_pylist()
        assert [row["file_index"] for row in rows] == [0, 2, 3]
        for number, row in enumerate(rows):
            assert len(_blob(table, number)) == row["file_size"]

    async def test_a_condition(self, place: Place, tmp_path: Path) -> None:
        """`--where` says what is kept."""
        await _two_versions(place, tmp_path)
        _derive(place, where="length >= 5 AND upload = 'up-2'")
        await place.work()
        assert [e.split("-")[0] for e in _ids(_root(place, 3))] == ["ep", "ep"]
        listed = json.loads((_root(place, 3) / "episodes.json").read_bytes())["episodes"]
        assert {(e["upload"], e["length"] >= 5) for e in listed} == {("up-2", True)}

    async def test_rewritten_videos_hold_only_what_was_kept(self, place: Place, tmp_path: Path) -> None:
        """The pixels of the episode left out are in no file of the new version; windows start anew."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        _derive(place, exclude=["0"], rewrite=True, crf=12)
        await place.work()
        assert not place.log.of(DatasetDerivationFailed)
        root = _root(place, 2)
        rows = pq.read_table(root / lerobot.EPISODES).to_pylist()
        place_ = f"videos/{CAMERA}"
        assert [row[f"{place_}/from_timestamp"] for row in rows] == [0.0, 0.0]
        assert [round(row[f"{place_}/to_timestamp"] * lerobot.FPS) for row in rows] == [r["length"] for r in rows]
        table = lance.dataset(str(root / "videos.lance"))
        lengths = [len(_pictures(table, number)) for number in range(table.count_rows())]
        assert lengths == [row["length"] for row in rows]
        assert set(_files(root, "videos").values()) == {1}
        assert not [path for path in root.parent.iterdir() if path.name.startswith(".")]
        wanted = _pictures(lance.dataset(str(_root(place, 1) / "videos.lance")), 0)[6:]
        found = _pictures(table, 0)
        assert max(float(np.abs(a.astype(int) - b).mean()) for a, b in zip(wanted, found, strict=True)) < 8
        info = json.loads((root / "meta/info.json").read_bytes())
        assert info["features"][CAMERA]["info"]["video.codec"] == "h264"

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            ({"exclude": ["3"]}, "episode-unknown"),
            ({"exclude": ["ep-nobody"]}, "episode-unknown"),
            ({"exclude": ["0", "1", "2"]}, "nothing-left"),
            ({"where": "length > 0"}, "nothing-to-do"),
            ({"where": "length >"}, "bad-request"),
            ({"exclude": ["0"], "reason": ""}, "bad-request"),
            ({"exclude": ["0"], "dataset": f"{DATASET}@v9"}, "version-unknown"),
            ({"exclude": ["0"], "dataset": f"{DATASET}@golden"}, "tag-unknown"),
            ({"exclude": ["0"], "crf": 18}, "bad-request"),
        ],
    )
    async def test_an_invalid_request_touches_nothing(
        self, place: Place, tmp_path: Path, args: dict[str, Any], code: str
    ) -> None:
        """DV-04: the refusal names what exists; no event, no file changes."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        before, events = _tree(place.pool), len(place.log.records)
        with pytest.raises(Refused) as refused:
            _derive(place, **args)
        assert refused.value.code == code
        if code == "episode-unknown":
            assert "0 to 2" in refused.value.message
        assert (_tree(place.pool), len(place.log.records)) == (before, events)

    async def test_a_base_that_was_damaged_fails_and_makes_room(self, place: Place, tmp_path: Path) -> None:
        """The request is answered with what is wrong; the next upload goes on."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        (_root(place, 1) / "meta/stats.json").write_text("{}")
        _derive(place, exclude=["0"])
        await place.work()
        (failed,) = place.log.of(DatasetDerivationFailed)
        assert "stats.json" in failed.message
        dataset = place.log.state.get(Dataset, place_of(PROJECT, DATASET))
        assert dataset is not None
        assert dataset.active is None


class TestWithdrawal:
    async def test_it_is_in_no_new_version_and_jobs_hear_of_it(self, place: Place, tmp_path: Path) -> None:
        """Versions with it are marked, waiting and leased jobs are told, the next version leaves it out."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        stories.submit(place.log, DATASET, job="leased-1")
        await place.work()
        assert [grant.job for grant in place.log.of(LeaseGranted)] == ["leased-1"]
        stories.submit(place.log, DATASET, "other", job="waits-1")
        id_ = _ids(_root(place, 1))[1]
        answer = _withdraw(place, id_)
        assert (answer["versions"], answer["waiting_jobs"], answer["leased_jobs"]) == ([1], ["waits-1"], ["leased-1"])
        refused = place.log.of(LeaseRefused)[-2:]
        assert {(one.job, one.reason.value) for one in refused if id_ in one.message} >= {
            ("leased-1", "DatasetWithdrawn"),
        }
        assert any(one.job == "waits-1" and id_ in one.message for one in place.log.of(LeaseRefused))
        again = _withdraw(place, f"{DATASET}@v1/1")
        assert (again["episode"], again["name"], again["changed"]) == (id_, f"{DATASET}@v1/1", False)
        assert (again["reason"], again["by"]) == (answer["reason"], "kim")
        place.upload(lerobot.build(tmp_path / "b", seed=4), "up-2")
        await place.work()
        made = place.log.of(DatasetVersionCommitted)[-1]
        assert (made.episode_count, made.left_out) == (5, {"up-1": ((1, 1),)})
        assert id_ not in _ids(_root(place, 2))
        assert [row["index"] for row in _rows(_root(place, 2))] == list(range(made.frame_count))
        assert place.log.of(DatasetTagged)[-1].number == 2

    async def test_two_at_the_same_moment(self, place: Place, tmp_path: Path) -> None:
        """The second is told who withdrew it, and why."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        id_ = _ids(_root(place, 1))[1]
        decided = pending_of(EpisodeWithdrawn(episode=id_, dataset=DATASET, reason="consent", by="robin"))
        args = {"episode": f"{DATASET}@v1/1", "reason": "blurred"}
        answer = version_commands.withdraw(place.log.state, decided, request(args))
        assert answer.actions == ()
        assert (answer.result["changed"], answer.result["reason"], answer.result["by"]) == (False, "consent", "robin")

    async def test_while_its_version_is_written(self, place: Place, tmp_path: Path) -> None:
        """The version that comes out is marked and gets no tag."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        committed = place.log.of(DatasetVersionCommitted)[0]
        withdrawn = EpisodeWithdrawn(episode=_ids(_root(place, 1))[0], dataset=DATASET, reason="consent", by="kim")
        later = type(place.log)()
        for record in place.log.records:
            if isinstance(record.body, DatasetVersionCommitted):
                later.publish(withdrawn, "withdrawn", Part.INGEST)
            if not isinstance(record.body, DatasetTagged):
                later.publish(record.body, record.event.id, record.event.source.part)
        version = later.state.get(Version, version_key(PROJECT, DATASET, committed.number))
        assert version is not None
        assert version.withdrawn == (withdrawn.episode,)
        assert not later.of(DatasetTagged)


def _withdraw(place: Place, id_: str) -> dict[str, Any]:
    args = {"episode": id_, "reason": "the person in the picture asked for it"}
    return place.log.command(version_commands.withdraw(place.log.state, NothingPending(), request(args, f"w-{id_}")))


class TestLeases:
    async def test_a_lease_is_a_tag_on_every_table(self, place: Place, tmp_path: Path) -> None:
        """Seen with Lance alone; taken away when the job ends."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        stories.submit(place.log, DATASET, job="train-1")
        await place.work()
        root = _root(place, 1)
        tables = sorted(root.glob("*.lance"))
        assert [set(lance.dataset(str(table)).tags.list()) for table in tables] == [{"lease-train-1"}] * 3
        place.log.publish(JobSucceeded(job="train-1", attempt=1, attempts=1), "ok", Part.BRIDGE)
        await place.work()
        assert [set(lance.dataset(str(table)).tags.list()) for table in tables] == [set()] * 3

    @pytest.mark.parametrize(
        ("spoil", "reason", "words"),
        [
            (shutil.rmtree, "DatasetVersionMissing", "is gone"),
            (lambda root: (root / "meta/info.json").unlink(), "DatasetChanged", "meta/info.json is not there"),
            (lambda root: (root / "meta/stats.json").write_text("{}"), "DatasetChanged", "meta/stats.json has 2 bytes"),
            (lambda root: (root / "forebay-manifest.json").write_text("{}"), "DatasetChanged", "another digest"),
        ],
        ids=["folder", "file", "size", "manifest"],
    )
    async def test_a_version_that_is_not_whole_is_named(
        self, place: Place, tmp_path: Path, spoil: Any, reason: str, words: str
    ) -> None:
        """No job is told to start on it; the answer says what is wrong with which file. A good check takes that back."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        root = _root(place, 1)
        shutil.copytree(root, tmp_path / "saved")
        spoil(root)
        stories.submit(place.log, DATASET, job="train-1")
        await place.work()
        assert not place.log.of(LeaseGranted)
        refused = place.log.of(LeaseRefused)[-1]
        assert refused.reason.value == reason
        assert words in refused.message
        with pytest.raises(Refused, match=r"is gone|not what was committed"):
            _tag(place, "golden", check="unseen")
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(tmp_path / "saved", root)
        args = {"dataset": f"{DATASET}@v1"}
        place.log.command(version_commands.check(place.log.state, NothingPending(), request(args, "c1")))
        await place.work()
        assert place.log.of(DatasetVersionChecked)[-1].whole
        _tag(place, "golden")

    async def test_two_datasets_are_leased_together_or_not_at_all(self, place: Place, tmp_path: Path) -> None:
        """One damaged input, and no table of the other carries a tag."""
        await _two_versions(place, tmp_path)
        shutil.rmtree(_root(place, 2))
        stories.submit(place.log, f"{DATASET}@v1", f"{DATASET}@v2", job="train-1")
        await place.work()
        assert not place.log.of(LeaseGranted)
        assert "v2" in place.log.of(LeaseRefused)[-1].message
        assert [lance.dataset(str(t)).tags.list() for t in sorted(_root(place, 1).glob("*.lance"))] == [{}] * 3


def _tag(place: Place, name: str, number: int = 1, *, check: str | None = None) -> dict[str, Any]:
    check = place.log.opened(DATASET, number) if check is None else check
    wanted = {"dataset": DATASET, "tag": name, "number": number, "check": check}
    return place.log.command(tagging.tag(place.log.state, NothingPending(), request(wanted, f"tag-{check}")))


async def test_compaction_makes_a_version_with_the_same_rows(place: Place, tmp_path: Path) -> None:
    """Rows of two uploads lie in one file; the version before, its tags and its leases are as they were."""
    await _two_versions(place, tmp_path)
    before = _tree(_root(place, 2))
    args = {"dataset": DATASET, "reason": "many small files"}
    compact = version_commands.compact
    dry = compact(place.log.state, NothingPending(), request({**args, "dry_run": True}, "c1"))
    assert (dry.result["base"], dry.actions) == (2, ())
    place.log.command(compact(place.log.state, NothingPending(), request(args, "c2")))
    await place.work()
    assert [len(_files(_root(place, number), "frames")) for number in (2, 3)] == [2, 1]
    assert _rows(_root(place, 3)) == _rows(_root(place, 2))
    assert _files(_root(place, 3), "videos").keys() == _files(_root(place, 2), "videos").keys()
    assert _tree(_root(place, 2)) == before


class TestCleanup:
    async def test_only_what_nobody_uses_is_removed(self, place: Place, tmp_path: Path) -> None:
        """A dry run changes nothing; the rest of the versions stays readable."""
        await _two_versions(place, tmp_path)
        _derive(place, "d1", exclude=["0"])
        await place.work()
        _derive(place, "d2", exclude=["1"])
        await place.work()
        stories.submit(place.log, f"{DATASET}@v1", job="train-1")
        await place.work()
        before = _tree(place.pool)
        dry = _cleanup(place, "dry", dry_run=True)
        assert [line["number"] for line in dry["removed"]] == [3]
        because = {line["number"]: line["because"][0] for line in dry["kept"]}
        assert because == {1: "job train-1 holds it", 2: "the next upload adds to it", 4: "latest version"}
        assert _tree(place.pool) == before
        kept = _rows(_root(place, 4))
        (listed,) = [body.episodes for body in place.log.of(DatasetVersionCommitted) if body.number == 3]
        episodes = _ids(_root(place, 3))
        _cleanup(place, "really")
        await place.work()
        assert [row["episode"] for row in _read_list(listed)["episodes"]] == episodes
        names = sorted(path.name for path in _root(place, 1).parent.iterdir())
        assert names == ["v1", "v2", "v4"]
        assert _rows(_root(place, 4)) == kept
        stories.submit(place.log, f"{DATASET}@v3", job="train-2")
        await place.work()
        assert place.log.of(LeaseRefused)[-1].permanent
        assert _cleanup(place, "again", dry_run=True)["removed"] == []


def _read_list(ref: FileRef) -> Any:
    """The episode list that a version's event names, found by its digest in the record."""
    path = Path(ref.uri.removeprefix("file://"))
    assert path.parent.parent.name == "records"
    assert path.name == f"{ref.sha256}.json"
    content = path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == ref.sha256
    return json.loads(content)


def _cleanup(place: Place, id_: str, **args: Any) -> dict[str, Any]:
    wanted = {"dataset": DATASET, **args}
    return place.log.command(version_commands.cleanup(place.log.state, NothingPending(), request(wanted, id_)))


@pytest.fixture(autouse=True)
def _always(place: Place) -> Iterator[None]:
    """Whatever happened: nothing half written stays, and the log alone knows which episodes lie in each version."""
    yield
    assert not [path for path in (place.pool / "datasets").rglob(".*") if path.is_dir()]
    for version in place.log.state.find(Version, "dataset_key", place_of(PROJECT, DATASET)):
        if version.removed is None and (Path(version.root) / "episodes.json").exists():
            assert [episode.id for episode in members(place.log.state, version)] == _ids(Path(version.root))


class TestCrashes:
    @pytest.mark.parametrize("grows", [True, False], ids=["rows shared", "rows written"])
    @pytest.mark.parametrize("step", ["frames", "videos", "sealed"])
    async def test_a_version_made_of_another(self, step: str, place: Place, tmp_path: Path, *, grows: bool) -> None:
        """Stopped at any step, the version before is as it was, and the next run makes the same version."""
        place.upload(lerobot.build(tmp_path / "a"), "up-1")
        await place.work()
        first = _root(place, 1)
        before = _tree(first)
        kept = {
            entry["episode"]: _accepted(entry["episode"], entry["source_index"], entry["length"])
            for entry in json.loads((first / "episodes.json").read_bytes())["episodes"]
        }
        if not grows:
            kept.popitem()
        source = earlier_source(Earlier(number=1, root=first, kept=kept))
        folder = lerobot.build(tmp_path / "b", seed=4)
        added = [_accepted(f"ep-b{index}", index, part.length) for index, part in enumerate(lerobot.PARTS)]
        digests = {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*.mp4")
        }
        plan = plan_version(
            [source, share_source(Share(upload="up-2", landing=folder, sha256=digests, episodes=added))]
        )
        assert plan.appends is grows
        origins: dict[str, Origin] = {"v1": VersionOrigin(first, source.info), "up-2": UploadOrigin(folder)}

        def stop(reached: str) -> None:
            if reached == step:
                raise _Killed

        target = first.with_name("v2")
        with pytest.raises(_Killed):
            commit_version(plan, origins, target, _silent, stop, request="dv-1")
        assert (target.exists(), _tree(first)) == (False, before)
        made = commit_version(plan, origins, target, _silent, request="dv-1")
        found = find_answer(target, "dv-1", lambda *_: None)
        assert found is not None
        assert (found.manifest, found.adopted, made.adopted) == (made.manifest, True, False)
        assert find_answer(target, "dv-2", lambda *_: None) is None
        assert _tree(first) == before


def _accepted(id_: str, index: int, length: int) -> Accepted:
    return Accepted(id=id_, source_index=index, length=length, tasks=lerobot.TASKS, digest="")


class _Killed(BaseException):
    """Stands for a SIGKILL: nothing of ours catches it."""


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass
