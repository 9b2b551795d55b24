"""A version root: its layout, bit-exact content, and what a crash or a change leaves behind."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.contracts.v1.datasets import MANIFEST_FILE
from forebay.ingest.adapters.frame_batches import Meaning, compare_rows
from forebay.ingest.adapters.lance_version import CommittedVersion, commit_version
from forebay.ingest.adapters.origins import UploadOrigin
from forebay.ingest.conversion import Accepted, Share, plan_shares
from forebay.ingest.domain import statistics
from forebay.ingest.domain.report import GOOD
from forebay.ingest.domain.version_plan import VersionPlan
from forebay.ingest.errors import ConversionError, ReadBackError
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from .lerobot_builder import CAMERA, EPISODES, FIRST_DATA, FIRST_VIDEO, SECOND_DATA

Landings = dict[str, Path]


def _share(folder: Path, upload: str = "up-1") -> Share:
    """What ingest would accept of a folder."""
    episodes = [
        Accepted(
            id=f"ep-{upload}-{line.index}",
            source_index=line.index,
            length=line.frames,
            tasks=line.tasks,
            digest=line.digest or "",
        )
        for line in inspect(folder).report.episodes
        if line.outcome in GOOD
    ]
    files = [path for path in folder.rglob("*") if path.is_file()]
    digests = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return Share(upload=upload, landing=folder, sha256=digests, episodes=episodes)


def _plan(*folders: Path) -> tuple[VersionPlan, Landings]:
    shares = [_share(folder, f"up-{number}") for number, folder in enumerate(folders, 1)]
    return plan_shares(shares), {share.upload: share.landing for share in shares}


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


def _commit(plan: VersionPlan, landings: Landings, root: Path, **more: Any) -> CommittedVersion:
    origins = {upload: UploadOrigin(folder) for upload, folder in landings.items()}
    return commit_version(plan, origins, root, _silent, **more)


@pytest.fixture
def partly_good(tmp_path: Path) -> Path:
    """Three episodes, the second rejected."""
    folder = lerobot.build(tmp_path / "upload")
    lerobot.change_cell(folder, FIRST_DATA, 7, "action", [float("nan"), 0.0, 0.0])
    return folder


class TestContent:
    def test_numbers_are_dense_and_rows_are_the_uploaded_ones(self, partly_good: Path, tmp_path: Path) -> None:
        """Row N is frame N; the rejected episode leaves no hole; values are bit-exact."""
        _commit(*_plan(partly_good), tmp_path / "v1")
        rows = lance.dataset(str(tmp_path / "v1/frames.lance")).to_table()
        assert rows["index"].to_pylist() == list(range(10))
        assert rows["episode_index"].to_pylist() == [0] * 6 + [1] * 4
        uploaded = (
            pq.read_table(partly_good / FIRST_DATA).to_pylist()[:6]
            + pq.read_table(partly_good / SECOND_DATA).to_pylist()
        )
        for name in ("observation.state", "action", "timestamp", "frame_index"):
            assert rows[name.replace(".", "_")].to_pylist() == [row[name] for row in uploaded]
        assert rows.schema.field("observation_state").type == pa.list_(pa.float32(), lerobot.WIDTH)

    def test_videos_are_verbatim_and_indexed(self, partly_good: Path, tmp_path: Path) -> None:
        """Blob bytes equal the file; the moov box and key frames are where the table says."""
        _commit(*_plan(partly_good), tmp_path / "v1")
        table = lance.dataset(str(tmp_path / "v1/videos.lance"))
        content = (partly_good / FIRST_VIDEO).read_bytes()
        blobs: list[Any] = table.take_blobs("video_bytes", indices=[0])
        assert blobs[0].read() == content
        row = table.to_table(columns=[n for n in table.schema.names if n != "video_bytes"]).to_pylist()[0]
        assert (row["video_key"], row["chunk_index"], row["file_index"]) == (CAMERA, 0, 0)
        assert row["file_size"] == len(content)
        assert content[row["moov_offset"] + 4 : row["moov_offset"] + 8] == b"moov"
        assert row["kf_indices"] == [0, 4, 8]
        with av.open(str(partly_good / FIRST_VIDEO)) as container:
            keys = sorted(p.pos for p in container.demux(video=0) if p.is_keyframe and p.pos is not None)
        assert row["kf_positions"] == keys

    def test_metadata_is_written_for_the_version(self, partly_good: Path, tmp_path: Path) -> None:
        """Totals, ranges that tile, all tasks, windows of the source, and the Lance mark."""
        _commit(*_plan(partly_good), tmp_path / "v1")
        info = json.loads((tmp_path / "v1/meta/info.json").read_bytes())
        assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (2, 10, 2)
        assert (info["splits"], info["storage_format"], info["fps"]) == ({"train": "0:2"}, "lance", lerobot.FPS)
        rows = pq.read_table(tmp_path / "v1" / EPISODES).to_pylist()
        assert [(r["dataset_from_index"], r["dataset_to_index"], r["length"]) for r in rows] == [(0, 6, 6), (6, 10, 4)]
        assert [r[f"videos/{CAMERA}/file_index"] for r in rows] == [0, 1]
        tasks = pq.read_table(tmp_path / "v1/meta/tasks.parquet")
        assert tasks.to_pylist() == [{"task_index": n, "task": text} for n, text in enumerate(lerobot.TASKS)]
        assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
        stored = lance.dataset(str(tmp_path / "v1/meta.lance")).to_table().to_pylist()
        assert {r["path"]: r["data"] for r in stored}["info.json"] == (tmp_path / "v1/meta/info.json").read_bytes()

    def test_statistics_are_those_of_the_kept_rows(self, partly_good: Path, tmp_path: Path) -> None:
        """Mean and deviation are exact over the version, not over what was recorded."""
        _commit(*_plan(partly_good), tmp_path / "v1")
        rows = lance.dataset(str(tmp_path / "v1/frames.lance")).to_table()["action"].to_pylist()
        stats = json.loads((tmp_path / "v1/meta/stats.json").read_bytes())["action"]
        values = np.array(rows, dtype=np.float64)
        assert np.allclose(stats["mean"], values.mean(axis=0))
        assert np.allclose(stats["std"], values.std(axis=0))
        assert stats["count"] == [10]

    def test_two_uploads_become_one_version(self, tmp_path: Path) -> None:
        """Episodes, tasks and video files of both are numbered through."""
        first = lerobot.build(tmp_path / "a")
        second = lerobot.build(tmp_path / "b", (lerobot.Part(length=7, data=0, video=0, task=1),), seed=5)
        plan, landings = _plan(first, second)
        made = _commit(plan, landings, tmp_path / "v1")
        assert [episode.accepted.upload for episode in plan.episodes] == ["up-1"] * 3 + ["up-2"]
        assert [(v.chunk, v.file) for v in plan.videos] == [(0, 0), (0, 1), (0, 2)]
        rows = lance.dataset(str(made.root / "frames.lance")).to_table()
        assert rows["task_index"].to_pylist()[-7:] == [1] * 7
        assert rows["index"].to_pylist() == list(range(22))

    def test_files_in_any_order_are_read(self, tmp_path: Path) -> None:
        """An earlier episode may lie in a later file, and behind a later one in the same file."""
        parts = (
            lerobot.Part(length=3, data=1, video=0),
            lerobot.Part(length=4, data=0, video=0),
            lerobot.Part(length=5, data=1, video=0),
        )
        folder = lerobot.build(tmp_path / "upload", parts)
        lerobot.change_rows(folder, SECOND_DATA, lambda rows: rows[3:] + rows[:3])
        assert inspect(folder).report.outcome == "accept_with_warning"  # LeRobot itself would take other rows
        made = _commit(*_plan(folder), tmp_path / "v1")
        rows = lance.dataset(str(made.root / "frames.lance")).to_table()
        assert rows["episode_index"].to_pylist() == [0] * 3 + [1] * 4 + [2] * 5

    def test_the_manifest_has_every_file(self, partly_good: Path, tmp_path: Path) -> None:
        """Digest and size of each; the manifest's own digest is the version's."""
        made = _commit(*_plan(partly_good), tmp_path / "v1")
        entries = json.loads((made.root / MANIFEST_FILE).read_bytes())["files"]
        files = {p.relative_to(made.root).as_posix(): p for p in made.root.rglob("*") if p.is_file()}
        assert [entry["path"] for entry in entries] == sorted(files.keys() - {MANIFEST_FILE})
        for entry in entries:
            assert entry["sha256"] == hashlib.sha256(files[entry["path"]].read_bytes()).hexdigest()
        assert made.manifest.sha256 == hashlib.sha256((made.root / MANIFEST_FILE).read_bytes()).hexdigest()
        episodes = json.loads((made.root / "episodes.json").read_bytes())["episodes"]
        assert [(e["episode"], e["index"], e["source_index"]) for e in episodes] == [
            ("ep-up-1-0", 0, 0),
            ("ep-up-1-2", 1, 2),
        ]


class _Killed(BaseException):
    """Stands for a SIGKILL: nothing of ours catches it."""


class TestCrashes:
    @pytest.mark.parametrize("step", ["frames", "videos", "written", "compared", "sealed"])
    def test_a_crash_leaves_nothing_half(self, step: str, partly_good: Path, tmp_path: Path) -> None:
        """No root before the end, and the next run makes the same version."""
        plan, landings = _plan(partly_good)

        def stop(reached: str) -> None:
            if reached == step:
                raise _Killed

        with pytest.raises(_Killed):
            _commit(plan, landings, tmp_path / "out/v1", check_point=stop)
        assert not (tmp_path / "out/v1").exists()
        (tmp_path / "out/.v1.draft-0").mkdir()
        made = _commit(plan, landings, tmp_path / "out/v1")
        assert not made.adopted
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["v1"]

    def test_a_finished_root_is_taken_over(self, partly_good: Path, tmp_path: Path) -> None:
        """The second run reports the very same files."""
        plan, landings = _plan(partly_good)
        first = _commit(plan, landings, tmp_path / "v1")
        second = _commit(plan, landings, tmp_path / "v1")
        assert second == replace(first, adopted=True)

    def test_a_root_of_other_content_is_refused(self, partly_good: Path, tmp_path: Path) -> None:
        """Nothing is overwritten."""
        _commit(*_plan(partly_good), tmp_path / "v1")
        plan, landings = _plan(lerobot.build(tmp_path / "other", seed=9))
        with pytest.raises(ConversionError, match="other content"):
            _commit(plan, landings, tmp_path / "v1")

    def test_a_damaged_root_is_not_taken_over(self, partly_good: Path, tmp_path: Path) -> None:
        """Its files are compared with its manifest first."""
        plan, landings = _plan(partly_good)
        made = _commit(plan, landings, tmp_path / "v1")
        (made.root / "meta/stats.json").write_text("{}")
        with pytest.raises(ConversionError, match=r"stats\.json is damaged"):
            _commit(plan, landings, tmp_path / "v1")

    def test_an_upload_that_changed_since_is_refused(self, partly_good: Path, tmp_path: Path) -> None:
        """Between the verdict and the conversion the landing folder must stay as it is."""
        plan, landings = _plan(partly_good)
        lerobot.write_video(partly_good / FIRST_VIDEO, 11, fps=5)
        with pytest.raises(ConversionError, match="not the file that was announced"):
            _commit(plan, landings, tmp_path / "v1")
        assert not list(tmp_path.glob(".v1*"))


class TestReadBack:
    @pytest.mark.parametrize("table", ["frames", "videos", "meta"])
    def test_other_bytes_than_written_are_found(self, table: str, partly_good: Path, tmp_path: Path) -> None:
        """Every table is compared: another dataset's table put in its place is noticed."""
        parts = tuple(replace(part, length=part.length + 1) for part in lerobot.PARTS)
        other = _commit(*_plan(lerobot.build(tmp_path / "other", parts)), tmp_path / "other-v1")

        def swap(reached: str) -> None:
            if reached == "written":
                (draft,) = (tmp_path / "out").glob(".v1.*")
                shutil.rmtree(draft / f"{table}.lance")
                shutil.copytree(other.root / f"{table}.lance", draft / f"{table}.lance")

        with pytest.raises(ReadBackError):
            _commit(*_plan(partly_good), tmp_path / "out/v1", check_point=swap)
        assert not list((tmp_path / "out").iterdir())

    @pytest.mark.parametrize(
        "change",
        [
            lambda row: (
                row | {"action": [*row["action"][:2], np.nextafter(np.float32(row["action"][2]), np.float32(9))]}
            ),
            lambda row: row | {"index": row["index"] + 1},
            lambda row: row | {"task_index": 1 - row["task_index"]},
        ],
        ids=["one bit", "index", "task"],
    )
    def test_one_changed_bit_is_found(self, change: Callable[[Any], Any], tmp_path: Path) -> None:
        """The comparison is of bits, not of roughly equal numbers."""
        folder = lerobot.build(tmp_path / "upload")
        plan, landings = _plan(folder)
        made = _commit(plan, landings, tmp_path / "v1")
        stored = lance.dataset(str(made.root / "frames.lance")).to_table().slice(0, 6).combine_chunks()
        uploaded = pq.read_table(folder / FIRST_DATA).slice(0, 6).combine_chunks().to_batches()[0]

        def compare(table: pa.Table) -> None:
            compare_rows(
                uploaded,
                table.to_batches()[0],
                episode=plan.episodes[0],
                done=0,
                meaning=Meaning(info=plan.info, texts=dict(enumerate(lerobot.TASKS)), tasks=plan.tasks, mapped={}),
            )

        compare(stored)
        rows = stored.to_pylist()
        rows[4] = change(rows[4])
        with pytest.raises(ReadBackError):
            compare(pa.Table.from_pylist(rows, schema=stored.schema))


def test_statistics_merge_as_if_computed_at_once() -> None:
    """Mean and deviation of two parts equal those of the whole."""
    random = np.random.default_rng(1)
    first, second = random.normal(size=(7, 2)), random.normal(3, 2, size=(11, 2))
    merged = statistics.merge(statistics.describe(first), statistics.describe(second))
    whole = statistics.describe(np.concatenate([first, second]))
    for name in statistics.MOMENTS:
        assert np.allclose(merged[name], whole[name])
