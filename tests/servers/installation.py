"""A whole installation in a home folder of its own: what `forebay up` starts, ended by what `forebay down` does."""

from __future__ import annotations

import asyncio
import json
import sys
import sysconfig
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.contracts.parts import SERVICES, Part, Source
from forebay.local import launch
from forebay.local.home import ChildRecord, Home, Record, read_record
from forebay.runtime.client import Client
from forebay.runtime.settings import environment

UP_WITHIN_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One finished command of the public CLI."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Installation:
    """One running installation."""

    home: Home

    def record(self) -> Record:
        found = read_record(self.home)
        assert found is not None, "local.json cannot be read"
        return found

    def child(self, name: str) -> ChildRecord:
        found = self.record().child(name)
        assert found is not None, f"{name} is not supervised"
        return found

    def services(self) -> list[ChildRecord]:
        return [child for part in SERVICES if (child := self.record().child(part)) is not None]

    async def cli(self, *arguments: str) -> Ran:
        """Run `forebay …` as a person would, with this home."""
        program = str(Path(sysconfig.get_path("scripts")) / "forebay")
        inherited = {name: value for name, value in environment().items() if not name.startswith("FOREBAY_")}
        process = await asyncio.create_subprocess_exec(
            program,
            *arguments,
            env=inherited | {"FOREBAY_HOME": str(self.home.root), "COLUMNS": "200"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ran(code=process.returncode or 0, out=out.decode(), err=err.decode())

    @asynccontextmanager
    async def operator(self) -> AsyncIterator[Client]:
        """A connection that comes back by itself after an outage."""
        source = Source(Part.OPERATOR)
        async with Client.connect(
            self.record().nats_url, self.home.key(str(source.part)), source, retry=True
        ) as client:
            yield client


@asynccontextmanager
async def installation(folder: Path, projects: Sequence[str], *, juicefs: bool = False) -> AsyncIterator[Installation]:
    """Start everything, wait until it is healthy, and leave nothing behind."""
    home = Home(folder)
    home.make()
    supervisor = launch.start(home, projects, juicefs=juicefs)
    try:
        await asyncio.to_thread(launch.wait_until_ready, home, supervisor, within=UP_WITHIN_S, seen=lambda _: None)
        yield Installation(home)
    except BaseException:
        sys.stderr.write(_last_words(home))
        raise
    finally:
        await asyncio.to_thread(launch.stop, home, seen=lambda _: None)
        await asyncio.to_thread(supervisor.wait, UP_WITHIN_S)


def _last_words(home: Home) -> str:
    """The ends of all logs, for whoever reads why a test failed."""
    found = []
    for file in sorted(home.logs.glob("*.log")):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        found.append("\n".join([f"--- {file.name}", *lines, ""]))
    return "".join(found)
