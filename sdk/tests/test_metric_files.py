"""Metrics from files: flat JSON, what `lerobot-eval` writes, and release policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from forebay.cli.metrics import read_metrics, read_policy

EVAL_INFO: dict[str, Any] = {
    "per_task": [{"task_group": "pusht", "task_id": 0, "metrics": {"successes": [True, False]}}],
    "per_group": {"pusht": {"avg_sum_reward": 101.5, "pc_success": 50.0, "n_episodes": 2, "video_paths": ["a.mp4"]}},
    "overall": {
        "avg_sum_reward": 101.5,
        "avg_max_reward": 0.9,
        "pc_success": 50.0,
        "n_episodes": 2,
        "eval_s": 12.3,
        "eval_ep_s": 6.1,
        "video_paths": ["a.mp4"],
    },
}
OLDER: dict[str, Any] = {
    "per_episode": [{"episode_ix": 0, "sum_reward": 1.0, "success": True, "seed": 1000}],
    "aggregated": {"avg_sum_reward": 1.0, "pc_success": 100.0, "eval_s": 3.0, "eval_ep_s": 3.0},
    "video_paths": ["a.mp4"],
}


def written(folder: Path, content: object) -> Path:
    path = folder / "eval_info.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_lerobot_eval(tmp_path: Path) -> None:
    """The means over all episodes, and each group's under its name; how long it took is no metric."""
    assert read_metrics(written(tmp_path, EVAL_INFO), []) == {
        "avg_sum_reward": 101.5,
        "avg_max_reward": 0.9,
        "pc_success": 50.0,
        "n_episodes": 2.0,
        "pusht/avg_sum_reward": 101.5,
        "pusht/pc_success": 50.0,
        "pusht/n_episodes": 2.0,
    }


def test_older_lerobot_eval(tmp_path: Path) -> None:
    """Older files keep the means under `aggregated`."""
    assert read_metrics(written(tmp_path, OLDER), []) == {"avg_sum_reward": 1.0, "pc_success": 100.0}


def test_flat_and_pairs(tmp_path: Path) -> None:
    """A flat object and NAME=VALUE pairs add up."""
    assert read_metrics(written(tmp_path, {"a": 1}), ["b=2.5"]) == {"a": 1, "b": 2.5}


@pytest.mark.parametrize(
    "content", ["[1]", "{", json.dumps({"overall": {"video_paths": []}}), '{"overall": {"a": NaN}}']
)
def test_bad_files(tmp_path: Path, content: str) -> None:
    """What holds no metric is refused by name."""
    with pytest.raises(typer.BadParameter, match=r"eval_info\.json"):
        read_metrics(written(tmp_path, content), [])


def test_policy(tmp_path: Path) -> None:
    """A policy is YAML; a broken one is refused."""
    path = tmp_path / "gate.yaml"
    path.write_text("rules:\n  - {metric: pc_success, at_least: 80}\n", encoding="utf-8")
    assert read_policy(path) == {"rules": [{"metric": "pc_success", "at_least": 80}]}
    path.write_text("rules: [", encoding="utf-8")
    with pytest.raises(typer.BadParameter):
        read_policy(path)
