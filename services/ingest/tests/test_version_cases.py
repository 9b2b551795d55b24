"""Situations from public reports about conversion and versions, made again by code: the right answer for each kind."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import lance
import pyarrow.parquet as pq
import pytest
import typer
from forebay.contracts.body import EventBody
from forebay.contracts.parts import Part
from forebay.contracts.v1.datasets import (
    DatasetTagged,
    DatasetUntagged,
    DatasetVersionChecked,
    DatasetVersionRemoved,
    LeaseGranted,
    LeaseRefused,
)
from forebay.contracts.v1.jobs import JobFailed, JobSucceeded
from forebay.contracts.v1.models import ModelVersionRegistered
from forebay.ingest.commands import register
from forebay.ingest.domain import tagging, version_commands
from forebay.ingest.domain.decide import decide
from forebay.ingest.domain.episode_filter import FilterError, parse_filter
from forebay.ingest.domain.membership import to_ranges, within
from forebay.ingest.offline_conversion import NotAcceptedError, TargetTakenError, convert_folder
from forebay.runtime.errors import Refused
from forebay.runtime.machine import Emit, NothingPending, Pending
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from . import lerobot_builder as lerobot
from . import stories
from .lerobot_builder import CAMERA, FIRST_DATA
from .simulated_log import PROJECT, SimulatedLog, pending_of, request
from .stories import DATASET

NOTHING = NothingPending()


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    return made


class TestConvert:
    def test_every_row_and_every_video_arrives(self, app: typer.Typer, tmp_path: Path) -> None:
        """CL-01: source and result are counted, and the counts are those of what was read back. Never twice into one place."""
        folder = lerobot.build(tmp_path / "in")
        result = CliRunner().invoke(app, ["convert", str(folder), str(tmp_path / "out"), "--json"])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        assert (answer["outcome"], answer["verified"], answer["skipped"]) == ("converted", True, [])
        assert (answer["source_frames"], answer["frames"]) == (15, 15)
        rows = lance.dataset(str(tmp_path / "out/frames.lance")).to_table()
        assert rows.num_rows == 15
        for name in ("action", "timestamp"):
            uploaded = [
                row[name]
                for file in sorted((folder / "data").rglob("*.parquet"))
                for row in pq.read_table(file).to_pylist()
            ]
            assert rows[name].to_pylist() == uploaded
        again = CliRunner().invoke(app, ["convert", str(folder), str(tmp_path / "out"), "--json"])
        assert again.exit_code == 2
        assert "exists already" in json.loads(again.stdout)["message"]

    def test_nothing_is_skipped_in_silence(self, app: typer.Typer, tmp_path: Path) -> None:
        """CL-01: with one bad episode nothing is written, unless its absence is asked for; then it is listed with its rule."""
        folder = lerobot.build(tmp_path / "in")
        lerobot.change_cell(folder, FIRST_DATA, 8, "action", [float("nan"), 0.0, 0.0])
        out = tmp_path / "out"
        refused = CliRunner().invoke(app, ["convert", str(folder), str(out), "--json"])
        assert refused.exit_code == 1
        answer = json.loads(refused.stdout)
        assert (answer["outcome"], answer["frames"], answer["source_frames"]) == ("refused", 0, 15)
        assert not out.exists()
        taken = CliRunner().invoke(app, ["convert", str(folder), str(out), "--partial", "--json"])
        assert taken.exit_code == 0
        answer = json.loads(taken.stdout)
        assert (answer["outcome"], answer["episodes"], answer["frames"]) == ("partial", 2, 10)
        assert [(line["id"], line["rules"][0]) for line in answer["skipped"]] == [(1, "LR-SIGNAL-001")]

    def test_nulls_do_not_shift_rows(self, tmp_path: Path) -> None:
        """CL-03: missing states are refused before anything is written, by frame."""
        folder = lerobot.build(tmp_path / "in")

        def drop(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [{**row, "observation.state": None} if number in {2, 3} else row for number, row in enumerate(rows)]

        lerobot.change_rows(folder, FIRST_DATA, drop)
        with pytest.raises(NotAcceptedError) as refused:
            convert_folder(folder, tmp_path / "out", _silent)
        assert any(
            breach.severity == "error" and 0 in (breach.episodes or ()) for breach in refused.value.report.breaches
        )
        assert not (tmp_path / "out").exists()

    def test_windows_stay_in_their_episode(self, tmp_path: Path) -> None:
        """CL-04: with an episode filter, neighbours in time beyond its ends count as padding and are never rows of others."""
        convert_folder(lerobot.build(tmp_path / "in"), tmp_path / "out", _silent)
        rows = (
            lance.dataset(str(tmp_path / "out/frames.lance"))
            .to_table(columns=["episode_index", "timestamp"])
            .to_pylist()
        )
        ranges = [
            (row["dataset_from_index"], row["dataset_to_index"])
            for row in pq.read_table(tmp_path / "out" / lerobot.EPISODES).to_pylist()
        ]

        def padded(episodes: list[int], step: int) -> int:
            count = 0
            for episode in episodes:
                start, stop = ranges[episode]
                for at in range(start, stop):
                    inside = start <= at + step < stop
                    count += not inside
                    if inside:
                        assert rows[at + step]["episode_index"] == rows[at]["episode_index"] == episode
                        assert rows[at + step]["timestamp"] == pytest.approx(
                            rows[at]["timestamp"] + step / lerobot.FPS, abs=1e-6
                        )
            return count

        assert (padded([1], 0), padded([1], -1)) == (0, 1)
        assert (padded([0, 2], 1), padded([0, 2], 2)) == (2, 4)
        assert [rows[start]["timestamp"] for start, _ in ranges] == [0.0] * 3

    def test_a_target_inside_the_source_is_refused(self, tmp_path: Path) -> None:
        """The source is never written into."""
        folder = lerobot.build(tmp_path / "in")
        with pytest.raises(TargetTakenError, match="inside the source"):
            convert_folder(folder, folder / "out", _silent)

    def test_hidden_neighbours_of_the_target_are_left_alone(self, tmp_path: Path) -> None:
        """Only drafts of a conversion are cleared away."""
        (tmp_path / ".out.backup").mkdir()
        (tmp_path / ".out.draft-dead").mkdir()
        convert_folder(lerobot.build(tmp_path / "in"), tmp_path / "out", _silent)
        assert sorted(path.name for path in tmp_path.iterdir()) == [".out.backup", "in", "out"]

    @pytest.mark.parametrize("step", ["frames", "sealed"])
    def test_killed_at_any_moment(self, step: str, tmp_path: Path) -> None:
        """A real SIGKILL in the middle: no root, and the next run makes the same one without a trace of the first."""
        folder = lerobot.build(tmp_path / "in")
        out = tmp_path / "place" / "out"
        dead = subprocess.run(
            [sys.executable, "-c", _KILLED, str(folder), str(out), step], capture_output=True, check=False, text=True
        )
        assert dead.returncode == -signal.SIGKILL, dead.stderr
        assert not out.exists()
        assert list(out.parent.iterdir())
        made = convert_folder(folder, out, _silent)
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        other = convert_folder(folder, tmp_path / "other", _silent)
        assert made.plan.digest == other.plan.digest
        assert (
            lance.dataset(str(out / "frames.lance")).to_table()
            == lance.dataset(str(tmp_path / "other/frames.lance")).to_table()
        )


_KILLED = """
import os, signal, sys
from pathlib import Path
from forebay.ingest import offline_conversion
from forebay.ingest.adapters import lance_version

