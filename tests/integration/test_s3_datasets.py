"""Datasets on S3, on a real server: validated where they lie, videos one at a time, changes noticed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import obstore
import pytest
import pytest_asyncio
from forebay.ingest.adapters.object_folder import ObjectFolder
from forebay.ingest.adapters.obstore_objects import S3Objects
from forebay.ingest.domain.place_uri import S3Place, parse_place
from forebay.ingest.errors import ObjectStoreError, PlaceUnknownError, SourceChangedError
from forebay.ingest.inspection import inspect
from forebay.ingest.places import open_place
from forebay.ingest.settings import s3_settings

from services.ingest.tests import lerobot_builder as lerobot
from services.ingest.tests import lerobot_v2_builder as v2
from services.ingest.tests.lerobot_builder import FIRST_VIDEO, SECOND_VIDEO
from tests.servers.seaweedfs import S3Server, s3_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[S3Server]:
    async with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


def _place(uri: str, server: S3Server) -> S3Place:
    place = parse_place(uri, server.endpoint)
    assert isinstance(place, S3Place)
    return place


async def _validate(uri: str, environ: dict[str, str], *options: str) -> tuple[int, str, str]:
    """The command as a person runs it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forebay.cli", "validate", uri, *options,
        env={"PATH": "/usr/bin:/bin", **environ}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_command_judges_a_dataset_on_s3(server: S3Server, tmp_path: Path) -> None:
    """The same report as for the folder; keys and endpoint come from the environment or the option."""
    root = v2.build(tmp_path)
    (root / v2.video_file(1)).write_bytes(b"")
    uri = await server.upload(root, "lab", "command/pick")
    environ, page = server.environment(), tmp_path / "report.html"
    code, out, err = await _validate(uri, environ, "--json", "--html", str(page))
    assert (code, '"outcome": "reject"' in out) == (1, True), err
    assert "LR-VIDEO-001" in page.read_text()
    del environ["AWS_ENDPOINT_URL"]
    strange = {**environ, "AWS_SECRET_ACCESS_KEY": "wrong"}
    option = ("--endpoint", server.endpoint)
    refused, nothing = await asyncio.gather(
        _validate(uri, strange, *option), _validate("s3://lab/nothing/here", environ, *option)
    )
    assert refused[0] == 3
    assert "AWS_SECRET_ACCESS_KEY" in refused[2]
    assert nothing[:2] == (2, "")
    assert "no object below s3://lab/nothing/here" in nothing[2]


@pytest.mark.parametrize("builder", [lerobot.build, v2.build], ids=["v3.0", "v2.1"])
async def test_it_is_judged_like_the_folder(server: S3Server, tmp_path: Path, builder: Any) -> None:
    """Same outcome, episodes and digests, and nothing is left behind."""
    root = builder(tmp_path / "dataset")
    place = _place(await server.upload(root, "lab", f"same/{builder.__module__}"), server)
    there, here = await asyncio.to_thread(_inspect, place, server), inspect(root).report
    assert (there.outcome, there.breaches) == ("accept", ())
    assert [(e.index, e.frames, e.digest) for e in there.episodes] == [
        (e.index, e.frames, e.digest) for e in here.episodes
    ]


def _inspect(place: S3Place, server: S3Server) -> Any:
    with open_place(place, s3_settings(server.environment())) as folder:
        workspace = folder.root
        report = inspect(folder).report
        assert not list(workspace.rglob("*.mp4"))
    assert not workspace.exists()
    return report


async def test_videos_are_brought_here_one_at_a_time(server: S3Server, tmp_path: Path) -> None:
    """While one is open no other lies in the workspace."""
    place = _place(await server.upload(lerobot.build(tmp_path / "dataset"), "lab", "videos"), server)

    def look() -> None:
        folder = ObjectFolder(S3Objects(place, s3_settings(server.environment())), tmp_path / "workspace")
        assert folder.far == {FIRST_VIDEO, SECOND_VIDEO}
        for name in sorted(folder.far):
            with folder.near(name) as path:
                assert path.stat().st_size == folder.files[name]
                assert list(folder.root.rglob("*.mp4")) == [path]
        assert not list(folder.root.rglob("*.mp4"))

    await asyncio.to_thread(look)


async def test_a_dataset_that_changes_meanwhile(server: S3Server, tmp_path: Path) -> None:
    """The listed object is asked for by its etag, and a new listing tells the change."""
    place = _place(await server.upload(lerobot.build(tmp_path / "dataset"), "lab", "changes"), server)
    folder = await asyncio.to_thread(
        ObjectFolder, S3Objects(place, s3_settings(server.environment())), tmp_path / "workspace"
    )
    assert await asyncio.to_thread(folder.changed) == []
    await obstore.put_async(server.bucket("lab"), f"changes/{FIRST_VIDEO}", b"another video")
    assert await asyncio.to_thread(folder.changed) == [FIRST_VIDEO]
    with pytest.raises(SourceChangedError, match="changed while it was fetched"), folder.near(FIRST_VIDEO):
        pass


async def test_what_the_store_says_is_told_in_words(server: S3Server, tmp_path: Path) -> None:
    """A bucket that is not there, keys that are refused, a server that does not answer."""
    good = server.environment()
    cases = [
        ("s3://no-such-bucket/x", good, "there is no bucket 'no-such-bucket'"),
        ("s3://probe/x", {**good, "AWS_ACCESS_KEY_ID": "stranger"}, "check AWS_ACCESS_KEY_ID"),
        ("s3://probe/x", {}, "AccessDenied"),
    ]
    for uri, environ, says in cases:
        objects = S3Objects(_place(uri, server), s3_settings(environ))
        with pytest.raises(ObjectStoreError, match=says):
            await asyncio.to_thread(objects.list)


@pytest.mark.parametrize(
    "text", ["", "http://x/y", "s3://", "s3://b", "s3://Big/x", "s3://abc/x?versionId=1", "s3://[x"]
)
async def test_places_that_are_none(text: str) -> None:
    """Refused with what can be written instead."""
    with pytest.raises(PlaceUnknownError, match="s3://bucket/prefix"):
        parse_place(text)
