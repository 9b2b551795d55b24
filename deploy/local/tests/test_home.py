"""The record of what runs, and the identity of a process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from forebay.contracts.permissions import permissions
from forebay.local.errors import LocalError
from forebay.local.home import ChildRecord, Home, ProcessId, Record, free_port, process_id, read_record, write_record
from forebay.local.identities import check_projects, ensure_keys, known_projects
from forebay.local.log_room import LogRoom
from forebay.local.privacy import make_private


def record(**given: object) -> Record:
    values: dict[str, object] = {
        "nats_port": 4222,
        "nats_url": "nats://127.0.0.1:4222",
        "projects": ["arm-lab"],
        "pool_dir": "/p",
        "pool_kind": "folder",
    }
    return Record(**(values | given))  # type: ignore[arg-type]


def test_a_record_survives_writing_and_reading(tmp_path: Path) -> None:
    """What the supervisor writes is what the CLI reads."""
    home = Home(tmp_path)
    written = record(children=[ChildRecord(name="ingest", pid=7, start=1.5, state="healthy", restarts=2)])
    write_record(home, written)
    assert read_record(home) == written


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"nats_port": 1}', '{"children": [3]}'])
def test_a_broken_record_is_no_record(tmp_path: Path, text: str) -> None:
    """A damaged file means "nothing is known", never a traceback."""
    home = Home(tmp_path)
    home.record.write_text(text)
    assert read_record(home) is None


def test_a_record_of_a_newer_version_is_read_for_what_is_known(tmp_path: Path) -> None:
    """Unknown fields are passed over."""
    home = Home(tmp_path)
    write_record(home, record())
    home.record.write_text(home.record.read_text().replace('"phase"', '"new_field": 1, "phase"', 1))
    assert read_record(home) == record()


def test_a_process_is_its_number_and_its_start() -> None:
    """A number that the kernel gave to somebody else is not our process."""
    mine = process_id(os.getpid())
    assert mine.process() is not None
    assert ProcessId(mine.pid, mine.start - 100).process() is None


def test_a_preferred_port_is_taken_when_it_is_free() -> None:
    """The bus comes back where clients look for it."""
    port = free_port()
    assert free_port(port) == port


def test_a_port_is_none_of_those_for_outgoing_connections() -> None:
    """Else a client could be given it while its server is down, and the server could not come back."""
    assert all(free_port() < 32_768 for _ in range(20))


def test_a_port_that_somebody_holds_is_not_taken() -> None:
    """Another one is found."""
    with socket.create_server(("127.0.0.1", free_port())) as holder:
        held = int(holder.getsockname()[1])
        assert free_port(held) != held


def test_keys_are_made_once(tmp_path: Path) -> None:
    """Another project adds keys and touches none."""
    home = Home(tmp_path)
    home.make()
    first, made = ensure_keys(home, permissions(("arm-lab",)))
    assert len(made) == len(first)
    second, added = ensure_keys(home, permissions(("arm-lab", "dog-lab")))
    assert added == ["collector.dog-lab", "agent.dog-lab"]
    assert {name: second[name] for name in first} == first
    assert known_projects(home) == ("arm-lab", "dog-lab")


def test_a_damaged_key_is_named_without_its_seed(tmp_path: Path) -> None:
    """The message says which file and what to do; a seed never leaves it."""
    home = Home(tmp_path)
    home.make()
    home.key("ingest").write_text("SUsecretsecret")
    with pytest.raises(LocalError, match=r"ingest\.nk") as caught:
        ensure_keys(home, permissions(()))
    assert "secret" not in str(caught.value)
    assert "bus init" in caught.value.next_action


def test_a_project_name_that_could_climb_out_is_refused() -> None:
    """A project is a folder and a subject token, so it must be an id."""
    with pytest.raises(LocalError, match="not a valid id"):
        check_projects(("../other",))


@pytest.mark.parametrize(("used", "warns"), [(0, False), (69, False), (70, True), (100, True)])
def test_a_log_that_fills_up_warns_well_before(used: int, warns: bool) -> None:  # noqa: FBT001 a table
    """From 70 % on, the status says what will happen and what to do."""
    room = LogRoom(events=1, bytes=used, max_bytes=100)
    assert bool(room.warning) == warns
    assert not warns or "bus apply --update" in room.warning


def test_an_existing_home_is_tightened(tmp_path: Path) -> None:
    """What an earlier version left open is closed at the next start; a group may be let in, but never to the keys."""
    home = Home(tmp_path / "home")
    before = os.umask(0)
    try:
        home.make()
        home.store("ingest").parent.mkdir(parents=True)
        files = (home.record, home.store("ingest"), home.nats_config)
        for file in files:
            file.write_text("x")
        home.keys.chmod(0o755)
        make_private(home, 0o027)
        assert {file.stat().st_mode & 0o777 for file in (*files, home.logs, home.jobs)} == {0o640, 0o750}
        assert home.root.stat().st_mode & 0o777 == 0o750
        assert home.keys.stat().st_mode & 0o777 == 0o700
        make_private(home, 0o077)
        assert {path.stat().st_mode & 0o077 for path in (home.root, *files)} == {0}
        (home.root / "new").touch()
        assert (home.root / "new").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
