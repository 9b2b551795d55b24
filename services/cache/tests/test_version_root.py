"""Planning a whole dataset version: frame columns, cameras, episodes, and folders that are no version."""

from __future__ import annotations

from pathlib import Path

import pytest
from forebay.cache.adapters.lance_format import read_layout
from forebay.cache.adapters.origin import FolderOrigin
from forebay.cache.adapters.version_root import plan_folder
from forebay.cache.domain.plan import ReadPlan
from forebay.cache.errors import ColumnUnknownError, DataUnreadableError, FormatUnsupportedError, PlanError

from . import lance_tables as tables
from .version_roots import EPISODES, FRONT, VIDEO_BYTES, WRIST, write_version


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_version(tmp_path_factory.mktemp("pool") / "v1")


def zeroed(root: Path, tmp_path: Path, plan: ReadPlan) -> Path:
    copy = tmp_path / "v1"
    tables.zero_outside(root, copy, plan.files)
    return copy


def test_two_columns_of_a_version(root: Path, tmp_path: Path) -> None:
    """State and action are a small share, and read the same from the planned bytes alone."""
    plan = plan_folder(root, columns=("observation.state", "action"))
    assert plan.total_bytes < 0.2 * plan.whole_bytes
    assert {file.path for file in plan.files} >= {"meta/info.json", "checksums.json"}
    copy = zeroed(root, tmp_path, plan)
    columns = ["observation_state", "action", "episode_index", "index", "timestamp"]
    expected = tables.read_columns(root / "frames.lance", columns)
    assert tables.read_columns(copy / "frames.lance", columns).equals(expected)


def test_one_of_two_cameras(root: Path, tmp_path: Path) -> None:
    """A camera's key plans its videos and not the other camera's."""
    plan = plan_folder(root, columns=("observation.state", FRONT))
    rows = f"video_key = '{FRONT}'"
    copy = zeroed(root, tmp_path, plan)
    assert tables.read_videos(copy / "videos.lance", rows) == tables.read_videos(root / "videos.lance", rows)
    assert 2 * VIDEO_BYTES < plan.total_bytes < 3 * VIDEO_BYTES


def test_episodes_pick_the_files_they_lie_in(root: Path, tmp_path: Path) -> None:
    """Episodes 0 and 1 lie in the first mp4 of each camera; their frames read the same."""
    plan = plan_folder(root, columns=("action", FRONT), episodes=(0, 2))
    rows = f"video_key = '{FRONT}' AND file_index = 0"
    copy = zeroed(root, tmp_path, plan)
    assert tables.read_videos(copy / "videos.lance", rows) == tables.read_videos(root / "videos.lance", rows)
    assert VIDEO_BYTES < plan.total_bytes < 2 * VIDEO_BYTES
    wanted = "episode_index < 2"
    expected = tables.read_columns(root / "frames.lance", ["action"], rows=wanted)
    assert tables.read_columns(copy / "frames.lance", ["action"], rows=wanted).equals(expected)


def test_no_columns_means_everything(root: Path) -> None:
    """Without columns every file of the version is planned whole, blob sidecars too."""
    plan = plan_folder(root)
    assert all(file.ranges is None for file in plan.files)
    planned = {file.path for file in plan.files}
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    left_out = {path.split("/")[1] for path in there - planned}
    assert left_out == {"_transactions", "_versions"}
    assert any(path.endswith(".blob") for path in planned)


def test_all_columns_of_some_episodes(root: Path) -> None:
    """Episodes without columns keep every column and camera of those episodes."""
    plan = plan_folder(root, episodes=(3, EPISODES))
    assert 2 * VIDEO_BYTES < plan.total_bytes < 3 * VIDEO_BYTES


def test_equal_requests_have_equal_digests(root: Path) -> None:
    """Order and spelling of the columns do not make another plan."""
    one = plan_folder(root, columns=("observation.state", WRIST), source="ab")
    two = plan_folder(root, columns=(WRIST.replace(".", "_"), "observation_state"), source="ab")
    assert one.digest == two.digest
    assert one.digest != plan_folder(root, columns=(WRIST,), source="ab").digest


def test_refusals_say_what_to_do(root: Path, tmp_path: Path) -> None:
    """An unknown camera, an empty range, a range beyond the data and a missing folder are refused in words."""
    with pytest.raises(ColumnUnknownError, match=f"did you mean {FRONT}"):
        plan_folder(root, columns=("observation.images.fornt",))
    with pytest.raises(PlanError, match="0:10"):
        plan_folder(root, episodes=(4, 4))
    with pytest.raises(PlanError, match="select no row"):
        plan_folder(root, episodes=(90, 95))
    with pytest.raises(DataUnreadableError, match="not a folder"):
        plan_folder(tmp_path / "gone")


def test_damage_is_an_error_not_a_crash(tmp_path: Path) -> None:
    """Garbage where a table's pages were is refused in words, whatever Lance's native code does about it."""
    root = write_version(tmp_path / "v1", video_bytes=1000)
    (data,) = (root / "videos.lance" / "data").glob("*.lance")
    layout = read_layout(FolderOrigin(), str(data))
    columns = [layout.column(place) for place in range(layout.width)]
    pages = [buffer for column in columns for page in column.pages for buffer in page.buffers]
    with data.open("r+b") as file:
        for start, end in pages:
            file.seek(start)
            file.write(b"\xff" * (end - start))
    with pytest.raises(PlanError, match=str(root)):
        plan_folder(root, columns=(FRONT,))


def test_names_are_suggested_as_their_owner_wrote_them(root: Path) -> None:
    """The table keeps names without dots; a suggestion has them."""
    with pytest.raises(ColumnUnknownError) as refused:
        plan_folder(root, columns=("observation.statee",))
    assert refused.value.close == ("observation.state",)


def test_a_model_folder_is_planned_whole(tmp_path: Path) -> None:
    """A checkpoint's files are planned whole; columns cannot be picked from it."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"x" * 1000)
    (tmp_path / "config.json").write_text("{}")
    plan = plan_folder(tmp_path)
    assert [(file.path, file.size, file.ranges) for file in plan.files] == [
        ("config.json", 2, None),
        ("weights/model.safetensors", 1000, None),
    ]
    assert plan.whole_bytes == plan.total_bytes == 1002
    with pytest.raises(FormatUnsupportedError, match="leave them out"):
        plan_folder(tmp_path, columns=("x",))


def test_an_empty_folder_is_nothing_to_read(tmp_path: Path) -> None:
    """A folder without files is not a model."""
    with pytest.raises(DataUnreadableError, match="holds no file"):
        plan_folder(tmp_path)
