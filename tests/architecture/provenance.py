"""`make provenance`: what can be proved about programs that come as wheels, from sources that Go's checksum database vouches for.

Needs the Go module proxy and a few minutes. It compares the wheel of Go with the toolchain
of the same version, file by file, and builds nats-server anew with the packager's flags:
nothing may differ but the stamps that follow from the commit's hash.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SITE, SCRIPTS = Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("scripts"))
GO = SITE / "go/bin/go"
NATS = "github.com/nats-io/nats-server/v2"
STAMPS = 4096
"""The notes with the linker's build ids lie at the beginning of the file."""


def _go(*args: str, folder: Path, toolchain: str = "local") -> str:
    """Run Go against the checksum database, with nothing of this machine's settings."""
    own = {"GOTOOLCHAIN": toolchain, "GOFLAGS": "-modcacherw", "GOSUMDB": "sum.golang.org", "CGO_ENABLED": "0"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GOPATH": str(folder / "go")} | own  # noqa: TID251
    done = subprocess.run([GO, *args], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"go {' '.join(args)} failed: {done.stderr}")
    return done.stdout


def _module(name: str, folder: Path) -> Path:
    """A module's files, whose digest the checksum database has."""
    return Path(json.loads(_go("mod", "download", "-json", name, folder=folder))["Dir"])


def differing_go_files(folder: Path) -> list[str]:
    """Files of the Go wheel that the toolchain has with another content or not at all. go.mod has another name there."""
    version = (SITE / "go/VERSION").read_text(encoding="utf-8").split()[0]
    platform = _go("env", "GOOS", "GOARCH", folder=folder).split()
    toolchain = _module(f"golang.org/toolchain@v0.0.1-{version}.{platform[0]}-{platform[1]}", folder)
    ours = [path for path in (SITE / "go").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    found = []
    for path in ours:
        name = path.relative_to(SITE / "go")
        other = toolchain / (name.with_name("_go.mod") if name.name == "go.mod" else name)
        if name.parts[0] != "misc" and str(name) != "__init__.py" and not _same(path, other):
            found.append(str(name))
    return found


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def rebuilt_nats_differs(folder: Path) -> str | None:
    """Where the installed nats-server differs from one built now; None when only the stamps do."""
    installed = SCRIPTS / "nats-server"
    told = _go("version", "-m", str(installed), folder=folder)
    toolchain = told.split()[1]
    settings = dict(line.split("\t", 2)[2].split("=", 1) for line in told.splitlines() if line.startswith("\tbuild\t"))
    version = next(line.split("\t")[3] for line in told.splitlines() if line.startswith("\tmod\t"))
    source = folder / "source"
    shutil.copytree(_module(f"{NATS}@{version}", folder), source)
    commit = _commit(source, version, settings["vcs.time"])
    flags = f"-w -X '{NATS}/server.gitCommit=pypi' -X '{NATS}/server.serverVersion={version}'"
    made = folder / "nats-server"
    build = ("build", "-C", str(source), "-buildvcs=true", "-trimpath", f"-ldflags={flags}", "-o", str(made), ".")
    _go(*build, folder=folder, toolchain=toolchain)
    ours, theirs = made.read_bytes().replace(commit, settings["vcs.revision"].encode()), installed.read_bytes()
    if len(ours) != len(theirs):
        return f"it has {len(theirs)} bytes, built anew {len(ours)}"
    place = next((n for n in range(STAMPS, len(ours)) if ours[n] != theirs[n]), None)
    return None if place is None else f"byte {place} differs"


def _commit(source: Path, version: str, time: str) -> bytes:
    """Make the files a commit of that time and version, as the build stamps them."""
    git = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    environment = os.environ | {"GIT_AUTHOR_DATE": time, "GIT_COMMITTER_DATE": time}  # noqa: TID251
    for args in (["init", "-q"], ["add", "-Af"], ["commit", "-qm", version], ["tag", version]):
        subprocess.run([*git, *args], cwd=source, env=environment, check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], cwd=source, capture_output=True, check=True).stdout.strip()


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = differing_go_files(folder)
        nats = rebuilt_nats_differs(folder)
    sys.stdout.write(f"go: {'every file is that of the toolchain' if not files else f'{files} differ'}\n")
    sys.stdout.write(f"nats-server: {'only stamps differ from one built anew' if nats is None else nats}\n")
    return int(bool(files or nats))


if __name__ == "__main__":
    sys.exit(main())
