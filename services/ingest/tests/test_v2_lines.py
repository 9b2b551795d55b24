"""Any lines in the metadata of LeRobot v2.x: answered with values or breaches, never with an exception."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forebay.ingest.adapters import lerobot_tables, lerobot_v2_tables
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.domain.info_file import MAX_COUNT, parse_info
from forebay.ingest.domain.path_template import fields_of, parse_template
from hypothesis import given, settings
from hypothesis import strategies as st

from . import lerobot_v2_builder as v2

INFO, _ = parse_info(v2.info())
KEYS = ("episode_index", "length", "tasks", "task_index", "task", "stats", "action", "count")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
LINES = st.lists(VALUES.map(json.dumps).map(str.encode) | st.binary(max_size=40), max_size=6)


def _folder(root: str, lines: list[bytes]) -> DatasetFolder:
    (Path(root) / "meta").mkdir()
    for name in ("episodes.jsonl", "tasks.jsonl", "episodes_stats.jsonl"):
        (Path(root) / "meta" / name).write_bytes(b"\n".join(lines))
    return DatasetFolder(Path(root))


@settings(max_examples=60)
@given(lines=LINES)
def test_any_lines(lines: list[bytes]) -> None:
    """Episodes that are passed on have usable numbers, each once, and paths inside the folder."""
    assert INFO is not None
    data, video = fields_of(INFO.version)
    with TemporaryDirectory() as root:
        folder = _folder(root, lines)
        table = lerobot_tables.read_episodes(
            folder,
            INFO,
            parse_template(INFO.data_path, data, INFO.version),
            parse_template(INFO.video_path or "", video, INFO.version),
        )
        tasks, _ = lerobot_tables.read_tasks(folder, INFO)
        statistics, _ = lerobot_tables.read_statistics(folder, INFO)
        entries: list[Any] = list(lerobot_v2_tables.episode_statistics(folder))
    indices = [episode.index for episode in table.episodes]
    assert indices == sorted(set(indices))
    assert all(0 <= episode.length < MAX_COUNT for episode in table.episodes)
    assert all(".." not in episode.data_file for episode in table.episodes)
    assert all(isinstance(text, str) for text in (tasks or {}).values())
    assert statistics is None or all(value["count"][0] >= 0 for value in statistics.values())
    assert all(isinstance(index, int) for index, _ in entries)
