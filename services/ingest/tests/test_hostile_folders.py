"""Landing folders as an attacker leaves them: every announced episode gets its verdict, in a bounded time."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from forebay.contracts.v1.episodes import EpisodeAccepted, EpisodeRejected
from forebay.ingest.adapters.dataset_folder import DatasetFolder
from forebay.ingest.adapters.landing_folder import LandingFolders
from forebay.ingest.inspection import inspect

from . import lerobot_builder as lerobot
from .lerobot_builder import FIRST_DATA, SECOND_DATA, SECOND_VIDEO
from .place import MANIFEST, Place

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        handle = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{handle}/{path.name}")  # its full path may be too long for an address
        os.close(handle)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def findings(place: Place) -> list[str]:
    return [body.findings[0].message for body in place.log.of(EpisodeRejected)]


@pytest.mark.parametrize("file", [FIRST_DATA, SECOND_VIDEO, "meta/info.json", "meta/tasks.parquet", MANIFEST])
@pytest.mark.parametrize(("make", "kind"), [(fifo, "a FIFO"), (unix_socket, "a socket"), (directory, "a directory")])
async def test_what_is_no_regular_file_is_named_in_the_verdict(
    place: Place,
    tmp_path: Path,
    file: str,
    make: Callable[[Path], None],
    kind: str,
) -> None:
    """The file, what it is, and what to do; other episodes of the upload are judged by their own files."""
    place.upload(lerobot.build(tmp_path / "recorded"), spoil=lambda landing: make(landing / file))
    await place.work()
    said = findings(place)
    assert len(said) + len(place.log.of(EpisodeAccepted)) == 3
    assert said
    assert all(file in text and f"it is {kind}, not a regular file; put the file itself" in text for text in said)


def test_a_folder_that_is_looked_at_without_a_manifest(tmp_path: Path) -> None:
    """`forebay validate` and `register` name what is no regular file as well."""
    root = lerobot.build(tmp_path)
    fifo(root / SECOND_DATA)
    breaches = [breach for breach in inspect(root).report.breaches if breach.file == SECOND_DATA]
    assert "it is a FIFO, not a regular file" in breaches[0].message


async def test_names_depth_and_size_of_an_attacker(place: Place, tmp_path: Path) -> None:
    """Line breaks, bytes that are no UTF-8, folders a thousand deep, a sparse file of a terabyte: none is read, all is judged."""

    def spoil(landing: Path) -> None:
        (landing / "data" / "two\nlines.parquet").write_bytes(b"x")
        (landing / "data" / os.fsdecode(b"\xff\xfe.parquet")).write_bytes(b"x")
        (landing / "extra").mkdir()
        (landing / "extra" / "loop").symlink_to("loop")
        here = os.open(landing / "data", os.O_RDONLY)
        for _ in range(1500):  # deeper than Python calls, and than a path may be long
            os.mkdir("d", dir_fd=here)
            deeper = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        os.close(here)
        os.truncate(landing / SECOND_DATA, 1 << 40)

    place.upload(lerobot.build(tmp_path / "recorded"), spoil=spoil)
    try:
        await place.work()
    finally:
        _remove_deep(place.landing("up-1") / "data")
    assert len(place.log.of(EpisodeAccepted)) == 2, findings(place)
    (said,) = findings(place)
    assert f"{1 << 40} are there" in said


def _remove_deep(folder: Path) -> None:
    """Take one level out again and again: `shutil.rmtree`, and so pytest's cleaning up, recurses."""
    top = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(FileNotFoundError):
        while True:
            os.rename("d/d", "rest", src_dir_fd=top, dst_dir_fd=top)
            os.rmdir("d", dir_fd=top)
            os.rename("rest", "d", src_dir_fd=top, dst_dir_fd=top)
    os.close(top)


def test_a_file_that_grows_while_it_is_read_ends(tmp_path: Path) -> None:
    """As many bytes are read as were announced, however fast somebody adds to them."""
    landing = tmp_path / "landing" / "lab" / "up-1"
    landing.mkdir(parents=True)
    path = landing / "grows"
    path.write_bytes(bytes(1 << 20))

    def grow(count: int) -> None:
        with path.open("ab") as file:
            file.write(bytes(2 * count))

    checked = LandingFolders(tmp_path).check(landing, {"grows": ("0" * 64, 1 << 20)}, grow)
    assert checked.distrusted == {"grows": "its digest is not the announced one"}


async def test_a_landing_folder_that_is_deleted_while_it_is_judged(place: Place, tmp_path: Path) -> None:
    """Every episode is rejected with a sentence that says so."""
    place.upload(lerobot.build(tmp_path / "recorded"), spoil=shutil.rmtree)
    await place.work()
    assert len(findings(place)) == 3
    assert all("cannot be read" in text and "upload again" in text for text in findings(place))


def test_a_folder_of_very_many_entries(tmp_path: Path) -> None:
    """Twenty thousand names are listed in a moment."""
    root = lerobot.build(tmp_path)
    (root / "data" / "many").mkdir()
    for number in range(20_000):
        os.close(os.open(root / "data" / "many" / f"{number}", os.O_CREAT | os.O_WRONLY))
    assert len(DatasetFolder(root).files) > 20_000


async def test_a_file_that_is_exchanged_for_a_link_after_its_verdict(place: Place, tmp_path: Path) -> None:
    """What was accepted is written into a version from the landing folder itself, never from where a link leads."""
    place.upload(lerobot.build(tmp_path / "mine"))
    other = lerobot.build(tmp_path / "others", seed=5)
    validate = place.workers["validate"]

    async def validate_then_swap(item: object, context: object) -> object:
        emits = await validate(item, context)  # type: ignore[arg-type]
        landed = place.landing("up-1") / FIRST_DATA
        landed.unlink()
        landed.symlink_to(other / FIRST_DATA)
        return emits

    place.workers["validate"] = validate_then_swap  # type: ignore[assignment]
    with pytest.raises(Exception, match="link out of the dataset's folder"):
        await place.work()
