"""The bus of one home folder: its keys, its configuration file, its command line, its streams."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from forebay.contracts.parts import Part, Source
from forebay.contracts.permissions import identity_of, permission_of, permissions
from forebay.contracts.subjects import EVENT_ROOT, STREAM
from forebay.local import identities, nats_config, streams_apply
from forebay.local.errors import LocalError, StartError
from forebay.local.home import Home, ProcessId
from forebay.local.settings import ALWAYS, LocalSettings
from forebay.runtime.connection import connect
from forebay.runtime.errors import Unreachable

_RELOADS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialised:
    """What `bus init` made."""

    projects: tuple[str, ...]
    new_identities: tuple[str, ...]
    changed: bool
    """The configuration file is another than before."""


class Bus:
    """Everything `forebay bus` does, for one home."""

    def __init__(self, home: Home, settings: LocalSettings) -> None:
        self._home = home
        self._settings = settings

    def init(self, projects: Sequence[str], *, port: int) -> Initialised:
        """Make keys and configuration; projects that exist stay, and so do their keys."""
        wanted = identities.check_projects((*projects, *identities.known_projects(self._home)))
        self._home.make()
        allowed = permissions(wanted)
        public, made = identities.ensure_keys(self._home, allowed)
        text = nats_config.render(
            allowed,
            public,
            issuer=identities.ensure_issuer(self._home) if self._settings.bus_pods else None,
            port=port,
            store_dir=self._home.nats,
            max_store_bytes=self._settings.log_max_bytes * 5 // 4,
            sync_interval=self._settings.sync_interval,
        )
        target = self._home.nats_config
        changed = not target.exists() or target.read_text(encoding="utf-8") != text
        if changed:
            draft = target.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(text, encoding="utf-8")
            draft.replace(target)
        return Initialised(projects=wanted, new_identities=tuple(made), changed=changed)

    def command(self) -> list[str]:
        """How to start the server. Raises `LocalError` when its program is not installed."""
        return [find_program("nats-server"), "-c", str(self._home.nats_config)]

    async def apply(self, url: str, *, update: bool = False) -> list[streams_apply.Applied]:
        """Make or check streams and durables with the admin's key."""
        admin = self._home.key(identity_of(Source(Part.ADMIN)))
        return await streams_apply.apply(url, admin, update=update, max_bytes=self._settings.log_max_bytes)

    async def reload(self, url: str, server: ProcessId, projects: Sequence[str]) -> None:
        """Let a running server take in the new configuration, and see that it did.

        One reload makes a new account known but leaves its imports unlinked; the
        next one links them (nats-server 2.15). So the new identity is tried, and the
        server told again until the identity is heard. Where pods connect, the list of
        keys about which it asks nobody is read at its start only.
        """
        if self._settings.bus_pods:
            msg = "a server that admits pods takes in new projects only when it starts"
            raise StartError(msg, "restart everything with: forebay down && forebay up")
        for _ in range(_RELOADS):
            process = server.process()
            if process is None:
                msg = "nats-server is not running any more"
                raise StartError(msg, "start everything with: forebay up")
            process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.3)
            if all([await self._is_heard(url, Source(Part.COLLECTOR, project)) for project in projects]):
                return
        msg = f"nats-server does not take in the new projects ({', '.join(projects)})"
        raise StartError(msg, "restart everything with: forebay down && forebay up")

    async def _is_heard(self, url: str, source: Source) -> bool:
        from nats.errors import Error as NatsError  # noqa: PLC0415 the CLI's help must not pay for it

        question = next(
            subject for subject in permission_of(source).publish if f"{STREAM}.{EVENT_ROOT}." in subject
        ).replace("*", "none")
        try:
            client = await connect(url, source, self._home.key(identity_of(source)))
            try:
                await client.request(question, b"", timeout=1)
            finally:
                await client.close()
        except (NatsError, StartError, TimeoutError, Unreachable):
            return False
        return True


def acknowledged(home: Home) -> str:
    """What an acknowledgement means with the configuration that this home's server has, for people."""
    try:
        interval = str(json.loads(home.nats_config.read_text(encoding="utf-8"))["jetstream"]["sync_interval"])
    except (OSError, ValueError, KeyError, TypeError):
        return "its configuration cannot be read"
    if interval == ALWAYS:
        return "an acknowledged event is on the disk (fsync)"
    return f"a power cut loses up to {interval} of acknowledged events (FOREBAY_SYNC_INTERVAL)"


def find_program(name: str) -> str:
    """The program beside this interpreter, else on the PATH."""
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.is_file() else which(name)
    if found is None:
        msg = f"the program {name} is not installed"
        raise LocalError(msg, "install everything with: make setup")
    return found
