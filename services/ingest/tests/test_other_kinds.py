"""A path that is not a dataset is called what it is, with what to do next."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer
from forebay.ingest import commands
from forebay.ingest.adapters.other_kinds import describe_other
from typer.testing import CliRunner

FILES: list[tuple[bytes, str, str]] = [
    (b"\x89MCAP0\r\n" + bytes(9), "an MCAP recording", "convert it"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "convert it"),
    (b"#ROSBAG V2.0\n", "rosbag", "convert it"),
    (b"SQLite format 3\x00", "ROS 2", "convert it"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer", "git lfs pull"),
    (b"PK\x03\x04", "a ZIP archive", "unpack"),
    (bytes(257) + b"ustar", "a tar archive", "unpack"),
    (b"PAR1" + bytes(4), "Parquet file", "meta/info.json"),
    (bytes(4) + b"ftypisom", "video file", "meta/info.json"),
    (b"", "a file", "meta/info.json"),
]


@pytest.mark.parametrize(("content", "what", "advice"), FILES, ids=[what for _, what, _ in FILES])
def test_a_file_is_named_by_its_content(content: bytes, what: str, advice: str, tmp_path: Path) -> None:
    """Whatever its name says."""
    path = tmp_path / "recording"
    path.write_bytes(content)
    found = describe_other(path)
    assert found is not None
    assert what in found[0]
    assert advice in found[1].lower()


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    """It would keep whoever opens it."""
    os.mkfifo(tmp_path / "pipe")
    assert "FIFO" in (describe_other(tmp_path / "pipe") or ("",))[0]


def test_a_folder_of_recordings_is_named(tmp_path: Path) -> None:
    """A rosbag2 folder, and a folder of HDF5 files."""
    (tmp_path / "metadata.yaml").write_text("rosbag2_bagfile_information: {}\n")
    (tmp_path / "a_0.db3").write_bytes(b"")
    assert "1 ROS 2 file (a_0.db3)" in (describe_other(tmp_path) or ("",))[0]
    for number in range(2):
        (tmp_path / f"episode_{number}.hdf5").write_bytes(b"")
    assert "2 HDF5 files (episode_0.hdf5, episode_1.hdf5)" in (describe_other(tmp_path) or ("",))[0]


def test_a_part_of_a_dataset_names_the_dataset(tmp_path: Path) -> None:
    """The folder above is what to give; a dataset itself, and an empty folder, are left to the rules."""
    for name in ("meta", "data"):
        (tmp_path / "reach" / name).mkdir(parents=True)
    (tmp_path / "reach/meta/info.json").write_text("{}")
    found = describe_other(tmp_path / "reach/data")
    assert found == ("the data folder of a dataset", f"Give the folder above it: {tmp_path / 'reach'}")
    assert describe_other(tmp_path / "reach") is None
    assert describe_other(tmp_path) is None


def test_convert_says_the_same(tmp_path: Path) -> None:
    """A file, a part of a dataset, and a folder above one: what it is, and what to give instead."""
    app = typer.Typer()
    commands.register(app)
    inner = tmp_path / "deep" / "reach" / "meta"
    inner.mkdir(parents=True)
    (inner / "info.json").write_text("{}")
    (tmp_path / "a.mcap").write_bytes(b"\x89MCAP0\r\n")
    for source, code, says in [
        (tmp_path / "a.mcap", 2, "is an MCAP recording. Convert it"),
        (inner, 1, f"Give the folder above it: {inner.parent}"),
        (tmp_path / "deep", 1, "Give the folder of one dataset, reach for example"),
    ]:
        found = CliRunner().invoke(app, ["convert", str(source), str(tmp_path / "out"), "--json"])
        assert found.exit_code == code
        assert says in json.loads(found.stdout)["message"]