def stop(reached):
    if reached == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

def commit(plan, origins, root, progress):
    return lance_version.commit_version(plan, origins, root, progress, stop)

offline_conversion.commit_version = commit
offline_conversion.convert_folder(Path(sys.argv[1]), Path(sys.argv[2]), lambda *_: None)
"""


def test_videos_keep_their_bytes_from_step_to_step(tmp_path: Path) -> None:
    """CL-02: after writing, from every fragment, the blob that the trainer's call returns is the file."""
    folder = lerobot.build(tmp_path / "in")
    made = convert_folder(folder, tmp_path / "out", _silent)
    table = lance.dataset(str(tmp_path / "out/videos.lance"))
    for number, video in enumerate(made.plan.videos):
        blob: Any = table.take_blobs("video_bytes", indices=[number])[0]
        digest = hashlib.sha256(blob.read()).hexdigest()
        assert digest == hashlib.sha256((folder / video.path).read_bytes()).hexdigest()
        assert video.camera == CAMERA


# versions


def _versions(count: int) -> SimulatedLog:
    log = SimulatedLog()
    stories.whole_upload(log)
    for index in range(2):
        stories.accept(log, index)
    for number in range(1, count + 1):
        stories.commit(log, number)
    return log


def _tag(log: SimulatedLog, tag: str, number: int, pending: Pending = NOTHING, **more: Any) -> dict[str, Any]:
    check = log.opened(DATASET, number)
    args = {"dataset": DATASET, "tag": tag, "number": number, "check": check, "reason": "case", **more}
    command = tagging.move_tag if more else tagging.tag
    return log.command(command(log.state, pending, request(args, f"tag-{len(log.records)}")))


