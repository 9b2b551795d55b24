"""Reading a strange folder before anything is copied: what is a dataset, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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
        (_link_outside, "is a link out of the folder"),
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


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("length", None),
        ("length", -3),
        ("length", 2.5),
        ("dataset_from_index", -1),
        ("data/file_index", None),
        ("videos/observation.images.top/chunk_index", None),
        ("videos/observation.images.top/from_timestamp", float("nan")),
        ("videos/observation.images.top/to_timestamp", float("inf")),
    ],
)
def test_a_broken_entry_is_announced_without_its_place(folder: Path, column: str, value: float | None) -> None:
    """Ingest judges it; the others are announced as ever."""
    before = scan(folder).episodes
    _change_entry(folder, 1, column, value)
    episodes = scan(folder).episodes
    assert [one for one in episodes if one.index != 1] == [one for one in before if one.index != 1]
    assert (episodes[1].rows.file, episodes[1].rows.stop, episodes[1].videos) == ("", 0, ())


@pytest.mark.parametrize("number", [None, -1, 1_000_001, 2**40])
def test_an_entry_without_a_usable_number_is_not_announced(folder: Path, number: int | None) -> None:
    """Nobody could name its episode; ingest says which entry it is."""
    _change_entry(folder, 1, "episode_index", number)
    assert [one.index for one in scan(folder).episodes] == [0, 2, 3]


def _change_entry(root: Path, entry: int, column: str, value: float | None) -> None:
    (path,) = (root / "meta/episodes").glob("*/*.parquet")
    columns = pq.read_table(path).to_pydict()
    columns[column] = [value if row == entry else there for row, there in enumerate(columns[column])]
    pq.write_table(pa.table(columns), path)


def test_a_part_of_the_episode_table_that_is_torn_hides_only_its_own(folder: Path) -> None:
    """What the rest lists is uploaded and judged; with nothing left there is no dataset to judge."""
    (path,) = (folder / "meta/episodes").glob("*/*.parquet")
    table = pq.read_table(path)
    second = path.with_name("file-001.parquet")
    pq.write_table(table.slice(0, 2), path)
    pq.write_table(table.slice(2), second)
    _truncate("meta/episodes/chunk-000/file-001.parquet")(folder)
    assert [one.index for one in scan(folder).episodes] == [0, 1]
    _truncate("meta/episodes/chunk-000/file-000.parquet")(folder)
    with pytest.raises(NotADatasetError, match="nothing was uploaded"):
        scan(folder)


def _video(make: Callable[[Path], object]) -> Change:
    def apply(root: Path) -> None:
        path = next((root / "videos").rglob("*.mp4"))
        path.unlink()
        make(path)

    return apply


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_video(lambda path: path.symlink_to("gone.mp4")), "it is a link to nothing"),
        (_video(lambda path: path.symlink_to("/etc/hostname")), "it is a link out of the folder"),
        (_video(lambda path: path.symlink_to(path.name)), "it cannot be looked at (RuntimeError)"),
        (_video(os.mkfifo), "it is a FIFO, not a regular file"),
        (lambda root: (root / "notes").symlink_to("data"), "it is a link to a folder"),
        (lambda root: os.mkfifo(root / "pipe"), "it is a FIFO, not a regular file"),
    ],
    ids=["link to nothing", "link out", "link to itself", "FIFO", "link to a folder", "FIFO of no episode"],
)
def test_a_file_that_cannot_be_uploaded_is_left_out_with_the_reason(folder: Path, change: Change, why: str) -> None:
    """The rest of the folder is uploaded."""
    before = scan(folder)
    change(folder)
    found = scan(folder)
    assert [one.why for one in found.left_out] == [why]
    assert found.episodes == before.episodes
    assert len(found.files) >= len(before.files) - 1


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
