"""Decoders in processes of their own: whatever a file does to one, it costs that file only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay.ingest.adapters import decoding
from forebay.ingest.adapters.decoders import Decoders, Task, value_of
from forebay.ingest.errors import UnreadableFileError
from forebay.ingest.inspection import inspect
from forebay.runtime.processes import Limits

from tests.eventually import WITHIN_S

from . import lerobot_builder as lerobot
from .decoder_tasks import BAD_BYTES, die, die_at_bad_bytes, die_once, double, eat, hang, refuse
from .lerobot_builder import FIRST_DATA, SECOND_DATA, SECOND_VIDEO

TIGHT = Limits(memory_bytes=400 << 20, cpu_s=20)
IMPATIENT = Limits(silent_s=2)


def test_a_decoder_that_dies_or_eats_costs_its_own_task_only(tmp_path: Path) -> None:
    """Every task gets a value or an error in its place, in order; an accident is tried again once."""
    steps: list[int] = []
    tasks = [
        Task(function=double, arguments=(1,), on_steps=steps.append),
        Task(function=die, arguments=()),
        Task(function=eat, arguments=()),
        Task(function=refuse, arguments=()),
        Task(function=die_once, arguments=(tmp_path / "mark",)),
        Task(function=double, arguments=(2,), on_steps=steps.append),
    ]
    with Decoders(processes=3, limits=TIGHT) as pool:
        answers = pool.run(tasks)
    said = [str(answer) for answer in answers]
    assert [answers[0], answers[4], answers[5]] == [2, "second time lucky", 4]
    assert [word in text for word, text in zip(("died", "400 MiB", "no good"), said[1:4], strict=True)] == [True] * 3
    assert steps == [1, 1]
    with pytest.raises(UnreadableFileError):
        value_of(answers[1])


def test_a_decoder_that_hangs_costs_its_own_task_only() -> None:
    """It is ended when it was silent for too long; the file is told, and the others have their values."""
    tasks = [
        Task(function=double, arguments=(1,)),
        Task(function=hang, arguments=()),
        Task(function=double, arguments=(2,)),
    ]
    with Decoders(processes=2, limits=IMPATIENT) as pool:
        first, hung, last = pool.run(tasks)
    assert (first, last) == (2, 4)
    assert "hung: no progress for 2 s" in str(hung)


def test_a_decoder_that_dies_is_a_finding_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named, its episodes are rejected, the rest is accepted."""
    root = lerobot.build(tmp_path)
    (root / SECOND_VIDEO).write_bytes(BAD_BYTES)
    monkeypatch.setattr(decoding, "scan_frames", die_at_bad_bytes)
    report = inspect(root).report
    assert [(breach.rule.id, breach.file, breach.episodes) for breach in report.breaches] == [
        ("LR-VIDEO-001", SECOND_VIDEO, (2,))
    ]
    assert "decoder died" in report.breaches[0].message
    assert [episode.outcome for episode in report.episodes] == ["accept", "accept", "reject"]


def test_a_file_that_unpacks_to_more_than_memory_is_refused(tmp_path: Path) -> None:
    """One row of forty million values: some hundred kilobytes on disk."""
    root = lerobot.build(tmp_path)
    zeros = pa.array(np.zeros(40_000_000, dtype=np.float32))
    bomb = pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros)
    table = pq.read_table(root / SECOND_DATA).slice(0, 1)
    place = table.column_names.index("action")
    pq.write_table(table.set_column(place, "action", bomb), root / SECOND_DATA, compression="zstd")
    assert (root / SECOND_DATA).stat().st_size < 1 << 20
    report = inspect(root, decoders=Decoders(limits=TIGHT)).report
    (breach,) = [breach for breach in report.breaches if breach.rule.id == "LR-STRUCT-004"]
    assert (breach.file, breach.episodes) == (SECOND_DATA, (2,))
    assert "memory" in breach.message
    assert [episode.outcome for episode in report.episodes] == ["accept", "accept", "reject"]


def test_a_file_that_promises_more_rows_than_anybody_recorded(tmp_path: Path) -> None:
    """The footer is looked at first; nothing is unpacked."""
    root = lerobot.build(tmp_path)
    pq.write_table(pa.table({"index": np.zeros(30_000_000, dtype=np.int8)}), root / SECOND_DATA, compression="zstd")
    report = inspect(root).report
    assert "promises 30000000 rows" in " | ".join(breach.message for breach in report.breaches)


def test_wide_rows_pass_through_in_small_blocks(tmp_path: Path) -> None:
    """A feature of 300,000 values per row is valid, and costs no more memory than a narrow one."""
    root = lerobot.build(tmp_path)
    wide = 300_000
    lerobot.change_feature(root, "action", shape=[wide], names=None)
    for file in (FIRST_DATA, SECOND_DATA):
        table = pq.read_table(root / file)
        values = np.random.default_rng(3).random(table.num_rows * wide, dtype=np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(values), wide)
        place = table.column_names.index("action")
        pq.write_table(table.set_column(place, "action", column), root / file)
    assert inspect(root, decoders=Decoders(limits=TIGHT)).report.outcome == "accept"


def test_results_do_not_depend_on_the_number_of_decoders(tmp_path: Path) -> None:
    """The same report, also when an episode's rows lie in two files."""
    root = lerobot.build(tmp_path)
    for table in (FIRST_DATA, SECOND_DATA):
        lerobot.change_column(root, table, "episode_index", lambda row: min(row["episode_index"], 1))
    lerobot.change_cell(root, lerobot.EPISODES, 1, "length", 9)
    reports = [inspect(root, decoders=Decoders(processes=number)).report for number in (1, 3)]
    assert reports[0] == reports[1]
    assert reports[0].episodes[1].frames == 9


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """After an inspection only the server waits for the next one; decoders are gone."""
    inspect(lerobot.build(tmp_path))
    servers = [child for child in psutil.Process().children() if "process_server" in " ".join(child.cmdline())]
    assert len(servers) == 1
    _, alive = psutil.wait_procs(servers[0].children(), timeout=WITHIN_S)
    assert alive == []
