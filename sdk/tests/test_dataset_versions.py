"""What the dataset commands work out on their own: freed bytes, orphans, differences, and lists of episodes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from forebay.cli.dataset_diff import as_page, compare_content
from forebay.cli.dataset_versions import _episodes, _files, _is_being_removed, freed_bytes, orphans
from forebay.contracts.v1.datasets import MANIFEST_FILE


def _root(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    entries = [{"path": name, "sha256": "0" * 64, "bytes": len(content)} for name, content in files.items()]
    (folder / MANIFEST_FILE).write_text(json.dumps({"files": entries}))
    return folder


def test_only_bytes_that_nobody_else_has_are_freed(tmp_path: Path) -> None:
    """A file that two versions share is freed when both go."""
    first, second = _root(tmp_path / "v1", {"a": b"x" * 100}), _root(tmp_path / "v2", {"b": b"y" * 10})
    os.link(first / "a", second / "a")
    manifests = [(root / MANIFEST_FILE).stat().st_size for root in (first, second)]
    assert freed_bytes([first]) == manifests[0]
    assert freed_bytes([second]) == 10 + manifests[1]
    assert freed_bytes([first, second]) == 110 + sum(manifests)


def test_a_file_that_no_version_names_is_told_with_its_size(tmp_path: Path) -> None:
    """DV-05: one data file of 4096 bytes is in no manifest; tags of leases are none."""
    root = _root(tmp_path / "v1", {"frames.lance/data/a.lance": b"1", "meta/info.json": b"{}"})
    lost = root / "frames.lance/data/deadbeef.lance"
    lost.write_bytes(bytes(4096))
    (root / "frames.lance/_refs/tags").mkdir(parents=True)
    (root / "frames.lance/_refs/tags/lease-train-1.json").write_text("{}")
    assert [(path, path.stat().st_size) for path in orphans(root)] == [(lost, 4096)]


def test_what_is_deleted_meanwhile_is_passed_over(tmp_path: Path) -> None:
    """Ingest deletes removed versions in the background: a folder that is gone, or half gone, is no error."""
    root = _root(tmp_path / "v1", {"frames.lance/data/a.lance": b"1" * 10, "meta/info.json": b"{}"})
    walk = _files(root)
    next(walk)
    shutil.rmtree(root)
    assert list(walk) == []
    assert freed_bytes([root]) == 0
    assert _is_being_removed(tmp_path / ".v1.removed")
    assert not _is_being_removed(root)


def test_episodes_as_people_write_them() -> None:
    """Ranges are spelled out; stable ids stay as they are."""
    assert _episodes(["3,5-7", "ep-12-a", "9"]) == ["3", "5", "6", "7", "ep-12-a", "9"]


def _stats(mean: float, std: float = 1.0) -> dict[str, Any]:
    return {"action": {"mean": [0.0, mean], "std": [1.0, std], "min": [-1.0, -1.0], "max": [1.0, 1.0 + mean]}}


def _content(folder: Path, fps: int, mean: float, features: tuple[str, ...]) -> str:
    info = {"fps": fps, "features": {key: {} for key in features}}
    _root(folder, {"meta/info.json": json.dumps(info).encode(), "meta/stats.json": json.dumps(_stats(mean)).encode()})
    return str(folder)


def test_what_moved_between_two_versions(tmp_path: Path) -> None:
    """Frame rate, features and the dimension whose mean moved most, in standard deviations."""
    before = _content(tmp_path / "v1", 30, 0.0, ("action", "state"))
    after = _content(tmp_path / "v2", 25, 0.5, ("action", "torque"))
    found = compare_content(before, after)
    assert (found["fps"], found["features_in"], found["features_out"]) == ([30, 25], ["torque"], ["state"])
    (line,) = found["statistics"]
    assert (line["feature"], line["moved_std"], line["dimension"]) == ("action", 0.5, 1)
    assert compare_content(before, str(tmp_path / "gone"))["not_readable_here"] == [str(tmp_path / "gone")]


def test_the_page_stands_alone_and_escapes(tmp_path: Path) -> None:
    """Names from outside are text in it; it loads nothing."""
    side = {"dataset": "reach", "episodes": 2, "frames": 10, "bytes": 100}
    episode = {"episode": "ep-1", "length": 5, "tasks": [], "withdrawn": None}
    content = compare_content(
        _content(tmp_path / "a", 30, 0.0, ("action",)), _content(tmp_path / "b", 30, 2.0, ("action",))
    )
    page = as_page(
        {
            "a": {**side, "number": 1}, "b": {**side, "number": 2}, "kept": 1, "episodes_in": [], "episodes_in_total": 0,
            "episodes_out": [episode], "episodes_out_total": 1, "tasks_in": ["<script>alert(1)</script>"],
            "tasks_out": [], "tasks": [{}, {"<script>alert(1)</script>": 2}], **content,
        }
    )  # fmt: skip
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "2.00 sd" in page
    assert "http" not in page
