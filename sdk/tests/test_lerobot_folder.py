"""Reading a strange folder before anything is copied: what is a dataset, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from forebay.sdk.errors import NotADatasetError
from forebay.sdk.lerobot_folder import scan
from forebay.sdk.path_templates import fill

Change = Callable[[Path], None]


def _info(change: Callable[[dict[str, object]], None]) -> Change:
    def apply(root: Path) -> None:
        path = root / "meta/info.json"
        info = json.loads(path.read_text())
        change(info)
        path.write_text(json.dumps(info))

    return apply


def _truncate(path: str) -> Change:
    def apply(root: Path) -> None:
        whole = (root / path).read_bytes()
        (root / path).write_bytes(whole[: len(whole) // 2])

    return apply


def _link_outside(root: Path) -> None:
    (root / "meta/secret").symlink_to("/etc/hostname")


@pytest.fixture
def folder(recording: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recording, tmp_path / "dataset"))


def test_windows_tile_the_files(recording: Path) -> None:
    """Row windows follow each other in the data file, time windows in the video, one per camera."""
    episodes = scan(recording).episodes
    assert [episode.index for episode in episodes] == [0, 1, 2, 3]
    for before, after in pairwise(episodes):
        assert before.rows.stop == after.rows.start
        assert before.videos[0].stop == pytest.approx(after.videos[0].start)
    assert episodes[0].rows.start == 0
    assert episodes[0].videos[0].camera == "observation.images.top"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda root: (root / "meta/info.json").unlink(), "meta/info.json is missing"),
        (_truncate("meta/info.json"), "cannot be read"),
        (_truncate("meta/episodes/chunk-000/file-000.parquet"), "nothing was uploaded"),
        (_info(lambda info: info.update(data_path="../../etc/passwd")), "not inside the dataset"),
        (_info(lambda info: info.update(video_path="/etc/{video_key}")), "not inside the dataset"),
        (_info(lambda info: info.update(data_path="{chunk_index.__class__}/x")), "does not know"),
        (_info(lambda info: info.update(codebase_version="v2.1")), "v2.1"),
        (_info(lambda info: info.update(features=None)), "no 'features'"),
        (lambda root: shutil.rmtree(root / "meta/episodes"), "lists no episode"),
        (_link_outside, "outside of the dataset"),
    ],
    ids=[
        "info missing", "info truncated", "episode table truncated", "template climbs out", "template absolute",
        "template follows attributes", "older version", "no features", "no episode table", "link leads outside",
    ],
)  # fmt: skip
def test_what_is_no_dataset_is_refused_with_a_sentence(folder: Path, change: Change, says: str) -> None:
    """Each refusal names what is wrong; nothing in the folder is touched."""
    change(folder)
    with pytest.raises(NotADatasetError, match=says) as refused:
        scan(folder)
    assert refused.value.next_action


def test_hugging_face_cache_links_are_followed(recording: Path, tmp_path: Path) -> None:
    """Links of a Hugging Face cache lead into its own blobs, and only there."""
    snapshot, blobs = tmp_path / "snapshots/abc", tmp_path / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in recording.rglob("*") if path.is_file())):
        shutil.copy(path, blobs / str(number))
        link = snapshot / path.relative_to(recording)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / str(number))
    assert scan(snapshot).bytes == scan(recording).bytes


def test_templates_fill_only_known_places() -> None:
    """Widths are kept; a key that climbs out is refused after filling, too."""
    assert fill("data/{chunk_index:03d}/{file_index}", {"chunk_index": 2, "file_index": 11}, what="t") == "data/002/11"
    with pytest.raises(NotADatasetError):
        fill("{video_key}/x", {"video_key": "../up", "chunk_index": 0, "file_index": 0}, what="t")
