"""Files are delivered whole or not at all: staged, verified, switched; killed anywhere, the next run goes on."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from forebay.runtime.file_delivery import (
    RECORD,
    ContentError,
    DeliveryError,
    WantedFile,
    deliver,
    object_path,
    put,
)

FILES = {"config.json": b"{}", "model/weights.bin": bytes(range(256)) * 4096}


def wanted(files: Mapping[str, bytes]) -> list[WantedFile]:
    return [WantedFile(path, hashlib.sha256(body).hexdigest(), len(body)) for path, body in files.items()]


def stored(objects: Path, files: Mapping[str, bytes]) -> list[WantedFile]:
    found = wanted(files)
    for one in found:
        place = object_path(objects, one.sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(files[one.path])
    return found


def source_of(objects: Path) -> Callable[[WantedFile], BinaryIO]:
    def source(one: WantedFile) -> BinaryIO:
        return object_path(objects, one.sha256).open("rb")

    return source


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECORD
    }


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir() if path.name.startswith(f".{folder.name}."))


def test_a_folder_is_made_and_made_again(tmp_path: Path) -> None:
    """The first delivery copies, the second compares, a third replaces the folder in one step; nothing is left beside it."""
    objects, target = tmp_path / "objects", tmp_path / "out"
    target.mkdir()
    first = stored(objects, FILES)
    assert deliver(first, source_of(objects), target, record={"version": 1}).already is False
    assert content(target) == FILES
    assert deliver(first, source_of(objects), target, record={"version": 1}).already is True
    other = {"config.json": b"[]", "more.json": b"1"}
    deliver(stored(objects, other), source_of(objects), target, record={"version": 2})
    assert content(target) == other
    assert left_over(target) == []


def test_a_damaged_delivery_is_mended(tmp_path: Path) -> None:
    """What was delivered is compared every time; a changed file is brought again."""
    objects, target = tmp_path / "objects", tmp_path / "out"
    files = stored(objects, FILES)
    deliver(files, source_of(objects), target, record={})
    (target / "config.json").write_bytes(b"[]")
    assert deliver(files, source_of(objects), target, record={}).already is False
    assert content(target) == FILES


def test_a_changed_source_is_refused(tmp_path: Path) -> None:
    """A source with another byte is never switched in, and the folder stays what it was."""
    objects, target = tmp_path / "objects", tmp_path / "out"
    deliver(stored(objects, {"a": b"old"}), source_of(objects), target, record={})
    files = stored(objects, FILES)
    place = object_path(objects, files[1].sha256)
    place.write_bytes(b"x" + place.read_bytes()[1:])
    with pytest.raises(ContentError, match=r"model/weights\.bin is not what is recorded"):
        deliver(files, source_of(objects), target, record={})
    assert content(target) == {"a": b"old"}


def test_a_delivery_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    """A staged half is kept when it is right; a wrong one is brought anew."""
    objects, target = tmp_path / "objects", tmp_path / "out"
    files = stored(objects, FILES)
    place = object_path(objects, files[1].sha256)
    place.rename(place.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        deliver(files, source_of(objects), target, record={})
    (stage,) = (path for path in tmp_path.iterdir() if ".incoming-" in path.name)
    place.with_suffix(".away").rename(place)
    (stage / "stranger").write_bytes(b"?")
    (stage / "model" / "weights.bin").write_bytes(FILES["model/weights.bin"][:700_000])
    done = deliver(files, source_of(objects), target, record={})
    assert done.resumed_bytes == 2 + 700_000
    assert content(target) == FILES


@pytest.mark.parametrize("where", ["staging", "switched"])
def test_killed_anywhere(tmp_path: Path, where: str) -> None:
    """kill -9 leaves the old folder or the new one, and the next run ends the work."""
    objects, target = tmp_path / "objects", tmp_path / "out"
    deliver(stored(objects, {"a": b"old"}), source_of(objects), target, record={})
    files = stored(objects, FILES)
    program = f"""
