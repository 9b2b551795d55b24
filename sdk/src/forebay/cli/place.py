"""Where the installation is and who asks: from `local.json`, overridden by FOREBAY_* and options.

Every command that talks to services goes through `Place`.
"""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.contracts.parts import Part, Source

if TYPE_CHECKING:
    from forebay.runtime.client import Answer, Client

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One installation and the project that a command is about."""

    home: Path
    nats_url: str
    project: str
    projects: tuple[str, ...]
    pool_kind: str
    disk_floor: int | None = None
    """Bytes that stay free on each disk of this installation; None: it does not run on this machine."""

    def require_pool(self) -> None:
        """Raise `Unreachable` when files put into the pool now would be lost from sight later.

        A mount that comes up afterwards would hide them.
        """
        from forebay.runtime.errors import Unreachable  # noqa: PLC0415 help must not load it

        pool = self.home / "pool"
        there = pool.is_mount() if self.pool_kind == "juicefs" else pool.is_dir()
        if not there:
            what = "is not mounted" if self.pool_kind == "juicefs" else "does not exist"
            raise Unreachable(f"the data pool {pool} {what}", "start it with: forebay up")

    def require_room(self, doing: str, needed: Mapping[str, int] | None = None) -> None:
        """Raise `DiskFullError` with numbers when a disk of this installation has no room for something new.

        `needed` bytes by disk (`home`, `pool`, `bus`); the floor stays free for what is running.
        """
        from forebay.runtime.disk_room import DiskFullError, look  # noqa: PLC0415 help must not load it

        if self.disk_floor is None:
            return
        pool = "pool-objects" if self.pool_kind == "juicefs" else "pool"
        for what, folder in (("pool", pool), ("home", "."), ("bus", "nats")):
            room = look(what, (self.home / folder).resolve(), self.disk_floor)
            if room is not None and (missing := room.shortage((needed or {}).get(what, 0))):
                raise DiskFullError(
                    f"{doing} is refused: {missing}", "free space on that disk, then run the same command again"
                )

    def require_key(self, source: Source) -> None:
        """Raise `Refused` when this installation has keys, but none for the project."""
        from forebay.runtime.errors import Refused  # noqa: PLC0415

        key = self.key(source)
        if key is not None and not key.exists():
            known = ", ".join(self.projects) or "none"
            message = f"project {self.project} has no key here (projects: {known})"
            raise Refused("unknown-project", message, f"make one with: forebay bus init --project {self.project}")

    def key(self, source: Source) -> Path | None:
        """The key file of an identity; None for a server without keys (there is no keys folder)."""
        folder = self.home / "keys"
        name = f"{source.part}.{source.project}" if source.project else str(source.part)
        return folder / f"{name}.nk" if folder.is_dir() else None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A connection as the person at the command line. Raises `Unreachable`."""
        from forebay.runtime.client import Client  # noqa: PLC0415 help must not load the bus client

        operator = Source(Part.OPERATOR)
        async with Client.connect(self.nats_url, self.key(operator), operator) as client:
            yield client

    def ask(self, service: str, question: str, args: Mapping[str, Any], *, request_id: str | None = None) -> Any:
        """Ask one service one question, from a command that needs nothing else."""
        return self.answer(service, question, args, request_id=request_id).result

    def answer(self, service: str, question: str, args: Mapping[str, Any], *, request_id: str | None = None) -> Answer:
        """The same, with up to which event of the log the answer is true."""

        async def asked() -> Answer:
            async with self.client() as client:
                return await client.ask(service, self.project, question, args, id=request_id, by=person())

        return run_async(asked())


def find_place(project: str | None) -> Place:
    """Read the settings; the project is the option's, else FOREBAY_PROJECT, else the first known one."""
    from forebay.contracts.identifiers import check_id  # noqa: PLC0415
    from forebay.sdk.settings import place_settings  # noqa: PLC0415

    settings = place_settings()
    home = settings.home.expanduser().absolute()
    local = _local(home)
    projects = tuple(str(name) for name in local.get("projects", ()))
    chosen = project or settings.project or next(iter(projects), "default")
    url = settings.nats_url or str(local.get("nats_url") or "nats://127.0.0.1:4222")
    kind = str(local.get("pool_kind") or "folder")
    floor = local.get("disk_floor_bytes")
    return Place(
        home=home,
        nats_url=url,
        project=check_id(chosen),
        projects=projects,
        pool_kind=kind,
        disk_floor=floor if isinstance(floor, int) else None,
    )


def _local(home: Path) -> dict[str, Any]:
    try:
        found = json.loads((home / "local.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def person() -> str:
    """Who is at the keyboard, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def run_async(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)
