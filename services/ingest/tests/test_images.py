"""Cameras stored as single pictures in the data files: checked like videos, taken over as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow.parquet as pq
import pytest
from forebay.ingest.domain.breach import Breach
from forebay.ingest.inspection import inspect
from forebay.ingest.offline_conversion import convert_folder

from . import images_builder as images


def _found(folder: Path) -> dict[str, Breach]:
    return {breach.rule.id: breach for breach in inspect(folder).report.breaches}


@pytest.mark.parametrize("codec", ["png", "mjpeg"])
def test_sound_pictures_are_accepted(codec: str, tmp_path: Path) -> None:
    """Only told: not every reader opens them."""
    seen = inspect(images.build(tmp_path / "in", codec=codec))
    assert seen.report.outcome == "accept"
    assert ("LR-FORMAT-004", "info") in [(b.rule.id, b.severity) for b in seen.report.breaches]
    assert {b.severity for b in seen.report.breaches} == {"info"}
    assert [(one.episode, one.camera, one.frames) for one in seen.pictures] == [
        (episode, images.KEY, length) for episode, length in enumerate(images.LENGTHS)
    ]


BROKEN: dict[str, tuple[images.Edit, str]] = {
    "cut": (lambda _e, _f, content: {"bytes": content[: len(content) // 2], "path": "x"}, "cut off"),
    "empty": (lambda _e, _f, _c: {"bytes": b"", "path": "x"}, "no bytes"),
    "only a path": (lambda _e, _f, _c: {"bytes": None, "path": "images/frame_0.png"}, "no bytes"),
    "no value": (lambda _e, _f, _c: None, "no bytes"),
    "no picture": (lambda _e, _f, _c: {"bytes": b"not a picture", "path": "x"}, "no PNG"),
    "a bit": (lambda _e, _f, content: {"bytes": content[:60] + b"\x00\xff" + content[62:], "path": "x"}, "decoded"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_picture_is_named(what: str, tmp_path: Path) -> None:
    """Episode and frame; the other episode is good."""
    breaks, text = BROKEN[what]

    def edit(episode: int, frame: int, content: bytes) -> dict[str, Any] | None:
        hit = episode == 1 and frame in {4, 7}
        return breaks(episode, frame, content) if hit else {"bytes": content, "path": "x"}

    folder = images.build(tmp_path / "in", edit)
    breach = _found(folder)["LR-IMAGE-001"]
    assert (breach.severity, breach.episodes, breach.frame, breach.feature) == ("error", (1,), 4, images.KEY)
    assert text in breach.message
    assert "2 such pictures" in breach.message
    assert [episode.outcome for episode in inspect(folder).report.episodes] == ["accept", "reject"]


def test_a_frozen_camera_is_found(tmp_path: Path) -> None:
    """One picture in every row of an episode, while the robot moves."""

    def edit(episode: int, _frame: int, content: bytes) -> dict[str, Any]:
        return {"bytes": images.encode(images.picture(0, 0)) if episode == 0 else content, "path": "x"}

    breach = _found(images.build(tmp_path / "in", edit))["LR-VIDEO-008"]
    assert (breach.episodes, breach.feature) == ((0,), images.KEY)


def test_another_size_is_told(tmp_path: Path) -> None:
    """The pictures are not of the declared shape."""
    small = images.encode(images.picture(0, 0)[:16])

    def edit(episode: int, frame: int, content: bytes) -> dict[str, Any]:
        return {"bytes": small if (episode, frame) == (1, 3) else content, "path": "x"}

    breach = _found(images.build(tmp_path / "in", edit))["LR-VIDEO-012"]
    assert (breach.severity, breach.episodes, breach.frame) == ("warning", (1,), 3)


def test_a_missing_column_is_an_error(tmp_path: Path) -> None:
    """A camera that info.json promises and no data file holds."""
    folder = images.build(tmp_path / "in")
    pq.write_table(pq.read_table(folder / images.DATA).drop_columns([images.KEY]), folder / images.DATA)
    breach = _found(folder)["LR-STRUCT-005"]
    assert (breach.severity, breach.feature) == ("error", images.KEY)


def test_conversion_keeps_every_byte(tmp_path: Path) -> None:
    """Pictures and their paths are what was uploaded."""
    folder = images.build(tmp_path / "in")
    convert_folder(folder, tmp_path / "out", lambda *_: None)
    stored = lance.dataset(str(tmp_path / "out/frames.lance")).to_table()
    assert stored["observation_images_wrist"].to_pylist() == pq.read_table(folder / images.DATA)[images.KEY].to_pylist()
