"""The process behind `forebay up`: starts everything in order, keeps it running, takes it down again.

Run detached as `python -m forebay.local.supervisor`. It alone writes `local.json`;
`up`, `status` and the CLI read it. A lock on the home folder makes sure that there
is only one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import http.client
import json
import logging
import os
import signal
import sys
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from forebay.contracts.parts import SERVICES, Part, Source
from forebay.contracts.permissions import identity_of
from forebay.local import attempts, identities, pool
from forebay.local.bus import Bus
from forebay.local.bus_probe import BusProbe, BusRevival
from forebay.local.children import Child
from forebay.local.disks import disks, pool_disk, problems
from forebay.local.errors import LocalError
from forebay.local.home import Home, Record, free_port, process_id, read_record, write_record
from forebay.local.privacy import make_private, tighten_pool
from forebay.local.settings import LocalSettings, load
from forebay.runtime.errors import Refused, RuntimeFailure, SettingsError
from forebay.runtime.log_lines import log_to_stderr
from forebay.runtime.settings import environment
from forebay.runtime.terminal import print_line

_log = logging.getLogger("forebay.local.supervisor")
NATS = "nats-server"
POOL = "juicefs"
_WAIT_S = 60.0
_TRIES = 5
_CALM_S = 2.0
_EAGER_S = 0.2
_ROTATE_EVERY = 10


class Supervisor:
    """One installation while it runs."""

    def __init__(self, settings: LocalSettings, projects: list[str], *, juicefs: bool) -> None:
        self._settings = settings
        self._home = Home(settings.home)
        self._bus = Bus(self._home, settings)
        before = read_record(self._home)
        self._plan = pool.decide(self._home, before, juicefs=juicefs)
        port = free_port(before.nats_port if before else 0)
        made = self._bus.init(projects, port=port)
        me = process_id(os.getpid())
        self._record = Record(
            nats_port=port,
            nats_url=f"nats://127.0.0.1:{port}",
            projects=list(made.projects),
            pool_dir=str(self._home.pool),
            pool_kind=self._plan.kind,
            pool_note=self._plan.note,
            pool_meta=self._plan.meta,
            disk_floor_bytes=settings.disk_floor_bytes,
            supervisor_pid=me.pid,
            supervisor_start=me.start,
        )
        self._children: list[Child] = []
        self._bus_probe = BusProbe(self._record.nats_url, self._home.key(identity_of(Source(Part.ADMIN))))
        self._bus_revival = BusRevival(self._bus_probe, self._home.nats)
        self._unsaved = False
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Until told to stop; raises when something that everything needs does not come up."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reread_projects)
        try:
            await self._start()
            await self._watch()
        except (RuntimeFailure, OSError) as error:
            advice = error.next_action if isinstance(error, Refused) else ""
            await self._shut_down()
            self._phase("failed", f"{error}" + (f"; {advice}" if advice else ""))
            raise
        await self._shut_down()
        self._phase("stopped")

    async def _start(self) -> None:
        self._phase("bus")
        nats = self._add(NATS, self._bus.command(), self._bus_probe)
        nats.start()
        await self._until_healthy(nats)
        self._phase("streams")
        for item in await self._bus.apply(self._record.nats_url):
            if item.action == "differs":
                _log.warning("%s differs from contracts: %s", item.name, "; ".join(item.differences))
        self._bus_probe.publishes = True
        self._phase("pool")
        await asyncio.to_thread(pool.prepare, self._home, self._plan)
        if self._plan.tools is not None:
            command = pool.mount_command(self._home, self._plan, cache_bytes=self._settings.pool_cache_bytes)
            mount = self._add(POOL, command, self._pool_is_mounted, prepare=self._clear_mountpoint)
            mount.start()
            await self._until_healthy(mount)
            await asyncio.to_thread(tighten_pool, self._home, self._settings.umask_bits)
        self._phase("services")
        for part in SERVICES:
            self._add_service(part).start()

    def _add_service(self, part: Part) -> Child:
        port = free_port()
        module = f"forebay.{part.replace('-', '_')}"
        added = {
            "FOREBAY_HOME": str(self._home.root),
            "FOREBAY_NATS_URL": self._record.nats_url,
            "FOREBAY_NKEY_FILE": str(self._home.key(identity_of(Source(part)))),
            "FOREBAY_STORE": str(self._home.store(part)),
            "FOREBAY_HEALTH_PORT": str(port),
            "FOREBAY_POOL": str(self._home.pool),
            "FOREBAY_POOL_KIND": self._record.pool_kind,
            "FOREBAY_POOL_CACHE": str(self._home.pool_cache),
            "FOREBAY_POOL_META": self._record.pool_meta,
            "FOREBAY_POOL_LOG": str(self._home.logs / f"{POOL}.log"),
            "FOREBAY_POOL_DISK": str(pool_disk(self._home, self._record.pool_kind)),
            "FOREBAY_DISK_FLOOR_BYTES": str(self._settings.disk_floor_bytes),
            "FOREBAY_UMASK": self._settings.umask,
        }
        self._home.store(part).parent.mkdir(parents=True, exist_ok=True)
        probe = ServiceProbe(port)
        command = [sys.executable, "-m", module]
        return self._add(part, command, probe, added=added, health_port=port, problems=lambda: probe.problems)

    def _add(
        self,
        name: str,
        command: list[str],
        probe: Callable[[], Awaitable[str]],
        *,
        prepare: Callable[[], Awaitable[None]] | None = None,
        added: dict[str, str] | None = None,
        health_port: int = 0,
        problems: Callable[[], list[str]] = list,
    ) -> Child:
        child = Child(
            str(name),
            command,
            environment={**_environment(), **(added or {})},
            log=self._home.logs / f"{name}.log",
            probe=probe,
            prepare=prepare,
            changed=self._save,
            health_port=health_port,
            problems=problems,
        )
        self._children.append(child)
        self._record.children = [item.record for item in self._children]
        return child

    async def _until_healthy(self, child: Child) -> None:
        """Wait for what everything else needs; a process that ends again and again will not come up by waiting."""
        deadline = asyncio.get_running_loop().time() + _WAIT_S
        while not await child.check():
            if self._stop.is_set():
                return
            if asyncio.get_running_loop().time() > deadline or child.record.restarts >= _TRIES:
                full = problems(disks(self._home, self._record))
                why = [f"{child.record.note or 'no answer'}{child.last_words()}", *full]
                msg = f"{child.record.name} does not come up: {'; '.join(why)}"
                raise LocalError(msg, f"see {self._home.logs / child.record.name}.log", code="start")
            await self._pause(_EAGER_S)

    async def _watch(self) -> None:
        turn = 0
        while not self._stop.is_set():
            healthy = await asyncio.gather(*(child.check() for child in self._children))
            if all(healthy):
                self._phase("ready")
            if self._unsaved:
                self._save()
            await self._bus_revival.look(self._children[0])
            await self._pause(_CALM_S if all(healthy) else _EAGER_S)
            turn += 1
            if turn % _ROTATE_EVERY == 0:
                for child in self._children:
                    child.rotate(self._settings.log_file_bytes)

    async def _shut_down(self) -> None:
        """Services first, so that nobody starts an attempt again; the bus last, so that last words are heard."""
        self._phase("stopping")
        first = [child for child in self._children if child.record.name not in {NATS, POOL}]
        await asyncio.gather(*(child.stop() for child in first))
        alive = await asyncio.to_thread(attempts.live_attempts, self._home)
        if alive:
            _log.warning("ending training attempts that still run: %s", ", ".join(map(str, alive)))
            await asyncio.to_thread(attempts.stop, alive)
        for name in (POOL, NATS):
            for child in self._children:
                if child.record.name == name:
                    await child.stop()
        await self._bus_probe.close()
        await asyncio.to_thread(pool.unmount, self._home, self._record)

    def _reread_projects(self) -> None:
        """`forebay bus init` made keys for another project while we run."""
        self._record.projects = list(identities.known_projects(self._home))
        self._save()

    async def _pool_is_mounted(self) -> str:
        assert self._plan.tools is not None  # noqa: S101 only a JuiceFS pool has this probe
        mounted = await asyncio.to_thread(self._plan.tools.is_mounted, self._home.pool)
        return "" if mounted else f"{self._home.pool} is not mounted"

    async def _clear_mountpoint(self) -> None:
        assert self._plan.tools is not None  # noqa: S101 only a JuiceFS pool has this step
        await asyncio.to_thread(self._plan.tools.unmount, self._home.pool)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _phase(self, phase: str, message: str = "") -> None:
        if (self._record.phase, self._record.message) != (phase, message):
            _log.info("phase %s %s", phase, message)
            self._record.phase, self._record.message = phase, message
            self._save()

    def _save(self) -> None:
        """Write the record, or later when the disk does not take it: what runs does not depend on it."""
        try:
            write_record(self._home, self._record)
        except OSError as error:
            if not self._unsaved:
                _log.warning("the record %s is not written: %s", self._home.record, error)
            self._unsaved = True
        else:
            self._unsaved = False


def _environment() -> dict[str, str]:
    """Ours, with this interpreter's programs first: `python` in a job is the one that everything was installed into."""
    programs = sysconfig.get_path("scripts")
    inherited = environment()
    path = os.pathsep.join([programs, *filter(None, [inherited.get("PATH")])])
    return {**inherited, "PATH": path, "PYTHONUNBUFFERED": "1"}


