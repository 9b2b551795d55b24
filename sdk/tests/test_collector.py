"""The collector: whole files, the right events, the same upload however often it is tried."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from forebay.contracts.v1.episodes import EpisodeUploaded, UploadFinished, UploadStarted
from forebay.sdk.collector import Collector
from forebay.sdk.errors import NotADatasetError, SourceChangedError
from forebay.sdk.inputs import local_path
from forebay.sdk.landing import Landing, hash_files
from forebay.sdk.lerobot_folder import scan

from sdk.tests.builders import KeptPublisher


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    return Collector(home=tmp_path / "home", project="lab")


async def _events(collector: Collector) -> KeptPublisher:
    publisher = KeptPublisher()
    await collector.outbox.deliver(publisher)
    return publisher


async def test_an_upload_tells_what_comes_what_came_and_that_it_is_over(collector: Collector, recording: Path) -> None:
    """UploadStarted, one EpisodeUploaded each, UploadFinished; every file lies there with its digest."""
    done = collector.upload(recording, "reach")
    said = await _events(collector)
    assert said.names() == ["UploadStarted", *["EpisodeUploaded"] * 4, "UploadFinished"]
    started, episode, finished = said.stored[0].body, said.stored[1].body, said.stored[-1].body
    assert isinstance(started, UploadStarted)
    assert isinstance(episode, EpisodeUploaded)
    assert isinstance(finished, UploadFinished)
    assert (started.expected_episodes, started.expected_files, started.expected_bytes) == (4, done.files, done.bytes)
    assert (episode.rows.start, episode.videos[0].camera) == (0, "observation.images.top")
    landing = local_path(started.landing_uri)
    manifest = local_path(finished.manifest.uri).read_bytes()
    assert sha256(manifest).hexdigest() == finished.manifest.sha256
    files = json.loads(manifest)["files"]
    assert len(files) == done.files
    for file in files:
        assert sha256((landing / file["path"]).read_bytes()).hexdigest() == file["sha256"]


async def test_the_same_folder_twice_is_the_same_upload(collector: Collector, recording: Path, tmp_path: Path) -> None:
    """Same content, other place: the same upload, the same events, word for word."""
    first = collector.upload(recording, "reach")
    before = await _events(collector)
    copy = shutil.copytree(recording, tmp_path / "elsewhere")
    second = collector.upload(Path(copy), "reach")
    after = await _events(collector)
    assert second.upload == first.upload
    assert [(one.id, one.body) for one in after.stored] == [(one.id, one.body) for one in before.stored]


async def test_a_delivered_upload_is_not_said_again(collector: Collector, recording: Path) -> None:
    """Once the log has it, a repeat copies nothing and says nothing."""
    first = collector.upload(recording, "reach")
    collector.delivered(first.upload)
    await _events(collector)
    assert collector.upload(recording, "reach").repeated
    assert (await _events(collector)).stored == []


async def test_other_content_is_another_upload(collector: Collector, recording: Path, tmp_path: Path) -> None:
    """One byte more in one file, and it is a new upload."""
    copy = Path(shutil.copytree(recording, tmp_path / "changed"))
    (copy / "README.md").write_text("x")
    assert collector.upload(copy, "reach").upload != collector.upload(recording, "reach").upload


async def test_a_folder_that_is_no_dataset_says_nothing(collector: Collector, tmp_path: Path) -> None:
    """Refused before anything is copied or said."""
    with pytest.raises(NotADatasetError):
        collector.upload(tmp_path, "reach")
    assert collector.outbox.segments() == []
    assert not (tmp_path / "home" / "pool").exists()


def test_a_file_that_changes_meanwhile_is_not_passed_on(recording: Path, tmp_path: Path) -> None:
    """What arrives is what was digested, or nothing arrives."""
    source = Path(shutil.copytree(recording, tmp_path / "source"))
    (info,) = [file for file in hash_files(scan(source).files, lambda _: None) if file.source.path == "meta/info.json"]
    (source / "meta/info.json").write_text("{}")
    landing = Landing(tmp_path / "landing")
    with pytest.raises(SourceChangedError):
        landing.copy(info, lambda _: None)
    assert not list((tmp_path / "landing").rglob("*.json"))


async def test_a_killed_upload_goes_on_where_it_stopped(recording: Path, tmp_path: Path, collector: Collector) -> None:
    """SIGKILL in the middle of the copy: files are whole or absent, and the next run completes the same upload."""
    code = f"""
import os, signal
from pathlib import Path
from forebay.sdk.collector import Collector, Silent
class Killer(Silent):
    def stage(self, name, total):
        self.copying, self.left = name == "copying", total // 2
    def advance(self, done):
        self.left -= done
        if self.copying and self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
Collector(home=Path({str(tmp_path / "home")!r}), project="lab").upload(Path({str(recording)!r}), "reach", progress=Killer())
"""
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await killed.wait() == -signal.SIGKILL
    assert collector.outbox.pending() >= 1
    done = collector.upload(recording, "reach")
    said = await _events(collector)
    identities = {one.id: one.body for one in said.stored}
    assert all(identities[one.id] == one.body for one in said.stored)
    assert sorted(one.event for one in identities.values()) == ["EpisodeUploaded"] * 4 + [
        "UploadFinished",
        "UploadStarted",
    ]
    landing = tmp_path / "home/pool/landing/lab" / done.upload
    assert [path for path in landing.rglob(".*") if path.is_file()] == []
    for file in scan(recording).files:
        assert (landing / file.path).read_bytes() == file.real.read_bytes()
