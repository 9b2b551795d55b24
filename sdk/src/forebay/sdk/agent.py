"""The in-pod agent: stands beside one training command, from preflight to exit code.

Started by the scheduler as `forebay run -- CMD`. It never holds the job back for
the bus: while the bus is down the command runs and events wait on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from forebay.contracts.body import EventBody
from forebay.contracts.envelope import Event
from forebay.contracts.identifiers import stable_id
from forebay.contracts.parts import Part, Source
from forebay.contracts.reasons import Reason
from forebay.contracts.v1.cache import DatasetAccessed
from forebay.contracts.v1.jobs import PreflightCheck, PreflightReported
from forebay.runtime.disk_room import is_disk_full, look
from forebay.runtime.errors import Unreachable
from forebay.sdk.accesses import Accesses
from forebay.sdk.announcing import SaveAnnouncer
from forebay.sdk.attempt_files import AttemptFolder, Exit
from forebay.sdk.checkpoints import CheckpointWatcher
from forebay.sdk.errors import ForebayError
from forebay.sdk.inputs import Inputs, read_inputs
from forebay.sdk.link import BusLink
from forebay.sdk.memory_kills import memory_kills
from forebay.sdk.outbox import outbox_of
from forebay.sdk.preflight import Surroundings, run_preflight, try_writing
from forebay.sdk.resume import ResumePoint, ask_resume_point
from forebay.sdk.settings import JobSettings

_log = logging.getLogger(__name__)
T = TypeVar("T")
ALREADY_TAKEN = 75
"""Exit code of a second agent on the same attempt."""
NOT_STARTED = 78
"""Exit code when the command was never started."""
_POLL_S = 0.5


class NotStarted(Exception):  # noqa: N818 not an error of the agent: a decision with its reason
    """The command must not be started."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Agent:
    """One attempt of one job."""

    def __init__(self, settings: JobSettings, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._command = tuple(command)
        self._environment = dict(environment)
        self._source = Source(Part.AGENT, settings.project)
        self._files = AttemptFolder(settings.attempt_dir)
        self._link = BusLink(settings.nats_url, settings.nkey_file, outbox_of(settings.home, self._source))
        watcher = CheckpointWatcher(settings.output / "checkpoints")
        self._saves = SaveAnnouncer(watcher, self._files, settings.job, self._say)
        self._accesses: list[DatasetAccessed] = []
        """Not in the outbox yet."""
        self._process: asyncio.subprocess.Process | None = None
        self._stopping: signal.Signals | None = None

    async def run(self) -> int:
        """Run the attempt; returns the exit code of the agent's process."""
        if not await self._until_there_is_room(self._files.take):
            _log.error("%s has an agent already; this one leaves", self._settings.attempt_dir)
            return ALREADY_TAKEN
        await self._until_there_is_room(partial(self._files.write_process, "preflight"))
        async with self._link:
            delivery = asyncio.create_task(self._link.deliver_for_ever())
            attempt = asyncio.create_task(self._attempt())
            try:
                with self._signals(attempt):
                    ended = await self._end_of(attempt)
            finally:
                delivery.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await delivery
            await self._deliver_rest()
        # Nobody else knows how it ended, so this waits for room however long that takes.
        await self._until_there_is_room(partial(self._files.write_exit, ended))
        with contextlib.suppress(OSError):
            self._files.write_process("ended")
        return _exit_code(ended)

    async def _until_there_is_room(self, write: Callable[[], T]) -> T:
        """Write, and again as long as the disk is full."""
        told = False
        while True:
            try:
                return write()
            except OSError as error:
                if not is_disk_full(error):
                    raise
                if not told:
                    _log.warning("the disk is full (%s); waiting for room", error)
                told = True
            await asyncio.sleep(_POLL_S)

    async def _end_of(self, attempt: asyncio.Task[Exit]) -> Exit:
        """Wait for the attempt; whatever kept the command from starting becomes the attempt's end."""
        try:
            return await attempt
        except NotStarted as no:
            reason, message = no.reason, no.message
        except ForebayError as error:
            reason, message = Reason.START_FAILED, str(error)
        except asyncio.CancelledError:
            reason, message = Reason.STOPPED, "the attempt was stopped before its command was started"
        _log.error("%s", message)
        return Exit(reason=reason, message=message, ran=False)

    @contextlib.contextmanager
    def _signals(self, attempt: asyncio.Task[Exit]) -> Iterator[None]:
        """Pass SIGTERM and SIGINT on to the command, or end the attempt that has not started it."""
        loop = asyncio.get_running_loop()

        def told(received: signal.Signals) -> None:
            self._stopping = received
            if self._process is None:
                attempt.cancel()
            elif self._process.returncode is None:
                # Not send_signal: it would reap a command that has just died, and its exit would be lost.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, received)

        for received in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(received, told, received)
        try:
            yield
        finally:
            for received in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(received)

    async def _attempt(self) -> Exit:
        """1 announce older saves, 2 check, 3 ask where to continue, 4 run, 5 announce the last saves."""
        inputs = read_inputs(self._settings.inputs)
        self._saves.compatibility = inputs.compatibility
        await self._announce_all(max(1, self._settings.attempt - 1))
        await self._preflight(inputs)
        point = await self._resume_point(inputs)
        ended = await self._run_command(point, Accesses(self._settings.job, inputs.inputs))
        await self._announce_all(self._settings.attempt)
        return ended

    async def _announce_all(self, attempt: int) -> None:
        """Every complete save; what a full disk kept out of the outbox is found again."""
        while not await self._announce(attempt, final=True):
            await asyncio.sleep(_POLL_S)

    async def _announce(self, attempt: int, *, final: bool = False) -> bool:
        """False: the disk is full, and something is still to be said."""
        try:
            await self._saves.announce(attempt, final=final)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return False
        return True

    async def _preflight(self, inputs: Inputs) -> None:
        started = time.perf_counter()
        try:
            await self._link.client()
            problem = None
        except Unreachable as error:
            problem = error.message
        around = Surroundings(
            output=self._settings.output,
            free_bytes=self._settings.free_bytes,
            environment=self._environment,
            bus_problem=problem,
            home=self._settings.home,
        )
        checks = await asyncio.to_thread(run_preflight, inputs, self._command, around)
        for check in checks:
            _log.info("preflight %s: %s: %s", check.status, check.name, check.message)
        body = PreflightReported(
            job=self._settings.job,
            attempt=self._settings.attempt,
            checks=checks,
            seconds=round(time.perf_counter() - started, 3),
        )
        await self._until_there_is_room(partial(self._say, body, self._settings.job, self._settings.attempt))
        if failed := [check for check in checks if check.status == "fail"]:
            raise NotStarted(_decisive(failed), _sentence(failed))

    async def _resume_point(self, inputs: Inputs) -> ResumePoint:
        await self._link.drain(self._settings.bus_deadline_s)
        point = await ask_resume_point(self._link, self._settings, inputs)
        for reason in point.reasons:
            _log.info("resume point (%s): %s", point.mode, reason)
        if point.mode == "refused":
            message = "; ".join(point.reasons) or "no usable checkpoint exists and a cold start was not allowed"
            raise NotStarted(Reason.RESUME_REFUSED, message)
        return point

    async def _run_command(self, point: ResumePoint, accesses: Accesses) -> Exit:
        environment = self._environment | {"PYTHONUNBUFFERED": "1"} | point.environment()
        _log.info("starting: %s", shlex.join(self._command))
        kills = memory_kills()
        try:
            process = await asyncio.create_subprocess_exec(*self._command, env=environment)
        except OSError as error:
            message = f"{self._command[0]} could not be started: {error.strerror}"
            raise NotStarted(Reason.START_FAILED, message) from error
        self._process = process
        self._write_running(process.pid)
        while process.returncode is None:
            self._say_accesses(accesses)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await process.wait()
            if self._files.behind:
                self._write_running(process.pid)
            await self._announce(self._settings.attempt)
        ended = _judge(process.returncode, self._stopping, out_of_memory=memory_kills() > kills)
        return await asyncio.to_thread(self._blame_full_disk, ended)

    def _write_running(self, pid: int) -> None:
        """A command that runs is not ended because its number cannot be written down now."""
        try:
            self._files.write_process("running", pid)
        except OSError as error:
            _log.warning("process.json is not written: %s", error)

    def _blame_full_disk(self, ended: Exit) -> Exit:
        """A command that failed while its output folder takes no bytes did not fail of itself."""
        # SIGBUS is how a full disk ends whoever writes into mapped memory; other signals come from outside.
        killed = ended.signal not in {None, signal.SIGBUS}
        if ended.exit_code == 0 or killed or ended.reason == Reason.OUT_OF_MEMORY:
            return ended
        output = self._settings.output
        try:
            try_writing(output / f".forebay-probe-{os.getpid()}")
        except OSError as error:
            if is_disk_full(error):
                room = look("output", output)
                message = f"{ended.message}; the disk is full" + (f": {room.figures}" if room else "")
                return replace(ended, reason=Reason.DISK_FULL, message=message)
        return ended

    def _say_accesses(self, accesses: Accesses) -> None:
        """Once a day per version, for as long as the command runs."""
        self._accesses += accesses.on(datetime.now(UTC).date())
        while self._accesses:
            body = self._accesses[0]
            try:
                self._say(body, body.job, body.kind, body.name, body.number, body.day)
            except OSError as error:
                if not is_disk_full(error):
                    raise
                return  # with the next look
            del self._accesses[0]

    def _say(self, body: EventBody, *identity: object) -> None:
        event_id = stable_id(body.event, self._settings.project, *identity)
        event: Event[EventBody] = Event(
            id=event_id, source=self._source, project=self._settings.project, body=body, correlation=self._settings.job
        )
        self._link.outbox.append([event])
        self._link.wake()

    async def _deliver_rest(self) -> None:
        left = await self._link.drain(self._settings.bus_deadline_s)
        if left:
            where = self._link.outbox.folder
            _log.warning("%d events could not be delivered; they wait in %s for the next `forebay run`", left, where)


def _sentence(failed: Sequence[PreflightCheck]) -> str:
    return "; ".join(f"{check.name}: {check.message}" for check in failed)


_PASSING = {Reason.OUTPUT_FULL: Reason.DISK_FULL, Reason.DATA_NOT_MOUNTED: Reason.DATA_NOT_MOUNTED}
"""Failed checks that a later attempt may pass -> how the attempt ends when nothing else is wrong."""


def _decisive(failed: Sequence[PreflightCheck]) -> Reason:
    """What every later attempt would meet again decides; else what may pass."""
    passing = [_PASSING.get(check.reason, Reason.PREFLIGHT_FAILED) for check in failed]
    return Reason.PREFLIGHT_FAILED if Reason.PREFLIGHT_FAILED in passing else passing[0]


def _judge(code: int, stopped: signal.Signals | None, *, out_of_memory: bool) -> Exit:
    """Put the end of the command into words."""
    if code >= 0:
        message = f"the command ended with exit code {code}"
        reason = Reason.PROCESS_FAILED if code else Reason.COMPLETED
        if stopped is not None:
            reason, message = Reason.STOPPED, f"{message} after the attempt was stopped with {stopped.name}"
        return Exit(exit_code=code, reason=reason, message=message, ran=True)
    name = signal.Signals(-code).name
    if out_of_memory:
        message = f"the kernel ended the command ({name}) because memory ran out"
        return Exit(signal=-code, reason=Reason.OUT_OF_MEMORY, message=message, ran=True)
    if stopped is not None:
        message = f"the command was ended by {name} after the attempt was stopped with {stopped.name}"
        return Exit(signal=-code, reason=Reason.STOPPED, message=message, ran=True)
    return Exit(
        signal=-code, reason=Reason.PROCESS_KILLED, message=f"the command was ended by {name} from outside", ran=True
    )


def _exit_code(ended: Exit) -> int:
    if not ended.ran:
        return NOT_STARTED
    return ended.exit_code if ended.exit_code is not None else 128 + (ended.signal or 0)


async def run_agent(settings: JobSettings, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one attempt from the lock to the exit file."""
    return await Agent(settings, command, environment).run()