def test_a_tag_that_moves_takes_no_job_along() -> None:
    """DV-02: tj-1 stays on the version that the tag meant at submit; tj-2 gets the new one."""
    log = _versions(4)
    stories.submit(log, f"{DATASET}@train-ready", job="tj-1")
    stories.commit(log, 5)
    stories.submit(log, f"{DATASET}@train-ready", job="tj-2")
    pinned = {grant.job: grant.inputs[0] for grant in log.of(LeaseGranted)}
    assert (pinned["tj-1"].number, pinned["tj-2"].number) == (4, 5)
    assert pinned["tj-1"].manifest_sha256 == stories.sha((DATASET, 4))
    assert pinned["tj-1"].logical == f"{DATASET}@train-ready"


class TestTags:
    def test_creating_is_not_moving(self) -> None:
        """A tag that exists is not created again, not even on the same version; the conflict says who set it, when, why."""
        log = _versions(2)
        assert _tag(log, "golden", 1)["previous"] is None
        for number in (1, 2):
            with pytest.raises(Refused, match=r"golden points at v1 \(set by kim at 2026-.* UTC: case\)") as refused:
                _tag(log, "golden", number)
            assert refused.value.code == "tag-exists"
        assert "--expect v1" in refused.value.next_action
        assert len(log.of(DatasetTagged)) == 3  # two of them are train-ready's

    def test_moving_needs_what_was_there_or_force_with_a_reason(self) -> None:
        """Of two people who move a tag from what both saw, the second is told what it names now, and by whom."""
        log = _versions(3)
        _tag(log, "golden", 1)
        assert _tag(log, "golden", 2, expect=1)["previous"] == 1
        with pytest.raises(Refused, match=r"points at v2 \(set by kim .*\), not at v1 as expected") as refused:
            _tag(log, "golden", 3, expect=1)
        assert refused.value.code == "tag-moved"
        with pytest.raises(Refused, match="silver does not exist"):
            _tag(log, "silver", 3, expect=1)
        for wrong in ({"expect": None}, {"expect": 0}, {"force": True, "reason": ""}):
            with pytest.raises(Refused) as refused:
                _tag(log, "golden", 3, **wrong)
            assert refused.value.code == "bad-request"
        assert _tag(log, "golden", 3, force=True)["previous"] == 2
        last = log.of(DatasetTagged)[-1]
        assert (last.number, last.by, last.reason, last.forced) == (3, "kim", "case", True)

    @pytest.mark.parametrize("decided", [True, False], ids=["being set", "being deleted"])
    def test_a_change_that_is_decided_has_won(self, decided: bool) -> None:  # noqa: FBT001 the case
        """Its event is not in the log yet, and everybody else is told of it already."""
        log = _versions(2)
        _tag(log, "golden", 1)
        kind = DatasetTagged if decided else DatasetUntagged
        pending = pending_of(kind(dataset=DATASET, tag="golden", number=1, by="robin", reason="first"))
        for more in ({}, {"expect": 1}, {"force": True}):
            with pytest.raises(Refused, match="by robin: first; your change was not made"):
                _tag(log, "golden", 2, pending, **more)
        with pytest.raises(Refused, match="robin"):
            tagging.untag(log.state, pending, request({"dataset": DATASET, "tag": "golden"}))
        assert _tag(log, "silver", 2, pending)["changed"]

    def test_a_version_is_opened_before_it_is_tagged(self) -> None:
        """A check of this very version must have found it whole."""
        log = _versions(2)
        other = log.opened(DATASET, 1)
        damaged = DatasetVersionChecked(dataset=DATASET, number=2, check="check-2", whole=False, message="x is gone")
        for check in (None, other, "check-unknown"):
            args = {"dataset": DATASET, "tag": "golden", "number": 2, "check": check}
            with pytest.raises(Refused) as refused:
                tagging.tag(log.state, NOTHING, request(args))
            assert refused.value.code == "not-checked"
        log.publish(damaged, "damaged", Part.INGEST)
        with pytest.raises(Refused, match="x is gone"):
            tagging.tag(log.state, NOTHING, request({**args, "check": "check-2"}))


