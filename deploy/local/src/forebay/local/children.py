"""One supervised process: started again when it dies, with a growing pause; its whole group ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from forebay.local.home import ChildRecord, process_id

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
GRACE_S = 10.0

Changed = Callable[[], None]
Prepare = Callable[[], Awaitable[None]]
Probe = Callable[[], Awaitable[str]]
"""Answers "" when healthy, else what is missing."""


class Child:
    """Runs one command for as long as it is wanted. `record` is what others see of it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        probe: Probe,
        changed: Changed,
        prepare: Prepare | None = None,
        health_port: int = 0,
        problems: Callable[[], list[str]] = list,
    ) -> None:
        self.record = ChildRecord(name=name, health_port=health_port)
        self._command = list(command)
        self._environment = dict(environment)
        self._log = log
        self._probe = probe
        self._changed = changed
        self._prepare = prepare
        self._problems = problems
        self._was_healthy = False
        self._stop = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name=self.record.name)

    async def _keep(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stop.is_set():
            self._was_healthy = False
            code = await self._run_once()
            if self._stop.is_set():
                break
            if self._was_healthy:
                # It worked, so whatever ended it came from outside: back at once.
                pause = FIRST_PAUSE_S
            self._set("backoff", f"{_ended(code)}; starting again")
            self.record.restarts += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            pause = min(pause * 2, LONGEST_PAUSE_S)
        self._set("stopped", "")

    async def _run_once(self) -> int | None:
        try:
            if self._prepare is not None:
                await self._prepare()
            with self._output() as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
        except Exception as error:  # noqa: BLE001 whatever keeps it from starting may pass; the record says what it was
            self._set("backoff", f"cannot start: {error}")
            return None
        with contextlib.suppress(Exception):  # it may have ended already, which wait() tells
            identity = process_id(self._process.pid)
            self.record.pid, self.record.start = identity.pid, identity.start
        self._set("starting", "")
        code = await self._process.wait()
        kill_group(self._process.pid)
        return code

    def _output(self) -> IO[bytes]:
        """Its log file, or nowhere when that cannot be opened: a process without a log is better than none."""
        try:
            return self._log.open("ab")
        except OSError:
            return Path(os.devnull).open("ab")

    async def check(self) -> bool:
        """Ask the process how it is; returns whether it is healthy."""
        if self.record.state in {"waiting", "backoff", "stopped"}:
            return False
        try:
            async with asyncio.timeout(5):
                missing = await self._probe()
        except TimeoutError:
            missing = "does not answer"
        except OSError as error:  # it took the connection and died before it answered
            missing = f"does not answer ({error.strerror or error})"
        except Exception as error:  # noqa: BLE001 supervision must not fall over what it supervises
            missing = f"its probe failed ({type(error).__name__}: {error})"
        if self.record.state in {"backoff", "stopped"}:
            return False  # it died while we asked
        if (problems := self._problems()) != self.record.problems:
            self.record.problems = problems
            self._changed()
        if missing:
            self._set("unhealthy" if self.record.state in {"healthy", "unhealthy"} else "starting", missing)
        else:
            self._was_healthy = True
            self._set("healthy", "")
        return not missing

    async def restart(self, *, grace_s: float = GRACE_S) -> None:
        """End the process, so that it is started again at once."""
        await self._end(grace_s)

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """Ask it to end, insist after a while, and take its group with it."""
        self._stop.set()
        await self._end(grace_s)
        if self._task is not None:
            await self._task

    async def _end(self, grace_s: float) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(grace_s):
                    await process.wait()
            except TimeoutError:
                kill_group(process.pid)
                await process.wait()

    def last_words(self) -> str:
        """The last line of its log, to stand in an error message."""
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f" ({lines[-1].strip()[:300]})" if lines else ""

    def rotate(self, max_bytes: int) -> None:
        """Set the log aside when it has grown. Copied and cut, because the process keeps the file open."""
        with contextlib.suppress(OSError):  # no room for the copy: later, when there is
            if self._log.stat().st_size > max_bytes:
                shutil.copyfile(self._log, self._log.with_suffix(".log.1"))
                os.truncate(self._log, 0)

    def _set(self, state: str, note: str) -> None:
        if (self.record.state, self.record.note) != (state, note):
            self.record.state, self.record.note = state, note
            self._changed()


def kill_group(pid: int) -> None:
    """Kill what is left of a session that we started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _ended(code: int | None) -> str:
    if code is None:
        return "could not be started"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
