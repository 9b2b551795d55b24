"""Only regular files are opened, whatever is put in their place and whenever."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from forebay.runtime.regular_files import (
    LinkError,
    NotRegularError,
    TooLargeError,
    open_regular,
    path_of,
    read_regular,
)

pytestmark = pytest.mark.timeout(20)
SWAPS = 300


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a FIFO"),
        (_socket, "a socket"),
        (lambda path: path.symlink_to("/dev/zero"), "a character device"),
        (lambda path: path.mkdir(), "a directory"),
    ],
)
def test_what_is_no_regular_file_is_refused_by_name(tmp_path: Path, make: Callable[[Path], object], kind: str) -> None:
    """At once, with the kind in words; also behind a link."""
    path, link = tmp_path / "f", tmp_path / "link"
    make(path)
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(NotRegularError, match=f"it is {kind}, not a regular file; put the file itself") as caught:
            open_regular(name)
        assert caught.value.filename == str(name)


def test_a_file_is_read_as_long_as_it_was(tmp_path: Path) -> None:
    """One that is longer than it may be is refused; a path to the descriptor shows the same bytes."""
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    assert read_regular(path) == read_regular(path, limit=5) == b"12345"
    with pytest.raises(TooLargeError, match="more than 4 bytes"):
        read_regular(path, limit=4)
    with open_regular(path) as file:
        path.unlink()
        assert Path(path_of(file)).read_bytes() == b"12345"


def test_a_link_on_the_way_is_refused_where_none_may_be(tmp_path: Path) -> None:
    """The last part or a folder; a name with a line break or bytes that are no UTF-8 is a name like any other."""
    folder = tmp_path / "real"
    folder.mkdir()
    (tmp_path / "folder").symlink_to(folder)
    for name in ("plain", "two\nlines", os.fsdecode(b"\xff\xfe"), "gone (deleted)"):
        path = folder / name
        path.write_bytes(b"x")
        assert read_regular(path, links=False) == b"x"
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(path)
        for linked in (tmp_path / "link", tmp_path / "folder" / name):
            assert read_regular(linked) == b"x"
            with pytest.raises(LinkError):
                read_regular(linked, links=False)


@pytest.mark.parametrize("hostile", ["fifo", "link"])
def test_a_file_that_is_exchanged_while_it_is_opened(tmp_path: Path, hostile: str) -> None:
    """A FIFO never blocks, and nothing is ever read through a link, however often the name changes hands."""
    secret, good, bad, path = (tmp_path / name for name in ("secret", "good", "bad", "data"))
    secret.write_bytes(b"secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            good.write_bytes(b"mine")
            good.rename(path)
            if hostile == "fifo":
                os.mkfifo(bad)
            else:
                bad.symlink_to(secret)
            bad.rename(path)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        seen = set()
        for _ in range(SWAPS):
            try:
                seen.add(read_regular(path, links=False))
            except OSError:
                seen.add(b"refused")
    finally:
        stop.set()
        swapper.join()
    assert seen <= {b"mine", b"refused"}