class TestCleanup:
    def test_versions_in_use_are_kept_and_say_by_whom(self) -> None:
        """DV-03: tags, queued and running jobs, and the lineage of a model keep a version."""
        log = _versions(10)
        _tag(log, "train-ready", 6, expect=10)
        _tag(log, "baseline-2025", 2)
        stories.submit(log, f"{DATASET}@v5", job="tj-9")
        stories.submit(log, f"{DATASET}@v4", "absent", job="tj-10")
        stories.submit(log, f"{DATASET}@v3", job="tj-3")
        log.publish(JobSucceeded(job="tj-3", attempt=1, attempts=1), "tj-3-ok", Part.BRIDGE)
        _register(log, "tj-3")
        stories.submit(log, f"{DATASET}@v1", job="tj-1")
        log.publish(
            JobFailed(job="tj-1", reason="ProcessFailed", message="exit 1", attempts=1), "tj-1-failed", Part.BRIDGE
        )
        answer = _cleanup(log, below=8, dry_run=True)
        assert [line["number"] for line in answer["removed"]] == [1, 7]
        because = {line["number"]: line["because"][0] for line in answer["kept"] if line["number"] < 8}
        assert because == {
            2: "tag baseline-2025",
            3: "model m@v17 was trained on it",
            4: "job tj-10 waits for it",
            5: "job tj-9 holds it",
            6: "the next upload adds to it",
        }
        assert not log.of(DatasetVersionRemoved)
        assert [line["number"] for line in _cleanup(log, below=8, lineage=True, dry_run=True)["removed"]] == [1, 3, 7]
        _cleanup(log, below=8)
        assert [event.number for event in log.of(DatasetVersionRemoved)] == [1, 7]
        stories.submit(log, f"{DATASET}@v7", job="tj-11")
        refused = log.of(LeaseRefused)[-1]
        assert (refused.job, refused.reason.value, refused.permanent) == ("tj-11", "DatasetVersionMissing", True)

    def test_a_job_that_comes_while_a_version_goes(self) -> None:
        """DV-03: between the decision and its event no lease is granted; afterwards the job hears that it is gone."""
        log = _versions(3)
        outcome = version_commands.cleanup(log.state, NOTHING, request({"dataset": DATASET, "below": 2}, "c1"))
        removals = [action.body for action in outcome.actions if isinstance(action, Emit)]
        log.files_whole = False
        stories.submit(log, f"{DATASET}@v1", job="tj-1")
        log.look("tj-1")
        granting = next(r for r in log.records if isinstance(r.body, LeaseGranted))
        late = SimulatedLog()
        for record in log.records[: granting.seq - 1]:
            if record.body.event != "LeaseGranted":
                late.publish(record.body, record.event.id, record.event.source.part)
        decided = list(decide(late.state, _Deciding(removals), late.records[-1]))
        assert not [action for action in decided if isinstance(action, Emit) and isinstance(action.body, LeaseGranted)]