import time
from pathlib import Path
from forebay.runtime import file_delivery as d
files = [d.WantedFile(*one) for one in {[(one.path, one.sha256, one.bytes) for one in files]!r}]
objects, target = Path({str(objects)!r}), Path({str(target)!r})
def stop(*_):
    print("here", flush=True)
    time.sleep(60)
def source(one):
    if {where!r} == "staging" and one.path != "config.json":
        stop()
    return d.object_path(objects, one.sha256).open("rb")
if {where!r} == "switched":
    d._clear = stop
d.deliver(files, source, target, record={{}})
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
    finally:
        process.kill()
        process.communicate()
    assert content(target) == ({"a": b"old"} if where == "staging" else FILES)
    deliver(files, source_of(objects), target, record={})
    assert content(target) == FILES
    assert left_over(target) == []


@pytest.mark.parametrize("path", ["../up", "/etc/x", "a/../b", "", ".", "a\\b", "a\0b", "a//b", RECORD])
def test_paths_that_lead_elsewhere(tmp_path: Path, path: str) -> None:
    """A name that would leave the folder is refused before anything is written."""
    with pytest.raises(DeliveryError):
        deliver([WantedFile(path, "0" * 64, 1)], source_of(tmp_path), tmp_path / "out", record={})
    assert list(tmp_path.iterdir()) == []


def test_folders_of_somebody_else(tmp_path: Path) -> None:
    """A folder with other files, a file and a link are never replaced."""
    files = stored(tmp_path / "objects", FILES)
    full, file, link = tmp_path / "full", tmp_path / "file", tmp_path / "link"
    full.mkdir()
    (full / "thesis.tex").write_bytes(b"x")
    file.write_bytes(b"x")
    link.symlink_to(tmp_path / "elsewhere")
    for target in (full, file, link):
        with pytest.raises(DeliveryError):
            deliver(files, source_of(tmp_path / "objects"), target, record={})
    assert (full / "thesis.tex").read_bytes() == b"x"


def test_a_link_in_the_stage_is_not_followed(tmp_path: Path) -> None:
    """Whoever can write beside the folder cannot have a delivery write elsewhere."""
    objects, target, victim = tmp_path / "objects", tmp_path / "out", tmp_path / "victim"
    victim.write_bytes(b"precious")
    files = stored(objects, FILES)
    place = object_path(objects, files[1].sha256)
    place.rename(place.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        deliver(files, source_of(objects), target, record={})
    (stage,) = (path for path in tmp_path.iterdir() if ".incoming-" in path.name)
    (stage / "config.json").unlink()
    (stage / "config.json").symlink_to(victim)
    place.with_suffix(".away").rename(place)
    deliver(files, source_of(objects), target, record={})
    assert victim.read_bytes() == b"precious"
    assert not (target / "config.json").is_symlink()


def test_contents_are_kept_once(tmp_path: Path) -> None:
    """The same content again adds no byte; another one under that name is refused and leaves nothing."""
    source = tmp_path / "weights"
    source.write_bytes(b"abc")
    (one,) = wanted({"weights": b"abc"})
    with source.open("rb") as stream:
        assert put(stream, one, tmp_path / "objects", "a") == 3
        assert put(stream, one, tmp_path / "objects", "b") == 0
    source.write_bytes(b"xbc")
    assert object_path(tmp_path / "objects", one.sha256).read_bytes() == b"abc"
    (other,) = wanted({"weights": b"xyz"})
    with source.open("rb") as stream, pytest.raises(ContentError):
        put(stream, other, tmp_path / "objects", "a")
    assert [path.name for path in (tmp_path / "objects").rglob("*") if path.is_file()] == [one.sha256]


def test_a_damaged_content_is_replaced(tmp_path: Path) -> None:
    """A content of the right name and another byte is not taken for the right one."""
    source = tmp_path / "weights"
    source.write_bytes(b"abc")
    (one,) = wanted({"weights": b"abc"})
    place = object_path(tmp_path / "objects", one.sha256)
    place.parent.mkdir(parents=True)
    place.write_bytes(b"xbc")
    with source.open("rb") as stream:
        assert put(stream, one, tmp_path / "objects", "a") == 3
    assert place.read_bytes() == b"abc"
