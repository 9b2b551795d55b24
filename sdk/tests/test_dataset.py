"""`sdk.open`: by logical name, only what the job pinned, the same from LeRobot files and from Lance tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forebay import sdk
from forebay.sdk.errors import ColumnNotPinnedError, DataUnreadableError, InputNotDeclaredError

from sdk.tests.builders import pinned


def environment(folder: Path, *inputs: Mapping[str, Any], **more: Any) -> dict[str, str]:
    path = folder / "inputs.json"
    path.write_text(json.dumps({"inputs": list(inputs), **more}))
    return {"FOREBAY_INPUTS": str(path)}


def as_lance(recording: Path, root: Path) -> Path:
    """The recording as a version root with Lance tables, as LeRobot's Lance reader expects it."""
    shutil.copytree(recording / "meta", root / "meta")
    frames = pq.read_table(recording / "data/chunk-000/file-000.parquet").replace_schema_metadata(None)
    frames = frames.rename_columns([name.replace(".", "_") for name in frames.column_names])
    lance.write_dataset(frames, str(root / "frames.lance"))
    video = (recording / "videos/observation.images.top/chunk-000/file-000.mp4").read_bytes()
    fields: list[Any] = [pa.field("video_key", pa.string()), lance.blob_field("video_bytes")]
    fields[1:1] = [pa.field(name, pa.int64()) for name in ("chunk_index", "file_index")]
    schema = pa.schema(fields)
    columns: list[Any] = [pa.array(["observation.images.top"]), pa.array([0]), pa.array([0]), lance.blob_array([video])]
    table = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema)])
    lance.write_dataset(table, str(root / "videos.lance"), data_storage_version="2.2")
    return root


@pytest.fixture(params=["files", "lance"])
def root(request: pytest.FixtureRequest, recording: Path, tmp_path: Path) -> Path:
    if request.param == "lance":
        return as_lance(recording, tmp_path / "v1")
    return Path(shutil.copytree(recording, tmp_path / "v1"))


def test_a_logical_name_opens_what_the_job_pinned(root: Path, tmp_path: Path) -> None:
    """Tag or version, both spellings of a column: the same frames."""
    environ = environment(tmp_path, pinned(root))
    dataset = sdk.open("dataset:reach@train-ready", environ=environ)
    assert (dataset.fps, len(dataset.episodes), dataset.number) == (30.0, 4, 1)
    assert dataset.numpy("observation.state").shape == (dataset.num_frames, 6)
    same = sdk.open("reach@v1", environ=environ)
    np.testing.assert_array_equal(same.numpy("observation_state"), dataset.numpy("observation.state"))
    assert dataset.numpy("episode_index").tolist() == [e.index for e in dataset.episodes for _ in range(e.length)]
    assert str(root) not in repr(dataset)


def test_episodes_and_columns_can_be_chosen(root: Path, tmp_path: Path) -> None:
    """Rows of the asked episodes, in the asked order, under the names of info.json."""
    dataset = sdk.open("dataset:reach@train-ready", environ=environment(tmp_path, pinned(root)))
    lengths = [episode.length for episode in dataset.episodes]
    table = dataset.table(columns=["action", "frame_index"], episodes=[2, 0])
    assert table.column_names == ["action", "frame_index"]
    assert table["frame_index"].to_pylist() == [*range(lengths[2]), *range(lengths[0])]
    with pytest.raises(DataUnreadableError, match="no episode 9"):
        dataset.numpy("action", episodes=[9])


def test_video_bytes_are_those_of_the_recording(root: Path, recording: Path, tmp_path: Path) -> None:
    """The encoded file comes back byte for byte, with the episode's seconds in it."""
    dataset = sdk.open("dataset:reach@train-ready", environ=environment(tmp_path, pinned(root)))
    file, start, stop = dataset.video_file("observation.images.top", 1)
    with file:
        assert file.read(4096) == dataset.video_bytes("observation_images_top", 1)[:4096]
    assert stop - start == pytest.approx(dataset.episodes[1].length / 30)
    original = recording / "videos/observation.images.top/chunk-000/file-000.mp4"
    assert dataset.video_bytes("observation.images.top", 1) == original.read_bytes()


def test_what_the_job_did_not_pin_is_refused(root: Path, tmp_path: Path) -> None:
    """A column outside of the plan would read bytes that nobody warmed."""
    one = pinned(root, columns=["observation.state"], episodes=[1, 3])
    dataset = sdk.open("dataset:reach@train-ready", environ=environment(tmp_path, one))
    assert (dataset.columns, dataset.cameras) == (("observation.state",), ())
    assert [episode.index for episode in dataset.episodes] == [1, 2]
    with pytest.raises(ColumnNotPinnedError, match="not in this job's plan"):
        dataset.numpy("action")
    with pytest.raises(ColumnNotPinnedError, match="has no column 'force'"):
        dataset.numpy("force")
    with pytest.raises(ColumnNotPinnedError, match="not in this job's plan"):
        dataset.video_bytes("observation.images.top", 1)


def test_an_input_that_the_job_does_not_list_is_refused(root: Path, tmp_path: Path) -> None:
    """The error names what is declared."""
    environ = environment(tmp_path, pinned(root))
    with pytest.raises(InputNotDeclaredError, match="dataset:reach@train-ready"):
        sdk.open("dataset:other@train-ready", environ=environ)
    with pytest.raises(InputNotDeclaredError):
        sdk.open("dataset:reach@v2", environ=environ)


def test_the_place_that_the_cache_made_ready_is_read(root: Path, tmp_path: Path) -> None:
    """The bridge says where the warm bytes are; the root itself may be elsewhere."""
    one = pinned(root) | {"root": "file:///nowhere"}
    environ = environment(tmp_path, one, places={"reach@v1": str(root)})
    assert sdk.open("dataset:reach@train-ready", environ=environ).num_frames > 0


def test_a_registered_folder_of_an_older_format_is_refused(recording: Path, tmp_path: Path) -> None:
    """Zero episodes would be a wrong answer: its tables lie elsewhere."""
    root = Path(shutil.copytree(recording, tmp_path / "older"))
    info = json.loads((root / "meta/info.json").read_text())
    (root / "meta/info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    source = pinned(root)
    with pytest.raises(DataUnreadableError, match=r"LeRobot v2\.1"):
        sdk.open("dataset:reach@train-ready", environ=environment(tmp_path, source))