class ServiceProbe:
    """Asks a service whether it is ready, and keeps what it says a person should look at."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.problems: list[str] = []

    async def __call__(self) -> str:
        """What `/readyz` says is missing; "" when nothing is."""
        return await asyncio.to_thread(self._ask)

    def _ask(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError):
            return "does not answer yet"
        finally:
            connection.close()
        self.problems = [str(one) for one in body.get("problems") or ()]
        if answer.status == http.HTTPStatus.OK:
            return ""
        return str(body.get("trouble") or "; ".join(self.problems) or body.get("phase") or "not ready")


def lock(home: Home) -> IO[str] | None:
    """Hold the home folder; None when another supervisor does."""
    file = (home.root / "supervisor.lock").open("w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def main() -> None:
    """The detached process's entry."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--project", action="append", default=[])
    parser.add_argument("--no-juicefs", action="store_true")
    given = parser.parse_args()
    log_to_stderr("INFO", "%(asctime)s %(levelname)s %(message)s")
    try:
        settings = load().model_copy(update={"home": given.home})
        home = Home(settings.home)
        os.umask(settings.umask_bits)
        home.make()
        make_private(home, settings.umask_bits)
        held = lock(home)
        if held is None:
            print_line(f"another supervisor holds {home.root}", stderr=True)
            sys.exit(1)
        with held:
            asyncio.run(_run(settings, given.project, juicefs=not given.no_juicefs))
    except (Refused, SettingsError, OSError) as error:
        _log.error("%s", error)
        sys.exit(1)


async def _run(settings: LocalSettings, projects: list[str], *, juicefs: bool) -> None:
    await Supervisor(settings, projects, juicefs=juicefs).run()


if __name__ == "__main__":
    main()