class _Deciding:
    """Own events that are decided and not in the log yet."""

    def __init__(self, bodies: list[EventBody]) -> None:
        self._bodies = bodies

    def of(self, body_type: type[Any], project: str | None = None) -> list[Any]:
        return [body for body in self._bodies if isinstance(body, body_type) and project in {None, PROJECT}]


def _register(log: SimulatedLog, job: str) -> None:
    body = ModelVersionRegistered(
        model="m",
        number=17,
        job=job,
        attempt=1,
        checkpoint="ck-1",
        step=10,
        uri="file:///pool/models/m/17",
        artefact_sha256=stories.sha("m"),
        by="kim",
    )
    log.publish(body, "model-m", Part.REGISTRY)


def _cleanup(log: SimulatedLog, **args: Any) -> dict[str, Any]:
    wanted = {"dataset": DATASET, **args}
    return log.command(version_commands.cleanup(log.state, NOTHING, request(wanted, f"cleanup-{sorted(args)}")))


class TestFilter:
    VALUES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "index": (3,),
        "episode": ("ep-a",),
        "length": (60,),
        "task": ("pick the cup", "place it"),
        "upload": ("up-1",),
        "source_index": (7,),
    }

    @pytest.mark.parametrize(
        ("text", "meets"),
        [
            ("length >= 60", True),
            ("length < 60 OR index = 3", True),
            ("NOT (length < 60) AND task LIKE '%cup%'", True),
            ("task = 'place it'", True),
            ("task NOT IN ('pick the cup', 'other')", False),
            ("source_index in (1, 7) and upload <> 'up-2'", True),
            ("episode LIKE 'ep-_'", True),
            ("length > 60.5", False),
            ("task = 'it''s'", False),
        ],
    )
    def test_what_it_means(self, text: str, meets: bool) -> None:  # noqa: FBT001 a table of answers
        """The words of SQL, on episodes."""
        assert parse_filter(text)(self.VALUES) is meets

    @pytest.mark.parametrize(
        "text",
        ["", "length", "length >", "length = 'x'", "task = 5", "speed > 1", "length > 1 2", "(length > 1", "length > 1;",
         "task LIKE 5", "length LIKE '5'", "length NOT 5", "(" * 200 + "length > 1" + ")" * 200, "NOT " * 500 + "length = 1"],
    )  # fmt: skip
    def test_what_is_not_understood(self, text: str) -> None:
        """Named as such, and never run."""
        with pytest.raises(FilterError):
            parse_filter(text)

    @given(st.text(max_size=60))
    def test_any_text_is_understood_or_refused(self, text: str) -> None:
        """No other error comes out."""
        try:
            parse_filter(text)(self.VALUES)
        except FilterError:
            return


def test_numbers_count_in_ranges() -> None:
    """Long lists of episodes stay short in an event."""
    assert to_ranges([5, 1, 2, 3, 9, 2]) == ((1, 3), (5, 5), (9, 9))
    assert [index for index in range(11) if within(index, ((1, 3), (9, 9)))] == [1, 2, 3, 9]
