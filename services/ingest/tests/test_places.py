"""Where datasets lie: in a Hugging Face cache, and in a folder that somebody is still writing to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forebay.ingest.errors import PlaceUnknownError
from forebay.ingest.inspection import inspect
from forebay.ingest.places import open_place
from forebay.ingest.settings import S3Settings

from . import lerobot_builder as lerobot
from . import lerobot_v2_builder as v2
from .lerobot_builder import FIRST_DATA, FIRST_VIDEO, SECOND_DATA, SECOND_VIDEO

REVISION = "0f" * 20


def snapshot(cache: Path, source: Path) -> Path:
    """The files of `source` as Hugging Face's cache keeps them: a snapshot of links into the blobs."""
    root = cache / "datasets--lab--pick/snapshots" / REVISION
    blobs = cache / "datasets--lab--pick/blobs"
    blobs.mkdir(parents=True)
    for number, path in enumerate(sorted(path for path in source.rglob("*") if path.is_file())):
        link = root / path.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, blobs / f"{number:040x}")
        up = "../" * (len(link.relative_to(root.parent.parent).parts) - 1)
        link.symlink_to(f"{up}blobs/{number:040x}")
    return root


class TestHuggingFaceCache:
    def test_links_into_its_own_blobs_are_followed(self, tmp_path: Path) -> None:
        """The snapshot is the dataset."""
        root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
        report = inspect(root).report
        assert (report.outcome, report.breaches) == ("accept", ())

    @pytest.mark.parametrize("target", ["outside.mp4", "hub/datasets--lab--other/blobs/1", "hub/datasets--lab--pick/x"])
    def test_links_elsewhere_are_not(self, tmp_path: Path, target: str) -> None:
        """Neither out of the cache, nor into another dataset's blobs, nor beside the blobs."""
        root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
        place = tmp_path / target
        place.parent.mkdir(parents=True, exist_ok=True)
        lerobot.write_video(place.with_suffix(".mp4"), 4)
        place.with_suffix(".mp4").rename(place)
        (root / SECOND_VIDEO).unlink()
        (root / SECOND_VIDEO).symlink_to(place)
        report = inspect(root).report
        assert [breach.rule.id for breach in report.breaches] == ["LR-STRUCT-001"]

    def test_blobs_that_are_a_link_themselves(self, tmp_path: Path) -> None:
        """Whoever puts a link in the place of the blobs opens nothing."""
        root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
        blobs = root.parent.parent / "blobs"
        blobs.rename(tmp_path / "elsewhere")
        blobs.symlink_to(tmp_path / "elsewhere")
        report = inspect(root).report
        assert report.outcome == "reject"
        assert report.episodes == ()

    def test_a_download_that_is_not_over(self, tmp_path: Path) -> None:
        """A link without its content is a missing file, and the unfinished blob says why."""
        root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
        blob = (root / SECOND_VIDEO).resolve()
        blob.rename(blob.with_suffix(".incomplete"))
        report = inspect(root).report
        assert report.outcome == "incomplete"
        assert "still arriving" in " ".join(breach.message for breach in report.breaches)
        assert [e.outcome for e in report.episodes] == ["accept", "accept", "reject"]

    def test_only_a_snapshot_may_leave_its_folder(self, tmp_path: Path) -> None:
        """The same links in a folder of another name lead out of it."""
        root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
        moved = root.parent.parent / "copies" / REVISION
        moved.parent.mkdir()
        root.rename(moved)
        assert inspect(moved).report.outcome == "reject"


class TestStillArriving:
    @pytest.mark.parametrize("builder", [lerobot.build, v2.build], ids=["v3.0", "v2.1"])
    def test_the_description_comes_last(self, tmp_path: Path, builder: Callable[[Path], Path]) -> None:
        """Without info.json a folder with a dataset's files is incomplete, not something else."""
        root = builder(tmp_path)
        (root / "meta/info.json").unlink()
        report = inspect(root).report
        assert report.outcome == "incomplete"
        assert "meta/info.json is missing in our copy" in report.breaches[0].message

    def test_unfinished_files_are_told(self, tmp_path: Path) -> None:
        """Names that tools give to files on their way explain what is missing."""
        root = lerobot.build(tmp_path)
        (root / SECOND_DATA).rename(root / (SECOND_DATA + ".part"))
        report = inspect(root).report
        assert report.outcome == "incomplete"
        assert f"1 files are still arriving ({SECOND_DATA}.part)" in report.breaches[-1].message

    def test_a_file_that_grows_meanwhile_is_not_called_corrupt(self, tmp_path: Path) -> None:
        """What changes while it is looked at is not whole yet."""
        root = lerobot.build(tmp_path)
        lerobot.cut(root, FIRST_VIDEO)

        def write_on(_stage: str, _done: int, _total: int) -> None:
            with (root / FIRST_VIDEO).open("ab") as file:
                file.write(b"more")

        report = inspect(root, write_on).report
        assert report.outcome == "incomplete"
        assert [e.outcome for e in report.episodes] == ["reject", "reject", "accept"]

    def test_a_record_beside_the_dataset_disturbs_nobody(self, tmp_path: Path) -> None:
        """Only files of the dataset count: a collector notes there what it has delivered."""
        root = lerobot.build(tmp_path)
        (root / "forebay-upload.json").write_text("start")

        def write_on(_stage: str, done: int, _total: int) -> None:
            (root / "forebay-upload.json").write_text(str(done))

        assert inspect(root, write_on).report.outcome == "accept"

    def test_data_that_is_there_is_judged(self, tmp_path: Path) -> None:
        """A missing file hides no other fault."""
        root = lerobot.build(tmp_path)
        lerobot.change_cell(root, FIRST_DATA, 0, "action", [float("nan"), 0.0, 0.0])
        (root / SECOND_VIDEO).unlink()
        assert inspect(root).report.outcome == "reject"


class TestNaming:
    def _opened(self, place: Path) -> Path:
        with open_place(place, S3Settings()) as folder:
            return folder.root

    def test_a_cache_is_its_main_snapshot(self, tmp_path: Path) -> None:
        """Whoever names one dataset's cache means what `main` points at; with one snapshot, that one."""
        root = snapshot(tmp_path / "hub", lerobot.build(tmp_path / "source"))
        cache = root.parent.parent
        assert self._opened(cache) == root
        (root.parent / ("1" * 40)).mkdir()
        with pytest.raises(PlaceUnknownError, match="2 snapshots and no main"):
            self._opened(cache)
        (cache / "refs").mkdir()
        (cache / "refs/main").write_text(REVISION)
        assert self._opened(cache) == root

    def test_what_does_not_exist(self, tmp_path: Path) -> None:
        """Said with what to give instead."""
        with pytest.raises(PlaceUnknownError, match="does not exist; give the folder"):
            self._opened(tmp_path / "none")


def test_lance_is_named(tmp_path: Path) -> None:
    """A dataset stored as Lance is refused as what it is; nothing is called missing."""
    root = lerobot.build(tmp_path)
    lerobot.change_info(root, storage_format="lance")
    for name in ("data", "videos"):
        shutil.rmtree(root / name)
    report = inspect(root).report
    assert [breach.rule.id for breach in report.breaches] == ["LR-FORMAT-002"]
    assert "stored as Lance" in report.breaches[0].message
